"""Bringing scattered room together: the runs to move so that a job fits, each with a place of its own elsewhere.

A move costs what a run has done since it last started, times its GPUs. Of all sets of runs the cheapest is chosen:
least GPU-time lost, then fewest runs. A moved run has a place that is free now or that moved runs leave, and runs again
as soon as they have stopped. Exact for one worker up to MAX_STEPS sets, if the moved runs find their places largest
first; a gang's workers are placed one after another at the least cost each, in one rack where that costs no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from gpuctl.engine.capacity.fit import request_on
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place, place_in, slots_by_node
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.node_search import NodeSearch, Steps
from gpuctl.engine.victims.what_if_node import WhatIfNode, in_one_rack
from gpuctl.model.ids import JobId, NodeName, PoolName
from gpuctl.model.units import GpuMilli

MAX_STEPS = 500
"""Sets of runs tried for one job in all: the bound on what it can cost."""

Loss: TypeAlias = tuple[int, int]
"""GPU-milliseconds and runs; smaller is better."""

Movable: TypeAlias = dict[NodeName, list[Allocation]]


@dataclass(frozen=True, slots=True)
class Migration:
    """A run to move, and its new place."""

    allocation: Allocation
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Consolidation:
    """The place that becomes free for a job, and the runs that move away from it."""

    assignment: Assignment
    moves: tuple[Migration, ...]


class MigrationSearch:
    """Finds migrations in one cycle. `has_looked`: a run that could be moved was considered."""

    __slots__ = ("_movable", "_snapshot", "has_looked")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._movable: tuple[int, dict[PoolName, Movable]] = (-1, {})
        self.has_looked = False

    def consolidate(self, option: PoolOption, beneficiary: JobId) -> Consolidation | None:
        """The cheapest moves that make room for an option, which must not fit now; None when none do.

        What asks for no less than one that failed fails.
        Cost: O(pausable runs of the domain) once, and the sets tried on the nodes that may be cheapest.
        """
        in_vain, found = self.in_vain(option), None
        if in_vain.cover(option.request.sizes) or not _enough_is_free(self._snapshot, option):
            return None
        movable = self._movable_in(option.pool.name)
        if movable:
            self.has_looked = True
            found = _Search(self._snapshot, option, beneficiary, movable).run()
        if found is None and not any(
            h.run.paused_for == beneficiary for allocations in movable.values() for h in allocations
        ):
            in_vain.add(option.request.sizes)
        return found

    def in_vain(self, option: PoolOption) -> UnschedulableRequests:
        """The failed requests like an option's, as the snapshot stands."""
        return self._snapshot.unschedulable(("moves", self._snapshot.lifted, option.pool.name, option.request.profile))

    def finds_nobody(self, option: PoolOption) -> bool:
        """Whether no run may be moved for an option; then its request counts as failed."""
        if self.in_vain(option).cover(option.request.sizes) or not _enough_is_free(self._snapshot, option):
            return True
        if self._movable_in(option.pool.name):
            return False
        self.in_vain(option).add(option.request.sizes)
        return True

    def _movable_in(self, pool: PoolName) -> Movable:
        """The runs on each node of a pool that may be moved and find a place now, those first that lose least by it."""
        snapshot = self._snapshot
        if self._movable[0] != snapshot.changes:
            self._movable = snapshot.changes, {}
        by_pool = self._movable[1]
        if pool not in by_pool:
            movable: Movable = {}
            by_pool[pool] = movable
            has_place: dict[object, bool] = {}
            for allocation in _pausable(snapshot, pool):
                key = (
                    allocation.job.pools if allocation.job else (),
                    allocation.per_worker,
                    len(allocation.placement.workers),
                )
                if key not in has_place:  # A gang may go on in part where it is.
                    is_gang = len(allocation.placement.workers) > 1
                    has_place[key] = is_gang or place(snapshot.idle, _options_of(snapshot, allocation)) is not None
                for node in allocation.placement.nodes if has_place[key] else ():
                    room = snapshot.future_idle.rooms.get(node)
                    if room is not None and room.pool == pool:
                        movable.setdefault(node, []).append(allocation)
            for allocations in movable.values():
                allocations.sort(key=lambda h: (running_ms(h.run, snapshot.now_ms), h.total_milli, h.run.job))
        return by_pool[pool]


