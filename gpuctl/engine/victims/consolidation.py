"""Bringing scattered room together: the runs to move so that a job fits, each with a place of its own elsewhere.

A move costs what a run has done since it last started, times its GPUs. Of all sets of runs the cheapest is chosen:
least GPU-time lost, then fewest runs. A moved run has a place that is free now or that the others leave, and runs again
as soon as they have stopped. Where moves alone don't make room, runs that a rule allows are paused besides, for as few
GPUs as can be. Exact for one worker up to MAX_STEPS sets, if the moved runs find their places largest first; a gang's
workers are placed one after another at the least cost each, in one rack where that costs no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gpuctl.engine.capacity.fit import request_on
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Eviction, Steps, moved, movers_of, pauses, victims_of
from gpuctl.engine.victims.rules import Cost, VictimRule
from gpuctl.engine.victims.search import MAX_CANDIDATES, EvictionWalk, cheapest_of_few, place_without
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.units import GpuMilli

MAX_STEPS = 500
"""Sets of runs tried for one job in all: the bound on what it can cost."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A run to move, and its new place."""

    allocation: Allocation
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Consolidation:
    """The place that becomes free for a job, the runs that are moved for it, and those that a rule allows to be paused.

    Cost: see `Cost`.
    """

    assignment: Assignment
    moves: tuple[Migration, ...]
    victims: tuple[Allocation, ...]
    rule: VictimRule
    cost: Cost


class MigrationSearch:
    """Finds migrations in one cycle. `has_looked`: a run that could be moved was considered."""

    __slots__ = ("_moves", "_snapshot", "has_looked")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._moves: tuple[int, dict[PoolName, list[Eviction]]] = (-1, {})
        self.has_looked = False

    def consolidate(self, option: PoolOption, rules: Sequence[VictimRule]) -> Consolidation | None:
        """The cheapest moves that make room for an option, which must not fit now; None when none do.

        Where moves alone don't, pauses are made besides. `rules`: those of the job, at least one.

        What asks for no less than one that failed fails. Pauses are mixed with moves only where candidates are few.
        Cost: O(pausable runs of the domain) once, and the sets tried on the nodes that may be cheapest.
        """
        failed, found = self._failed(option), None
        if not failed.cover(option.request.sizes) and _enough_is_free(self._snapshot, option):
            moves = self._moves_in(option.pool.name)
            self.has_looked |= bool(moves)
            left = [move for move in moves if move.allocations[0].run.paused_for != rules[0].job.id]
            found = self._by_walk(option, rules[0], left)
            if found is None and len(left) == len(moves):
                failed.add(option.request.sizes)
        if found is not None:
            return found
        mixed = [mix for rule in rules if (mix := self.with_pauses(option, rule)) is not None]
        return min(mixed, key=lambda each: each.cost, default=None)

    def with_pauses(self, option: PoolOption, rule: VictimRule) -> Consolidation | None:
        """The cheapest moves, with pauses that a rule allows, that make room: the fewest GPUs paused come first.

        None where there are none, or more than MAX_CANDIDATES.
        """
        if not self.may_mix(option, rule):
            return None
        self.has_looked = True
        snapshot, runs = self._snapshot, self._runs_of(option)
        left = [run for run in runs if run.run.paused_for != rule.job.id]
        found = cheapest_of_few(
            option,
            rule,
            [*(moved(run) for run in left), *pauses(rule)],
            lambda chosen: self._accepts(option, rule, chosen),
        )
        if found is None and len(left) == len(runs):
            self._failed(option, rule.key).add(option.request.sizes)
        return None if found is None else _told(snapshot, option, rule, found[1])

    def may_mix(self, option: PoolOption, rule: VictimRule) -> bool:
        """Whether moves and pauses may make room together, as far as that is known without a search."""
        candidates = rule.candidates()
        if not 0 < len(candidates) <= MAX_CANDIDATES or self._failed(option, rule.key).cover(option.request.sizes):
            return False
        return 0 < len(self._runs_of(option)) <= MAX_CANDIDATES - len(candidates)

    def finds_nobody(self, option: PoolOption) -> bool:
        """Whether no run may be moved for an option; then its request counts as failed."""
        failed = self._failed(option)
        if failed.cover(option.request.sizes) or not _enough_is_free(self._snapshot, option):
            return True
        if self._moves_in(option.pool.name):
            return False
        failed.add(option.request.sizes)
        return True

    def _by_walk(self, option: PoolOption, rule: VictimRule, moves: Sequence[Eviction]) -> Consolidation | None:
        """Moves alone, from node to node."""
        walk = EvictionWalk(option, rule, moves, lambda chosen: self._accepts(option, rule, chosen), Steps(MAX_STEPS))
        chosen = walk.run()
        return None if chosen is None else _told(self._snapshot, option, rule, chosen)

    def _accepts(self, option: PoolOption, rule: VictimRule, chosen: tuple[Eviction, ...]) -> bool:
        return _told(self._snapshot, option, rule, chosen) is not None

    def _runs_of(self, option: PoolOption) -> list[Allocation]:
        """The runs of an option's pool that may be moved, whether they have a place now or not."""
        return list(islice(_pausable(self._snapshot, option.pool.name), MAX_CANDIDATES + 1))

    def _failed(self, option: PoolOption, key: object = None) -> UnschedulableRequests:
        """The failed requests like an option's, by moves alone or with the pauses of a rule, as the snapshot stands."""
        return self._snapshot.unschedulable((
            "moves",
            self._snapshot.lifted,
            key,
            option.pool.name,
            option.request.profile,
        ))

    def _moves_in(self, pool: PoolName) -> list[Eviction]:
        """The moves of runs on a pool's nodes that find a place now, those first that lose least by it."""
        snapshot = self._snapshot
        if self._moves[0] != snapshot.changes:
            self._moves = snapshot.changes, {}
        by_pool = self._moves[1]
        if pool not in by_pool:
            has_place: dict[object, bool] = {}
            found: list[Allocation] = []
            for allocation in _pausable(snapshot, pool):
                key = (
                    allocation.job.pools if allocation.job else (),
                    allocation.per_worker,
                    len(allocation.placement.workers),
                )
                if key not in has_place:  # A gang may go on in part where it is.
                    is_gang = len(allocation.placement.workers) > 1
                    has_place[key] = is_gang or place(snapshot.idle, _options_of(snapshot, allocation)) is not None
                if has_place[key]:
                    found.append(allocation)
            found.sort(key=lambda h: (running_ms(h.run, snapshot.now_ms), h.total_milli, h.run.job))
            by_pool[pool] = [moved(allocation) for allocation in found]
        return by_pool[pool]


