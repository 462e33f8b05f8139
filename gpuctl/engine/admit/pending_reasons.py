"""Why jobs wait: what binds each class of alike jobs, as things stand when the attempts are over.

It depends on what is free for what they ask, the same for all offers of a sort but for what is reserved for others, and
on what their project holds and has a right to. Where neither has changed the reason stays. Cost: O(sorts), what is
reserved for others, and O(classes) of the projects there is news about, or that ask for what has become free or short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.head_reservation import HeadReservations
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import PoolOption, Sort, has_place
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass, ProjectQueue
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import forbidden
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Reason
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.units import WHOLE_GPU

Kept: TypeAlias = Mapping[tuple[PoolName, Request], JobId]
"""For which job the room is reserved that would do for a request."""


class Shortfall(NamedTuple):
    """What a request wants for: whether GPUs are `enough`, whether only CPU or memory is short, and for whom what would
    do is `kept_for`."""

    enough: bool
    is_cpu: bool
    kept_for: JobId | None = None


class PendingReasons:
    """What those who wait want for, as they were told last."""

    __slots__ = ("_kept", "_reader", "_wants")

    def __init__(self, news: DirtyProjects) -> None:
        self._reader = news.reader()
        self._wants: Mapping[Sort, Shortfall] = {}
        self._kept: Kept = {}

    def tell(self, lineup: PendingJobs, books: Snapshot, guards: HeadReservations) -> list[JobClass]:
        """Bring every reason up to date; the groups whose reason is another now."""
        wants = {offer.sort: _want(offer, books) for offer in lineup.sorts}
        kept = _kept(lineup, books, guards)
        changed = {sort for sort, want in wants.items() if want != self._wants.get(sort)}
        requests = {request for request, _ in kept.items() ^ self._kept.items()}
        self._wants, self._kept = wants, kept
        concerned = dict.fromkeys(chain.from_iterable(line.groups.values() for line in self._changed(lineup, books)))
        if changed:
            concerned.update((g, None) for g in lineup.groups() if not changed.isdisjoint(g.first.prospect.sorts))
        if requests:
            concerned.update((g, None) for g in lineup.groups() if not requests.isdisjoint(map(_asked, g.first.offers)))
        return self._told(concerned, books)

    def _told(self, concerned: Iterable[JobClass], books: Snapshot) -> list[JobClass]:
        """Those of some groups whose reason is another now. Cost: a reason for each of their terms, and what binds."""
        reasons_of: dict[object, Reason] = {}
        told = []
        for group in concerned:
            first = group.first
            wants = tuple([self._want_of(offer) for offer in first.offers])
            key = group.line, first.prospect.terms, wants
            reason = reasons_of.get(key)
            if reason is None:
                reason = reasons_of[key] = _why(first, wants, books)
            if reason != group.reason:
                group.reason = reason
                told.append(group)
        return told

    def _want_of(self, offer: PoolOption) -> Shortfall:
        want, kept_for = self._wants[offer.fewest.sort], self._kept.get(_asked(offer)) if self._kept else None
        return want if kept_for is None else want._replace(kept_for=kept_for)

    def _changed(self, lineup: PendingJobs, books: Snapshot) -> Iterator[ProjectQueue]:
        """The lines of projects there is news about, and of those that share a ceiling with one."""
        projects = self._reader.take()
        sharing = chain.from_iterable(map(books.accounts.tree.ceiled_with, projects))
        return chain.from_iterable(map(lineup.lines_of, dict.fromkeys(chain(projects, sharing))))


def _asked(offer: PoolOption) -> tuple[PoolName, Request]:
    """What an offer asks for at the least."""
    return offer.pool.name, offer.fewest.request


def _want(least: PoolOption, books: Snapshot) -> Shortfall:
    """What all offers of a sort want for, but for what is kept for others."""
    enough = _free_for(books.now, least)
    return Shortfall(enough, enough and has_place(books.now, PoolOption(least.pool, least.request.without_cpu())))


def _kept(lineup: PendingJobs, books: Snapshot, guards: HeadReservations) -> Kept:
    """For whom what would do for a request is kept."""
    kept: dict[tuple[PoolName, Request], JobId] = {}
    if not guards:
        return kept
    with guards.lifted():
        free = {o.sort for o in lineup.sorts if guards.in_pool(o.pool.name) and _free_for(books.now, o)}
        asked = {
            _asked(offer): offer.fewest
            for group in (lineup.groups() if free else ())
            for offer, sort in zip(group.first.offers, group.first.prospect.sorts, strict=True)
            if sort in free
        }
        for request, offer in asked.items():
            guard = guards.in_pool(offer.pool.name)
            if guard is not None and has_place(books.now, offer):
                kept[request] = guard.waiting.job.id
    return kept


def _free_for(ledger: FreeCapacity, offer: PoolOption) -> bool:
    """Whether as much is free in a pool, of the kind an offer asks for: whole devices, or any parts of them."""
    request, pool = offer.request, offer.pool.name
    if request.fraction_milli:
        return ledger.free_milli(pool, request.profile) >= request.total_milli
    return ledger.whole_devices(pool) * WHOLE_GPU >= request.total_milli


def _why(waiting: PendingJob, wants: tuple[Shortfall, ...], books: Snapshot) -> Reason:
    """What binds a job that has no place: a ceiling, who has waited longer, CPU, the nodes, or the GPUs."""
    job, domain_of = waiting.job, books.capacity.domain_of
    barrier: Reason | None = None
    legal: list[tuple[PoolOption, Shortfall]] = []
    for offer, want in zip(waiting.offers, wants, strict=True):
        forbids = forbidden(books.accounts, job, domain_of[offer.pool.name], offer.least_milli)
        if forbids is None:
            legal.append((offer, want))
        barrier = barrier or forbids
    if barrier is not None and not legal:
        return barrier
    for _, want in legal:
        if want.kept_for is not None:
            return reasons.held_back(want.kept_for)
    if not waiting.gpu_milli:
        return reasons.cpu_short(job)
    enough = [want for _, want in legal if want.enough]
    if enough:
        if any(want.is_cpu for want in enough):
            return reasons.cpu_short(job)
        return reasons.gang_short(job) if job.min_workers > 1 else reasons.scattered(job)
    return reasons.over_share(job) if _is_beyond_share(waiting, legal[0][0], books) else reasons.no_free_gpus(job)


def _is_beyond_share(waiting: PendingJob, offer: PoolOption, books: Snapshot) -> bool:
    domain, owner = books.capacity.domain_of[offer.pool.name], project_owner(waiting.job.id.project)
    held_milli, milli = books.accounts.held(domain, owner), offer.least_milli
    return milli > 0 and held_milli + milli > max(books.accounts.portion(domain, owner))
