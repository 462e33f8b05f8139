"""Why jobs wait: what binds each class of alike jobs, as things stand when the attempts are over.

It depends on what is free for what they ask, the same for all options of a sort but for what is reserved for others,
and on what their project holds and has a right to. Where neither has changed the reason stays. Cost: O(sorts), what is
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

    def tell(self, lineup: PendingJobs, snapshot: Snapshot, guards: HeadReservations) -> list[JobClass]:
        """Bring every reason up to date; the groups whose reason is another now."""
        wants = {option.sort: _want(option, snapshot) for option in lineup.sorts}
        kept = _kept(lineup, snapshot, guards)
        changed = {sort for sort, want in wants.items() if want != self._wants.get(sort)}
        requests = {request for request, _ in kept.items() ^ self._kept.items()}
        self._wants, self._kept = wants, kept
        concerned = dict.fromkeys(chain.from_iterable(line.groups.values() for line in self._changed(lineup, snapshot)))
        if changed:
            concerned.update((g, None) for g in lineup.groups() if not changed.isdisjoint(g.first.prospect.sorts))
        if requests:
            concerned.update(
                (g, None) for g in lineup.groups() if not requests.isdisjoint(map(_asked, g.first.options))
            )
        return self._told(concerned, snapshot)

    def _told(self, concerned: Iterable[JobClass], snapshot: Snapshot) -> list[JobClass]:
        """Those of some groups whose reason is another now. Cost: a reason for each of their terms, and what binds."""
        reasons_of: dict[object, Reason] = {}
        told = []
        for group in concerned:
            first = group.first
            wants = tuple([self._want_of(option) for option in first.options])
            key = group.line, first.prospect.terms, wants
            reason = reasons_of.get(key)
            if reason is None:
                reason = reasons_of[key] = _why(first, wants, snapshot)
            if reason != group.reason:
                group.reason = reason
                told.append(group)
        return told

    def _want_of(self, option: PoolOption) -> Shortfall:
        want, kept_for = self._wants[option.fewest.sort], self._kept.get(_asked(option)) if self._kept else None
        return want if kept_for is None else want._replace(kept_for=kept_for)

    def _changed(self, lineup: PendingJobs, snapshot: Snapshot) -> Iterator[ProjectQueue]:
        """The lines of projects there is news about, and of those that share a ceiling with one."""
        projects = self._reader.take()
        sharing = chain.from_iterable(map(snapshot.accounts.tree.ceiled_with, projects))
        return chain.from_iterable(map(lineup.lines_of, dict.fromkeys(chain(projects, sharing))))


def _asked(option: PoolOption) -> tuple[PoolName, Request]:
    """What an option asks for at the least."""
    return option.pool.name, option.fewest.request


def _want(least: PoolOption, snapshot: Snapshot) -> Shortfall:
    """What all options of a sort want for, but for what is kept for others."""
    enough = _free_for(snapshot.idle, least)
    return Shortfall(enough, enough and has_place(snapshot.idle, PoolOption(least.pool, least.request.without_cpu())))


def _kept(lineup: PendingJobs, snapshot: Snapshot, guards: HeadReservations) -> Kept:
    """For whom what would do for a request is kept."""
    kept: dict[tuple[PoolName, Request], JobId] = {}
    if not guards:
        return kept
    with guards.lifted():
        free = {o.sort for o in lineup.sorts if guards.in_pool(o.pool.name) and _free_for(snapshot.idle, o)}
        asked = {
            _asked(option): option.fewest
            for group in (lineup.groups() if free else ())
            for option, sort in zip(group.first.options, group.first.prospect.sorts, strict=True)
            if sort in free
        }
        for request, option in asked.items():
            guard = guards.in_pool(option.pool.name)
            if guard is not None and has_place(snapshot.idle, option):
                kept[request] = guard.waiting.job.id
    return kept


def _free_for(ledger: FreeCapacity, option: PoolOption) -> bool:
    """Whether as much is free in a pool, of the kind an option asks for: whole devices, or any parts of them."""
    request, pool = option.request, option.pool.name
    if request.fraction_milli:
        return ledger.free_milli(pool, request.profile) >= request.total_milli
    return ledger.whole_devices(pool) * WHOLE_GPU >= request.total_milli


def _why(waiting: PendingJob, wants: tuple[Shortfall, ...], snapshot: Snapshot) -> Reason:
    """What binds a job that has no place: a ceiling, who has waited longer, CPU, the nodes, or the GPUs."""
    job, domain_of = waiting.job, snapshot.capacity.domain_of
    barrier: Reason | None = None
    legal: list[tuple[PoolOption, Shortfall]] = []
    for option, want in zip(waiting.options, wants, strict=True):
        forbids = forbidden(snapshot.accounts, job, domain_of[option.pool.name], option.least_milli)
        if forbids is None:
            legal.append((option, want))
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
    return reasons.over_share(job) if _is_beyond_share(waiting, legal[0][0], snapshot) else reasons.no_free_gpus(job)


def _is_beyond_share(waiting: PendingJob, option: PoolOption, snapshot: Snapshot) -> bool:
    domain, owner = snapshot.capacity.domain_of[option.pool.name], project_owner(waiting.job.id.project)
    held_milli, milli = snapshot.accounts.held(domain, owner), option.least_milli
    return milli > 0 and held_milli + milli > max(snapshot.accounts.portion(domain, owner))
