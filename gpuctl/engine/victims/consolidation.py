"""Bringing scattered room together: the runs to move so that a job fits, each with a place of its own elsewhere.

Runs are moved only where those that a job has rights over do not make room, or only by straddling a guarantee: a move
stops a run that is within its rights. It costs what the run has done since it last started, times its GPUs. Of all sets
of runs the cheapest is chosen: least GPU-time lost, then fewest runs. A moved run keeps as many workers as it has. Its
place is free now, or one that the others leave, its own included; it runs again as soon as they have stopped. Where
moves alone don't make room, runs that a rule allows are paused besides, for as few GPUs as can be. Exact for one worker
up to MAX_STEPS sets, as far as the moved runs find places one after another; a gang's workers are placed one after
another at the least cost each, in one rack where that costs no more. All searches of a cycle together try MAX_PLACINGS
placements at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from gpuctl.engine.capacity.gang import Assignment, PoolOption, options_of, place, place_all
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.timing import running_ms
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import (
    Accepts,
    Eviction,
    Found,
    Migration,
    Room,
    Steps,
    moved,
    movers_of,
    pauses,
    victims_of,
)
from gpuctl.engine.victims.rules import VictimRule
from gpuctl.engine.victims.search import MAX_CANDIDATES, EvictionWalk, cheapest_of_few, place_without
from gpuctl.model.ids import JobId
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_STEPS = 500
"""Sets of runs tried for one job in all where they are many: the bound on what it can cost."""

MAX_PLACINGS = 2_000
"""Placements tried in one cycle, of jobs beside moved runs and of these: the bound on what all jobs together can cost.

