"""Pending reasons: why each class of jobs waits, as things stand when the attempts are over.

The reason is the first of these that applies: the search for runs that could make way was cut off at its bound, so that
nothing is known; a ceiling; a head reservation of another job; CPU or memory; GPUs that
are scattered over nodes; too few GPUs. It depends on what each sort of option is short of, and on what the job's
project holds and may hold.
A class for which neither has changed keeps its reason.

Cost: O(sorts), and O(classes) of dirty projects, or of all projects if any sort is short of something else now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, product
from typing import NamedTuple, TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.head_reservation import HeadReservations
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import PoolOption, Sort, has_place
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass, JobSort, PendingJob, ProjectQueue
from gpuctl.engine.shares.entitlement import forbidden, stays_within_share
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Reason
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.units import WHOLE_GPU

Reserved: TypeAlias = Mapping[tuple[PoolName, Request], JobId]
"""The requests that would have room if it were not reserved, with the job that has the reservation."""


class Shortfall(NamedTuple):
    """What a request is short of. `enough`: not of GPUs in all. `is_cpu`: only of CPU or memory. `reserved_for`: only
    of room that is reserved for this job."""

    enough: bool
    is_cpu: bool
    reserved_for: JobId | None = None


class PendingReasons:
    """What requests were short of in the last cycle. Without this memory a job added takes 2x to 3.5x."""

    __slots__ = ("_dirty", "_read", "_short")

    def __init__(self, dirty: DirtyProjects) -> None:
        self._dirty = dirty
        self._read = 0
        self._short: tuple[Mapping[Sort, Shortfall], Reserved, frozenset[JobClass]] = {}, {}, frozenset()

    def update(
        self,
        pending_jobs: PendingJobs,
        snapshot: Snapshot,
        reservations: HeadReservations,
        cut_off: Collection[JobId],
    ) -> list[JobClass]:
        """Bring the reason of each class up to date; the classes that have another one now.

        `cut_off`: jobs for which the search for victims was cut off. That holds for all of their class.
        """
        before = self._short
        shortfalls = {option.sort: _shortfall(option, snapshot) for option in pending_jobs.sorts}
        classes = frozenset(pending_jobs.class_of(job) for job in cut_off if pending_jobs.is_queued(job))
        self._short = shortfalls, _reserved(pending_jobs, snapshot, reservations), classes
        projects, self._read = self._dirty.since(self._read), self._dirty.count
        if before != self._short:
            return self._changed(pending_jobs.queues.values(), snapshot)
        limits = chain.from_iterable(
            snapshot.accounts.tree.limits(*key) for key in product(pending_jobs.domains, projects)
        )
        mates = chain.from_iterable(snapshot.accounts.tree.below[owner] for owner, _ in limits)
        queues = map(pending_jobs.queues_of, dict.fromkeys(chain(projects, mates)))
        return self._changed(chain.from_iterable(queues), snapshot)

    def _changed(self, queues: Iterable[ProjectQueue], snapshot: Snapshot) -> list[JobClass]:
        """Set the reasons of all classes of some queues; those that had another one."""
        _, reserved, cut_off = self._short
        changed = []
        of_sort: dict[JobSort, Reason] = {}
        for job_class in chain.from_iterable(queue.job_classes.values() for queue in queues):
            reason = None if reserved else of_sort.get(job_class.sort)
            if job_class in cut_off:
                reason = reasons.search_cut_off(job_class.first.job)
            elif reason is None:
                reason = of_sort[job_class.sort] = self._reason_of(job_class.first, snapshot)
            if reason != job_class.reason:
                job_class.reason = reason
                changed.append(job_class)
        return changed

    def _reason_of(self, pending: PendingJob, snapshot: Snapshot) -> Reason:
        """Why a job has no place, see above. All jobs of a sort have the same reason, unless there are reservations."""
        shortfalls, reserved, _ = self._short
        short = tuple([shortfalls[sort] for sort in pending.job_options.sorts])
        if reserved:
            jobs = [reserved.get((option.pool.name, option.fewest.request)) for option in pending.options]
            short = tuple([each._replace(reserved_for=job) for each, job in zip(short, jobs, strict=True)])
        return _reason(pending, short, snapshot)


def _shortfall(least: PoolOption, snapshot: Snapshot) -> Shortfall:
    """What all options of a sort are short of, apart from reservations."""
    enough = _enough_is_free(snapshot.idle, least)
    return Shortfall(enough, enough and has_place(snapshot.idle, PoolOption(least.pool, least.request.without_cpu())))


def _reserved(pending_jobs: PendingJobs, snapshot: Snapshot, reservations: HeadReservations) -> Reserved:
    found: dict[tuple[PoolName, Request], JobId] = {}
    if not reservations:
        return found
    with reservations.lifted():
        sorts = {
            option.sort
            for option in pending_jobs.sorts
            if reservations.in_pool(option.pool.name) and _enough_is_free(snapshot.idle, option)
        }
        least = {
            (option.pool.name, option.fewest.request): option.fewest
            for job_class in (pending_jobs.job_classes() if sorts else ())
            for option, sort in zip(job_class.first.options, job_class.first.job_options.sorts, strict=True)
            if sort in sorts
        }
        for request, option in least.items():
            reservation = reservations.in_pool(option.pool.name)
            if reservation is not None and has_place(snapshot.idle, option):
                found[request] = reservation.pending.job.id
    return found


def _enough_is_free(free: FreeCapacity, option: PoolOption) -> bool:
    """Whether the pool has as much as an option asks for, scattered or not: whole devices, or any parts of them."""
    request, pool = option.request, option.pool.name
    if request.fraction_milli:
        return free.free_milli(pool, request.profile) >= request.total_milli
    return free.whole_devices(pool) * WHOLE_GPU >= request.total_milli


def _reason(pending: PendingJob, shortfalls: tuple[Shortfall, ...], snapshot: Snapshot) -> Reason:
    job = pending.job
    ceiling: Reason | None = None
    allowed: list[tuple[PoolOption, Shortfall]] = []
    for option, shortfall in zip(pending.options, shortfalls, strict=True):
        forbids = forbidden(snapshot.accounts, job, option.domain, option.least_milli)
        if forbids is None:
            allowed.append((option, shortfall))
        ceiling = ceiling or forbids
    if ceiling is not None and not allowed:
        return ceiling
    for _, shortfall in allowed:
        if shortfall.reserved_for is not None:
            return reasons.held_back(shortfall.reserved_for)
    if not pending.gpu_milli:
        return reasons.cpu_short(job)
    enough = [shortfall for _, shortfall in allowed if shortfall.enough]
    if enough:
        if any(shortfall.is_cpu for shortfall in enough):
            return reasons.cpu_short(job)
        return reasons.gang_short(job) if job.min_workers > 1 else reasons.scattered(job)
    option = allowed[0][0]
    is_within = stays_within_share(snapshot.accounts, option.domain, job.id.project, option.least_milli)
    return reasons.no_free_gpus(job) if is_within else reasons.over_share(job)
