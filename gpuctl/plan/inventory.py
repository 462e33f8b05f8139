"""The ledgers to write: the objects that gpuctl may have applied, the runs that were seen, and the runs that have
ended.

A ledger is written before the effects it records, so it is never behind the cluster. `inventory` grows by what this
plan applies, and shrinks only by what is observed to be gone. It has only objects that gpuctl was told to apply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from operator import attrgetter

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.k8s.makers import is_of_people
from gpuctl.model.decision import Finished, JobState, Schedule, TimeOut
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef, ProjectName, Revision, RunKey
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ClusterState, FinishedRun, Ledger, Removal, Run, RunEntry
from gpuctl.model.units import Instant
from gpuctl.model.usage import Usage
from gpuctl.plan.cache import Entries, PlanCache

OWN = ProjectName(names.CLUSTER_LEDGER)
"""Stands for the cluster's own part where a project would stand."""
MOST_REMOVED = 20
"""For how many removed jobs of a project the ledger says since which commit they are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The facts that ledgers are made of, gathered once a plan and grouped by project.

    `remade` runs are taken off the record. `entries` are of runs whose object exists, `loose` the runs of which only
    pods are left. `left`: the objects of the runs in `ended`, which are missing in a ledger that was lost. `at_ms`:
    now.
    """

    wanted: Mapping[ProjectName, frozenset[ObjectRef]]
    projects: frozenset[ProjectName]
    declared: Mapping[ProjectName, frozenset[RunKey]]
    standing: Mapping[ProjectName, frozenset[RunKey]]
    remade: frozenset[RunKey] = frozenset()
    ended: Mapping[ProjectName, tuple[FinishedRun, ...]] = field(default_factory=dict)
    left: Mapping[ProjectName, frozenset[ObjectRef]] = field(default_factory=dict)
    usage: Mapping[ProjectName, Usage] = field(default_factory=dict)
    entries: Entries = field(default_factory=dict)
    loose: frozenset[RunKey] = frozenset()
    at_ms: Instant = 0


def known_ledgers(declared: Declared, state: ClusterState) -> dict[ProjectName, Ledger]:
    """The ledgers of this cluster; another one may share the API server."""
    here = declared.cluster.name
    return {name: ledger for name, ledger in state.ledgers.items() if ledger_ref(here, name) in state.live}


def shard_owner(shard: ObjectRef) -> ProjectName:
    """The project to which a part of a split ledger belongs."""
    return ProjectName((names.shard_owner(shard.name) or ("", OWN))[1])


def shards_by_project(state: ClusterState) -> Mapping[ProjectName, Sequence[ObjectRef]]:
    """The objects that hold, or held, a part of a split ledger."""
    found: dict[ProjectName, list[ObjectRef]] = {}
    for ref in state.shards:
        found.setdefault(shard_owner(ref), []).append(ref)
    return found


def gather(  # noqa: PLR0913, PLR0917 - the four values of a cycle, and what is known already
    declared: Declared,
    schedule: Schedule,
    manifests: Manifests,
    refs: Sequence[ObjectRef],
    state: ClusterState,
    cache: PlanCache,
) -> Books:
    """Gather the facts from declarations, decisions and the observed state. `refs`: the references of the manifests."""
    ended = _ended(declared, schedule, state, cache)
    return Books(
        wanted=cache.inventories(refs, (declared.projects,), partial(_by_project, declared, manifests)),
        projects=frozenset(project.name for project in declared.projects),
        declared=cache.declared(declared.jobs),
        standing=cache.standing(state.own, state.live),
        ended=ended,
        left=_left(ended, state),
        usage=schedule.usage,
        entries=cache.entries(state, refs, manifests.items, ended, schedule.at_ms),
        loose=_loose(state),
        at_ms=schedule.at_ms,
    )


def _loose(state: ClusterState) -> frozenset[RunKey]:
    """Runs of which only pods are left."""
    if len(state.runs) == len(state.own):
        return frozenset()
    return frozenset(map(_RUN_KEY, state.runs)) - {own.run for own in state.own.values()}