def clear(assignment: Assignment, allocations: Sequence[Allocation], rule: VictimRule) -> Consolidation | None:
    """Free exactly this place by moving these runs, if each of them may be moved and has a place elsewhere."""
    snapshot = rule.snapshot
    if not all(_is_movable(snapshot, allocation, rule.job.id) for allocation in allocations):
        return None
    return _beside(assignment, [moved(allocation) for allocation in allocations], rule)


def _told(snapshot: Snapshot, option: PoolOption, rule: VictimRule, chosen: Sequence[Eviction]) -> Consolidation | None:
    """What comes of a set of evictions, if the rule allows it and each moved run has a place."""
    placement = place_without(snapshot, option, (*victims_of(chosen), *movers_of(chosen)))
    return None if placement is None else _beside(Assignment(option, placement), chosen, rule)


def _beside(assignment: Assignment, chosen: Sequence[Eviction], rule: VictimRule) -> Consolidation | None:
    """What comes of evictions that leave a place for a job; None where a moved run has none beside it."""
    victims, movers = victims_of(chosen), movers_of(chosen)
    cost = rule.cost(victims)
    moves = None if cost is None else _moves_beside(rule.snapshot, assignment, movers, victims)
    if cost is None or moves is None:
        return None
    loss = sum(eviction.moved_loss(rule.snapshot.now_ms) for eviction in chosen)
    return Consolidation(assignment, moves, victims, rule, cost._replace(moved_loss=loss, moved=len(movers)))


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
    snapshot: Snapshot, assignment: Assignment, allocations: Iterable[Allocation], victims: Sequence[Allocation]
) -> tuple[Migration, ...] | None:
    """A place for each, largest first, beside what the beneficiary takes; None when one has none.

    It is free now, or one that the moved runs or the victims leave, its own included: all stop before any goes on.
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
    snapshot.idle.give_back_all((*movers, *victims))
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
    snapshot.idle.take_all((*movers, *victims))
    return tuple(moves) if len(moves) == len(movers) else None


def _pausable(snapshot: Snapshot, pool: PoolName) -> Iterator[Allocation]:
    for allocations in snapshot.pausable(snapshot.capacity.domain_of[pool]).values():
        yield from (allocation for allocation in allocations if _is_whole(allocation))
