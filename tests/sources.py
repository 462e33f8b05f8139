"""What sources of tests have in common, which make up their commits: one line of them, and nothing said with any."""

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
        """It has no signatures, and asks for none."""

    def confirmations(self, since: Revision, until: Revision, within: str | None = None) -> frozenset[str]:
        del since, until, within
        return frozenset()
