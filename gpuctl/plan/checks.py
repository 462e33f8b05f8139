"""What a plan found out, for the next: an object that is as it was, and wanted as it was, needs the same writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias

from gpuctl.k8s.objects import is_deleting
from gpuctl.k8s.workloads import own_run, run_of
from gpuctl.model.change import Change
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunKey
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import Body

_REF = attrgetter("ref")
Inventories: TypeAlias = Mapping[ProjectName, frozenset[ObjectRef]]


class Checks:
    """Findings about objects, wanted and live, each with all it depends on: of the last two plans, and no more.

    Objects are looked at all at once: those that are as they were cost next to nothing.
    """

    __slots__ = (
        "_books", "_declared", "_inventories", "_jobs", "_owners", "_runs", "_standing", "_templates", "_writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._books: Memo[ProjectName, tuple[Change, ...]] = Memo()
        self._declared: Memo[None, Mapping[ProjectName, frozenset[RunKey]]] = Memo()
        self._runs: Memo[None, Mapping[ProjectName, frozenset[RunKey]]] = Memo()
        self._inventories: Memo[None, Inventories] = Memo()
        self._jobs: Memo[None, Mapping[JobId, Job]] = Memo()
        self._owners: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._standing: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._templates: Sweep[ObjectRef, bool] = Sweep()
        self._writes: Sweep[ObjectRef, tuple[Change, ...]] = Sweep()

    def turn(self) -> None:
        """Another plan begins."""
        for memo in (self._books, self._declared, self._runs, self._inventories, self._jobs):
            memo.turn()

    def declared(self, jobs: tuple[Job, ...]) -> Mapping[ProjectName, frozenset[RunKey]]:
        """The runs that are declared, by project."""
        return self._declared.get(None, (jobs,), lambda: _by_project((job.id, job.digest) for job in jobs))

    def jobs(self, jobs: tuple[Job, ...]) -> Mapping[JobId, Job]:
        """The declared jobs by name."""
        return self._jobs.get(None, (jobs,), lambda: {job.id: job for job in jobs})

    def owners(self, items: Sequence[Manifest]) -> list[RunKey | None]:
        """The run that each wanted object is of."""
        return self._owners.over(map(_REF, items), [items], lambda place: run_of(items[place].body))

    def standing(
        self, refs: Sequence[ObjectRef], live: Sequence[Body], cluster: str
    ) -> Mapping[ProjectName, frozenset[RunKey]]:
        """The runs that live workloads are the objects of, by project; without those that are being deleted."""

        def find(place: int) -> RunKey | None:
            return None if is_deleting(live[place]) else own_run(refs[place], live[place], cluster)

        found = tuple(self._standing.over(refs, [live, repeat(cluster, len(refs))], find))
        return self._runs.get(None, (found,), lambda: _by_project(run for run in found if run is not None))

    def inventories(
        self, refs: tuple[ObjectRef, ...], facts: tuple[object, ...], find: Callable[[], Inventories]
    ) -> Inventories:
        """The wanted objects by project, by their names and by `facts` that are all else they depend on."""
        return self._inventories.get(None, (refs, *facts), find)

    def templates(
        self, items: Sequence[Manifest], live: Sequence[Body | None], find: Callable[[Manifest, Body | None], bool]
    ) -> list[bool]:
        """Whether each object was made with another pod template than is wanted."""
        return self._templates.over(map(_REF, items), [items, live], lambda place: find(items[place], live[place]))

    def writes(
        self,
        items: Sequence[Manifest],
        facts: Iterable[Iterable[object]],
        find: Callable[[Manifest], Iterable[Change]],
    ) -> list[tuple[Change, ...]]:
        """What to write for each wanted object; `facts`, a column each, are all it depends on besides itself."""
        return self._writes.over(map(_REF, items), [items, *facts], lambda place: tuple(find(items[place])))

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
