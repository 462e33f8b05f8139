"""The work of a cycle in machine-independent steps, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    """Counts of one cycle.

    `read`: jobs whose own state was read. `checks`: pending jobs checked for schedulability. `attempts`: jobs
    attempted. `placings`: searches for a placement that no failed request ruled out. `considered`: runs, and parts of
    elastic runs, listed in searches for victims; `searches`: nodes searched for victims. `tried`: placements tried
    beside moved runs. `supposed`: steps spent on what follows from sets of victims. `cut_off`: searches for victims
    that ended at their bound and found none, although there may be some.
    """

    read: int = 0
    checks: int = 0
    attempts: int = 0
    placings: int = 0
    considered: int = 0
    searches: int = 0
    tried: int = 0
    supposed: int = 0
    cut_off: int = 0

    def counts(self) -> Mapping[str, int]:
        """All counts by name."""
        return asdict(self)
