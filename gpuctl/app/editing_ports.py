"""The ports of the verbs that edit declarations: a person's working tree, and commits of files of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from gpuctl.app.forge_ports import Forge
from gpuctl.app.ports import WorldFault
from gpuctl.diag.wording import message
from gpuctl.model.ids import Revision


class NotEdited(WorldFault):
    """The edit was not made; nothing is written."""


def not_edited(code: str, **params: str) -> NotEdited:
    """The fault of a code, in its words."""
    return NotEdited(code, message(code, params))


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that holds an edit. `previous`: the branch that was checked out."""

    revision: Revision
    branch: str
    previous: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPlace:
    """Where a review of a commit's branch is opened: the remote's address, and the branch it is to be merged into."""

    remote_url: str
    target: str


class Draft(Protocol):
    """A commit of some files that has been checked to be possible."""

    def commit(self, after: Mapping[str, bytes | None], text: str) -> Committed:
        """Commit these files with these contents, and nothing else. Raises SourceUnavailable."""
        ...

    def review_place(self) -> ReviewPlace:
        """Where the branch of the commit is reviewed. Raises SourceUnavailable GPU6122: the place is not known, or the
        branch is the one that it would be merged into."""
        ...

    def push(self, made: Committed) -> str:
        """Push the commit's branch; returns the remote's name. Raises SourceUnavailable."""
        ...


class Checkout(Protocol):
    """The working tree that is edited, and where changes of it are reviewed."""

    def write(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """Replace a file at once, or create or delete it. Raises NotEdited for a file that is not as `before` says, or
        that is outside of the repository."""
        ...

    def draft(self, before: Mapping[str, bytes | None], branch: str | None) -> Draft:
        """Prepare a commit of these files, on a new branch if one is named. Raises SourceUnavailable where no commit
        can be made: there is no author, a file has other changes, a merge is under way."""
        ...

    def forge(self, place: ReviewPlace) -> AbstractContextManager[Forge]:
        """The code host of a remote's address, for reviews. Raises ForgeFault: no token, or an unknown host."""
        ...
