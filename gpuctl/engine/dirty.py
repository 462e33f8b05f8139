"""What a cycle looks at again: the projects about which there is news, for each who reads them.

There is news about a project when it holds more or less, or other runs, when its share is another, and when somebody
of it comes to wait or waits no more. Whoever keeps what follows from these reads the news before they use it; so a
cycle costs what has changed, whatever there is besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.model.ids import ProjectName


class DirtyReader:
    """One who reads the news, and what is unread so far; in the beginning everything is."""

    __slots__ = ("_news", "unread")

    def __init__(self, news: DirtyProjects, projects: Iterable[ProjectName]) -> None:
        self._news = news
        self.unread = dict.fromkeys(projects)

    def take(self) -> Mapping[ProjectName, None]:
        """The projects there is news about, once each. Cost: what it returns, and the readers."""
        self._news.spread()
        taken, self.unread = self.unread, {}
        return taken


class DirtyProjects:
    """Who reads, and what there is to be read of."""

    __slots__ = ("_fresh", "_projects", "_readers", "_share_readers", "_shares")

    def __init__(self, projects: Iterable[ProjectName]) -> None:
        self._projects = tuple(projects)
        self._readers: list[DirtyReader] = []
        self._share_readers: list[DirtyReader] = []
        self._fresh: dict[ProjectName, None] = {}
        self._shares: dict[ProjectName, None] = {}

    def reader(self) -> DirtyReader:
        """One who reads everything from now on."""
        reader = self.reader_but_for_shares()
        self._share_readers.append(reader)
        return reader

    def reader_but_for_shares(self) -> DirtyReader:
        """One who reads everything from now on, but not that only a share is another."""
        reader = DirtyReader(self, self._projects)
        self._readers.append(reader)
        return reader

    def of_share(self, project: ProjectName) -> None:
        """A project's share is not as it was."""
        self._shares[project] = None

    def of(self, project: ProjectName) -> None:
        """Something about a project is not as it was."""
        self._fresh[project] = None

    def of_all(self) -> None:
        """Something that may concern every project is not as it was."""
        self._fresh.update(dict.fromkeys(self._projects))

    def spread(self) -> None:
        """Give everybody what is fresh."""
        for fresh, readers in ((self._fresh, self._readers), (self._shares, self._share_readers)):
            if fresh:
                for reader in readers:
                    reader.unread.update(fresh)
                fresh.clear()
