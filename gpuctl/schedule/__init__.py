"""The fair-share engine: (Declared, ClusterState, now) -> Schedule. Pure integer arithmetic over frozen values.

Read `cycle` first: it is the table of contents. The rooms, from the bottom: `shares` (who may hold how much), `places`
(where work fits), `jobs` (what each says by itself), `victims` (who makes way), `promises` (places that are kept),
`queue` (who is asked), `admission` (who starts), `memory` (what is carried from cycle to cycle). Above them
`foresight`, which goes through a cycle again; beside them `books`, what it has given away so far; `reasons`, typed and
all in one place; `unschedulable`, `news` and `effort`, which save work or count it, and decide nothing.
"""

from __future__ import annotations

from gpuctl.schedule.cycle import schedule
from gpuctl.schedule.memory.outlook import Outlook

__all__ = ["Outlook", "schedule"]
