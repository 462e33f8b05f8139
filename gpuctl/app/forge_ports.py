"""The port of code hosts: requests for review, and what is written on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpuctl.model.ids import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
    """A pull request, or merge request, to open: a branch, where it is to be merged, and the words."""

    source: str
    target: str
    title: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """An open pull or merge request. `is_new`: it was opened just now."""

    number: int
    url: str
    is_new: bool


class Forge(Protocol):
    """A repository's code host, GitHub or GitLab. Every method raises ForgeFault."""

    def put_comment(self, number: int, marker: str, body: str) -> str:
        """Make `body` the comment of this account on a request that begins with `marker`: edit it, or create it.

        `body` begins with the marker itself. Comments of other accounts are left alone. Returns the comment's address.
        Cost: a request for each 50 comments, and one or two more.
        """
        ...

    def set_labels(self, number: int, ours: frozenset[str], wanted: frozenset[str]) -> None:
        """Of the labels `ours`, leave a request exactly those that are `wanted`. Other labels are left alone."""
        ...

    def commits_of(self, number: int) -> frozenset[Revision]:
        """The newest commit of a request, and the one that merges it, where the code host has made that."""
        ...

    def open_request(self, wanted: ReviewRequest) -> OpenRequest:
        """Open a request for a branch; the one that is open already for the two branches is returned unchanged."""
        ...
