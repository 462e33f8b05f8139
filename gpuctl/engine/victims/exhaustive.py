"""Every set of victims, where there are few candidates: exact where a walk from node to node is not.

The walk of `search` takes worker after worker from the node where that costs least, with no way back. It misses sets
that free several nodes at once, as a gang does, and sets that must also hold work on other nodes, to make a project
smaller. Here all sets are tried, branch and bound, from the cheapest candidates on.

Example: a job asks for 2 workers of 1 GPU; its project may take 2 GPUs from another, which runs a gang on nodes 1 and 2
and a job on node 3. The walk takes the job, and then may not take the gang. The gang alone is the answer.
"""

from __future__ import annotations

from operator import itemgetter

from gpuctl.engine.capacity.gang import PoolOption, slots_by_node
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.reclaim import VictimTotals
from gpuctl.engine.victims.rules import VictimRule, stopped_count, totals_with_all, with_leaving
from gpuctl.engine.victims.what_if_node import WhatIfNode
from gpuctl.model.ids import NodeName
from gpuctl.model.units import GpuMilli

MAX_CANDIDATES = 40
"""With more candidates no set is tried here: what the walk finds is taken, and what it misses is missed."""

MAX_STEPS = 2_000
"""Sets tried for one job. All sets of 10 candidates are fewer; bounds cut most of those of 20."""


class ExhaustiveSearch:
    """The cheapest set of a rule's candidates with which all workers of an option fit.

    A candidate is taken with what leaves when it leaves: of an elastic run its last worker, its last two, or all.
    """

    __slots__ = ("_best", "_is_first", "_nodes", "_option", "_rule", "_slots", "_snapshot", "_steps", "_units")

    def __init__(
        self, snapshot: Snapshot, option: PoolOption, rule: VictimRule, first: tuple[Allocation, ...] | None
    ) -> None:
        """`first` is a set that does, if one is known. Where the walk was only after room, it stays the best unless
        fewer GPUs or runs will do, for the walk knows which nodes are close together.
        """
        self._snapshot = snapshot
        self._option = option
        self._rule = rule
        units = [with_leaving(snapshot, (run,)) for run in rule.candidates()]
        ranked = ((rule.lost_milli(unit), snapshot.preference(unit[0]), unit) for unit in units)
        self._units = [(lost, unit) for lost, _, unit in sorted(ranked, key=itemgetter(0, 1))]
        self._steps = 0
        self._nodes: dict[NodeName, WhatIfNode] = {}
        for unit in units:
            for name in (name for run in unit for name in run.nodes()):
                room = snapshot.future_idle.rooms.get(name)
                if room is not None and room.pool == option.pool.name and name not in self._nodes:
                    self._nodes[name] = WhatIfNode(room)
        self._slots = sum(slots_by_node(snapshot.future_idle, option).values())
        cost = rule.cost(first) if first else None
        self._best = None if not first or cost is None else (cost, first)
        self._is_first = self._best is not None and rule.is_plain

    def run(self) -> tuple[Allocation, ...] | None:
        """The cheapest set found; None where there is none, or too many would have to be tried."""
        self._extend(0, (), {}, 0)
        return None if self._best is None else self._best[1]

    def _extend(self, start: int, chosen: tuple[Allocation, ...], totals: VictimTotals, price: int) -> None:
        """Try all sets that hold those chosen and any of the candidates from `start` on."""
        self._steps += 1
        if self._slots >= self._option.request.workers:
            self._consider(chosen)
            if self._rule.missing(totals) is None:
                return
        milli, jobs = self._rule.lost_milli(chosen), {run.run.job for run in chosen}
        runs = stopped_count(chosen)
        for position in range(start, len(self._units)):
            lost_milli, unit = self._units[position]
            if self._steps > MAX_STEPS or self._is_beaten(price, milli + lost_milli, runs):
                return  # Those after it are no smaller.
            after = totals_with_all(totals, unit, self._snapshot)
            price_after = self._rule.price(after)
            if price_after is not None and unit[0].run.job not in jobs:
                self._leave(unit, 1)
                self._extend(position + 1, chosen + unit, after, price_after)
                self._leave(unit, -1)

    def _is_beaten(self, price: int, milli: GpuMilli, runs: int) -> bool:
        return self._best is not None and (price, milli, runs) > self._best[0][:3]

    def _leave(self, unit: tuple[Allocation, ...], sign: int) -> None:
        """Take runs off all their nodes; with -1, put them back."""
        request = self._option.request
        for run in unit:
            for node in (self._nodes[name] for name in run.nodes() if name in self._nodes):
                before = node.slots(request)
                node.remove(run, sign)
                self._slots += node.slots(request) - before

    def _consider(self, chosen: tuple[Allocation, ...]) -> None:
        cost = self._rule.cost(chosen)
        if not chosen or cost is None:
            return
        if self._best is None or (cost[:3] < self._best[0][:3] if self._is_first else cost < self._best[0]):
            self._best, self._is_first = (cost, chosen), False
