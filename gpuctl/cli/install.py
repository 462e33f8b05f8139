"""`gpuctl install`: the manifests that run gpuctl in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuctl import __version__
from gpuctl.cli.amounts import write_options
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.install_files import FIELDS, choices, option_of, write_base, write_chart, write_monitoring
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.signatures import check_signers, signature_options, signer_texts
from gpuctl.cli.terminal import say
from gpuctl.diag.diagnostic import has_errors
from gpuctl.model.state import Body

if TYPE_CHECKING:
    from gpuctl.install import Duties

_HELP = "gpuctl install --help"


@command(
    "install",
    examples=(
        "gpuctl install --repo git@git.example.com:gpus.git --path clusters/prod | kubectl apply --server-side -f -",
        "gpuctl install --repo git@git.example.com:gpus.git --path clusters/tr4858 --guard > gpuctl.yaml",
        "gpuctl install --repo git@git.example.com:gpus.git --path clusters/tr4858 --jobs 500 --nodes 20 > gpuctl.yaml",
        "gpuctl install --repo git@git.example.com:gpus.git --path clusters/tr4858 --context prod > gpuctl.yaml",
        "gpuctl install -o helm --dir chart",
    ),
)
@click.option("--repo", metavar="URL", help="The repository: an https or ssh URL, or USER@HOST:PATH.")
@click.option("--path", metavar="DIR", help="The cluster's folder in the repository.")
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
    help="Declared jobs that the controller's memory limit has room for; more are not accepted.",
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
@click.option(
    "--cluster",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Add the rights on the kinds that the Cluster in this folder declares in workloadKinds.",
)
@click.option(
    "--target", type=click.Choice(["kueue", "kai"]), help="For a cluster where this engine decides which jobs run."
)
@click.option(
    "--controller",
    "controllers",
    metavar="USER",
    multiple=True,
    help="A user that the control plane's own controllers are, where it is none of Kubernetes' own. Repeatable.",
)
@click.option(
    "--api-port",
    metavar="N",
    type=click.IntRange(1, 65_535),
    help="Where API servers listen, for the NetworkPolicy: `kubectl get endpoints kubernetes`. Default: 6443.",
)
@click.option(
    "--monitoring-namespace",
    metavar="NAME",
    default="monitoring",
    show_default=True,
    help="The only namespace that may read metrics; an empty one: all may.",
)
@click.option("--monitoring", is_flag=True, help="Add a ServiceMonitor and alerts, for the Prometheus operator.")
@click.option("--notify", is_flag=True, help="Notify the receivers in Secret gpuctl-notify: Slack, webhook, code host.")
@click.option(
    "--push-from",
    metavar="NAMESPACE",
    help="Receive webhooks of GitHub and GitLab from there: the namespace of your ingress controller.",
)
@click.option(
    "--dashboard", is_flag=True, help="Serve the dashboard to an authenticating proxy, as Service gpuctl-dashboard."
)
@click.option(
    "--proxy-namespace",
    metavar="NAME",
    default="ingress-nginx",
    show_default=True,
    help="The only namespace that may reach the dashboard: that of the proxy; an empty one: all may.",
)
@click.option("--utilisation-prometheus", metavar="URL", help="Read what GPUs do in this Prometheus: for idleTimeout.")
@click.option("--utilisation-match", metavar="MATCHERS", help="Only series with these labels: 'job=\"dcgm-exporter\"'.")
@click.option(
    "--utilisation-exporter", metavar="URL", help="Or in the DCGM exporters behind this name, of a headless Service."
)
@click.option(
    "--utilisation-port",
    metavar="N",
    type=click.IntRange(1, 65_535),
    default=9090,
    show_default=True,
    help="The port of either, for the NetworkPolicy: DCGM exporter has 9400.",
)
@signature_options
@click.option("--kubeconfig", metavar="FILE", help="As --context, in this kubeconfig.")
@click.option(
    "--context",
    metavar="NAME",
    help="Read in this cluster where its API servers listen, and say what else was found there.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "kustomize", "helm", "monitoring"]),
    default="yaml",
    show_default=True,
)
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where -o kustomize, helm or monitoring writes.",
)
@click.pass_context
def install(
    ctx: click.Context, /, output: str, folder: Path | None, kubeconfig: str | None, context: str | None, **options: Any
) -> None:
    """Print the manifests that run gpuctl in a cluster.

    The same bytes for the same options; nothing is sent anywhere. With --context or --kubeconfig it reads in that
    cluster, writes nothing, and says on standard error what it found: Kubernetes' version, whether it serves dynamic
    resource allocation, the API servers' port, which --api-port would give, and the accounts of its controllers.

    Credentials for Git belong in the Secret gpuctl-git, which is printed empty: its annotation has the command that
    fills it, with a deploy key for ssh or a token for https. Applying the manifests again keeps them. A public https
    repository needs none. Without --guard, standard error and the Deployment's description say what people can do
    without Git.

    The controller's memory limit follows from --jobs and --nodes: 256Mi, 48Ki a job and 480Ki a node; half of it is
    requested. The annotation of the Deployment says so.

    Where the Cluster declares workloadKinds, --cluster DIR adds the rights on them, and with --guard they are covered
    by its policies; apply the manifests again when a kind is added. With --target gpuctl runs as `reconcile --target`,
    with rights on the objects of that engine, and none to write what only its own engine lets run.

    Policies of --policies become admission policies, where all that they read is in pods and workloads; standard error
    says which do not, and why. Print the manifests again when a policy has changed.

    -o kustomize writes a base of these objects, and -o helm a chart that has each option as a value, with what is given
    here as its defaults; neither needs gpuctl to be used. -o monitoring writes alerts for Prometheus, the same for its
    operator with a ServiceMonitor, and a dashboard for Grafana. Files of the same names are replaced.
    """
    from gpuctl.install import Installation, all_objects  # noqa: PLC0415 - only now

    if (folder is not None) != (output in {"kustomize", "helm", "monitoring"}):
        raise Failure("GPU9002", "--dir is for -o kustomize, helm and monitoring", hint="gpuctl install --help")
    if output == "monitoring":
        write_monitoring(folder)
        return
    policies = options.pop("policies")
    duties = _duties(options.pop("cluster"), options.pop("target"))
    check_signers(options)
    for option, name in FIELDS.items():
        options[name] = options.pop(option)
    options |= signer_texts(options)
    required = [name for name in ("repo", "path") if options[name] is None and output != "helm"]
    if required:
        raise Failure("GPU9002", f"Missing option '--{required[0]}'.", hint="gpuctl install --help")
    _check({name: value for name, value in options.items() if value is not None})
    if kubeconfig is not None or context is not None:
        options["api_port"] = _looked(kubeconfig, context, options["api_port"])
    given = {name: value for name, value in options.items() if value is not None}
    rules = _rules(policies, options["controllers"], is_guarded=options["guard"])
    if output == "helm":
        write_chart(folder, given, choices(ctx.command), rules, duties)
        return
    try:
        bodies = (*all_objects(Installation(**options), duties), *rules)
    except ValueError as error:
        raise Failure("GPU9002", f"--repo {options['repo']!r}: {error}", hint="gpuctl install --help") from error
    _tell_what_is_missing(ctx, options)
    _show(output, folder, bodies)


def _show(output: str, folder: Path | None, bodies: Sequence[Body]) -> None:
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": bodies})
    elif output == "kustomize":
        write_base(folder, bodies)
    else:
        for body in bodies:
            print_yaml(body)


def _duties(folder: str | None, target: str | None) -> Duties:
    """The duties of gpuctl in the cluster. Mistakes in its declarations end the command."""
    from gpuctl.cli.declarations import compiled_folder  # noqa: PLC0415 - only now
    from gpuctl.install import Duties  # noqa: PLC0415

    declared = () if folder is None else compiled_folder(folder).cluster.workload_kinds
    return Duties(kinds=declared, engine=target or "")


def _tell_what_is_missing(ctx: click.Context, options: Mapping[str, Any]) -> None:
    """Print what an installation lacks without the guard, or without an image's name."""
    from gpuctl.install import UNGUARDED  # noqa: PLC0415 - only now

    if not options["guard"]:
        say(f"note: {UNGUARDED}", err=True)
    if ctx.get_parameter_source("image") is ParameterSource.DEFAULT:
        said = f"without --image the Deployment runs {options['image']}, which no registry has"
        say(f"note: {said}: build it with the Dockerfile, push it, and name it with --image", err=True)


