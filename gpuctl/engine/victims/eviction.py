"""Sets of evictions: the cheapest runs to pause or to move, so that more workers fit on some nodes.

One depth-first search with a bound serves all that takes runs off nodes: the runs of one node, worker after worker
(`search`), and all candidates at once where these are few. Each run is paused, or moved to a place of its own.

Example: a node has 1 GPU free and runs of 1, 2 and 4 GPUs, and a worker needs 3. The sets {2} and {4} make room; {2} is
the cheaper, and {1, 2} is not tried, for it can't cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple, TypeAlias

from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.reclaim import VictimTotals
from gpuctl.engine.victims.rules import Cost, VictimRule, stopped_count, totals_with, with_leaving
from gpuctl.engine.victims.what_if_node import WhatIfNodes
from gpuctl.model.units import GpuMilli


class Eviction(NamedTuple):
    """Allocations that leave together, and what that costs: a run, or the last workers of an elastic one.

    A paused run loses its GPUs, and those that make way when it starts again (`lost_milli`); `stopped` is 0 for extra
    workers. A moved run loses what it has done since its start (`moved_loss`: GPU-milliseconds), and no GPUs.
    """

    allocations: tuple[Allocation, ...]
    lost_milli: GpuMilli = 0
    stopped: int = 0
    moved_loss: int = 0
    is_move: bool = False

    @property
    def total_milli(self) -> GpuMilli:
        """The GPUs that come free."""
        return sum(allocation.total_milli for allocation in self.allocations)

    def with_more(self, other: Eviction) -> Eviction:
        """The eviction together with that of more workers of the same run."""
        lost_milli, stopped = self.lost_milli + other.lost_milli, self.stopped + other.stopped
        return Eviction(self.allocations + other.allocations, lost_milli, stopped)


Found: TypeAlias = tuple[Cost, tuple[Eviction, ...]]
"""A set of evictions that makes room, and what it costs."""


def paused(rule: VictimRule, allocation: Allocation, gone: Container[Allocation] = ()) -> Eviction:
    """The eviction of an allocation that is paused, with those that leave with it, but for those already gone."""
    together: tuple[Allocation, ...] = (allocation,)
    if allocation.leaves_with:
        together = tuple([each for each in with_leaving(rule.snapshot, together) if each not in gone])
    return Eviction(together, rule.lost_milli(together), stopped_count(together))


def moved(snapshot: Snapshot, allocation: Allocation) -> Eviction:
    """The eviction of a run that goes on elsewhere."""
    lost = allocation.total_milli * running_ms(allocation.run, snapshot.now_ms)
    return Eviction((allocation,), moved_loss=lost, is_move=True)


def victims_of(chosen: Iterable[Eviction]) -> tuple[Allocation, ...]:
    """The allocations of a set that are paused."""
    return tuple(chain.from_iterable(eviction.allocations for eviction in chosen if not eviction.is_move))


def movers_of(chosen: Iterable[Eviction]) -> tuple[Allocation, ...]:
    """The runs of a set that are moved."""
    return tuple(chain.from_iterable(eviction.allocations for eviction in chosen if eviction.is_move))


class Steps:
    """Sets of runs tried, and how many may be."""

    __slots__ = ("_most", "_taken")

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self) -> None:
        """One more."""
        self._taken += 1

    @property
    def are_over(self) -> bool:
        """Whether no more may be tried: then the best so far need not be the best there is."""
        return self._taken > self._most


class _State(NamedTuple):
    """What the evictions chosen so far come to, and what each owner loses by those that are pauses."""

    price: int
    lost_milli: GpuMilli
    stopped: int
    moved_loss: int
    moved: int
    totals: VictimTotals


class EvictionSearch:
    """The search for the cheapest set among given evictions with which so many workers fit on some nodes.

    `accepts`: whether a set that makes room may be taken; others are extended. `best`: a set to beat.
    """

    __slots__ = (
        "_accepts", "_evictions", "_least_stopped", "_moves_milli", "_nodes", "_rest_milli", "_rule", "_snapshot",
        "_steps", "_wanted", "best",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - what is searched, for what, by what rule, and how far
        self,
        rule: VictimRule,
        nodes: WhatIfNodes,
        wanted: int,
        evictions: Sequence[Eviction],
        steps: Steps,
        accepts: Callable[[tuple[Eviction, ...]], bool] | None = None,
        best: Found | None = None,
    ) -> None:
        self._rule = rule
        self._snapshot = rule.snapshot
        self._nodes = nodes
        self._wanted = wanted
        self._evictions = evictions
        self._steps = steps
        self._accepts = accepts
        self.best = best
        sizes = [(eviction.total_milli, eviction.is_move) for eviction in reversed(evictions)]
        self._rest_milli = list(accumulate((milli for milli, _ in sizes), initial=0))[::-1]
        self._moves_milli = list(accumulate((milli * is_move for milli, is_move in sizes), initial=0))[::-1]
        self._least_stopped = min((each.stopped for each in evictions if not each.is_move), default=0)

    def run(self, totals: VictimTotals) -> Found | None:
        """Try sets beside the victims already counted in `totals`. The nodes are left as they were."""
        self._extend(0, (), _State(0, 0, 0, 0, 0, totals))
        return self.best

    def _extend(self, start: int, chosen: tuple[Eviction, ...], state: _State) -> None:
        self._steps.take()
        if self._nodes.slots >= self._wanted and self._consider(chosen, state):
            return
        short = self._nodes.short_milli(self._wanted)
        if self._steps.are_over or self._is_beaten(state, max(0, short - self._moves_milli[start])):
            return
        jobs = {eviction.allocations[0].run.job for eviction in chosen}
        for position in range(start, len(self._evictions)):
            if self._rest_milli[position] < short:
                return
            eviction = self._evictions[position]
            after = self._with(state, eviction)
            if after is None or self._is_beaten(after, 0) or eviction.allocations[0].run.job in jobs:
                continue
            self._nodes.remove(eviction.allocations)
            self._extend(position + 1, (*chosen, eviction), after)
            self._nodes.remove(eviction.allocations, -1)

    def _with(self, state: _State, eviction: Eviction) -> _State | None:
        """The state with one eviction more; None where the rule does not allow that."""
        price, totals = state.price, state.totals
        if not eviction.is_move:
            totals = totals_with(totals, eviction.allocations, self._snapshot)
            allowed = self._rule.price(totals)
            if allowed is None:
                return None
            price = allowed
        return _State(
            price,
            state.lost_milli + eviction.lost_milli,
            state.stopped + eviction.stopped,
            state.moved_loss + eviction.moved_loss,
            state.moved + eviction.is_move,
            totals,
        )

    def _is_beaten(self, state: _State, short_milli: GpuMilli) -> bool:
        """Whether no set could be the best that holds these, where pauses must free so many GPUs more."""
        if self.best is None:
            return False
        more = self._least_stopped if short_milli else 0
        least = (state.price, state.lost_milli + short_milli, state.stopped + more, state.moved_loss, state.moved)
        return least > self.best[0][:5]

    def _consider(self, chosen: tuple[Eviction, ...], state: _State) -> bool:
        """Take a set that makes room as the best, if it is; False if it may not be taken without others."""
        if not chosen or (self._accepts is not None and not self._accepts(chosen)):
            return False
        preferences = tuple(sorted(map(self._snapshot.preference, victims_of(chosen))))
        cost = Cost(state.price, state.lost_milli, state.stopped, state.moved_loss, state.moved, preferences)
        if self.best is None or cost < self.best[0]:
            self.best = cost, chosen
        return True
