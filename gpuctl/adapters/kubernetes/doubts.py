"""Doubts that a right which was there is missing: an API server that has just started refuses every request until it
has read its roles. The right is missing if the server still refuses it some seconds later."""

from __future__ import annotations

import time
from collections.abc import Hashable

from gpuctl.adapters.kubernetes.faults import AWAY
from gpuctl.app.ports import RightDoubted, WorldFault
from gpuctl.app.rights import RightMissing
from gpuctl.model.units import DurationMs

_MS_NS = 1_000_000


class Doubts:
    """Which requests the server has allowed, and since when it refuses them. Safe for threads that ask about different
    requests."""

    def __init__(self, lasts_ms: DurationMs) -> None:
        """`lasts_ms`: a right is missing once it has been refused for this long."""
        self._lasts_ns = lasts_ms * _MS_NS
        self._allowed: set[Hashable] = set()
        self._refused_ns: dict[Hashable, int] = {}

    def allowed(self, what: Hashable) -> None:
        """Note that the server allowed the request."""
        self._allowed.add(what)
        self._refused_ns.pop(what, None)

    def judged(self, what: Hashable, fault: WorldFault) -> WorldFault:
        """The fault itself, or RightDoubted: the request was allowed before, and is not refused for long yet."""
        if not isinstance(fault, RightMissing) or what not in self._allowed:
            return fault
        now_ns = time.monotonic_ns()
        if now_ns - self._refused_ns.setdefault(what, now_ns) >= self._lasts_ns:
            return fault
        return RightDoubted(AWAY, "the API server refuses what it allowed before, as one that has just started does")
