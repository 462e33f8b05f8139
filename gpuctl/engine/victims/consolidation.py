"""Consolidation: the runs to move so that a job fits where free GPUs are scattered, each with a place of its own
elsewhere.

When runs are moved: docs/concepts.md, "Moves". A move costs what the run has done since it last started, times its
GPUs. The moves that lose the least GPU-time are chosen, then those of the fewest runs. A moved run keeps its number of
workers. If moves alone make no room, runs that a rule allows are paused besides, for as few GPUs as possible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain

from gpuctl.engine.capacity.gang import Assignment, PoolOption, has_place, options_of, place
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.timing import running_ms
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import (
    Eviction,
    Follows,
    Found,
    Migration,
    Room,
    moved,
    movers_of,
    outranked,
    pauses,
    victims_of,
)
from gpuctl.engine.victims.reclaim import VictimTotals, totals_with
from gpuctl.engine.victims.rules import VictimRule
from gpuctl.engine.victims.search import MAX_CANDIDATES, EvictionWalk, cheapest_of_few, is_over, place_without
from gpuctl.model.ids import JobId
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_STEPS = 500
"""The most sets of runs tried for one job in all, if candidates are many: the bound on what the job can cost."""

MAX_PLACINGS = 2_000
"""The most placements tried in one cycle, of jobs beside moved runs and of these runs: the bound on what all jobs
together can cost. Later searches of the cycle are cut off. Without it 100 gangs that all differ take more than 300 s on
80 nodes."""

MAX_PLACINGS_BESIDE = 100
"""The most placements tried for one set of moves beyond the first of each run, in case many may use several pools."""


class MigrationSearch:
    """Finds migrations in one cycle. `has_looked`: a run that could be moved was considered."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._placings_left = MAX_PLACINGS
        self.has_looked = False

    def consolidate(self, rules: Sequence[VictimRule]) -> Room | None:
        """The cheapest moves, with pauses or without, that make room for a job, which must not fit now.

        `rules`: those of the job, at least one. Exact for one worker up to MAX_STEPS sets, as far as the job and the
        moved runs find places one after another. All sets of moves and pauses are tried if candidates are few;
        otherwise, for a job within its project's guarantee, moves beside one set of pauses. If that finds nothing, or
        no placement is left, the search is cut off (`Counters.cut_off`).
        Cost: O(pausable runs of the domain) once, and the sets tried on the nodes that may be cheapest.
        """
        found = self._moves_alone(rules[0]) if self._may_walk(rules[0]) else None
        first = None if found is None else (found.cost, (*(move.eviction for move in found.moves),))
        for rule in rules:
            if not self._may_mix(rule):
                continue
            are_few = self._are_few(rule)
            mixed = self._with_pauses(rule, first) if are_few else self._beside_pauses(rule)
            if mixed is not None and (found is None or mixed.cost < found.cost):
                found = mixed
        if found is None and None in [self._may_mix(rule) for rule in rules]:
            self._snapshot.counters.cut_off += 1
        return found

    def may_find(self, rules: Sequence[VictimRule]) -> bool | None:
        """Whether moves, with pauses or without, may make room, as far as that is known without a search.

        None: they can't, but only because the search is cut off at its bounds.
        """
        if self._may_walk(rules[0]):
            return True
        found = [self._may_mix(rule) for rule in rules]
        return any(found) or (None if None in found else False)

    def _may_walk(self, rule: VictimRule) -> bool:
        if self._is_over(rule) or not rule.allows_moves() or _short_milli(self._snapshot, rule.option) > 0:
            return False
        failed = self._snapshot.unschedulable("moves", rule.option, rule.is_guaranteed)
        return not failed.cover(rule.option.request) and bool(self._moves_in(rule))

    def _may_mix(self, rule: VictimRule) -> bool | None:
        """Whether moves with the pauses of a rule may make room. None: together the runs would free enough, but they
        are too many, or no placement is left."""
        option, must_pause = rule.option, self._must_pause(rule.option)
        if not any(self._snapshot.pausable(option.domain).values()) or must_pause > gpu_milli_of(rule.candidates()):
            return False
        has_failed = self._snapshot.unschedulable("moves and pauses", option, rule.key).cover(option.request)
        is_worth_it = rule.is_guaranteed and must_pause > 0 and not has_failed
        if not self._is_over(rule) and (is_worth_it or self._are_few(rule)):
            return not has_failed
        return None if rule.allows_moves() and any(_movable_runs(rule)) else False

    def _is_over(self, rule: VictimRule) -> bool:
        return self._placings_left <= 0 or is_over(rule)

    def _are_few(self, rule: VictimRule) -> bool:
        """Whether the candidates are so few that all sets of moves and pauses may be tried."""
        movable = sum(map(len, self._snapshot.pausable(rule.domain).values()))
        return movable + len(rule.candidates()) <= MAX_CANDIDATES

    def _must_pause(self, option: PoolOption) -> GpuMilli:
        """The GPUs that pauses must free at least for an option, whatever is moved: a moved run takes as much as it
        leaves, unless it needs less in another pool."""
        short_milli = _short_milli(self._snapshot, option)
        if short_milli <= 0 or len(self._snapshot.capacity.pools_of(option.domain)) == 1:
            return short_milli
        runs = chain.from_iterable(self._snapshot.pausable(option.domain).values())
        return short_milli - sum(_spare_milli(self._snapshot, run) for run in runs)

    def _moves_alone(self, rule: VictimRule) -> Room | None:
        self.has_looked = True
        moves = self._moves_in(rule)
        left = _not_stopped_for(rule.job.id, moves)
        cut_off = self._snapshot.counters.cut_off
        walk = EvictionWalk(rule, left, self._follows(rule), MAX_STEPS)
        chosen = walk.run()
        is_exhaustive = walk.is_exhaustive and self._snapshot.counters.cut_off == cut_off and self._placings_left > 0
        if chosen is None and is_exhaustive and len(left) == len(moves):
            self._snapshot.unschedulable("moves", rule.option, rule.is_guaranteed).add(rule.option.request)
        return None if chosen is None else self._room_of(rule, chosen)

    def _with_pauses(self, rule: VictimRule, first: Found | None) -> Room | None:
        """The cheapest moves that make room together with allowed pauses; those with the fewest GPUs paused win."""
        self.has_looked = True
        moves = _movable(rule)
        left = _not_stopped_for(rule.job.id, moves)
        cut_off = self._snapshot.counters.cut_off
        found = cheapest_of_few(rule, [*left, *pauses(rule)], self._follows(rule), first)
        is_exhaustive = self._snapshot.counters.cut_off == cut_off and self._placings_left > 0
        if found is None and is_exhaustive and len(left) == len(moves):
            self._snapshot.unschedulable("moves and pauses", rule.option, rule.key).add(rule.option.request)
        return None if found is None else self._room_of(rule, found[1])

    def _beside_pauses(self, rule: VictimRule) -> Room | None:
        """The cheapest moves beside one set of pauses, the first in order, for when all sets are too many.

        What if the paused runs had left: so the walk also finds moves to the places where they ran.
        """
        self.has_looked = True
        snapshot, moves = self._snapshot, None
        chosen = _first_pauses(rule, self._must_pause(rule.option))
        if chosen and rule.allows_moves():
            with snapshot.supposing():
                snapshot.pause(victims_of(chosen))
                smaller = {eviction.job for eviction in chosen}
                movable = [move for move in _not_stopped_for(rule.job.id, _movable(rule)) if move.job not in smaller]
                moves = EvictionWalk(rule, movable, self._follows(rule), MAX_STEPS).run()
        found = None if moves is None else self._room_of(rule, (*moves, *chosen))
        if found is None:
            snapshot.unschedulable("moves and pauses", rule.option, rule.key).add(rule.option.request)
        return found

    def _follows(self, rule: VictimRule) -> Follows:
        """A function that allows a set of evictions if each moved run has a place; it refuses pauses alone."""
        must_pause = self._must_pause(rule.option)

        def follows(chosen: tuple[Eviction, ...]) -> tuple[GpuMilli, int] | None:
            if not any(eviction.is_move for eviction in chosen):
                return None  # `find_room` has tried pauses alone.
            is_enough = must_pause <= gpu_milli_of(victims_of(chosen)) and self._placings_left > 0
            return (0, 0) if is_enough and self._room_of(rule, chosen) is not None else None

        return follows

    def _room_of(self, rule: VictimRule, chosen: Sequence[Eviction]) -> Room | None:
        """The room that a set of evictions makes, if the rule allows it and each moved run has a place."""
        counters, placings = self._snapshot.counters, self._snapshot.counters.placings
        placement = place_without(rule, (*victims_of(chosen), *movers_of(chosen)))
        found = None if placement is None else _room_for(Assignment(rule.option, placement), chosen, rule)
        if placement is not None and found is None:
            # The best place for the job may be the only one for a moved run.
            among = _placed_among(rule, chosen)
            found = None if among is None else _room_for(among, chosen, rule)
        tried = 1 + counters.placings - placings
        counters.tried += tried
        self._placings_left -= tried
        return found

    def _moves_in(self, rule: VictimRule) -> list[Eviction]:
        """The moves of a domain's runs that find a place now, those that lose least first. A gang may go on in part
        where it is. Found once for all equal rules: without that, a consolidation on 100 nodes takes 1.6x."""
        snapshot = self._snapshot

        def find() -> list[Eviction]:
            known: dict[object, bool] = {}
            found: list[Eviction] = []
            for move in _movable(rule):
                allocation, workers = move.allocations[0], _workers(move)
                key = allocation.job.pools if allocation.job else (), allocation.per_worker, workers
                if key not in known:
                    options = _options_of(snapshot, move)
                    known[key] = workers > 1 or any(has_place(snapshot.idle, option) for option in options)
                if known[key]:
                    found.append(move)
            return found

        return snapshot.once(("movable", snapshot.lifted, rule.domain, rule.is_guaranteed), find)


