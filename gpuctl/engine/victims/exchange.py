"""The cheapest runs to pause under a ceiling, so that a job fits and at least so many GPUs leave with them.

Room is about places, a ceiling about amounts wherever they are: runs that make room on one node are completed by any
others. Least GPUs, then fewest runs, then by preference. Exact for one worker up to MAX_STEPS; for a gang it starts
from the runs that `victims` finds to make room. No run of what it returns can be spared. The rule is one that lets all
its candidates be taken together, as inside a project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice
from typing import TypeAlias

from gpuctl.engine.capacity.gang import PoolOption, place_in, seats
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.node_search import NodeSearch, Steps
from gpuctl.engine.victims.rules import Rule
from gpuctl.engine.victims.search import by_node, find_victims
from gpuctl.engine.victims.what_if_node import WhatIfNode
from gpuctl.model.units import GpuMilli

MAX_STEPS = 2_000
"""Sets of runs tried for one job in all."""

Loss: TypeAlias = tuple[GpuMilli, int]
"""GPUs and runs that leave."""

Cost: TypeAlias = tuple[GpuMilli, int, tuple[Preference, ...]]
"""GPUs, runs, and their preferences; smaller is better."""


def find_exchange(
    snapshot: Snapshot, option: PoolOption, rule: Rule, lost_milli: GpuMilli
) -> tuple[Allocation, ...] | None:
    """The runs to pause so that an option fits and at least so many GPUs leave with them; None when it can't be.

    Cost: O(candidates), and the sets tried on the nodes that may be cheapest.
    """
    candidates = rule.candidates()
    if place_in(snapshot.future_idle, option) is not None:
        return SmallestCover(candidates).complete((), lost_milli)
    room = find_victims(snapshot, option, rule)
    chosen = None if room is None else SmallestCover(candidates).complete(room, lost_milli)
    return None if chosen is None else _Search(snapshot, option, candidates, lost_milli).run(chosen)


class SmallestCover:
    """Runs by size, to complete an amount with: as little more than it as can be, then in as few of them."""

    __slots__ = ("_by_size", "_sizes")

    def __init__(self, allocations: Iterable[Allocation]) -> None:
        """`allocations` in order of preference."""
        self._by_size: dict[GpuMilli, list[Allocation]] = {}
        for allocation in allocations:
            if allocation.total_milli > 0:
                self._by_size.setdefault(allocation.total_milli, []).append(allocation)
        self._sizes = sorted(self._by_size, reverse=True)

    def complete(self, chosen: tuple[Allocation, ...], lost_milli: GpuMilli) -> tuple[Allocation, ...] | None:
        """These, and the fewest others with which so many GPUs leave; None when all together are not enough."""
        missing = lost_milli - gpu_milli_of(chosen)
        if missing <= 0:
            return chosen
        taken = Counter(allocation.total_milli for allocation in chosen)
        counts = _fewest([(size, len(self._by_size[size]) - taken[size]) for size in self._sizes], missing)
        if counts is None:
            return None
        more = (
            islice((allocation for allocation in self._by_size[size] if allocation not in chosen), count)
            for size, count in zip(self._sizes, counts, strict=False)
        )
        return chosen + tuple(chain.from_iterable(more))


def _fewest(stock: Sequence[tuple[GpuMilli, int]], missing: GpuMilli) -> tuple[int, ...] | None:
    """How many of each size, the largest first, add up to an amount with the least beyond it; None if all are too few.

    Depth-first, as many of the largest as there is use for at first: that is never in vain, and goes on to be exact
    up to MAX_STEPS.
    """
    rest = list(accumulate((size * count for size, count in reversed(stock)), initial=0))[::-1]
    best: tuple[GpuMilli, int, tuple[int, ...]] | None = None
    open_: list[tuple[tuple[int, ...], int]] = [((), _most(stock, 0, missing))] if stock else []
    steps = 0
    while open_ and (best is None or steps < MAX_STEPS):
        steps += 1
        before, count = open_.pop()
        if count:
            open_.append((before, count - 1))
        counts = (*before, count)
        milli = sum(size * some for (size, _), some in zip(stock, counts, strict=False))
        left, runs, at = missing - milli, sum(counts), len(counts)
        if best is not None and (milli + max(0, left), runs + (left > 0)) >= best[:2]:
            continue
        if left <= 0:
            best = milli, runs, counts
        elif rest[at] >= left:
            open_.append((counts, _most(stock, at, left)))
    return None if best is None else best[2]


def _most(stock: Sequence[tuple[GpuMilli, int]], at: int, missing: GpuMilli) -> int:
    """As many of a size as there is use for."""
    size, count = stock[at]
    return min(count, -(-missing // size))


class _Search:
    """Nodes in order of what a worker costs there at the least, and on each one sets of runs, those first that mind
    least; cut where they can't beat the best set found."""

    __slots__ = (
        "best", "candidates", "floors", "least", "lost_milli", "makeweights", "on_node", "request", "seats", "snapshot",
        "steps",
    )  # fmt: skip

    def __init__(
        self, snapshot: Snapshot, option: PoolOption, candidates: Sequence[Allocation], lost_milli: GpuMilli
    ) -> None:
        self.snapshot = snapshot
        self.request = option.request
        self.candidates = candidates
        self.lost_milli = lost_milli
        self.makeweights = SmallestCover(candidates)
        self.on_node = by_node(snapshot, option, candidates)
        self.floors = {name: WhatIfNode(snapshot.future_idle.rooms[name]) for name in self.on_node}
        self.seats = sum(seats(snapshot.future_idle, option).values())
        self.best: tuple[Cost, tuple[Allocation, ...]]
        self.least: Loss | None = None
        self.steps = Steps(MAX_STEPS)

    def run(self, first: tuple[Allocation, ...]) -> tuple[Allocation, ...]:
        """The cheapest set; `first` is one that does."""
        self.best = self._cost(first), first
        if self.request.workers == 1:
            self._look_at_nodes()
        else:
            self._look_at_each()
        return self._without_spare(self.best[1])

    def _look_at_each(self) -> None:
        """One run alone may do what several were found for."""
        for allocation in self.candidates:
            if self.lost_milli <= allocation.total_milli <= self.best[0][0]:
                if self.seats + self._leave(allocation) >= self.request.workers:
                    self._consider((allocation,))
                self._leave(allocation, -1)

    def _look_at_nodes(self) -> None:
        shorts = {name: floor.short_milli(self.request, 1) for name, floor in self.floors.items()}
        for name in sorted(shorts, key=lambda node: (shorts[node], node)):
            if max(shorts[name], self.lost_milli) > self.best[0][0]:
                return
            allocations, floor = self.on_node[name], self.floors[name]
            for allocation in allocations:
                floor.remove(allocation)
            is_enough = floor.slots(self.request) > 0
            for allocation in allocations:
                floor.remove(allocation, -1)
            if is_enough:
                self.least = None
                NodeSearch(floor, self.request, allocations, self, self.steps).run((0, 0))

    def with_run(self, state: Loss, allocation: Allocation) -> Loss:
        """See `Aim`."""
        return state[0] + allocation.total_milli, state[1] + 1

    def is_beaten(self, state: Loss, short_milli: GpuMilli, more_runs: int) -> bool:
        """See `Aim`: by all that is known, or by what is known of the node looked at."""
        cost = max(state[0] + short_milli, self.lost_milli), state[1] + more_runs
        return cost > self.best[0][:2] or (self.least is not None and cost >= self.least)

    def consider(self, state: Loss, chosen: tuple[Allocation, ...]) -> None:  # noqa: ARG002 - the aim's shape
        """See `Aim`: completed with runs from anywhere."""
        completed = self.makeweights.complete(chosen, self.lost_milli)
        if completed is not None:
            self._consider(completed)

    def _consider(self, chosen: tuple[Allocation, ...]) -> None:
        cost = self._cost(chosen)
        self.least = min(self.least or cost[:2], cost[:2])
        if cost < self.best[0]:
            self.best = cost, chosen

    def _cost(self, chosen: tuple[Allocation, ...]) -> Cost:
        preferences = tuple(sorted(map(self.snapshot.preference, chosen)))
        return gpu_milli_of(chosen), len(chosen), preferences

    def _leave(self, allocation: Allocation, sign: int = 1) -> int:
        """Take a run off all its nodes; with -1, put it back. Returns the seats won."""
        won = 0
        for name in allocation.nodes():
            floor = self.floors.get(name)
            if floor is not None:
                before = floor.slots(self.request)
                floor.remove(allocation, sign)
                won += floor.slots(self.request) - before
        return won

    def _without_spare(self, chosen: tuple[Allocation, ...]) -> tuple[Allocation, ...]:
        """Those without which it is not enough; the largest is spared first."""
        there = self.seats + sum(map(self._leave, chosen))
        lost = gpu_milli_of(chosen)
        kept = dict.fromkeys(chosen)
        for allocation in sorted(chosen, key=lambda h: -h.total_milli):
            left = there + self._leave(allocation, -1)
            if left >= self.request.workers and lost - allocation.total_milli >= self.lost_milli:
                there, lost = left, lost - allocation.total_milli
                del kept[allocation]
            else:
                self._leave(allocation)
        return tuple(kept)
