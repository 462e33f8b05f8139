"""The fair-share engine: (Declared, ClusterState, now) -> Schedule. Pure integer arithmetic over frozen values.

README.md beside this file shows the pipeline in one drawing and goes through an example. Read `cycle` first: it is the
table of contents. `lookahead` makes further cycles in advance when runs make way. The folders, from the bottom:
`shares` (how much each project may hold), `capacity` (what is free, and where work fits), `jobs` (what each job and run
says on its own), `victims` (which runs make way), `admit` (which jobs are attempted, in which order, and with what
result), `cache` (what is carried from cycle to cycle). Beside them: `snapshot`, the only state that a cycle changes
while it decides; `restraints`, what a cycle must do differently; `reasons`, all typed reasons; `dirty` and `counters`,
which save work or count it, and decide nothing.
"""

from __future__ import annotations

from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.lookahead import schedule

__all__ = ["EngineCache", "schedule"]
