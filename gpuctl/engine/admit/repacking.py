"""Repacking: this cycle's admissions placed again, largest first, as if they had come in the best order.

Example: jobs of 1, 1 and 4 GPUs are admitted to two nodes of 4. If the small ones are on different nodes when the large
one is attempted, repacking puts them together. Until the cycle is over an admission is only a plan, so this moves no
run; runs and reservations stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.engine.capacity.gang import Assignment, PoolOption, place, place_all, place_in
from gpuctl.engine.jobs.project_queue import PendingJob
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.ids import JobId, PoolName

MAX_PLACINGS = 10_000
"""Placements tried by repacking in one cycle, in all: the bound on what a batch can cost."""


class Repacking:
    """The admissions of one cycle with their assignments, each of which is entered in the snapshot."""

    __slots__ = ("_fractions", "_in_pool", "_placings_left", "_snapshot", "assignments")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._placings_left = MAX_PLACINGS
        self._fractions: dict[PoolName, int] = {}
        self._in_pool: dict[PoolName, int] = {}
        self.assignments: dict[PendingJob, Assignment] = {}

    def admit(self, pending: PendingJob, options: Sequence[PoolOption]) -> Assignment | None:
        """Place one more job on idle GPUs, by repacking if need be; None if there is no place."""
        assignment = place(self._snapshot.idle, options)
        if assignment is not None:
            self._snapshot.occupy(pending.job, assignment)
            self._keep(pending, assignment)
            return assignment
        for option in options:
            if self.may_repack(option) and self._repack(option.pool.name, {pending: option}, always=True):
                return self.assignments[pending]
        return None

    def may_repack(self, option: PoolOption) -> bool:
        """Whether repacking could make room for an option: enough is idle in the pool, only not in one place.

        False once the placements of the cycle would not be enough.
        """
        request, pool = option.request, option.pool.name
        admitted = self._in_pool.get(pool, 0)
        if not 0 < admitted < self._placings_left or self._snapshot.unschedulable("repacking", option).cover(request):
            return False
        idle = self._snapshot.idle
        if not request.fraction_milli and not request.profile:
            # A device that is not whole now becomes so only if a fraction on it is placed elsewhere.
            whole = idle.whole_devices(pool) + self._fractions.get(pool, 0)
            return whole >= request.devices * request.workers > 0
        return idle.free_milli(pool, request.profile) >= request.total_milli > 0

    def compact(self) -> bool:
        """Repack the pools with new fractions where that leaves more devices whole; True if an admission moved."""
        pools = sorted({s.option.pool.name for s in self.assignments.values() if s.option.request.fraction_milli})
        return sum(self._repack(pool, {}, always=False) for pool in pools) > 0

    def _keep(self, pending: PendingJob, assignment: Assignment) -> None:
        pool = assignment.option.pool.name
        if pending not in self.assignments:
            self._in_pool[pool] = self._in_pool.get(pool, 0) + 1
            if assignment.option.request.fraction_milli:
                self._fractions[pool] = self._fractions.get(pool, 0) + assignment.option.request.workers
        self.assignments[pending] = assignment

    def _repack(self, pool: PoolName, more: Mapping[PendingJob, PoolOption], *, always: bool) -> bool:
        """Place a pool's admissions, and some more, largest first; False, and nothing changed, if that fails.

        Unless `always`, it fails too if no more devices are whole after it.
        """
        self._placings_left -= self._in_pool.get(pool, 0) + len(more)
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
            placed = place_all(idle, [(options[pending],) for pending in order])
            new = None if placed is None else dict(zip(order, placed, strict=True))
        if new is None:
            for option in more.values():
                self._snapshot.unschedulable("repacking", option).add(option.request)
        is_better = new is not None and (always or idle.whole_devices(pool) > whole)
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


def _size(pending: PendingJob, option: PoolOption) -> tuple[int, int, int, int, JobId]:
    """The order in which admissions are placed again: the largest first."""
    request = option.request
    return -request.gpu_milli, -request.workers, -request.cpu_milli, -request.mem_bytes, pending.job.id