def clear(
    snapshot: Snapshot, assignment: Assignment, allocations: Sequence[Allocation], beneficiary: JobId
) -> Consolidation | None:
    """Free exactly this place by moving these runs, if each of them may be moved and has a place elsewhere."""
    if not all(_is_movable(snapshot, allocation, beneficiary) for allocation in allocations):
        return None
    moves = _moves_beside(snapshot, assignment, allocations)
    return None if moves is None else Consolidation(assignment, moves)


def _enough_is_free(snapshot: Snapshot, option: PoolOption) -> bool:
    """What is free in the domain, and coming free in the pool, would be enough if it were in one place."""
    domain = snapshot.capacity.domain_of[option.pool.name]
    pools = snapshot.capacity.pools_of(domain)
    free = sum(snapshot.idle.free_milli(pool, profile) for pool in pools for profile in {"", option.request.profile})
    kind = option.pool.name, option.request.profile
    return free + snapshot.future_idle.free_milli(*kind) - snapshot.idle.free_milli(*kind) >= option.request.total_milli


def _is_movable(snapshot: Snapshot, allocation: Allocation, beneficiary: JobId) -> bool:
    """It may be paused, it is whole where it is, and it was not moved for the same job before."""
    job = allocation.job
    return (
        job is not None
        and allocation.domain is not None
        and allocation in snapshot.pausable(allocation.domain).get(allocation.project, ())
        and _is_whole(allocation)
        and allocation.run.paused_for != beneficiary
    )


def _is_whole(allocation: Allocation) -> bool:
    """It has all the workers it asks for."""
    return allocation.job is not None and len(allocation.placement.workers) == allocation.job.workers


def _options_of(snapshot: Snapshot, allocation: Allocation) -> Iterator[PoolOption]:
    """Pools of its domain where it may run for no more GPUs than it has now, in its order."""
    for position, name in enumerate(allocation.job.pools if allocation.job else ()):
        pool = snapshot.capacity.pools.get(name)
        if pool is None or snapshot.capacity.domain_of.get(name) != allocation.domain or allocation.job is None:
            continue
        request = request_on(allocation.job, pool)
        if request is not None and request.total_milli <= allocation.total_milli:
            yield PoolOption(pool, request, order=position if allocation.job.pools_in_order else 0)


def _moves_beside(
    snapshot: Snapshot, assignment: Assignment, allocations: Iterable[Allocation]
) -> tuple[Migration, ...] | None:
    """A place for each, largest first, beside what the beneficiary takes; None when one has none.

    It is free now, or one that the moved runs leave, its own included: all of them stop before any goes on.
    """

    def size(allocation: Allocation) -> tuple[GpuMilli, GpuMilli, int, int, JobId]:
        per_worker = allocation.per_worker
        return (
            -per_worker.gpu_milli,
            -allocation.total_milli,
            -per_worker.cpu_milli,
            -per_worker.mem_bytes,
            allocation.run.job,
        )

    per_worker = assignment.option.request.per_worker
    movers = sorted(allocations, key=size)
    snapshot.idle.give_back_all(movers)
    snapshot.idle.take(assignment.placement, per_worker)
    moves: list[Migration] = []
    for allocation in movers:
        found = place(snapshot.idle, _options_of(snapshot, allocation))
        if found is None:
            break
        snapshot.idle.take(found.placement, found.option.request.per_worker)
        moves.append(Migration(allocation, found))
    for move in moves:
        snapshot.idle.give_back(move.assignment.placement, move.assignment.option.request.per_worker)
    snapshot.idle.give_back(assignment.placement, per_worker)
    snapshot.idle.take_all(movers)
    return tuple(moves) if len(moves) == len(movers) else None


def _pausable(snapshot: Snapshot, pool: PoolName) -> Iterator[Allocation]:
    for allocations in snapshot.pausable(snapshot.capacity.domain_of[pool]).values():
        yield from (allocation for allocation in allocations if _is_whole(allocation))


