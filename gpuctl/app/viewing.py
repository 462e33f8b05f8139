"""What the loop hands to the dashboard: the objects as last read, while somebody looks at pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.state import RawObjects
from gpuctl.model.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The cluster's objects, and when they were last read.

    `leader`: the replica that leads, empty if not known; None: this one leads, and enforces `revision`. `unread`: why
    kinds could not be read then.
    """

    at_ms: Instant
    objects: RawObjects
    leader: str | None = None
    revision: Revision = NO_REVISION
    unread: tuple[str, ...] = ()


class Viewer(Protocol):
    """Shows the cluster to people. Nothing depends on it."""

    def is_wanted(self) -> bool:
        """Whether a page was requested lately."""
        ...

    def offer(self, sight: Sight) -> None:
        """Offer objects to show; newer ones replace those that still wait. Returns at once, never raises."""
        ...


class Unviewed:
    """Implements the port Viewer where there is no dashboard."""

    def is_wanted(self) -> bool:
        """Never."""
        return False

    def offer(self, sight: Sight) -> None:
        """Drop it."""


UNVIEWED = Unviewed()
