"""The cache of `plan`: if neither the live nor the wanted object has changed, the same writes are needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from gpuctl.k8s.kinds import is_declared
from gpuctl.k8s.objects import is_deleting
from gpuctl.k8s.workload_table import BUILT_IN, Rows
from gpuctl.model.change import Change
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunKey
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import Body, ClusterState, FinishedRun, Ledger, OwnObject, Run, RunEntry
from gpuctl.model.units import Instant
from gpuctl.plan.entries import ended_entry, next_entry
from gpuctl.plan.object_diff import ObjectDiff, object_diff

Inventories: TypeAlias = Mapping[ProjectName, frozenset[ObjectRef]]
Entries: TypeAlias = Mapping[ProjectName, Mapping[RunKey, RunEntry]]


class PlanCache:
    """Caches results for wanted and live objects, each with its inputs, for the last two plans at most.

    All objects are compared at once: an unchanged one costs next to nothing.
    """

    __slots__ = (
        "_books",
        "_by_project",
        "_declared",
        "_diffs",
        "_entries",
        "_extras",
        "_going",
        "_inventories",
        "_jobs",
        "_ledgers",
        "_rows",
        "_runs",
        "_staying",
        "_taken",
        "_unknown",
        "_writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._begin(BUILT_IN)

    def _begin(self, rows: Rows) -> None:
        self._rows = rows
        self._books: Memo[ProjectName, tuple[Change, ...]] = Memo()
        self._declared: Memo[None, Mapping[ProjectName, frozenset[RunKey]]] = Memo()
        self._runs: Memo[None, Mapping[ProjectName, frozenset[RunKey]]] = Memo()
        self._inventories: Memo[None, Inventories] = Memo()
        self._jobs: Memo[None, Mapping[JobId, Job]] = Memo()
        self._extras: Memo[ProjectName, frozenset[ObjectRef]] = Memo()
        self._ledgers: Memo[ProjectName, Ledger] = Memo()
        self._unknown: Memo[ProjectName, frozenset[ObjectRef]] = Memo()
        self._taken: Memo[None, Mapping[JobId, ObjectRef]] = Memo()
        self._staying: Memo[None, frozenset[ObjectRef]] = Memo()
        self._diffs: Sweep[ObjectRef, ObjectDiff | None] = Sweep()
        self._going: Sweep[ObjectRef, bool] = Sweep()
        self._entries: Sweep[RunKey, RunEntry | None] = Sweep()
        self._by_project: Memo[None, Entries] = Memo()
        self._writes: Memo[ObjectRef, tuple[Change, ...]] = Memo()

    def turn(self, rows: Rows) -> None:
        """Begin another plan. Values that it does not use are dropped by the next turn; other rows of kinds drop
        everything."""
        if rows != self._rows:
            self._begin(rows)
        for memo in (
            self._books, self._by_project, self._declared, self._extras, self._inventories, self._jobs,
            self._ledgers, self._runs, self._staying, self._taken, self._unknown, self._writes,
        ):  # fmt: skip
            memo.turn()

    def declared(self, jobs: tuple[Job, ...]) -> Mapping[ProjectName, frozenset[RunKey]]:
        """The declared runs, by project."""
        return self._declared.get(None, (jobs,), lambda: _by_project((job.id, job.digest) for job in jobs))

    def old_runs(self, jobs: tuple[Job, ...], runs: Iterable[Run]) -> list[Run]:
        """The runs among `runs` that are no longer declared: of removed and of changed jobs. Cost: linear."""
        wanted, none = self.declared(jobs), frozenset[RunKey]()
        return [run for run in runs if (run.job, run.digest) not in wanted.get(run.job.project, none)]

    def jobs(self, jobs: tuple[Job, ...]) -> Mapping[JobId, Job]:
        """The declared jobs by name."""
        return self._jobs.get(None, (jobs,), lambda: {job.id: job for job in jobs})

    def diffs(
        self,
        refs: Sequence[ObjectRef],
        items: Sequence[Manifest],
        lives: Sequence[Body | None],
        strays: frozenset[ObjectRef],
    ) -> list[ObjectDiff]:
        """The differences of wanted objects that are not live as wanted, in the order of the objects.

        `strays`: objects of runs that run though gpuctl never released them.
        """
        loose = list(map(strays.__contains__, refs)) if strays else [False] * len(refs)
        found = self._diffs.over(
            refs,
            [items, lives, loose],
            lambda place: object_diff(items[place], lives[place], self._rows, is_stray=loose[place]),
        )
        return [diff for diff in found if diff is not None]

    def standing(
        self, own: Mapping[ObjectRef, OwnObject], live: Mapping[ObjectRef, Body]
    ) -> Mapping[ProjectName, frozenset[RunKey]]:
        """The runs whose object is live and is not being deleted, by project."""
        runs, bodies = [each.run for each in own.values()], list(map(live.__getitem__, own))
        going = self._going.over(own, [bodies], lambda place: is_deleting(bodies[place]))
        return self._runs.get(
            None, (runs, going), lambda: _by_project(run for run, gone in zip(runs, going, strict=True) if not gone)
        )

    def entries(
        self,
        state: ClusterState,
        refs: Sequence[ObjectRef],
        items: Sequence[Manifest],
        ended: Mapping[ProjectName, tuple[FinishedRun, ...]],
        at_ms: Instant,
    ) -> Entries:
        """The ledger entries of runs whose object is live, by project. Cost: a comparison of each run.

        `items`: all wanted objects, with their references; `ended`: the runs that this cycle ends; `at_ms`: now. The
        whole result is cached too: with 10,000 jobs an unchanged plan then takes two thirds of the time.
        """
        ledgers = [ledger for _, ledger in sorted(state.ledgers.items())]

        def find() -> Entries:
            over = {(run.job, run.digest) for runs in ended.values() for run in runs}
            over.update(*(ledger.finished for ledger in ledgers))
            return self._entries_of(state, ledgers, dict(zip(refs, items, strict=True)), over, at_ms)

        return self._by_project.get(None, (state.own, state.runs, refs, items, ledgers, ended), find)

    def _entries_of(
        self,
        state: ClusterState,
        ledgers: Iterable[Ledger],
        wanted: Mapping[ObjectRef, Manifest],
        ended: Container[RunKey],
        at_ms: Instant,
    ) -> Entries:
        keys, uids = [own.run for own in state.own.values()], [own.uid for own in state.own.values()]
        runs = {(run.job, run.digest): run for run in state.runs}
        known: dict[RunKey, RunEntry] = {}
        for ledger in ledgers:
            known.update(ledger.runs)
        items, olds, seen = list(map(wanted.get, state.own)), list(map(known.get, keys)), list(map(runs.get, keys))
        over = [item is None and key in ended for item, key in zip(items, keys, strict=True)]

        def find(at: int) -> RunEntry | None:
            item, run = items[at], seen[at]
            if item is not None and run is not None:
                return next_entry(item.body, olds[at], uids[at], run, at_ms, self._rows)
            return ended_entry(olds[at], uids[at]) if over[at] else olds[at]

        entries: dict[ProjectName, dict[RunKey, RunEntry]] = defaultdict(dict)
        for key, entry in zip(keys, self._entries.over(keys, [items, olds, uids, seen, over], find), strict=True):
            if entry is not None:
                entries[key[0].project][key] = entry
        return entries

    def inventories(
        self, refs: Sequence[ObjectRef], facts: tuple[object, ...], find: Callable[[], Inventories]
    ) -> Inventories:
        """The wanted objects by project. They depend on the objects' names and on `facts`."""
        return self._inventories.get(None, (refs, *facts), find)

    def staying(self, refs: Sequence[ObjectRef], retained: frozenset[ObjectRef]) -> frozenset[ObjectRef]:
        """The wanted objects, and the objects that are left as they are."""
        return self._staying.get(None, (refs, retained), lambda: retained.union(refs))

    def taken(
        self, foreign: frozenset[ObjectRef], facts: tuple[object, ...], find: Callable[[], Mapping[JobId, ObjectRef]]
    ) -> Mapping[JobId, ObjectRef]:
        """The jobs whose run's object has the name of a foreign one. They depend on `foreign` and `facts`."""
        return self._taken.get(None, (foreign, *facts), find)

    def extras(
        self, project: ProjectName, inventory: frozenset[ObjectRef], wanted: frozenset[ObjectRef]
    ) -> frozenset[ObjectRef]:
        """The objects of a project's inventory that are not wanted."""
        return self._extras.get(project, (inventory, wanted), lambda: inventory - wanted)

    def unknown(self, project: ProjectName, inventory: frozenset[ObjectRef]) -> frozenset[ObjectRef]:
        """The objects of a project's inventory whose kind gpuctl has no row for, and the Cluster neither."""
        return self._unknown.get(
            project,
            (inventory, self._rows),
            lambda: frozenset(
                ref for ref in inventory if is_declared(kind := (ref.api_version, ref.kind)) and kind not in self._rows
            ),
        )

    def ledger(self, project: ProjectName, facts: tuple[object, ...], find: Callable[[], Ledger]) -> Ledger:
        """The ledger to write. It depends on `facts`."""
        return self._ledgers.get(project, facts, find)

    def writes(
        self, diff: ObjectDiff, facts: tuple[object, ...], find: Callable[[ObjectDiff], Iterable[Change]]
    ) -> tuple[Change, ...]:
        """The writes for a difference. They depend on it and on `facts`."""
        return self._writes.get(diff.item.ref, (diff, *facts), lambda: tuple(find(diff)))

    def book(
        self, project: ProjectName, facts: tuple[object, ...], find: Callable[[], Iterable[Change]]
    ) -> tuple[Change, ...]:
        """The writes of a project's ledger. They depend on `facts`."""
        return self._books.get(project, facts, lambda: tuple(find()))


def _by_project(runs: Iterable[RunKey]) -> Mapping[ProjectName, frozenset[RunKey]]:
    found: dict[ProjectName, set[RunKey]] = defaultdict(set)
    for run in runs:
        found[run[0].project].add(run)
    return {project: frozenset(of_project) for project, of_project in found.items()}
