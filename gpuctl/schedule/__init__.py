"""The fair-share engine: (Declared, ClusterState, now) -> Schedule. Pure integer arithmetic over frozen values.

Read `cycle` first: it is the table of contents. Below it, from the bottom: `reasons`, `fairshare` (arithmetic),
`fragmentation`, `prices` and `habits` (what is usually asked for), `capacity` and `ledger` (room), `accounts` (who
holds how much), `fit`, `placement`, `topology` and `gang` (places), `ordering` and `demand` (turns), `learning`,
`interactive` and `runs` (what runs say by themselves), `books`, `victims`, its rules `reclaim` and `preempt`, `layout`,
`reservation`, `turns` and `admission`. `refusals`, `ranking`, `verdicts`, `lineup`, `standing` and `outlook` save work
and decide nothing.
"""

from __future__ import annotations

from gpuctl.schedule.cycle import schedule
from gpuctl.schedule.outlook import Outlook

__all__ = ["Outlook", "schedule"]