def _first_pauses(rule: VictimRule, milli: GpuMilli) -> list[Eviction]:
    """The first pauses in order that together free exactly this much and straddle no guarantee; [] for none."""
    chosen: dict[JobId, Eviction] = {}
    totals: VictimTotals = {}
    for eviction in pauses(rule) if milli > 0 else ():
        before = chosen.get(eviction.job)  # Of two evictions of an elastic run one is a part of the other.
        more = eviction if before is None else eviction.without(before.allocations)
        after = totals if more is None else totals_with(totals, more.allocations, rule.snapshot)
        if more is not None and more.total_milli <= milli and rule.price(after) == 0:
            chosen[eviction.job] = eviction
            totals, milli = after, milli - more.total_milli
    return [] if milli > 0 else [*chosen.values()]


def _room_for(assignment: Assignment, chosen: Sequence[Eviction], rule: VictimRule) -> Room | None:
    """The room that evictions make if they leave a place for the job; None if a moved run has no place beside it."""
    victims, movers = victims_of(chosen), [eviction for eviction in chosen if eviction.is_move]
    cost = rule.cost(victims)
    is_allowed = cost is not None and (
        not movers or rule.allows_moves(victims, (move.allocations[0] for move in movers))
    )
    moves = _moves_beside(rule.snapshot, assignment, movers, victims) if is_allowed else None
    if cost is None or moves is None:
        return None
    loss = sum(eviction.moved_loss(rule.snapshot.now_ms) for eviction in movers)
    cost = cost._replace(outranked=outranked(chosen), moved_loss=loss, moved=len(movers))
    return Room(assignment, rule, victims, moves, cost)


