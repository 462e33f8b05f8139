"""Where this cycle's new admissions go, seen together: jobs that arrive at once end up as if they had come in the best
order, largest first.

Until it is written down an admission is only a plan, so all of them may be laid out anew when the next job would fit
otherwise, or when that leaves more devices whole. What already runs, and what is reserved, stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place, place_in
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.ids import JobId, PoolName

MAX_PLACINGS = 10_000
"""Placements tried in new layouts in one cycle, in all: the bound on what a batch can cost."""


class Repacking:
    """The admissions of one cycle and their seats; each is entered in the snapshot as long as it stands.

    `is_anew`: some were moved, so there may be room where there was none.
    """

    __slots__ = ("_fractions", "_in_pool", "_left", "_snapshot", "is_anew", "seats")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._left = MAX_PLACINGS
        self._fractions: dict[PoolName, int] = {}
        self._in_pool: dict[PoolName, int] = {}
        self.is_anew = False
        self.seats: dict[PendingJob, Assignment] = {}

    def admit(self, waiting: PendingJob, options: Sequence[PoolOption]) -> Assignment | None:
        """A seat for one job more, in what is free or by laying out all admissions anew; None if neither has one."""
        seat = place(self._snapshot.idle, options)
        if seat is not None:
            self._snapshot.occupy(waiting.job, seat)
            self._sit(waiting, seat)
            return seat
        for option in options:
            if self.may_lay_out(option) and self._lay_out(option.pool.name, {waiting: option}, always=True):
                return self.seats[waiting]
        return None

    def may_lay_out(self, option: PoolOption) -> bool:
        """Whether a new layout could have a seat for one job more: enough is free, only not in one place."""
        request, pool = option.request, option.pool.name
        if not self._in_pool.get(pool) or self._refused(option).cover(request.sizes):
            return False
        ledger = self._snapshot.idle
        if not request.fraction_milli and not request.profile:
            # A device that is not whole now becomes so only by a fraction that is put elsewhere.
            whole = ledger.whole_devices(pool) + self._fractions.get(pool, 0)
            return whole >= request.devices * request.workers > 0
        return ledger.free_milli(pool, request.profile) >= request.total_milli > 0

    def _sit(self, waiting: PendingJob, seat: Assignment) -> None:
        pool = seat.option.pool.name
        if waiting not in self.seats:
            self._in_pool[pool] = self._in_pool.get(pool, 0) + 1
            if seat.option.request.fraction_milli:
                self._fractions[pool] = self._fractions.get(pool, 0) + seat.option.request.workers
        self.seats[waiting] = seat

    def compact(self) -> bool:
        """Lay out pools with new fractions anew where that leaves more devices whole; True when anything moved."""
        pools = sorted({s.option.pool.name for s in self.seats.values() if s.option.request.fraction_milli})
        return sum(self._lay_out(pool, {}, always=False) for pool in pools) > 0

    def _lay_out(self, pool: PoolName, more: dict[PendingJob, PoolOption], *, always: bool) -> bool:
        """Place a pool's admissions, and some more, in decreasing size; False, and nothing done, when one has no place.

        Unless `always`, the old layout stays when the new one leaves no more devices whole.
        """
        self._left -= self._in_pool.get(pool, 0) + len(more)
        if self._left < 0:
            return False
        ledger = self._snapshot.idle
        whole = ledger.whole_devices(pool)
        old = {waiting: seat for waiting, seat in self.seats.items() if seat.option.pool.name == pool}
        ledger.give_back_all(old.values())
        seats: dict[PendingJob, Assignment] | None = None
        if all(place_in(ledger, option) is not None for option in more.values()):
            seats = _largest_first(ledger, {waiting: seat.option for waiting, seat in old.items()} | more)
        if seats is None:
            for option in more.values():
                self._refused(option).add(option.request.sizes)
        better = seats is not None and (always or ledger.whole_devices(pool) > whole)
        if seats is not None:
            ledger.give_back_all(seats.values())
        ledger.take_all(old.values())
        if seats is None or not better:
            return False
        self.is_anew = True
        self._snapshot.reseat(old, seats)
        for waiting, seat in seats.items():
            self._sit(waiting, seat)
        return True

    def _refused(self, option: PoolOption) -> UnschedulableRequests:
        """Requests like it for which no new layout had a seat, as the snapshot stand."""
        return self._snapshot.unschedulable(("layout", self._snapshot.lifted, option.pool.name, option.request.profile))


def _largest_first(ledger: FreeCapacity, options: dict[PendingJob, PoolOption]) -> dict[PendingJob, Assignment] | None:
    """Seats for all, taken from the ledger; None when one has none, and the ledger as it was."""

    def size(waiting: PendingJob) -> tuple[int, int, int, int, JobId]:
        request = options[waiting].request
        return -request.gpu_milli, -request.workers, -request.cpu_milli, -request.mem_bytes, waiting.job.id

    seats: dict[PendingJob, Assignment] = {}
    for waiting in sorted(options, key=size):
        placement = place_in(ledger, options[waiting])
        if placement is None:
            ledger.give_back_all(seats.values())
            return None
        ledger.take(placement, options[waiting].request.charge)
        seats[waiting] = Assignment(options[waiting], placement)
    return seats