Later searches of the cycle are cut off. Without it 100 gangs that all differ on 80 nodes take more than 300 s.
"""


class MigrationSearch:
    """Finds migrations in one cycle. `has_looked`: a run that could be moved was considered."""

    __slots__ = ("_placings_left", "_snapshot", "has_looked")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._placings_left = MAX_PLACINGS
        self.has_looked = False

    def consolidate(self, option: PoolOption, rules: Sequence[VictimRule]) -> Room | None:
        """The cheapest moves that make room for an option, which must not fit now; None when none do.

        Where moves alone don't, pauses are made besides. `rules`: those of the job, at least one.

        What asks for no less than one that failed fails. Pauses are mixed with moves only where candidates are few:
        where they are many, and moves from node to node make no room, the search is cut off (`Counters.cut_off`). So it
        is where no placement is left.
        Cost: O(pausable runs of the domain) once, and the sets tried on the nodes that may be cheapest.
        """
        found = self._moves_alone(option, rules[0]) if self._may_walk(option, rules[0]) else None
        first = None if found is None else (found.cost, (*(move.eviction for move in found.moves),))
        for rule in rules:
            mixed = self._with_pauses(option, rule, first) if self._may_mix(option, rule) else None
            if mixed is not None and (found is None or mixed.cost < found.cost):
                found = mixed
        if found is None and self.is_cut_off(option, rules):
            self._snapshot.counters.cut_off += 1
        return found

    def may_find(self, option: PoolOption, rules: Sequence[VictimRule]) -> bool:
        """Whether moves, with pauses or without, may make room, as far as that is known without a search."""
        return self._may_walk(option, rules[0]) or any(self._may_mix(option, rule) for rule in rules)

    def is_cut_off(self, option: PoolOption, rules: Sequence[VictimRule]) -> bool:
        """Whether a search for what `may_find` rules out is cut off: it finds nothing, only because of its bounds."""
        return any(self._is_cut_off(option, rule) for rule in rules)

    def _may_walk(self, option: PoolOption, rule: VictimRule) -> bool:
        may_move = rule.allows_moves() and not self._failed(option, rule.is_guaranteed).cover(option.request.sizes)
        if not may_move or self._placings_left <= 0 or _short_milli(self._snapshot, option) > 0:
            return False
        return bool(self._moves_in(rule))

    def _may_mix(self, option: PoolOption, rule: VictimRule) -> bool:
        is_few = 0 < self._mixed_count(option, rule) <= MAX_CANDIDATES and self._placings_left > 0
        if not is_few or self._must_pause(option) > gpu_milli_of(rule.candidates()):
            return False
        return not self._failed(option, rule.key).cover(option.request.sizes)

    def _is_cut_off(self, option: PoolOption, rule: VictimRule) -> bool:
        """Whether nothing more is tried, though all candidates together would free enough for an option: they are too
        many to be mixed, or no placement is left.
        """
        count = self._mixed_count(option, rule)
        if not count or not rule.allows_moves() or (count <= MAX_CANDIDATES and self._placings_left > 0):
            return False
        is_enough = self._must_pause(option) <= gpu_milli_of(rule.candidates())
        return is_enough and any(_able(rule))

    def _must_pause(self, option: PoolOption) -> GpuMilli:
        """GPUs that pauses must free at least for an option, whatever is moved: a moved run takes what it leaves, but
        for what it needs less in another pool.
        """
        short_milli = _short_milli(self._snapshot, option)
        if short_milli <= 0 or len(self._snapshot.capacity.pools_of(option.domain)) == 1:
            return short_milli
        runs = chain.from_iterable(self._snapshot.pausable(option.domain).values())
        return short_milli - sum(_spare_milli(self._snapshot, run) for run in runs)

    def _mixed_count(self, option: PoolOption, rule: VictimRule) -> int:
        """Runs that could be moved, and candidates to be paused besides; 0 if none could be moved."""
        count = sum(map(len, self._snapshot.pausable(option.domain).values()))
        return count + len(rule.candidates()) if count else 0

    def _moves_alone(self, option: PoolOption, rule: VictimRule) -> Room | None:
        self.has_looked = True
        moves = self._moves_in(rule)
        left = _not_for(rule.job.id, moves)
        walk = EvictionWalk(option, rule, left, self._accepts(option, rule), Steps(MAX_STEPS))
        chosen = walk.run()
        if chosen is None and walk.is_exhaustive and len(left) == len(moves) and self._placings_left > 0:
            self._failed(option, rule.is_guaranteed).add(option.request.sizes)
        return None if chosen is None else self._told(option, rule, chosen)

    def _with_pauses(self, option: PoolOption, rule: VictimRule, first: Found | None) -> Room | None:
        """The cheapest moves, with pauses that a rule allows, that make room: the fewest GPUs paused come first."""
        self.has_looked = True
        moves = _movable(rule)
        left = _not_for(rule.job.id, moves)
        cut_off = self._snapshot.counters.cut_off
        found = cheapest_of_few(option, rule, [*left, *pauses(rule)], self._accepts(option, rule), first)
        is_exhaustive = self._snapshot.counters.cut_off == cut_off and self._placings_left > 0
        if found is None and is_exhaustive and len(left) == len(moves):
            self._failed(option, rule.key).add(option.request.sizes)
        return None if found is None else self._told(option, rule, found[1])

    def _accepts(self, option: PoolOption, rule: VictimRule) -> Accepts:
        must_pause = self._must_pause(option)

        def accepts(chosen: tuple[Eviction, ...]) -> bool:
            is_enough = must_pause <= gpu_milli_of(victims_of(chosen)) and self._placings_left > 0
            return is_enough and self._told(option, rule, chosen) is not None

        return accepts

    def _told(self, option: PoolOption, rule: VictimRule, chosen: Sequence[Eviction]) -> Room | None:
        """What comes of a set of evictions, if the rule allows it and each moved run has a place."""
        placings = self._snapshot.counters.placings
        placement = place_without(rule.snapshot, option, (*victims_of(chosen), *movers_of(chosen)))
        found = None if placement is None else _beside(Assignment(option, placement), chosen, rule)
        self._placings_left -= 1 + self._snapshot.counters.placings - placings
        return found

    def _failed(self, option: PoolOption, key: object) -> UnschedulableRequests:
        """The failed requests like an option's, by moves alone or with the pauses of a rule, as the snapshot stands."""
        snapshot, profile = self._snapshot, option.request.profile
        return snapshot.unschedulable(("moves", snapshot.lifted, key, option.pool.name, profile))

    def _moves_in(self, rule: VictimRule) -> list[Eviction]:
        """The moves of a domain's runs that find a place now, those first that lose least by it. A gang may go on in
        part where it is.
        """
        snapshot = self._snapshot

        def find() -> list[Eviction]:
            has_place: dict[object, bool] = {}
            found: list[Eviction] = []
            for move in _movable(rule):
                allocation, workers = move.allocations[0], _workers(move)
                key = allocation.job.pools if allocation.job else (), allocation.per_worker, workers
                if key not in has_place:
                    has_place[key] = workers > 1 or place(snapshot.idle, _options_of(snapshot, move)) is not None
                if has_place[key]:
                    found.append(move)
            return found

        return snapshot.once(("movable", snapshot.lifted, rule.domain, rule.is_guaranteed), find)


def clear(assignment: Assignment, allocations: Sequence[Allocation], rule: VictimRule) -> Room | None:
    """Free exactly this place by moving these runs, if each of them may be moved and has a place elsewhere."""
    able = {move.allocations[0]: move for move in _movable(rule)}
    moves = _not_for(rule.job.id, [able[each] for each in allocations if each in able])
    leaving = movers_of(moves)
    return _beside(assignment, moves, rule) if all(each in leaving for each in allocations) else None


