"""A base for tests' sources that make up their commits: commits in one line, without messages or signatures."""

from __future__ import annotations

from collections.abc import Collection

from gpuctl.model.history import Commit
from gpuctl.model.ids import Revision


class NumberedCommits:
    """Commits whose revisions are their numbers, without messages, signatures and confirmations."""

    def follows(self, older: Revision, newer: Revision) -> bool:
        return older <= newer

    def commits(self, revisions: Collection[Revision]) -> tuple[Commit, ...]:
        del revisions
        return ()

    def verify(self, since: Collection[Revision], head: Revision) -> None:
        """Accept everything: these commits have no signatures, and none are asked for."""

    def confirmations(self, since: Revision, until: Revision, within: str | None = None) -> frozenset[str]:
        del since, until, within
        return frozenset()
