"""The projects whose facts changed since a reader read them last.

Example: a run of project A ends. A is marked dirty, and the next cycle counts A's demand and ranks A's queue again, and
no other project's. A project is marked when its allocations, its share or its pending jobs change. So a cycle costs
what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.model.ids import ProjectName


class DirtyReader:
    """One reader. `unread`: the projects marked since it read last; at first all of them."""

    __slots__ = ("_dirty", "unread")

    def __init__(self, dirty: DirtyProjects, projects: Iterable[ProjectName]) -> None:
        self._dirty = dirty
        self.unread = dict.fromkeys(projects)

    def take(self) -> Mapping[ProjectName, None]:
        """Read the marked projects, once each. Cost: what it returns, and the number of readers."""
        self._dirty.spread()
        taken, self.unread = self.unread, {}
        return taken


class DirtyProjects:
    """The marks that have not been handed to all readers yet."""

    __slots__ = ("_fresh", "_projects", "_readers", "_share_readers", "_shares")

    def __init__(self, projects: Iterable[ProjectName]) -> None:
        self._projects = tuple(projects)
        self._readers: list[DirtyReader] = []
        self._share_readers: list[DirtyReader] = []
        self._fresh: dict[ProjectName, None] = {}
        self._shares: dict[ProjectName, None] = {}

    def reader(self) -> DirtyReader:
        """Add a reader of all marks."""
        reader = self.reader_but_for_shares()
        self._share_readers.append(reader)
        return reader

    def reader_but_for_shares(self) -> DirtyReader:
        """Add a reader of all marks but those of a share that changed."""
        reader = DirtyReader(self, self._projects)
        self._readers.append(reader)
        return reader

    def of_share(self, project: ProjectName) -> None:
        """Mark a project because its share changed."""
        self._shares[project] = None

    def of(self, project: ProjectName) -> None:
        """Mark a project."""
        self._fresh[project] = None

    def of_all(self) -> None:
        """Mark every project."""
        self._fresh.update(dict.fromkeys(self._projects))

    def spread(self) -> None:
        """Hand the marks to all readers."""
        for fresh, readers in ((self._fresh, self._readers), (self._shares, self._share_readers)):
            if fresh:
                for reader in readers:
                    reader.unread.update(fresh)
                fresh.clear()
