"""Answers what a change would do: the change in the form, or a branch. One answer at a time, since a plan takes
seconds.

Nothing is written: the files are read from a repository, changed in memory, and planned on the objects as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from gpuctl.adapters.dashboard.recent import Recent
from gpuctl.adapters.files import read_tree
from gpuctl.adapters.gitmerge import Compared, compare
from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import unavailable
from gpuctl.app.ports import Clock, WorldFault
from gpuctl.app.whatif import Answer, Question, answer, asked
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.edit import Refused
from gpuctl.model.comparison import Comparison
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.state import RawObjects
from gpuctl.model.units import DurationMs

MOST_BRANCHES = 200
_FRESH_MS: DurationMs = 30_000
_MOST_KEPT = 8


class Declarations(Protocol):
    """A repository with the declarations. Each method may raise WorldFault."""

    def newest(self) -> SourceTree:
        """The declarations as they are now."""
        ...

    def branches(self) -> tuple[str, ...]:
        """The branches, newest commit first, at most MOST_BRANCHES."""
        ...

    def compared(self, branch: str) -> Compared:
        """The declarations as they are now, and as they would be with a branch merged."""
        ...


@dataclass(frozen=True, slots=True)
class InFolder:
    """Implements the port Declarations for the cluster's folder in a working tree, as committed there."""

    folder: Path

    def newest(self) -> SourceTree:
        """The declarations in the newest commit."""
        repository, path = Repository.containing(self.folder)
        return repository.tree(repository.resolve("HEAD"), path)

    def branches(self) -> tuple[str, ...]:
        """The branches of the repository, also of its remotes as last fetched."""
        repository, _ = Repository.containing(self.folder)
        return repository.branches(MOST_BRANCHES)

    def compared(self, branch: str) -> Compared:
        """The declarations with a branch merged into what is checked out."""
        return compare(self.folder, "HEAD", branch, read_tree)


@dataclass(frozen=True, slots=True)
class InClone:
    """Implements the port Declarations for a controller's clone, which has only the branch that the controller
    follows."""

    clone: Path
    path: str
    revision: Callable[[], Revision]

    def newest(self) -> SourceTree:
        """The declarations in the commit that the controller enforces."""
        revision = self.revision()
        if revision == NO_REVISION:
            raise unavailable("GPU8006", revision="in force", url="this replica, which does not lead")
        return Repository(self.clone, bare=True).tree(revision, self.path)

    def branches(self) -> tuple[str, ...]:
        """None: the clone has no other branches."""
        return ()

    def compared(self, branch: str) -> Compared:
        """Raise WorldFault: the clone has no other branches."""
        raise unavailable("GPU8006", revision=branch, url="the controller's clone")


class Busy(WorldFault):
    """Another answer is being computed."""

    def __init__(self) -> None:
        super().__init__("GPU7036", "another plan is being made: try again in some seconds")


class Asking:
    """Answers one question at a time, and keeps some answers for a while. Safe for threads."""

    def __init__(self, declarations: Declarations, objects: Callable[[], RawObjects], clock: Clock) -> None:
        self.declarations = declarations
        self._objects = objects
        self._clock = clock
        self._lock = Lock()
        self._kept = Recent(clock, _FRESH_MS, _MOST_KEPT)

    def question(self, question: Question) -> Answer:
        """The effect of a change. Raises WorldFault if nothing can be read, or another answer is being computed."""
        return self._alone(question, lambda: self._of_question(question))

    def branch(self, branch: str) -> Answer:
        """The effect of merging a branch. Raises WorldFault likewise."""
        return self._alone(branch, lambda: self._of_branch(branch))

    def _of_question(self, question: Question) -> Answer:
        before = self.declarations.newest()
        try:
            after = asked(before, question)
        except Refused as error:
            return Answer(plan=None, mistakes=(error.diagnostic,))
        named = Comparison(base="now", head="the change", folder=before.cluster_dir, base_commit=before.revision)
        return answer((before, after), named, self._objects(), self._clock.now_ms())

    def _of_branch(self, branch: str) -> Answer:
        found = self.declarations.compared(branch)
        if found.before is None or found.after is None:
            raise unavailable("GPU8003", path=found.comparison.folder, revision=branch)
        return answer((found.before, found.after), found.comparison, self._objects(), self._clock.now_ms())

    def _alone(self, key: Question | str, make: Callable[[], Answer]) -> Answer:
        if not self._lock.acquire(blocking=False):
            raise Busy
        try:
            return self._kept.get(key, lambda _: make())
        finally:
            self._lock.release()


def mistake_text(mistake: Diagnostic) -> str:
    """A mistake in one line."""
    return f"{mistake.code}: {mistake.message} ({mistake.span.file}:{mistake.span.line})"
