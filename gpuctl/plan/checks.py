"""What a plan found out, for the next: an object that is as it was, and wanted as it was, needs the same writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias

from gpuctl.k8s.objects import is_deleting
from gpuctl.k8s.workloads import own_run
from gpuctl.model.change import Change
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunKey
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import Body, Ledger
from gpuctl.plan.gap import Gap, gap_between

Inventories: TypeAlias = Mapping[ProjectName, frozenset[ObjectRef]]


class Checks:
    """Findings about objects, wanted and live, each with all it depends on: of the last two plans, and no more.

    Objects are looked at all at once: those that are as they were cost next to nothing.
    """

    __slots__ = (
        "_books", "_declared", "_extras", "_gaps", "_inventories", "_jobs", "_ledgers", "_runs", "_standing",
        "_staying", "_writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._books: Memo[ProjectName, tuple[Change, ...]] = Memo()
        self._declared: Memo[None, Mapping[ProjectName, frozenset[RunKey]]] = Memo()
        self._runs: Memo[None, Mapping[ProjectName, frozenset[RunKey]]] = Memo()
        self._inventories: Memo[None, Inventories] = Memo()
        self._jobs: Memo[None, Mapping[JobId, Job]] = Memo()
        self._extras: Memo[ProjectName, frozenset[ObjectRef]] = Memo()
        self._ledgers: Memo[ProjectName, Ledger] = Memo()
        self._staying: Memo[None, frozenset[ObjectRef]] = Memo()
        self._gaps: Sweep[ObjectRef, Gap | None] = Sweep()
        self._standing: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._writes: Memo[ObjectRef, tuple[Change, ...]] = Memo()

    def turn(self) -> None:
        """Another plan begins."""
        for memo in (
            self._books, self._declared, self._extras, self._inventories, self._jobs, self._ledgers, self._runs,
            self._staying, self._writes,
        ):  # fmt: skip
            memo.turn()

    def declared(self, jobs: tuple[Job, ...]) -> Mapping[ProjectName, frozenset[RunKey]]:
        """The runs that are declared, by project."""
        return self._declared.get(None, (jobs,), lambda: _by_project((job.id, job.digest) for job in jobs))

    def jobs(self, jobs: tuple[Job, ...]) -> Mapping[JobId, Job]:
        """The declared jobs by name."""
        return self._jobs.get(None, (jobs,), lambda: {job.id: job for job in jobs})

    def gaps(self, refs: Sequence[ObjectRef], items: Sequence[Manifest], lives: Sequence[Body | None]) -> list[Gap]:
        """Where a wanted object is not there as it is wanted, in the order of the objects."""
        found = self._gaps.over(refs, [items, lives], lambda place: gap_between(items[place], lives[place]))
        return [gap for gap in found if gap is not None]

    def standing(
        self, refs: Sequence[ObjectRef], live: Sequence[Body], cluster: str
    ) -> Mapping[ProjectName, frozenset[RunKey]]:
        """The runs that live workloads are the objects of, by project; without those that are being deleted."""

        def find(place: int) -> RunKey | None:
            return None if is_deleting(live[place]) else own_run(refs[place], live[place], cluster)

        found = tuple(self._standing.over(refs, [live, repeat(cluster, len(refs))], find))
        return self._runs.get(None, (found,), lambda: _by_project(run for run in found if run is not None))

    def inventories(
        self, refs: Sequence[ObjectRef], facts: tuple[object, ...], find: Callable[[], Inventories]
    ) -> Inventories:
        """The wanted objects by project, by their names and by `facts` that are all else they depend on."""
        return self._inventories.get(None, (refs, *facts), find)

    def staying(self, refs: Sequence[ObjectRef], retained: frozenset[ObjectRef]) -> frozenset[ObjectRef]:
        """All that is wanted, and what is left as it is."""
        return self._staying.get(None, (refs, retained), lambda: retained.union(refs))

    def extras(
        self, project: ProjectName, inventory: frozenset[ObjectRef], wanted: frozenset[ObjectRef]
    ) -> frozenset[ObjectRef]:
        """What a project's inventory has besides the objects that are wanted of it."""
        return self._extras.get(project, (inventory, wanted), lambda: inventory - wanted)

    def ledger(self, project: ProjectName, facts: tuple[object, ...], find: Callable[[], Ledger]) -> Ledger:
        """The ledger as it is to be written, by `facts` that are all it depends on."""
        return self._ledgers.get(project, facts, find)

    def writes(
        self, gap: Gap, facts: tuple[object, ...], find: Callable[[Gap], Iterable[Change]]
    ) -> tuple[Change, ...]:
        """What to write to close a gap; `facts` are all it depends on besides."""
        return self._writes.get(gap.item.ref, (gap, *facts), lambda: tuple(find(gap)))

    def book(
        self, project: ProjectName, facts: tuple[object, ...], find: Callable[[], Iterable[Change]]
    ) -> tuple[Change, ...]:
        """The writes of a project's ledger, by `facts` that are all they depend on."""
        return self._books.get(project, facts, lambda: tuple(find()))


def _by_project(runs: Iterable[RunKey]) -> Mapping[ProjectName, frozenset[RunKey]]:
    found: dict[ProjectName, set[RunKey]] = defaultdict(set)
    for run in runs:
        found[run[0].project].add(run)
    return {project: frozenset(of_project) for project, of_project in found.items()}
