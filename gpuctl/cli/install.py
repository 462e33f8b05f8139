"""`gpuctl install`: the manifests that run gpuctl in a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from gpuctl import __version__
from gpuctl.cli.amounts import write_options
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.signatures import check_signers, signature_options, signer_texts
from gpuctl.cli.terminal import say
from gpuctl.diag.diagnostic import has_errors
from gpuctl.model.state import Body

_HOST = r"(?:[A-Za-z0-9][\w.-]*|\[[0-9a-fA-F:]+\])"
_REPOSITORY = re.compile(rf"(?:https|ssh)://(?:[\w.-]+@)?{_HOST}(?::[0-9]{{1,5}})?/\S+|[\w.]+@{_HOST}:[^-:\s]\S*")
_PATH = re.compile(r"(?![/-])(?!(?:.*/)?\.\.(?:/|$))\S+")
_IMAGE = re.compile(r"[a-z0-9][\w.:/@-]*", flags=re.ASCII)
_PREFIX = re.compile(r"([a-z0-9][a-z0-9-]{0,30})?")
_ROLE = re.compile(r"[A-Za-z0-9][\w.:-]*")


@command(
    "install",
    examples=(
        "gpuctl install --repo https://git.example.com/gpus.git --path clusters/tr4858 | kubectl apply -f -",
        "gpuctl install --repo git@git.example.com:gpus.git --path clusters/tr4858 --guard > gpuctl.yaml",
        "gpuctl install --repo git@git.example.com:gpus.git --path clusters/tr4858 --jobs 500 --nodes 20 > gpuctl.yaml",
    ),
)
@click.option("--repo", metavar="URL", required=True, help="The repository: an https or ssh URL, or USER@HOST:PATH.")
@click.option("--path", metavar="DIR", required=True, help="The cluster's folder in the repository.")
@click.option("--branch", help="The branch to follow. Default: the one the repository has checked out.")
@click.option("--image", default=f"gpuctl:{__version__}", show_default=True, help="Built with the Dockerfile.")
@click.option(
    "--cluster-prefix", default="gpu-", show_default=True, help="The cluster's namespacePrefix; it bounds the rights."
)
@click.option(
    "--access-role",
    "roles",
    metavar="ROLE",
    multiple=True,
    default=("admin", "edit", "view"),
    show_default=True,
    help="A ClusterRole that projects may grant. Repeatable.",
)
@click.option("--replicas", type=click.IntRange(min=1), default=2, show_default=True, help="One leads, others wait.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Declared jobs that the controller's memory limit has room for.",
)
@click.option(
    "--nodes",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=1_000,
    show_default=True,
    help="Nodes, each with 110 pods of any owner, that it has room for.",
)
@write_options
@click.option("--guard", is_flag=True, help="Add policies that make Git the only way to GPUs and their nodes.")
@click.option(
    "--policies",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="With --guard, have the API server check the policies of this folder too, where it can.",
)
@signature_options
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def install(output: str, **options: Any) -> None:
    """Print the manifests that run gpuctl in a cluster.

    The same bytes for the same options; nothing is sent anywhere. Credentials for Git belong in the Secret gpuctl-git,
    which is printed empty: its annotation has the command that fills it, with a deploy key for ssh or a token for
    https. Applying the manifests again keeps them. A public https repository needs none. Without --guard, standard
    error and the Deployment's description say what people can do without Git.

    The controller's memory limit follows from --jobs and --nodes: 256Mi, 48Ki a job and 480Ki a node; half of it is
    requested. The annotation of the Deployment says so.

    Policies of --policies become admission policies, where all that they read is in pods and workloads; standard error
    says which do not, and why. Print the manifests again when a policy has changed.
    """
    from gpuctl.install import UNGUARDED, Installation, all_objects  # noqa: PLC0415 - only now

    _check(options)
    rules = _rules(options.pop("policies"), is_guarded=options["guard"])
    check_signers(options)
    options |= {"verify": options.pop("verify_signatures"), **signer_texts(options)}
    options["namespace_prefix"] = options.pop("cluster_prefix")
    try:
        bodies = (*all_objects(Installation(**options)), *rules)
    except ValueError as error:
        raise Failure("GPU9002", f"--repo {options['repo']!r}: {error}", hint="gpuctl install --help") from error
    if not options["guard"]:
        say(f"note: {UNGUARDED}", err=True)
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": bodies})
        return
    for body in bodies:
        print_yaml(body)


def _rules(folder: str | None, *, is_guarded: bool) -> list[Body]:
    """The admission policies of a folder's policies; says which of them have none. Mistakes in them end the command."""
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415 - only now
    from gpuctl.compile.declarations import collect  # noqa: PLC0415
    from gpuctl.compile.policy import check_policies  # noqa: PLC0415
    from gpuctl.install.rules import GitAlone, admission_rules  # noqa: PLC0415
    from gpuctl.model.memo import Memo  # noqa: PLC0415

    if folder is None:
        return []
    if not is_guarded:
        raise Failure("GPU9002", "--policies is for an installation with --guard", hint="gpuctl install --help")
    declarations = collect(read_tree(folder), Memo())
    wrong = (*declarations.diagnostics, *check_policies(declarations, Memo(), Memo()))
    tell(wrong)
    if has_errors(wrong):
        raise click.exceptions.Exit(EXIT_FAILED)
    found = list(admission_rules(declarations.policies))
    for each in found:
        if isinstance(each, GitAlone):
            say(f"note: policy {each.policy} is checked in Git alone: {each.why}", err=True)
    return [each for each in found if not isinstance(each, GitAlone)]


def _check(options: Mapping[str, Any]) -> None:
    """Refuse values early that the API server, or the controller in its pod, would refuse later."""
    wrong = [
        (not _REPOSITORY.fullmatch(options["repo"]), f"--repo {options['repo']!r} is not an https or ssh URL"),
        (not _PATH.fullmatch(options["path"]), f"--path {options['path']!r} is not a folder inside a repository"),
        (not _PREFIX.fullmatch(options["cluster_prefix"]), "--cluster-prefix must be the beginning of a DNS label"),
        (not all(map(_ROLE.fullmatch, options["roles"])), "--access-role must name a ClusterRole"),
        (not _IMAGE.fullmatch(options["image"]), f"--image {options['image']!r} is not an image"),
    ]
    for is_wrong, text in wrong:
        if is_wrong:
            raise Failure("GPU9002", text, hint="gpuctl install --help")