_RUN_KEY: Callable[[Run], RunKey] = attrgetter("job", "digest")


def left_over(old: Ledger, books: Books, state: ClusterState, cache: PlanCache) -> frozenset[ObjectRef]:
    """The existing objects of a project's inventory that are not wanted.

    An object that others made is left out: it existed before gpuctl could make its own.
    """
    wanted = books.wanted.get(old.project, _NO_OBJECTS)
    there = filter(state.live.__contains__, cache.extras(old.project, old.inventory, wanted))
    return frozenset(ref for ref in there if not is_of_people(ref, state.live[ref]))


def unseen(old: Ledger, state: ClusterState, cache: PlanCache) -> frozenset[ObjectRef]:
    """The objects of a project's inventory that may exist unseen: their kind could not be read, or only a newer version
    of gpuctl knows it, which will need the entry to delete them. Cost: that of a new inventory, where all kinds could
    be read.
    """
    unknown = cache.unknown(old.project, old.inventory)
    if not state.unseen:
        return unknown
    return unknown.union(ref for ref in old.inventory if (ref.api_version, ref.kind) in state.unseen)


def next_ledger(declared: Declared, old: Ledger, books: Books, there: frozenset[ObjectRef], cache: PlanCache) -> Ledger:
    """The project's ledger after `old`; `old` itself when nothing changed. `there`: what is left over, or may be.

    A run is forgotten as soon as it is no longer declared. If it is declared again, it is a new run, and what is still
    leaving then is not taken for it. For a removed project all standing runs are kept: its removal may be refused.
    """
    project = old.project
    standing = books.standing.get(project, _NO_RUNS)
    kept = books.declared.get(project, _NO_RUNS)
    if project not in books.projects:
        kept |= standing
    wanted = books.wanted.get(project, _NO_OBJECTS)
    ended, left = books.ended.get(project, ()), books.left.get(project, _NO_OBJECTS)
    revision = declared.project_revisions.get(project, old.revision)
    content = declared.project_contents.get(project, old.content)
    usage = books.usage.get(project)
    entries = books.entries.get(project, _NO_ENTRIES)

    def find() -> Ledger:
        new = Ledger(
            project=project,
            revision=revision,
            content=content,
            inventory=wanted | there | left,
            seen=((old.seen | standing) - books.remade) & kept,
            finished=_finished(old, ended, kept),
            runs=_runs(old, entries, books, kept),
            usage=usage,
            removed=_removed(old, kept, revision, books.at_ms) if project in books.projects else old.removed,
        )
        return old if new == old else new

    facts = (
        old,
        revision,
        content,
        wanted,
        there,
        left,
        standing,
        books.remade,
        kept,
        ended,
        usage,
        entries,
        books.loose,
    )
    return cache.ledger(project, facts, find)


def _runs(
    old: Ledger, entries: Mapping[RunKey, RunEntry], books: Books, kept: frozenset[RunKey]
) -> Mapping[RunKey, RunEntry]:
    """The entries of runs that exist, and of runs whose pods are leaving or whose object is being recreated."""
    runs = dict(entries)
    for key, entry in old.runs.items():
        if key not in runs and (key in books.loose or (not entry.uid and key in kept)):
            runs[key] = entry
    for key in books.remade & runs.keys():
        runs[key] = replace(runs[key], uid="", reason=None)
    return runs


def _removed(old: Ledger, kept: frozenset[RunKey], revision: Revision, at_ms: Instant) -> Mapping[str, Removal]:
    """The removed jobs on record, with those that are removed now: the last MOST_REMOVED."""
    declared = {job.name for job, _ in kept}
    gone = {job.name for job, _ in old.seen} - declared
    if not gone and declared.isdisjoint(old.removed):
        return old.removed
    known = {name: each for name, each in old.removed.items() if name not in declared}
    removed = known | {name: Removal(revision=revision, at_ms=at_ms) for name in gone}
    newest = sorted(removed.items(), key=lambda entry: (-entry[1].at_ms, entry[0]))
    return dict(sorted(newest[:MOST_REMOVED]))


