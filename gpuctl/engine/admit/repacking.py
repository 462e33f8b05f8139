"""Repacking: this cycle's admissions placed again together, the largest first.

Example: jobs of 1, 1 and 4 GPUs are admitted to two nodes of 4. If the small ones are on different nodes when the large
one is attempted, repacking puts them together. Until the cycle is over an admission is only a plan, so this moves no
run; runs and reservations stay where they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from gpuctl.engine.capacity.gang import Assignment, PoolOption, has_place, place, place_all, place_in
from gpuctl.engine.jobs.project_queue import PendingJob, is_first_class, rank_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import makes_way
from gpuctl.model.ids import JobId, PoolName, ProjectName
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_PLACINGS = 10_000
"""The most placements that repacking tries in one cycle: the bound on what a batch can cost."""
MAX_OUTRANKED = 100_000
"""The most admissions looked at in one cycle for jobs that outrank some: it bounds the cost of a project's jobs."""


class Repacking:
    """The admissions of one cycle with their assignments. Each is entered in the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._placings_left = MAX_PLACINGS
        self._looks_left = MAX_OUTRANKED
        self._fractions: Counter[PoolName] = Counter()
        self._in_pool: Counter[PoolName] = Counter()
        self._lowest: dict[tuple[ProjectName, PoolName], int] = {}
        self._movable_milli: dict[PoolName, GpuMilli] = defaultdict(int)
        self.assignments: dict[PendingJob, Assignment] = {}

    def admit(self, pending: PendingJob, options: Sequence[PoolOption]) -> Assignment | None:
        """Place one more job on idle GPUs, by repacking if necessary; None if there is no place."""
        assignment = place(self._snapshot.idle, options)
        if assignment is not None:
            self._snapshot.occupy(pending.job, assignment)
            self._keep(pending, assignment)
            return assignment
        for option in options:
            if self.may_repack(option) and self._repack(option.pool.name, {pending: option}):
                return self.assignments[pending]
        return None

    def may_repack(self, option: PoolOption) -> bool:
        """Whether repacking could make room for an option: enough is idle in the pool, or can go to others, but not in
        one place. False once too few placements are left in the cycle."""
        request, pool = option.request, option.pool.name
        admitted = self._in_pool[pool]
        if not 0 < admitted < self._placings_left or self._snapshot.unschedulable("repacking", option).cover(request):
            return False
        idle = self._snapshot.idle
        others = (name for name in self._snapshot.capacity.pools_of(option.domain) if name != pool)
        leaves_milli = min(self._movable_milli[pool], sum(map(idle.all_free_milli, others)))
        if not request.fraction_milli and not request.profile:
            # A device that is not whole now becomes whole only if a fraction on it is placed elsewhere.
            whole = idle.whole_devices(pool) + self._fractions[pool] + leaves_milli // WHOLE_GPU
            return whole >= request.devices * request.workers > 0
        return idle.free_milli(pool, request.profile) + leaves_milli >= request.total_milli > 0

    def compact(self) -> bool:
        """Repack the pools with new fractions if that leaves more devices whole. Returns whether an admission moved."""
        pools = sorted({s.option.pool.name for s in self.assignments.values() if s.option.request.fraction_milli})
        return sum(self._repack(pool, {}) for pool in pools) > 0

    def may_make_way(self, pending: PendingJob, option: PoolOption) -> bool:
        """Whether admissions to an option's pool may have to make way for a job of their project."""
        lowest = self._lowest.get((pending.job.id.project, option.pool.name))
        is_outranked = lowest is not None and (lowest < pending.job.priority or is_first_class(pending.job))
        return is_outranked and self._looks_left >= len(self.assignments)

    def make_way(self, pending: PendingJob, option: PoolOption) -> list[PendingJob]:
        """Give up the fewest admissions, last in order first, that leave a job room within its project's share.

        Returns them; none if all of them leave too little, or beyond MAX_OUTRANKED. Cost: O(admissions).
        """
        if not self.may_make_way(pending, option):
            return []
        snapshot, milli, project = self._snapshot, option.request.total_milli, pending.job.id.project
        self._looks_left -= len(self.assignments)
        mates = (
            mate
            for mate, found in self.assignments.items()
            if mate.job.id.project == project
            and found.option.pool.name == option.pool.name
            and makes_way(snapshot, mate.job, pending.job, option.domain, milli)
        )
        outranked = sorted(mates, key=rank_of, reverse=True)
        for count, each in enumerate(outranked, 1):
            snapshot.vacate(each.job, self.assignments[each])
            if snapshot.stays_within_share(pending.job, option) and has_place(snapshot.idle, option):
                for other in outranked[:count]:
                    self._count(other, self.assignments.pop(other), -1)
                return outranked[:count]
        for each in outranked:
            snapshot.occupy(each.job, self.assignments[each])
        return []

    def _keep(self, pending: PendingJob, assignment: Assignment) -> None:
        if pending in self.assignments:
            self._count(pending, self.assignments[pending], -1)
        self._count(pending, assignment, 1)
        self.assignments[pending] = assignment

    def _count(self, pending: PendingJob, assignment: Assignment, sign: int) -> None:
        request, pool = assignment.option.request, assignment.option.pool.name
        key, priority = (pending.job.id.project, pool), pending.job.priority
        self._lowest[key] = min(priority, self._lowest.get(key, priority))
        self._in_pool[pool] += sign
        self._fractions[pool] += sign * request.workers if request.fraction_milli else 0
        if len(pending.options) > 1 and len(_alike(pending, assignment.option)) > 1:
            self._movable_milli[pool] += sign * request.total_milli

    def _repack(self, pool: PoolName, more: Mapping[PendingJob, PoolOption]) -> bool:
        """Place a pool's admissions, and `more`, largest first. False, and nothing changed, if that fails.

        Without `more` it also fails if no more devices are whole after it.
        """
        self._placings_left -= self._in_pool[pool] + len(more)
        if self._placings_left < 0:
            return False
        old = {pending: found for pending, found in self.assignments.items() if found.option.pool.name == pool}
        idle = self._snapshot.idle
        whole = idle.whole_devices(pool)
        new: dict[PendingJob, Assignment] | None = None
        idle.give_back(old.values())
        if all(place_in(idle, option) is not None for option in more.values()):
            options = {pending: found.option for pending, found in old.items()} | dict(more)
            order = sorted(options, key=lambda pending: _size(pending, options[pending]))
            alike = ((pending, options[pending]) for pending in order)
            placed = place_all(idle, [_alike(*each) if more and each[0] not in more else each[1:] for each in alike])
            new = None if placed is None else dict(zip(order, placed, strict=True))
        if new is None:
            for option in more.values():
                self._snapshot.unschedulable("repacking", option).add(option.request)
        is_better = new is not None and (bool(more) or idle.whole_devices(pool) > whole)
        if new is not None:
            idle.give_back(new.values())
        idle.take(old.values())
        if new is None or not is_better:
            return False
        for pending, assignment in old.items():
            self._snapshot.vacate(pending.job, assignment)
        for pending, assignment in new.items():
            self._snapshot.occupy(pending.job, assignment)
            self._keep(pending, assignment)
        return True


def _alike(pending: PendingJob, option: PoolOption) -> list[PoolOption]:
    """The options of a job that are as good as the one it was admitted with, in any of its pools."""
    sized = (other.sized(option.request.workers) for other in pending.options)
    key = option.order, option.domain, option.request.total_milli
    return [each for each in sized if each is not None and (each.order, each.domain, each.request.total_milli) == key]


def _size(pending: PendingJob, option: PoolOption) -> tuple[int, int, int, int, JobId]:
    """The order in which admissions are placed again: the largest first."""
    request = option.request
    return -request.gpu_milli, -request.workers, -request.cpu_milli, -request.mem_bytes, pending.job.id
