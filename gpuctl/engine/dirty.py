"""The projects whose facts have changed, so that a cycle costs what changed.

Example: a run of project A ends. A is marked dirty, and the next cycle counts A's demand and ranks A's queue again, and
no other project's. A project is marked when its allocations, its share or its pending jobs change.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from gpuctl.model.ids import ProjectName


class DirtyProjects:
    """Marks of projects, numbered. `count`: how many were made; each reader keeps the count of its last reading."""

    __slots__ = ("_marks", "count")

    def __init__(self, projects: Iterable[ProjectName]) -> None:
        self.count = 0
        self._marks: dict[ProjectName, int] = {}
        for project in projects:
            self.of(project)

    def of(self, project: ProjectName) -> None:
        """Mark a project: its mark becomes the last one."""
        self.count += 1
        self._marks.pop(project, None)
        self._marks[project] = self.count

    def of_all(self) -> None:
        """Mark every project."""
        for project in tuple(self._marks):
            self.of(project)

    def since(self, count: int) -> list[ProjectName]:
        """The projects marked after so many marks. Cost: what it returns."""
        return [project for project, _ in takewhile(lambda mark: mark[1] > count, reversed(self._marks.items()))][::-1]
