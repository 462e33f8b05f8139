"""What binds a job that has no place: the reason it is told, when no right and no room let it start."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.model.decision import Reason
from gpuctl.model.ids import PoolName
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.schedule import reasons
from gpuctl.schedule.accounts import project_owner
from gpuctl.schedule.books import Books
from gpuctl.schedule.fit import Request
from gpuctl.schedule.gang import Offer, place_in
from gpuctl.schedule.ledger import Ledger
from gpuctl.schedule.ordering import Waiting
from gpuctl.schedule.starvation import Guard, Guards


class Obstacles:
    """Reasons to wait, by the books of one cycle and the places kept in it."""

    __slots__ = ("_books", "_fits_past", "_guards")

    def __init__(self, books: Books, guards: Guards) -> None:
        self._books = books
        self._guards = guards
        self._fits_past: dict[tuple[PoolName, Request], bool] = {}

    def of(self, waiting: Waiting, offers: Sequence[Offer]) -> Reason:
        """Why it has no place in any of the offers that no ceiling forbids."""
        job, now = waiting.job, self._books.now
        for guard, offer in self._guards.in_the_way(waiting):
            if offer in offers and self._fits_without(guard, offer):
                return reasons.held_back(guard.waiting.job.id)
        if not waiting.gpu_milli:
            return reasons.cpu_short(job)
        enough = [o for o in offers if _free_for(now, o) >= o.request.total_milli]
        if enough:
            bare = (Offer(o.pool, o.request.without_cpu()) for o in enough)
            if any(place_in(now, offer) is not None for offer in bare):
                return reasons.cpu_short(job)
            return reasons.gang_short(job) if job.workers > 1 else reasons.scattered(job)
        beyond = bool(offers) and self._is_beyond_share(waiting, offers[0])
        return reasons.over_share(job) if beyond else reasons.no_free_gpus(job)

    def _is_beyond_share(self, waiting: Waiting, offer: Offer) -> bool:
        domain, owner = self._books.capacity.domain_of[offer.pool.name], project_owner(waiting.job.id.project)
        portion = self._books.accounts.portion(domain, owner)
        held = self._books.accounts.held(domain, owner) + offer.request.total_milli
        return offer.request.total_milli > 0 and held > max(portion.guarantee_milli, portion.share_milli)

    def _fits_without(self, guard: Guard, offer: Offer) -> bool:
        """Whether there would be room if a place were not kept for another; looked for once for a request."""
        key = offer.pool.name, offer.request
        if key not in self._fits_past:
            self._guards.lift(guard)
            self._fits_past[key] = place_in(self._books.now, offer) is not None
            self._guards.hold(guard)
        return self._fits_past[key]


def _free_for(ledger: Ledger, offer: Offer) -> GpuMilli:
    """What is free in a pool of the kind an offer asks for: whole devices, or any parts of them."""
    if offer.request.fraction_milli:
        return ledger.free_milli(offer.pool.name, offer.request.profile)
    return ledger.whole_devices(offer.pool.name) * WHOLE_GPU
