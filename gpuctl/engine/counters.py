"""What a cycle took, in steps that no machine makes faster or slower: what benchmarks and tests hold it to."""

from __future__ import annotations

from collections.abc import Mapping


class Counters:
    """Counts of one cycle.

    `read`: jobs whose own standing was worked out. `looks`: pending jobs that were checked whether an attempt could
    succeed. `turns`: attempts. `placings`: searches for a place that were not known to fail. `searches`: nodes searched
    for runs to pause.
    """

    __slots__ = ("looks", "placings", "read", "searches", "turns")

    def __init__(self) -> None:
        self.read = 0
        self.looks = 0
        self.turns = 0
        self.placings = 0
        self.searches = 0

    def counts(self) -> Mapping[str, int]:
        """All of them by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def more(self, other: Counters) -> None:
        """Count what another pass of the cycle took."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
