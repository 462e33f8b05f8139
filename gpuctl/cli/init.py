"""`gpuctl init`: a repository for a cluster, to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gpuctl.cli.clusters import Where, cluster_options, read_live
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import tally
from gpuctl.cli.terminal import say
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import has_errors
from gpuctl.diag.wording import message

if TYPE_CHECKING:
    from gpuctl.scaffold import Pool


@command(
    "init",
    examples=(
        "gpuctl init gpus --cluster prod --pool name=dgx,nodes=dgx1-[1-2],gpus=8,memory=32Gi --owner @example/ml",
        "gpuctl init gpus --context prod --owner @example/ml --platform-owner @example/platform",
        "gpuctl init gpus --cluster prod --pool name=a100,nodes=a-[1-4],gpus=8,memory=40Gi,sharing=mig,mig=3g.20gb:2",
        "gpuctl init --cluster lab --pool name=a100,nodes=a-[01-16],gpus=8,memory=80Gi,sharing=dra --ci gitlab",
    ),
    failed=EXIT_FAILED,
)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--cluster", metavar="NAME", help="The cluster's name; its folder is clusters/NAME. Default: --context.")
@click.option("--pool", "pools", metavar="KEY=VALUE,...", multiple=True,
              help="A node pool: name, nodes, sharing, driver; of a node gpus, mig, cpu, ram; of a GPU memory, "
                   "product.")  # fmt: skip
@click.option("--project", default="team-a", show_default=True, metavar="NAME", help="The first project.")
@click.option("--owner", "owners", multiple=True, metavar="@TEAM",
              help="An owner of the project, who CODEOWNERS has review it. Repeatable.")  # fmt: skip
@click.option("--platform-owner", "platform", multiple=True, metavar="@TEAM",
              help="An owner of the rest: the cluster, policies, CI. Repeatable.")  # fmt: skip
@click.option("--ci", type=click.Choice(["github", "gitlab"]), default="github", show_default=True,
              help="Whose CI checks changes.")  # fmt: skip
@cluster_options
def init(  # noqa: PLR0913 - an argument for each option
    folder: Path,
    *,
    cluster: str | None,
    where: Where,
    pools: tuple[str, ...],
    project: str,
    owners: tuple[str, ...],
    platform: tuple[str, ...],
    ci: Literal["github", "gitlab"],
) -> None:
    """Begin a repository for a cluster.

    Its node pools are named by --pool, or read from a live cluster: --context NAME.

    It holds a cluster, a project, a job, two policies, CODEOWNERS, CI and editor settings. DIR, by default the current
    folder, becomes a Git repository if it is none; nothing is committed. No file is replaced: if one is there already,
    all such files are named, and nothing is written.

    Exit code: 0 done, 1 failed.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.beginning import Taken, begin, mistakes  # noqa: PLC0415
    from gpuctl.scaffold import EXAMPLES, POLICIES, Beginning, files  # noqa: PLC0415

    cluster = _named(cluster, where)
    found_pools = _pools(pools, where)
    try:
        wanted = Beginning(cluster=cluster, pools=found_pools, project=project, owners=owners, platform=platform, ci=ci)
        made = files(wanted, wiring.example_policies(POLICIES))
    except ValueError as error:
        raise Failure(
            "GPU9002", f"--cluster, --project or --platform-owner: {error}", hint="gpuctl init --help"
        ) from error
    found = mistakes(made, f"clusters/{cluster}")
    tell(found)
    if has_errors(found):
        text = message("GPU6403", {"errors": tally(found)})
        raise Failure("GPU6403", text, hint=CODES["GPU6403"].fix, exit_code=EXIT_FAILED)
    try:
        is_new = begin(made, wiring.new_repository(folder))
    except Taken as taken:
        for path in taken.paths:
            say(f"{path} is there already", err=True)
        raise
    say(f"{'A new repository' if is_new else 'The repository'} in {folder}:")
    for path in dict.fromkeys(EXAMPLES if path.startswith(EXAMPLES) else path for path in made):
        say(f"  {path}")
    say()
    _say_next(folder, cluster, ci)
    if owners and not platform:
        say("In CODEOWNERS, name the platform team, in place of ORGANISATION/PLATFORM-TEAM.")


def _named(cluster: str | None, where: Where) -> str:
    if cluster is None and where.context is None:
        raise Failure("GPU9002", "the cluster has no name", hint="--cluster NAME", exit_code=EXIT_FAILED)
    return cluster or where.context or ""


def _pools(said: tuple[str, ...], where: Where) -> tuple[Pool, ...]:
    """The pools of --pool, else those of the named live cluster."""
    from gpuctl.k8s import kinds  # noqa: PLC0415 - only now
    from gpuctl.scaffold import pools_seen  # noqa: PLC0415

    is_named = where.context is not None or where.kubeconfig is not None or where.embedded is not None
    if bool(said) is is_named:
        text = "pools are named, and a live cluster too" if said else "the cluster has no node pools"
        hint = "name them by --pool, or a live cluster by --context: one of both"
        raise Failure("GPU9002", text, hint=hint, exit_code=EXIT_FAILED)
    if said:
        return tuple(map(_pool, said))
    seen = pools_seen(read_live(where, (kinds.NODE,)).state.nodes)
    for note in seen.notes:
        say(f"note: {note}", err=True)
    if not seen.pools:
        text = message("GPU6143", {})
        raise Failure("GPU6143", text, hint=CODES["GPU6143"].fix, exit_code=EXIT_FAILED)
    return seen.pools


def _pool(text: str) -> Pool:
    from gpuctl.scaffold import pool_of  # noqa: PLC0415 - only now

    try:
        return pool_of(text)
    except ValueError as error:
        said = message("GPU6402", {"text": text, "why": str(error)})
        raise Failure("GPU6402", said, hint=CODES["GPU6402"].fix, exit_code=EXIT_FAILED) from error


def _say_next(folder: Path, cluster: str, ci: str) -> None:
    say("next:")
    if folder != Path():
        say(f"  cd {folder}")
    workflow = ".github/workflows/gpuctl.yml" if ci == "github" else ".gitlab-ci.yml"
    for line in (
        f"gpuctl validate clusters/{cluster}",
        "git add . && git commit -m 'The cluster, a project, a job'",
        f"gpuctl plan clusters/{cluster} --base HEAD      # after a change: what it does to jobs",
        f"gpuctl install --repo URL --path clusters/{cluster} --guard --image IMAGE | kubectl apply --server-side -f -",
    ):
        say(f"  {line}")
    say(f"In {workflow}, say where your organisation keeps gpuctl, in place of ORGANISATION and REVISION.")
