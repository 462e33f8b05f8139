"""The projects whose facts have changed, so that a cycle costs what changed.

Example: a run of project A ends. A is marked dirty, and the next cycle counts A's demand again and tells its jobs anew
why they wait, and does neither for any other project. A project is marked when its allocations, its share or its
pending jobs change.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.model.ids import ProjectName


class DirtyProjects:
    """Two sets of marks, in the order in which they were made. Each has one reader, which empties it.

    A project of which only the share changed is not counted again.
    """

    __slots__ = ("_all", "_to_count", "_to_explain")

    def __init__(self, projects: Iterable[ProjectName]) -> None:
        self._all = dict.fromkeys(projects)
        self._to_count = dict(self._all)
        self._to_explain = dict(self._all)

    def of(self, project: ProjectName) -> None:
        """Mark a project."""
        self._to_count[project] = self._to_explain[project] = None

    def of_share(self, project: ProjectName) -> None:
        """Mark a project because its share changed."""
        self._to_explain[project] = None

    def of_all(self) -> None:
        """Mark every project."""
        self._to_count.update(self._all)
        self._to_explain.update(self._all)

    def to_count(self) -> list[ProjectName]:
        """The marked projects whose demand is to be counted again. They are not marked any more."""
        found = list(self._to_count)
        self._to_count.clear()
        return found

    def to_explain(self) -> list[ProjectName]:
        """The marked projects whose jobs may wait for another reason now. They are not marked any more."""
        found = list(self._to_explain)
        self._to_explain.clear()
        return found