class _Search:
    """Nodes in order of what one worker more costs there at the least, until no other can be cheaper."""

    __slots__ = (
        "beneficiary", "close", "floors", "least", "movable", "option", "slots_by_node", "snapshot", "steps", "taken",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot, option: PoolOption, beneficiary: JobId, movable: Movable) -> None:
        self.snapshot = snapshot
        self.option = option
        self.beneficiary = beneficiary
        self.movable = movable
        self.floors = {name: WhatIfNode(snapshot.future_idle.rooms[name]) for name in movable}
        self.slots_by_node = slots_by_node(snapshot.future_idle, option)
        self.taken: dict[JobId, Allocation] = {}
        self.least = {name: self._at_least(name) for name in movable}
        is_gang = option.request.workers > 1
        self.close = (
            in_one_rack(snapshot.future_idle.rooms, option.request, self.slots_by_node, movable)
            if is_gang
            else frozenset()
        )
        self.steps = Steps(MAX_STEPS)

    def run(self) -> Consolidation | None:
        """Place one worker after another; with the last one, every moved run must have a place."""
        while sum(self.slots_by_node.values()) < self.option.request.workers:
            found = self._next_worker()
            if found is None:
                return None
            self._take(found)
        return self._told(())

    def _next_worker(self) -> tuple[Allocation, ...] | None:
        """The cheapest set with which one worker more fits; for the last worker, of the sets that leave all a place.

        Of nodes that may be as cheap, those of one rack come first.
        """
        is_last = sum(self.slots_by_node.values()) + 1 >= self.option.request.workers
        best: tuple[Loss, tuple[Allocation, ...]] | None = None
        order = ((least, name not in self.close, name) for name, least in self.least.items() if least is not None)
        for least, _, name in sorted(order):
            if best is not None and least >= best[0]:
                break
            aim = _Moves(self, best, is_last=is_last)
            NodeSearch(self.floors[name], self.option.request, self.left(name), aim, self.steps).run((0, 0))
            best = aim.best
        return None if best is None else best[1]

    def left(self, name: NodeName) -> list[Allocation]:
        """The runs on a node that may still be moved; a run that was moved for this job before may not."""
        return [h for h in self.movable[name] if h.run.job not in self.taken and h.run.paused_for != self.beneficiary]

    def _at_least(self, name: NodeName) -> Loss | None:
        """What a worker more costs on a node at the very least: the GPUs that must go, by those that lose least, and as
        many runs as the largest of them would be. None where not enough can go.
        """
        short = self.floors[name].short_milli(self.option.request, self.slots_by_node.get(name, 0) + 1)
        left = self.left(name)
        lost, missing = 0, short
        for allocation in left if missing else ():
            part = min(missing, allocation.total_milli)
            lost += part * running_ms(allocation.run, self.snapshot.now_ms)
            missing -= part
        together = accumulate(sorted((allocation.total_milli for allocation in left), reverse=True))
        return None if missing else (lost, 1 + sum(milli < short for milli in together))

    def _take(self, chosen: Iterable[Allocation]) -> None:
        for allocation in chosen:
            self.taken[allocation.run.job] = allocation
            for name in allocation.placement.nodes & self.floors.keys():
                self.floors[name].remove(allocation)
                self.slots_by_node[name] = self.floors[name].slots(self.option.request)
                self.least[name] = self._at_least(name)

    def _told(self, more: tuple[Allocation, ...]) -> Consolidation | None:
        """All moves of those taken and some more, if each has a place."""
        chosen = (*self.taken.values(), *more)
        soon = self.snapshot.future_idle
        for allocation in chosen:
            soon.give_back(allocation.placement, allocation.per_worker)
        placement = place_in(soon, self.option)
        for allocation in chosen:
            soon.take(allocation.placement, allocation.per_worker)
        if placement is None:
            return None
        assignment = Assignment(self.option, placement)
        moves = _moves_beside(self.snapshot, assignment, chosen)
        return None if moves is None else Consolidation(assignment, moves)

    def leaves_all_a_place(self, chosen: tuple[Allocation, ...]) -> bool:
        """Whether these may be moved together with those taken before."""
        return self._told(chosen) is not None


class _Moves:
    """The aim of the least loss on one node: GPU-milliseconds, then runs. `best` is the cheapest set so far; the last
    one must leave a place for all that are moved."""

    __slots__ = ("_is_last", "_search", "best")

    def __init__(self, search: _Search, best: tuple[Loss, tuple[Allocation, ...]] | None, *, is_last: bool) -> None:
        self._search = search
        self._is_last = is_last
        self.best = best

    def with_run(self, state: Loss, allocation: Allocation) -> Loss:
        """See `Aim`."""
        return state[0] + allocation.total_milli * running_ms(allocation.run, self._search.snapshot.now_ms), state[
            1
        ] + 1

    def is_beaten(self, state: Loss, short_milli: GpuMilli, more_runs: int) -> bool:  # noqa: ARG002 - the aim's shape
        """See `Aim`."""
        return self.best is not None and (state[0], state[1] + more_runs) >= self.best[0]

    def consider(self, state: Loss, chosen: tuple[Allocation, ...]) -> None:
        """See `Aim`."""
        if chosen and (not self._is_last or self._search.leaves_all_a_place(chosen)):
            self.best = state, chosen