def _finished(old: Ledger, ended: Iterable[FinishedRun], kept: frozenset[RunKey]) -> Mapping[RunKey, FinishedRun]:
    """The ended runs on record, and those that have ended now."""
    finished = old.finished
    if not finished.keys() <= kept:
        finished = {key: run for key, run in finished.items() if key in kept}
    news = {(run.job, run.digest): run for run in ended}
    return finished if news.keys() <= finished.keys() else {**news, **finished}


def _left(
    ended: Mapping[ProjectName, tuple[FinishedRun, ...]], state: ClusterState
) -> dict[ProjectName, frozenset[ObjectRef]]:
    """The objects of runs that have ended now, by project. Cost: a look at each run's object, where one has ended."""
    runs = {(run.job, run.digest) for of_project in ended.values() for run in of_project}
    found: dict[ProjectName, set[ObjectRef]] = defaultdict(set)
    for ref, own in state.own.items() if runs else ():
        if own.run in runs:
            found[own.run[0].project].add(ref)
    return {project: frozenset(refs) for project, refs in found.items()}


_NO_RUNS: frozenset[RunKey] = frozenset()
_NO_OBJECTS: frozenset[ObjectRef] = frozenset()
_NO_ENTRIES: Mapping[RunKey, RunEntry] = {}
_ENDS = frozenset({Finished, TimeOut})


def of_kinds(state: ClusterState, kinds: frozenset[str]) -> Iterator[ObjectRef]:
    """The live objects of kinds with these names, of any API version. Cost: a glance at each live object."""
    return compress(state.live, map(kinds.__contains__, map(attrgetter("kind"), state.live)))


def _by_project(declared: Declared, manifests: Manifests) -> dict[ProjectName, frozenset[ObjectRef]]:
    """The wanted objects of each project's inventory, without adopted namespaces: gpuctl may never delete those."""
    adopted = {project.name for project in declared.projects if project.adopt}
    wanted: dict[ProjectName | None, set[ObjectRef]] = defaultdict(set)
    kept: set[ObjectRef] = set()
    for item in manifests.items:
        wanted[item.project].add(item.ref)
        if item.ref.kind == kinds.NAMESPACE[1] and (item.project in adopted or item.ref.name == names.SYSTEM_NAMESPACE):
            kept.add(item.ref)
    return {OWN if project is None else project: frozenset(refs - kept) for project, refs in wanted.items()}


def _ended(
    declared: Declared, schedule: Schedule, state: ClusterState, cache: PlanCache
) -> dict[ProjectName, tuple[FinishedRun, ...]]:
    """Runs that this cycle found ended or ends for good, and that no ledger records as ended. A Job is ended by its own
    deadline; other kinds have none."""
    jobs = cache.jobs(declared.jobs)
    known = frozenset[RunKey]().union(*(ledger.finished for ledger in state.ledgers.values()))
    ended: dict[RunKey, Finished | TimeOut] = {}
    for decision in compress(schedule.decisions, map(_ENDS.__contains__, map(type, schedule.decisions))):
        job = jobs[decision.job]
        if isinstance(decision, Finished) or (isinstance(decision, TimeOut) and not job.has_deadline):
            ended[job.id, job.digest] = decision
    news = ended.keys() - known
    at_ms = {
        (run.job, run.digest): run.finished_at_ms
        for run in (state.runs if news else ())
        if run.finished_at_ms is not None and (run.job, run.digest) in news
    }
    found: dict[ProjectName, list[FinishedRun]] = defaultdict(list)
    for key in sorted(news):
        decision = ended[key]
        found[key[0].project].append(
            FinishedRun(
                job=key[0],
                digest=key[1],
                state=decision.state if isinstance(decision, Finished) else JobState.TIMED_OUT,
                at_ms=at_ms.get(key, schedule.at_ms),
                starts=decision.record.starts,
            )
        )
    return {project: tuple(runs) for project, runs in found.items()}