def _short_milli(snapshot: Snapshot, option: PoolOption) -> GpuMilli:
    """GPUs that an option still lacks if all GPUs free in its domain, or coming free in its pool, were in one place."""
    pools, own = snapshot.capacity.pools_of(option.domain), option.pool.name
    coming = snapshot.future_idle.all_free_milli(own) - snapshot.idle.all_free_milli(own)
    return option.request.total_milli - coming - sum(map(snapshot.idle.all_free_milli, pools))


def _spare_milli(snapshot: Snapshot, run: Allocation) -> GpuMilli:
    """How many GPUs fewer a run may need elsewhere, where devices have more memory, or other slices."""
    job, each_milli = run.job, run.per_worker.gpu_milli
    if job is None or (job.gpu_mem_bytes is None and each_milli % WHOLE_GPU == 0 and each_milli == job.gpu_milli):
        return 0
    move = moved(snapshot, run)
    return max((move.total_milli - option.request.total_milli for option in _options_of(snapshot, move)), default=0)


def _movable(rule: VictimRule) -> list[Eviction]:
    """The moves of all runs of a rule's domain that are old enough to be moved for the job, the least loss first."""
    snapshot = rule.snapshot
    moves = [moved(snapshot, run) for run in _movable_runs(rule)]

    def loss(move: Eviction) -> tuple[int, GpuMilli, JobId]:
        return running_ms(move.allocations[0].run, snapshot.now_ms), move.total_milli, move.job

    return sorted(moves, key=loss)