def _beside(assignment: Assignment, chosen: Sequence[Eviction], rule: VictimRule) -> Room | None:
    """What comes of evictions that leave a place for a job; None where a moved run has none beside it."""
    victims, movers = victims_of(chosen), [eviction for eviction in chosen if eviction.is_move]
    cost = rule.cost(victims)
    is_allowed = cost is not None and (not movers or rule.allows_moves(victims))
    moves = _moves_beside(rule.snapshot, assignment, movers, victims) if is_allowed else None
    if cost is None or moves is None:
        return None
    loss = sum(eviction.moved_loss(rule.snapshot.now_ms) for eviction in chosen)
    return Room(assignment, rule, victims, moves, cost._replace(moved_loss=loss, moved=len(movers)))


def _short_milli(snapshot: Snapshot, option: PoolOption) -> GpuMilli:
    """GPUs that an option lacks if all that is free in its domain or coming free in its pool were in one place."""
    pools, own = snapshot.capacity.pools_of(option.domain), option.pool.name
    coming = snapshot.future_idle.all_free_milli(own) - snapshot.idle.all_free_milli(own)
    return option.request.total_milli - coming - sum(map(snapshot.idle.all_free_milli, pools))


def _spare_milli(snapshot: Snapshot, run: Allocation) -> GpuMilli:
    """GPUs that a run may need less elsewhere, because other pools have devices with more memory, or other slices."""
    job, each_milli = run.job, run.per_worker.gpu_milli
    if job is None or (job.gpu_mem_bytes is None and each_milli % WHOLE_GPU == 0 and each_milli == job.gpu_milli):
        return 0
    move = moved(snapshot, run)
    return max((move.total_milli - option.request.total_milli for option in _options_of(snapshot, move)), default=0)


def _movable(rule: VictimRule) -> list[Eviction]:
    """The moves of all runs of a rule's domain that are old enough for a rule's job, the least loss first."""
    snapshot = rule.snapshot
    moves = [moved(snapshot, run) for run in _able(rule)]

    def loss(move: Eviction) -> tuple[int, GpuMilli, JobId]:
        return running_ms(move.allocations[0].run, snapshot.now_ms), move.total_milli, move.job

    return sorted(moves, key=loss)


def _able(rule: VictimRule) -> Iterator[Allocation]:
    runs = chain.from_iterable(rule.snapshot.pausable(rule.domain).values())
    return (run for run in runs if run.job is not None and not run.is_extra and rule.may_move(run))


def _not_for(beneficiary: JobId, moves: Sequence[Eviction]) -> list[Eviction]:
    """The moves of runs that were not stopped for the same job before."""
    return [move for move in moves if move.allocations[0].run.paused_for != beneficiary]


def _workers(move: Eviction) -> int:
    return sum(len(allocation.placement.workers) for allocation in move.allocations)


def _options_of(snapshot: Snapshot, move: Eviction) -> Iterator[PoolOption]:
    """Pools of its domain where a run may go on with the workers it has, for no more GPUs than now, in its order."""
    job, domain = move.allocations[0].job, move.allocations[0].domain
    for whole in options_of(job, snapshot.capacity) if job is not None else ():
        option = whole.sized(_workers(move)) if whole.domain == domain else None
        if option is not None and option.request.total_milli <= move.total_milli:
            yield option


def _moves_beside(
    snapshot: Snapshot, assignment: Assignment, movers: Sequence[Eviction], victims: Sequence[Allocation]
) -> tuple[Migration, ...] | None:
    """A place for each beside what the beneficiary takes; None when one has none.

    They are placed largest first; if that fails, first those that may use the fewest pools. A place is free now, or one
    that the moved runs or the victims leave, its own included: all stop before any goes on.
    """

    def size(move: Eviction) -> tuple[GpuMilli, GpuMilli, int, int, JobId]:
        each = move.allocations[0].per_worker
        return -each.gpu_milli, -move.total_milli, -each.cpu_milli, -each.mem_bytes, move.job

    def pools(move: Eviction) -> int:
        job = move.allocations[0].job
        return len(job.pools) if job else 0

    gone = (*movers_of(movers), *victims)
    by_size = sorted(movers, key=size)
    snapshot.idle.give_back(gone)
    snapshot.idle.take((assignment,))
    moves = _placed(snapshot, by_size)
    by_pools = sorted(by_size, key=pools)
    if moves is None and by_pools != by_size:
        moves = _placed(snapshot, by_pools)
    snapshot.idle.give_back((assignment,))
    snapshot.idle.take(gone)
    return moves


def _placed(snapshot: Snapshot, movers: Sequence[Eviction]) -> tuple[Migration, ...] | None:
    """The best idle place for one run after another; None when one has none. Takes nothing."""
    found = place_all(snapshot.idle, (_options_of(snapshot, mover) for mover in movers))
    if found is None:
        return None
    snapshot.idle.give_back(found)
    return tuple(map(Migration, movers, found))
