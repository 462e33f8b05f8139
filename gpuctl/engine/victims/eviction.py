"""Sets of evictions: the cheapest runs to pause or move so that more workers fit on some nodes.

One depth-first search with a bound serves every way of taking runs off nodes: the runs of one node, worker after worker
(`search`), and all candidates at once if they are few. Each run is paused, or moved to a place of its own. Example: a
node has 1 GPU free and runs of 1, 2 and 4 GPUs, and a worker needs 3. The sets {2} and {4} make room; {2} is cheaper,
and {1, 2} is not tried, because it can't cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, chain
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.timing import running_ms
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.reclaim import VictimTotals, totals_with
from gpuctl.engine.victims.rules import NO_COST, Cost, VictimRule, with_leaving
from gpuctl.engine.victims.what_if_node import Before, WhatIfNodes
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.units import CpuMilli, GpuMilli, Instant, MemBytes


class Eviction(NamedTuple):
    """Allocations of one run that leave together: the run is paused or moved, or loses its last surplus workers.

    The first allocation is the one that is evicted; those that leave with it follow.
    """

    allocations: tuple[Allocation, ...]
    total_milli: GpuMilli
    is_move: bool = False

    @property
    def job(self) -> JobId:
        """The job of the run. A set holds at most one eviction of each run."""
        return self.allocations[0].run.job

    @property
    def stops(self) -> bool:
        """Whether a run is paused: a run that only loses surplus workers goes on."""
        return not (self.is_move or self.allocations[0].is_extra)

    def nodes(self) -> Iterable[NodeName]:
        """The nodes of a run that stops or moves, or those of the surplus workers that are evicted."""
        first, *others = self.allocations
        if first.is_extra or not others:
            return first.nodes()
        return dict.fromkeys(node for allocation in self.allocations for node in allocation.nodes())

    def without(self, gone: Container[Allocation]) -> Eviction | None:
        """The eviction of the allocations that are not in `gone`; None if all are."""
        left = tuple([each for each in self.allocations if each not in gone])
        return self._replace(allocations=left, total_milli=gpu_milli_of(left)) if left else None

    @property
    def cpu_mem(self) -> tuple[CpuMilli, MemBytes]:
        """CPU and memory of all its workers."""
        each = [(len(part.placement.workers), part.per_worker) for part in self.allocations]
        return sum(n * worker.cpu_milli for n, worker in each), sum(n * worker.mem_bytes for n, worker in each)

    def moved_loss(self, now_ms: Instant) -> int:
        """What a moved run loses: its GPU-milliseconds since its start."""
        return self.total_milli * running_ms(self.allocations[0].run, now_ms)

    def cost(self, now_ms: Instant) -> Cost:
        """What the eviction costs by itself."""
        if self.is_move:
            return Cost(0, 0, 0, 0, self.moved_loss(now_ms), 1, 0, ())
        return Cost(0, self.total_milli, int(self.stops), 0, 0, 0, self.total_milli, ())


@dataclass(frozen=True, slots=True)
class Migration:
    """A run to move, and its new place."""

    eviction: Eviction
    assignment: Assignment

    @property
    def allocation(self) -> Allocation:
        """The run; of an elastic run the workers that it can't do without."""
        return self.eviction.allocations[0]


@dataclass(frozen=True, slots=True)
class Room:
    """The place that becomes free for a job, the runs that a rule allows to be paused for it, and the runs to move."""

    assignment: Assignment
    rule: VictimRule
    victims: tuple[Allocation, ...] = ()
    moves: tuple[Migration, ...] = ()
    cost: Cost = NO_COST

    @property
    def evicted(self) -> tuple[Allocation, ...]:
        """All allocations that leave, paused or moved."""
        return *self.victims, *movers_of(move.eviction for move in self.moves)


Found: TypeAlias = tuple[Cost, tuple[Eviction, ...]]
"""A set of evictions that makes room, and its cost."""

