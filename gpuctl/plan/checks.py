"""What a plan found out, for the next: an object that is as it was, and wanted as it was, needs the same writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuctl.k8s.objects import is_deleting
from gpuctl.k8s.workloads import own_run, run_of
from gpuctl.model.change import Change
from gpuctl.model.ids import ObjectRef, ProjectName, RunKey
from gpuctl.model.manifest import Manifest
from gpuctl.model.memo import Memo
from gpuctl.model.state import Body


class Checks:
    """Findings about objects, wanted and live, each with all it depends on: of the last two plans, and no more."""

    __slots__ = ("_books", "_owners", "_standing", "_templates", "_writes")

    def __init__(self) -> None:
        self._books: Memo[ProjectName, tuple[Change, ...]] = Memo()
        self._owners: Memo[ObjectRef, RunKey | None] = Memo()
        self._standing: Memo[ObjectRef, RunKey | None] = Memo()
        self._templates: Memo[ObjectRef, bool] = Memo()
        self._writes: Memo[ObjectRef, tuple[Change, ...]] = Memo()

    def turn(self) -> None:
        """Another plan begins."""
        for memo in (self._books, self._owners, self._standing, self._templates, self._writes):
            memo.turn()

    def run_of(self, item: Manifest) -> RunKey | None:
        """The run a wanted object is of."""
        return self._owners.get(item.ref, (item,), lambda: run_of(item.body))

    def standing(self, ref: ObjectRef, live: Body, cluster: str) -> RunKey | None:
        """The run that a live workload is the object of; None too for one that is being deleted."""
        return self._standing.get(
            ref, (live, cluster), lambda: None if is_deleting(live) else own_run(ref, live, cluster)
        )

    def template(self, item: Manifest, live: Body, find: Callable[[Manifest, Body], bool]) -> bool:
        """Whether an object was made with another pod template than is wanted."""
        return self._templates.get(item.ref, (item, live), lambda: find(item, live))

    def writes(
        self, item: Manifest, facts: tuple[object, ...], find: Callable[[], Iterable[Change]]
    ) -> tuple[Change, ...]:
        """What to write for a wanted object, by `facts` that are all it depends on."""
        return self._writes.get(item.ref, (item, *facts), lambda: tuple(find()))

    def book(
        self, project: ProjectName, facts: tuple[object, ...], find: Callable[[], Iterable[Change]]
    ) -> tuple[Change, ...]:
        """The writes of a project's ledger, by `facts` that are all they depend on."""
        return self._books.get(project, facts, lambda: tuple(find()))
