"""Whether a right is missing that was there. An API server that has just started refuses all until it has read its
roles; and which right was taken away is told only where it stays away."""

from __future__ import annotations

import time
from collections.abc import Hashable

from gpuctl.adapters.kubernetes.faults import AWAY
from gpuctl.app.ports import RightDoubted, WorldFault
from gpuctl.app.rights import RightMissing
from gpuctl.model.units import DurationMs

_MS_NS = 1_000_000


class Doubts:
    """What was allowed, and since when it is refused. Safe for threads that ask about different things."""

    def __init__(self, lasts_ms: DurationMs) -> None:
        """`lasts_ms`: a right that is refused for so long is missing."""
        self._lasts_ns = lasts_ms * _MS_NS
        self._allowed: set[Hashable] = set()
        self._refused_ns: dict[Hashable, int] = {}

    def allowed(self, what: Hashable) -> None:
        """Note that the server did it."""
        self._allowed.add(what)
        self._refused_ns.pop(what, None)

    def judged(self, what: Hashable, fault: WorldFault) -> WorldFault:
        """The fault; a missing right is doubted at first, where the right was there."""
        if not isinstance(fault, RightMissing) or what not in self._allowed:
            return fault
        now_ns = time.monotonic_ns()
        if now_ns - self._refused_ns.setdefault(what, now_ns) >= self._lasts_ns:
            return fault
        return RightDoubted(AWAY, "the API server refuses what it allowed before, as one that has just started does")
