"""The port of code hosts: requests for review, and what is written on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpuctl.model.ids import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
    """A pull or merge request to open: its branch, the branch to merge into, and its words."""

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
        """Write `body` as this account's comment that begins with `marker`: edit that comment, or create it.

        `body` begins with the marker itself. Comments of other accounts are left alone. Returns the comment's address.
        Cost: a request for each 50 comments, and one or two more.
        """
        ...

    def set_labels(self, number: int, ours: frozenset[str], wanted: frozenset[str]) -> None:
        """Of the labels `ours`, leave exactly the `wanted` ones on a request. Other labels are left alone."""
        ...

    def commits_of(self, number: int) -> frozenset[Revision]:
        """The newest commit of a request, and the commit that merges it, where the code host has made one."""
        ...

    def open_request(self, wanted: ReviewRequest) -> OpenRequest:
        """Open a request for a branch. If one is open already for the two branches, it is returned unchanged."""
        ...