def _looked(kubeconfig: str | None, context: str | None, given: int | None) -> int | None:
    """The API servers' port in a cluster, if none is given; prints the other findings about the cluster."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.install.host import findings  # noqa: PLC0415
    from gpuctl.install.workload import SERVER_PORT  # noqa: PLC0415

    found = wiring.host(kubeconfig, context)
    for sentence in findings(found, given, SERVER_PORT):
        say(f"found: {sentence}", err=True)
    return given or found.api_port


def _rules(folder: str | None, controllers: Sequence[str], *, is_guarded: bool) -> list[Body]:
    """The admission policies of a folder's policies; prints which policies have none. Mistakes in them end the command.

    Declarations of the folder that break policies are not reported: `validate` and `policy list` do that.
    """
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415 - only now
    from gpuctl.compile.declarations import ReadCache, collect  # noqa: PLC0415
    from gpuctl.compile.policy import check_policies  # noqa: PLC0415
    from gpuctl.install.guard import MAKERS  # noqa: PLC0415
    from gpuctl.install.rules import GitAlone, admission_rules  # noqa: PLC0415
    from gpuctl.model.memo import Memo  # noqa: PLC0415

    if folder is None:
        return []
    if not is_guarded:
        raise Failure("GPU9002", "--policies is for an installation with --guard", hint="gpuctl install --help")
    declarations = collect(read_tree(folder), ReadCache())
    found = (*declarations.diagnostics, *check_policies(declarations, Memo(), Memo()))
    wrong = tuple(each for each in found if not each.policy)
    tell(wrong)
    if has_errors(wrong):
        raise click.exceptions.Exit(EXIT_FAILED)
    rules = list(admission_rules(declarations.policies, declarations.owners, (*MAKERS, *controllers)))
    for each in rules:
        if isinstance(each, GitAlone):
            say(f"note: policy {each.policy} is checked in Git alone: {each.why}", err=True)
    return [each for each in rules if not isinstance(each, GitAlone)]


def _check(given: Mapping[str, Any]) -> None:
    """Refuse values early that the API server, or the controller in its pod, would refuse later."""
    from gpuctl.install.forms import misfits  # noqa: PLC0415 - only now

    if "utilisation_prometheus" in given and "utilisation_exporter" in given:
        raise Failure("GPU9002", "--utilisation-prometheus and --utilisation-exporter exclude each other", hint=_HELP)
    if "utilisation_match" in given and "utilisation_prometheus" not in given:
        raise Failure("GPU9002", "--utilisation-match is for --utilisation-prometheus", hint=_HELP)
    for name, text, words in misfits(given):
        raise Failure("GPU9002", f"{option_of(install, name)} {text!r} {words}", hint="gpuctl install --help")