Follows: TypeAlias = Callable[[tuple[Eviction, ...]], tuple[GpuMilli, int] | None]
"""What follows from a set that makes room: GPUs that others lose to its runs, and how many runs stop by that. None: the
set may not be taken alone, but a larger set that holds it may be."""


def paused(allocations: tuple[Allocation, ...]) -> Eviction:
    """The eviction of allocations that are paused together."""
    return Eviction(allocations, gpu_milli_of(allocations))


def pauses(rule: VictimRule) -> list[Eviction]:
    """The candidates of a rule as evictions, each with the allocations that leave with it, in order of preference."""
    return [paused(with_leaving(rule.snapshot, (each,)) if each.leaves_with else (each,)) for each in rule.candidates()]


def moved(snapshot: Snapshot, allocation: Allocation) -> Eviction:
    """The eviction of a run that goes on elsewhere, with all its workers."""
    return paused(with_leaving(snapshot, (allocation,)))._replace(is_move=True)


def victims_of(chosen: Iterable[Eviction]) -> tuple[Allocation, ...]:
    """The allocations of a set that are paused."""
    return tuple(chain.from_iterable(eviction.allocations for eviction in chosen if not eviction.is_move))


def movers_of(chosen: Iterable[Eviction]) -> tuple[Allocation, ...]:
    """The runs of a set that are moved."""
    return tuple(chain.from_iterable(eviction.allocations for eviction in chosen if eviction.is_move))


def outranked(chosen: Sequence[Eviction]) -> int:
    """How many runs of a set are moved although one of its victims, of the same project, has a higher priority."""
    victims = [(run.project, run.job.priority) for run in victims_of(chosen) if run.job is not None]
    movers = [(run.project, run.job.priority) for run in movers_of(chosen) if run.job is not None]
    return sum(any(its == own and high > low for its, high in victims) for own, low in movers)


class _Rest(NamedTuple):
    """GPUs of the evictions from a position on: of all, of the moves, of surplus workers, and of the largest run."""

    total_milli: GpuMilli = 0
    moves_milli: GpuMilli = 0
    extra_milli: GpuMilli = 0
    largest_milli: GpuMilli = 1

    def with_one(self, eviction: Eviction) -> _Rest:
        """The same with one more eviction."""
        milli, is_extra = eviction.total_milli, not (eviction.is_move or eviction.stops)
        return _Rest(
            self.total_milli + milli,
            self.moves_milli + milli * eviction.is_move,
            self.extra_milli + milli * is_extra,
            max(self.largest_milli, milli * eviction.stops),
        )


