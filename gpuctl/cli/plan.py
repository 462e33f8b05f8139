"""`gpuctl plan`: what merging head into base would change: objects and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from gpuctl import __version__
from gpuctl.adapters.collector import OBJECTS_OF_A_COMMAND, collect_seldom
from gpuctl.cli.clusters import Where, tell_other_cluster
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import print_json, tally
from gpuctl.cli.saved import saved_objects
from gpuctl.cli.terminal import say, show
from gpuctl.model.comparison import Merge
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NO_REVISION, ProjectName
from gpuctl.model.source import WORKING_TREE

if TYPE_CHECKING:
    from gpuctl.adapters.gitmerge import Compared
    from gpuctl.app.effects import Confirmed, Entry, Foreseen
    from gpuctl.app.gates import Gate
    from gpuctl.app.planning import Side
    from gpuctl.compile import CompileCache, Compiled
    from gpuctl.views.plan_report import PlanReport

EXIT_CHANGES = 2
EXIT_REFUSED = 3
STATE_KINDS = "nodes,namespaces,jobs,deployments,pods,configmaps,resourceclaims,resourceslices,deviceclasses"
"""The resources that --state needs from `kubectl get`."""


PLAN_OPTIONS = (
    click.option("--base", metavar="REV", help="The revision to compare with: a branch, tag or commit."),
    click.option("--head", metavar="REV", help="The revision with the change. Default: the working tree."),
    click.option("--direct", is_flag=True, help="Compare base and head as they are, without merging them."),
    click.option(
        "--rollback", metavar="REV", help="Plan going back to this earlier commit of base. Default base: HEAD."
    ),
    click.option("--kubeconfig", metavar="FILE", help="Compute the effect on this cluster, as it is now."),
    click.option("--context", metavar="NAME", help="The same, by a context of kubectl's kubeconfig."),
    click.option(
        "--embedded",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The same, on the embedded cluster in this file.",
    ),
    click.option(
        "--state",
        metavar="FILE",
        type=click.File(encoding="utf-8"),
        help="The same, on the objects in this file; - is standard input.",
    ),
    click.option(
        "--fail-on",
        "gates",
        metavar="WHAT,...",
        default="",
        callback=lambda _context, _option, text: tuple(_gates(text)),
        help="Exit with 3 if jobs or objects are: paused, stopped, moved, starved, deleted.",
    ),
    click.option(
        "--no-cache",
        is_flag=True,
        envvar="GPUCTL_NO_CACHE",
        help="Compile also what was compiled for earlier plans. Or GPUCTL_NO_CACHE=1.",
    ),
)
"""The options of what is planned, and on which cluster: for `plan` and `comment`."""


def plan_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a plan; `made_plan` takes their values."""
    for option in reversed(PLAN_OPTIONS):
        function = option(function)
    return function


