"""The cheapest runs to take off one node, so that one worker more fits there.

One depth-first search with a bound serves all that takes runs off a node: victims of a reclaim, victims under a
project's own ceiling, runs that are moved elsewhere. An `Aim` says what a set of runs costs, and which may be taken.

Example: a node has 1 GPU free and runs of 1, 2 and 4 GPUs, and a worker needs 3. The sets {2} and {4} make room; the
aim of least GPUs takes {2}, and {1, 2} is not tried, for it can't cost less.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.victims.what_if_node import WhatIfNode
from gpuctl.model.units import GpuMilli

S = TypeVar("S")


class Aim(Protocol[S]):
    """What is searched for. A state `S` says what the runs taken so far come to."""

    def with_run(self, state: S, allocation: Allocation) -> S | None:
        """The state with one run more; None where that may not be taken."""
        ...

    def is_beaten(self, state: S, short_milli: GpuMilli, more_runs: int) -> bool:
        """Whether no set could be the best that takes these, and so many GPUs and runs more, at least."""
        ...

    def consider(self, state: S, chosen: tuple[Allocation, ...]) -> None:
        """A set that makes room: the best so far, or not."""
        ...


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


class NodeSearch(Generic[S]):
    """The search over the runs of one node, in the order given; what it finds it tells its aim."""

    __slots__ = ("_aim", "_allocations", "_floor", "_request", "_rest_milli", "_steps", "_wanted")

    def __init__(
        self, floor: WhatIfNode, request: Request, allocations: Sequence[Allocation], aim: Aim[S], steps: Steps
    ) -> None:
        self._floor = floor
        self._request = request
        self._wanted = floor.slots(request) + 1
        self._allocations = allocations
        self._aim = aim
        self._steps = steps
        self._rest_milli = list(accumulate((h.total_milli for h in reversed(allocations)), initial=0))[::-1]

    def run(self, state: S) -> None:
        """Try sets of runs, from a state in which none of them is taken. The node is left as it was."""
        self._extend(0, (), state)

    def _extend(self, start: int, chosen: tuple[Allocation, ...], state: S) -> None:
        self._steps.take()
        if self._floor.slots(self._request) >= self._wanted:
            self._aim.consider(state, chosen)
            return
        short = self._floor.short_milli(self._request, self._wanted)
        if self._steps.are_over or self._aim.is_beaten(state, short, 1):
            return
        for position in range(start, len(self._allocations)):
            if self._rest_milli[position] < short:
                return
            allocation = self._allocations[position]
            after = self._aim.with_run(state, allocation)
            if after is not None and not self._aim.is_beaten(after, 0, 0):
                self._floor.remove(allocation)
                self._extend(position + 1, (*chosen, allocation), after)
                self._floor.remove(allocation, -1)
