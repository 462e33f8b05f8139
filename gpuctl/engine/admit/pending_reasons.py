"""Pending reasons: why each class of jobs waits after all attempts of a cycle.

The reason is the first of these that applies: other jobs would take the job's place again at once; the search for runs
that could make way was cut off at its bound, so that nothing is known; a ceiling; a head reservation of another job;
CPU or memory; GPUs that are scattered over nodes; too few GPUs. It depends on what each sort of option is short of, and
on what the job's project holds and may hold. A class for which neither has changed keeps its reason.
Cost: O(sorts), and O(classes) of dirty projects, or of all projects if any sort is short of something else now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, product
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.head_reservation import HeadReservations
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import PoolOption, Sort, has_place
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass, JobSort, PendingJob, ProjectQueue
from gpuctl.engine.shares.accounts import Accounts
from gpuctl.engine.shares.entitlement import forbidden, stays_within_share
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Reason
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.units import WHOLE_GPU

ReservedFor: TypeAlias = Mapping[tuple[PoolName, Request], JobId]
"""The requests that would have room if it were not reserved, each with the job that has the reservation."""

Sorts: TypeAlias = frozenset[Sort]


class PendingReasons:
    """What jobs were short of in the last cycle. Without this memory an added job takes 2x to 3.5x.

    `_short`: the sorts of which enough is idle; those of them that lack only CPU or memory; and the requests that lack
    only what is reserved. `_of_search`: the reasons of classes that wait because of a search for victims.
    """

    def __init__(self, dirty: DirtyProjects) -> None:
        self._dirty = dirty
        self._read = 0
        self._short: tuple[Sorts, Sorts, ReservedFor] = frozenset(), frozenset(), {}
        self._of_search: dict[JobClass, Reason] = {}

    def update(
        self,
        pending_jobs: PendingJobs,
        snapshot: Snapshot,
        reservations: HeadReservations,
        cut_off: Collection[JobId],
        unaided: Collection[JobId],
    ) -> list[JobClass]:
        """Update the reason of each class. Returns the classes whose reason has changed.

        `cut_off`: jobs whose search for victims was cut off. `unaided`: jobs for which no run makes way (`Restraints`).
        Either holds for all of a job's class.
        """
        before, idle = (self._short, self._of_search), snapshot.idle
        options = [each for each in pending_jobs.sorts if _enough_is_free(idle, each)]
        enough = frozenset(each.sort for each in options)
        by_cpu = frozenset(
            each.sort for each in options if has_place(idle, PoolOption(each.pool, each.request.without_cpu()))
        )
        self._short = enough, by_cpu, _reserved(pending_jobs, snapshot, reservations)
        self._of_search = {
            job_class: reason(job_class.first.job)
            for jobs, reason in ((cut_off, reasons.search_cut_off), (unaided, reasons.place_lost))
            for job_class in {pending_jobs.class_of(job) for job in jobs if pending_jobs.is_queued(job)}
        }
        projects, self._read = self._dirty.since(self._read), self._dirty.count
        if before != (self._short, self._of_search):
            return self._changed(pending_jobs.queues.values(), snapshot)
        limits = chain.from_iterable(
            snapshot.accounts.tree.limits(*key) for key in product(pending_jobs.domains, projects)
        )
        mates = chain.from_iterable(snapshot.accounts.tree.below[owner] for owner, _ in limits)
        queues = map(pending_jobs.queues_of, dict.fromkeys(chain(projects, mates)))
        return self._changed(chain.from_iterable(queues), snapshot)

    def _changed(self, queues: Iterable[ProjectQueue], snapshot: Snapshot) -> list[JobClass]:
        """Set the reasons of all classes of some queues. Returns the classes whose reason has changed.

        All jobs of a sort have the same reason, unless there are reservations.
        """
        _, _, reserved = self._short
        changed = []
        of_sort: dict[JobSort, Reason] = {}
        for job_class in chain.from_iterable(queue.job_classes.values() for queue in queues):
            reason = self._of_search.get(job_class) or (None if reserved else of_sort.get(job_class.sort))
            if reason is None:
                reason = of_sort[job_class.sort] = self._reason_of(job_class.first, snapshot.accounts)
            if reason != job_class.reason:
                job_class.reason = reason
                changed.append(job_class)
        return changed

    def _reason_of(self, pending: PendingJob, accounts: Accounts) -> Reason:
        """Why a job has no place, by the order above."""
        enough, by_cpu, reserved = self._short
        job, options = pending.job, pending.options
        ceilings = [forbidden(accounts, job, option.domain, option.least_milli) for option in options]
        allowed = [option for option, ceiling in zip(options, ceilings, strict=True) if ceiling is None]
        ceiling = next(filter(None, ceilings), None)
        if ceiling is not None and not allowed:
            return ceiling
        holders = (reserved.get((option.pool.name, option.fewest.request)) for option in allowed if reserved)
        holder = next(filter(None, holders), None)
        if holder is not None:
            return reasons.held_back(holder)
        sorts = [option.fewest.sort for option in allowed]
        if not pending.gpu_milli or not by_cpu.isdisjoint(sorts):
            return reasons.cpu_short(job)
        if not enough.isdisjoint(sorts):
            return reasons.gang_short(job) if job.min_workers > 1 else reasons.scattered(job)
        first = allowed[0]
        is_within = stays_within_share(accounts, first.domain, job.id.project, first.least_milli)
        return reasons.no_free_gpus(job) if is_within else reasons.over_share(job)


def _reserved(pending_jobs: PendingJobs, snapshot: Snapshot, reservations: HeadReservations) -> ReservedFor:
    found: dict[tuple[PoolName, Request], JobId] = {}
    if not reservations:
        return found
    with reservations.lifted():
        sorts = {option.sort for option in pending_jobs.sorts if _enough_is_free(snapshot.idle, option)}
        for job_sort in chain.from_iterable(queue.sorts.values() for queue in pending_jobs.queues.values()):
            if sorts.isdisjoint(option.fewest.sort for option in job_sort.first.options):
                continue
            for least in (option.fewest for job_class in job_sort.classes for option in job_class.first.options):
                key, reservation = (least.pool.name, least.request), reservations.in_pool(least.pool.name)
                if reservation is not None and key not in found and has_place(snapshot.idle, least):
                    found[key] = reservation.pending.job.id
    return found


def _enough_is_free(free: FreeCapacity, option: PoolOption) -> bool:
    """Whether the pool has as much as an option asks for, scattered or not: whole devices, or any parts of them."""
    request, pool = option.request, option.pool.name
    if request.fraction_milli:
        return free.free_milli(pool, request.profile) >= request.total_milli
    return free.whole_devices(pool) * WHOLE_GPU >= request.total_milli