@command(
    "plan",
    examples=(
        "gpuctl plan clusters/tr4858 --base origin/main",
        "gpuctl plan clusters/tr4858 --base origin/main --head HEAD -o markdown > comment.md",
        "gpuctl plan clusters/tr4858 --rollback HEAD~3 --context prod",
        "gpuctl plan clusters/tr4858 --rollback HEAD~3 --commit",
        "gpuctl plan clusters/tr4858 --base origin/main --context prod --fail-on stopped,deleted",
        f"gpuctl plan clusters/tr4858 --base origin/main --state <(kubectl get -A -o json {STATE_KINDS})",
    ),
    failed=EXIT_FAILED,
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@plan_options
@click.option("--target", type=click.Choice(["kueue", "kai"]), help="Tell where this engine may decide otherwise.")
@click.option("--commit", is_flag=True, help="With --rollback: commit it too, on the branch that is checked out.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
def plan(folder: Path, *, commit: bool, output: str, target: str | None, **given: Any) -> None:
    """Show what merging a change does to jobs, objects and quotas.

    Base is compared with the merge of base and head, so what base has gained meanwhile is no part of the change. The
    merge is computed in a temporary folder. If it has conflicts, head is compared with the commit where the two part.

    --rollback plans the cluster's folder as it was at an earlier commit of base; all other files stay. With --commit it
    is committed too, unless a guard or --fail-on refuses it, or the folder has changes that are not committed.

    The effect on jobs is the engine's own decision: which jobs would start, be paused (and for which job), be moved or
    wait, and until when. It is computed on the cluster that is named, as it is now. Without a cluster it starts from
    the declared nodes, on which every job of the base that can run has just been started. Objects are compared as
    rendered, with no job started; quotas and other settings as declared.

    --state is for clusters that can't be reached from here. It takes the output of the `kubectl get` in the last
    example. The effect is computed at the newest instant that is in it, and the plan tells how long ago that is.

    With --target, what can't be said to that engine, and where it decides otherwise than the effect says, is told on
    standard error.

    What a guard refuses is shown with the `Gpuctl-Confirm:` line that lifts the refusal, or as confirmed where a commit
    has that line. --fail-on makes effects failures: a run counts as stopped also if a new run of its job starts, and a
    job as starved if it waits because of the change and no start is forecast.

    Exit code: 0 no change, 2 changes, 3 changes that a guard or --fail-on refuses, 1 error.
    """
    if commit and given["rollback"] is None:
        raise click.UsageError("--commit goes with --rollback")
    report = made_plan(folder, told=lambda declared: _tell_differences(declared, target), **given)
    _show(report, output)
    if commit:
        _commit(folder, report)
    if not report.empty:
        raise click.exceptions.Exit(EXIT_REFUSED if report.refused else EXIT_CHANGES)


def made_plan(  # noqa: PLR0913 - an argument for each option
    folder: Path,
    *,
    base: str | None,
    head: str | None,
    direct: bool,
    rollback: str | None,
    gates: tuple[Gate, ...],
    no_cache: bool,
    told: Callable[[Declared], object] = lambda _: None,
    **cluster: Any,
) -> PlanReport:
    """The plan that the options name. Mistakes in the declarations are printed, and end the command with exit 1.

    `told` is called with head's declarations.
    """
    collect_seldom(OBJECTS_OF_A_COMMAND)  # first: importing makes many objects, too
    from gpuctl import wiring  # noqa: PLC0415 - here and below: only now
    from gpuctl.app.effects import in_time  # noqa: PLC0415
    from gpuctl.app.gates import failed  # noqa: PLC0415
    from gpuctl.app.planning import plan_report  # noqa: PLC0415

    compared = _read(folder, Revisions(base=base, head=head, direct=direct, rollback=rollback))
    revisions = compared.comparison
    files = 0 if no_cache or compared.after is None else len(compared.after.files)
    with wiring.compile_cache(folder, files) as cache:
        before, after = _compiled(compared, cache, is_live=any(cluster.values()))
    left_out = () if before is None else tuple(sorted(before.declared.pinned))
    revisions = replace(revisions, left_out=left_out)
    if before is None and after is None:
        missing = f"{folder} is in neither {revisions.base} nor {head or f'the {WORKING_TREE}'}"
        raise Failure("GPU8003", missing, hint="name the folder of a cluster: clusters/NAME")
    base_declared = None if before is None else before.declared
    foreseen = None
    if after is not None:
        told(after.declared)
        confirmed = in_time(base_declared, after.declared, compared.confirmations, compared.added)
        entry = None if no_cache or any(cluster.values()) else wiring.rest_entry(compared.before)
        foreseen = _foreseen(base_declared, after.declared, Basis(**cluster, confirmed=confirmed), entry)
    report = plan_report(before, after, revisions, foreseen)
    return replace(report, failed=tuple(failed(report, gates)), version=__version__)


def _tell_differences(declared: Declared, target: str | None) -> None:
    """Print where the engine that decides in the cluster differs from the one that the plan uses."""
    if target is not None:
        from gpuctl.app.other_engine import target_objects  # noqa: PLC0415 - only now
        from gpuctl.targets import Engine, differences  # noqa: PLC0415

        tell((*differences(declared, Engine(target)), *target_objects(declared, Engine(target)).unsaid))


def _show(report: PlanReport, output: str) -> None:
    """Print the plan in one of its forms; the others are not imported."""
    if output == "json":
        from gpuctl.views.plan_form import document  # noqa: PLC0415

        print_json(document(report))
    elif output == "markdown":
        from gpuctl.views.plan_markdown import markdown  # noqa: PLC0415
        from gpuctl.views.plan_page import page  # noqa: PLC0415

        show(markdown(page(report)))
    else:
        from gpuctl.views.plan_text import text  # noqa: PLC0415

        for line in text(report):
            say(*line)


def _commit(folder: Path, report: PlanReport) -> None:
    """Commit a planned rollback that no guard refuses."""
    from gpuctl.adapters.gitrollback import commit_rollback  # noqa: PLC0415 - only now

    if report.empty:
        say("Nothing is committed: there is nothing to roll back", err=True)
    elif report.refused:
        by_hand = ". If it is meant, commit it by hand, with the lines of the refusals" if report.refusals.new else ""
        say(f"Nothing is committed: the rollback is refused{by_hand}", err=True)
    else:
        made, branch = commit_rollback(folder, report.compared)
        say(f"Committed {made[:10]} on {branch}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """The revisions to compare, as the options name them."""

    base: str | None
    head: str | None
    direct: bool
    rollback: str | None


def _read(folder: Path, given: Revisions) -> Compared:
    from gpuctl import wiring  # noqa: PLC0415 - only now

    if given.rollback is not None:
        if given.head is not None or given.direct:
            raise click.UsageError("--rollback goes without --head and --direct: it names what base is to be like")
        return wiring.rolled_back(folder, given.base or "HEAD", given.rollback)
    if given.base is None:
        raise click.UsageError("Missing option '--base'. To plan going back: '--rollback'.")
    return wiring.compared_revisions(folder, given.base, given.head, direct=given.direct)


def _gates(text: str) -> Iterator[Gate]:
    from gpuctl.app.gates import Gate  # noqa: PLC0415 - only now

    for name in filter(None, (word.strip() for word in text.split(","))):
        try:
            yield Gate(name)
        except ValueError:
            raise click.BadParameter(f"{name!r} is none of {', '.join(Gate)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The cluster that an effect is computed on, as the options name it; without any, the declared nodes. `confirmed`:
    the confirmations in commits."""

    kubeconfig: str | None
    context: str | None
    embedded: Path | None
    state: IO[str] | None
    confirmed: Confirmed


def _foreseen(before: Declared | None, after: Declared, basis: Basis, entry: Entry | None) -> Foreseen:
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.effects import newest_instant, objects_of, on_cluster, on_inventory, read_objects  # noqa: PLC0415

    named = bool(basis.kubeconfig or basis.context)
    if sum((named, basis.embedded is not None, basis.state is not None)) > 1:
        wrong = "--state, --embedded and --context or --kubeconfig each name a cluster"
        raise Failure("GPU9002", wrong, hint="name one cluster")
    if basis.state is not None:
        objects, now_ms = objects_of(saved_objects(basis.state)), context_clock().now_ms()
        at_ms = newest_instant(objects, now_ms)
        found = on_cluster(before, after, objects, at_ms, basis.confirmed)
        return replace(found, ground=replace(found.ground, age_ms=now_ms - at_ms))
    if not named and basis.embedded is None:
        return on_inventory(before, after, wiring.blueprint, basis.confirmed.of_all, context_clock().now_ms(), entry)
    where = Where(embedded=basis.embedded, kubeconfig=basis.kubeconfig, context=basis.context)
    with where.reading() as cluster:
        tell_other_cluster(cluster, after)
        return on_cluster(before, after, read_objects(cluster), context_clock().now_ms(), basis.confirmed)


def _compiled(compared: Compared, cache: CompileCache, *, is_live: bool) -> Iterator[Side | None]:
    """Compile both trees; None for a missing folder. Mistakes end the command with exit 1. For base, only mistakes in
    the cluster's own files do: otherwise the compiling part of it is compared, and the other projects are pinned.

    Files are compiled without their commits, so that files that are equal in both trees are compiled once. A mistake of
    several declarations in the second tree is marked at one that differs. Head gets the digests of its contents, which
    a commit could confirm, unless the merge is not known. Base gets them too if the effect begins in a cluster, which
    has them on record.
    """
    from gpuctl.app.planning import Side  # noqa: PLC0415
    from gpuctl.app.revisions import contents_of, sound_parts  # noqa: PLC0415
    from gpuctl.compile import compile_tree  # noqa: PLC0415

    names = compared.comparison
    is_known = names.merge not in {Merge.CONFLICTS, Merge.UNSUPPORTED}
    before: Compiled | None = None
    for tree, name in ((compared.before, names.base), (compared.after, names.head)):
        if tree is None:
            yield None
            continue
        files = {
            path: replace(file, revision=NO_REVISION) if file.revision else file for path, file in tree.files.items()
        }
        compiled, left_out = compile_tree(replace(tree, files=files), cache, before), list[ProjectName]()
        if compiled.declared is None and name == names.base:
            compiled, left_out = sound_parts(tree, compiled, cache) or (compiled, left_out)
        if compiled.declared is None:
            tell(compiled.diagnostics)
            say(f"{name}: {tally(compiled.diagnostics)}; there is nothing to compare", err=True)
            raise click.exceptions.Exit(EXIT_FAILED)
        is_needed = is_known and not left_out and (is_live or tree is compared.after)
        contents = contents_of(tree, compiled, cache) if is_needed else {}
        before = compiled
        breaches = tuple(found for found in (*compiled.diagnostics, *compiled.audits) if found.policy)
        declared = replace(compiled.declared, project_contents=contents, pinned=frozenset(left_out))
        yield Side(declared=declared, written=compiled.written, breaches=breaches)
