"""Where this cycle's new admissions go, seen together: jobs that arrive at once end up as if they had come in the best
order, largest first.

Until it is written down an admission is only a plan, so all of them may be laid out anew when the next job would fit
otherwise, or when that leaves more devices whole. What already runs, and what is reserved, stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.model.ids import JobId, PoolName
from gpuctl.schedule.books import Books
from gpuctl.schedule.gang import Offer, Seat, place, place_in
from gpuctl.schedule.ledger import Ledger
from gpuctl.schedule.ordering import Waiting

MAX_PLACINGS = 10_000
"""Placements tried in new layouts in one cycle, in all: the bound on what a batch can cost."""


class Layout:
    """The admissions of one cycle and their seats; each is entered in the books as long as it stands."""

    __slots__ = ("_books", "_in_pool", "_left", "_vacant", "seats")

    def __init__(self, books: Books) -> None:
        self._books = books
        self._left = MAX_PLACINGS
        self._in_pool: dict[PoolName, int] = {}
        self._vacant: dict[PoolName, tuple[int, Ledger]] = {}
        self.seats: dict[Waiting, Seat] = {}

    def admit(self, waiting: Waiting, offers: Sequence[Offer]) -> Seat | None:
        """A seat for one job more, in what is free or by laying out all admissions anew; None if neither has one."""
        seat = place(self._books.now, offers)
        if seat is not None:
            self._books.occupy(waiting.job, seat)
            self._sit(waiting, seat)
            return seat
        for offer in offers:
            free = self._books.now.free_milli(offer.pool.name, offer.request.profile)
            enough = free >= offer.request.total_milli > 0
            if (
                enough
                and self._in_pool.get(offer.pool.name)
                and self._lay_out(offer.pool.name, {waiting: offer}, always=True)
            ):
                return self.seats[waiting]
        return None

    def _sit(self, waiting: Waiting, seat: Seat) -> None:
        pool = seat.offer.pool.name
        self._in_pool[pool] = self._in_pool.get(pool, 0) + (waiting not in self.seats)
        self.seats[waiting] = seat

    def compact(self) -> bool:
        """Lay out pools with new fractions anew where that leaves more devices whole; True when anything moved."""
        pools = sorted({s.offer.pool.name for s in self.seats.values() if s.offer.request.fraction_milli})
        return sum(self._lay_out(pool, {}, always=False) for pool in pools) > 0

    def _lay_out(self, pool: PoolName, more: dict[Waiting, Offer], *, always: bool) -> bool:
        """Place a pool's admissions, and some more, in decreasing size; False, and nothing done, when one has no place.

        Unless `always`, the old layout stays when the new one leaves no more devices whole.
        """
        self._left -= self._in_pool.get(pool, 0) + len(more)
        if self._left < 0:
            return False
        trial = self._without_seats(pool)
        if any(place_in(trial, offer) is None for offer in more.values()):
            return False
        placed = [w for w, seat in self.seats.items() if seat.offer.pool.name == pool]
        seats = _largest_first(trial, {w: self.seats[w].offer for w in placed} | more)
        if seats is None:
            return False
        whole = trial.whole_devices(pool)
        _give_back(trial, seats)
        if not always and whole <= self._books.now.whole_devices(pool):
            return False
        for waiting in placed:
            self._books.vacate(waiting.job, self.seats[waiting])
        for waiting, seat in seats.items():
            self._books.occupy(waiting.job, seat)
            self._sit(waiting, seat)
        return True

    def _without_seats(self, pool: PoolName) -> Ledger:
        """What would be free without any admission in a pool. Whoever tries something in it gives it back."""
        made_at, ledger = self._vacant.get(pool, (-1, self._books.now))
        if made_at != self._books.changes:
            ledger = self._books.now.copy()
            _give_back(ledger, {w: seat for w, seat in self.seats.items() if seat.offer.pool.name == pool})
            self._vacant[pool] = self._books.changes, ledger
        return ledger


def _give_back(ledger: Ledger, seats: dict[Waiting, Seat]) -> None:
    for seat in seats.values():
        ledger.give_back(seat.placement, seat.offer.request.charge)


def _largest_first(ledger: Ledger, offers: dict[Waiting, Offer]) -> dict[Waiting, Seat] | None:
    """Seats for all, taken from the ledger; None when one has none, and the ledger as it was."""

    def size(waiting: Waiting) -> tuple[int, int, int, int, JobId]:
        request = offers[waiting].request
        return -request.gpu_milli, -request.workers, -request.cpu_milli, -request.mem_bytes, waiting.job.id

    seats: dict[Waiting, Seat] = {}
    for waiting in sorted(offers, key=size):
        placement = place_in(ledger, offers[waiting])
        if placement is None:
            _give_back(ledger, seats)
            return None
        ledger.take(placement, offers[waiting].request.charge)
        seats[waiting] = Seat(offers[waiting], placement)
    return seats
