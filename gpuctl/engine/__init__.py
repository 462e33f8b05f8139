"""The fair-share engine: (Declared, ClusterState, now) -> Schedule. Pure integer arithmetic over frozen values.

README.md beside this file shows the pipeline in one drawing and goes through an example. Read `cycle` first: it is
the table of contents; `lookahead` makes cycles in advance where runs make way. The folders, from the bottom: `shares`
(how much each project may hold), `capacity` (what is free, and where work fits), `jobs` (what each job and run says by
itself), `victims` (which runs make way), `admit` (which jobs are attempted, in which order, and what comes of it),
`cache` (what is carried from cycle to cycle). Beside them `snapshot`, the one thing that changes while a cycle decides;
`restraints`, what a cycle has to do otherwise; `reasons`, typed and all in one place; `dirty` and `counters`, which
save work or count it, and decide nothing.
"""

from __future__ import annotations

from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.lookahead import schedule

__all__ = ["EngineCache", "schedule"]