@dataclass(slots=True, eq=False)
class EvictionSearch:
    """The search for the cheapest set among given evictions with which `wanted` workers fit on some nodes.

    Of sets that cost the same the first is kept: if evictions are in order of preference, the preferred one. `steps`:
    sets that may still be tried; below 0 the search was cut off, and its best set need not be the cheapest. `follows`:
    None if what follows does not count. `best`: a set to beat.
    """

    rule: VictimRule
    nodes: WhatIfNodes
    wanted: int
    evictions: Sequence[Eviction]
    steps: int
    follows: Follows | None = None
    best: Found | None = None
    _costs: list[Cost] = field(init=False)
    _rest: list[_Rest] = field(init=False)

    def __post_init__(self) -> None:
        self._costs = [eviction.cost(self.rule.snapshot.now_ms) for eviction in self.evictions]
        self._rest = list(accumulate(reversed(self.evictions), _Rest.with_one, initial=_Rest()))[::-1]

    def run(self, totals: VictimTotals) -> Found | None:
        """Try sets beside the victims already counted in `totals`. Leaves the nodes as they were."""
        self._first(totals)
        self._extend(0, (), NO_COST, totals)
        return self.best

    def _first(self, totals: VictimTotals) -> None:
        """Consider the first evictions in order that free enough. If they free no more than needed, nothing is better.
        Earns 1.3x of a reclaim on 1,000 nodes."""
        short = self.nodes.short_milli(self.wanted)
        freed = accumulate((eviction.total_milli for eviction in self.evictions), initial=0)
        count = next((n for n, milli in enumerate(freed) if milli >= short), 0)
        chosen = tuple(self.evictions[:count]) if short else self._largest()
        if not chosen or len({eviction.job for eviction in chosen}) < len(chosen):
            return
        before = self.nodes.remove([allocation for eviction in chosen for allocation in eviction.allocations])
        fits = self.nodes.slots >= self.wanted
        self.nodes.restore(before)
        price = self.rule.price(totals_with(totals, victims_of(chosen), self.rule.snapshot)) if fits else None
        if price is not None:
            costs = (eviction.cost(self.rule.snapshot.now_ms) for eviction in chosen)
            self._consider(chosen, reduce(Cost.plus, costs)._replace(price=price))

    def _largest(self) -> tuple[Eviction, ...]:
        """Evictions of runs without GPUs until enough CPU and memory is free, the largest first, without any that is
        not needed.

        They cost no GPUs, so no bound cuts the sets of many of them.
        """
        chosen: list[Eviction] = []
        taken: list[Before] = []
        for eviction in sorted(self.evictions, key=attrgetter("cpu_mem"), reverse=True):
            if self.nodes.slots >= self.wanted:
                break
            if not (eviction.total_milli or any(each.job == eviction.job for each in chosen)):
                chosen.append(eviction)
                taken.append(self.nodes.remove(eviction.allocations))
        for eviction in tuple(chosen) if self.nodes.slots >= self.wanted else ():
            taken.append(self.nodes.remove(eviction.allocations, -1))
            if self.nodes.slots >= self.wanted:
                chosen.remove(eviction)
            else:
                self.nodes.restore(taken.pop())
        for before in reversed(taken):
            self.nodes.restore(before)
        return tuple(chosen)

    def _extend(self, start: int, chosen: tuple[Eviction, ...], cost: Cost, totals: VictimTotals) -> None:
        if self.nodes.slots >= self.wanted and self._consider(chosen, cost):
            return
        short = self.nodes.short_milli(self.wanted)
        for position in range(start, len(self.evictions)):
            rest = self._rest[position]
            if rest.total_milli < short or self.steps < 0 or self._is_beaten(cost, short, rest):
                return
            eviction = self.evictions[position]
            self.steps -= 1  # a set that the rule refuses costs as much as one that it allows
            after = totals_with(totals, victims_of((eviction,)), self.rule.snapshot)
            price = self.rule.price(after)
            if price is None or any(each.job == eviction.job for each in chosen):
                continue
            before = self.nodes.remove(eviction.allocations)
            more = cost.plus(self._costs[position])._replace(price=price)
            self._extend(position + 1, (*chosen, eviction), more, after)
            self.nodes.restore(before)

    def _is_beaten(self, cost: Cost, short_milli: GpuMilli, rest: _Rest) -> bool:
        """Whether no set of these and some of the rest, to free this many GPUs more, is better than the best."""
        if self.best is None:
            return False
        by_pauses = max(0, short_milli - rest.moves_milli)
        more = -(-max(0, by_pauses - rest.extra_milli) // rest.largest_milli)
        lost_milli = cost.lost_milli + by_pauses
        least = (cost.price, lost_milli, cost.stopped + more, 0, cost.moved_loss, cost.moved, lost_milli)
        return least >= self.best[0][:-1]

    def _consider(self, chosen: tuple[Eviction, ...], cost: Cost) -> bool:
        """Keep a set that makes room, if it is the best. False if it may not be taken alone, or if a larger set that
        holds it could be better because less follows."""
        if not chosen:
            return False
        if self.best is not None and self.best[0][:-1] <= cost[:-1]:
            return True
        more = (0, 0) if self.follows is None else self.follows(chosen)
        if more is None:
            return False
        preferences = tuple(sorted(map(self.rule.snapshot.preference, victims_of(chosen))))
        cost = cost._replace(outranked=outranked(chosen), preferences=preferences).more(*more)
        if self.best is None or cost[:-1] < self.best[0][:-1]:
            self.best = cost, chosen
        return not more[0]