def _movable_runs(rule: VictimRule) -> Iterator[Allocation]:
    runs = chain.from_iterable(rule.snapshot.pausable(rule.domain).values())
    return (run for run in runs if run.job is not None and not run.is_extra and rule.may_move(run))


def _not_stopped_for(beneficiary: JobId, moves: Sequence[Eviction]) -> list[Eviction]:
    """The moves of runs that did not stop for the same job last."""
    return [move for move in moves if move.allocations[0].run.paused_for != beneficiary]


def _workers(move: Eviction) -> int:
    return sum(len(allocation.placement.workers) for allocation in move.allocations)


def _options_of(snapshot: Snapshot, move: Eviction) -> Iterator[PoolOption]:
    """The pools of a run's domain where it may go on with as many workers, for no more GPUs than now, in its order."""
    job, domain = move.allocations[0].job, move.allocations[0].domain
    for whole in options_of(job, snapshot.capacity) if job is not None else ():
        option = whole.sized(_workers(move)) if whole.domain == domain else None
        if option is not None and option.request.total_milli <= move.total_milli:
            yield option


def _moves_beside(
    snapshot: Snapshot, assignment: Assignment, movers: Sequence[Eviction], victims: Sequence[Allocation]
) -> tuple[Migration, ...] | None:
    """A place for each moved run, largest first, beside the beneficiary, idle or left by evicted runs; else None."""
    movers = sorted(movers, key=_size)
    with snapshot.idle.without((*movers_of(movers), *victims)):
        snapshot.idle.take((assignment,))
        found = _placed(snapshot, [tuple(_options_of(snapshot, move)) for move in movers])
        snapshot.idle.give_back((assignment,))
    return None if found is None else tuple(map(Migration, movers, found))


def _placed_among(rule: VictimRule, chosen: Sequence[Eviction]) -> Assignment | None:
    """Where a job goes if it and the moved runs are placed largest first. If that fails, the job is placed after the
    largest of them, after the two largest, and so on, up to MAX_PLACINGS placements. None if one has no place."""
    snapshot, option = rule.snapshot, rule.option
    movers = sorted((eviction for eviction in chosen if eviction.is_move), key=_size)
    own = -option.request.gpu_milli, -option.request.total_milli
    by_size = bisect_left(movers, own, key=lambda move: _size(move)[:2])
    wanted = [tuple(_options_of(snapshot, move)) for move in movers]
    counters, last = snapshot.counters, snapshot.counters.placings + MAX_PLACINGS
    found: Assignment | None = None
    with snapshot.idle.without((*movers_of(movers), *victims_of(chosen))):
        for before in sorted(range(1, len(movers) + 1), key=lambda turn: turn != by_size):
            places = _placed(snapshot, [*wanted[:before], (option,), *wanted[before:]])
            if places is not None:
                found = places[before]
                break
            if counters.placings >= last:
                counters.cut_off += 1
                break
    return found


def _size(move: Eviction) -> tuple[GpuMilli, GpuMilli, int, int, JobId]:
    each = move.allocations[0].per_worker
    return -each.gpu_milli, -move.total_milli, -each.cpu_milli, -each.mem_bytes, move.job


def _placed(snapshot: Snapshot, wanted: Sequence[Sequence[PoolOption]]) -> list[Assignment] | None:
    """The best idle place for one after another; None if one has none. Takes nothing.

    If one has none, the one before it gets its next best pool: up to MAX_PLACINGS_BESIDE placements more than it takes
    if each has a place at once.
    """
    idle, counters, found, left = snapshot.idle, snapshot.counters, list[Assignment](), list(wanted)
    last = counters.placings + sum(map(len, wanted)) + MAX_PLACINGS_BESIDE
    while len(found) < len(wanted) and counters.placings < last:
        at = len(found)
        best = place(idle, left[at])
        if best is not None:
            idle.take((best,))
            found.append(best)
        elif found:
            other = found.pop()
            idle.give_back((other,))
            left[at - 1 :] = [tuple(each for each in left[at - 1] if each is not other.option), *wanted[at:]]
        else:
            return None
    idle.give_back(found)
    if len(found) < len(wanted):
        counters.cut_off += 1
        return None
    return found
