"""Schedulability: which pending jobs are worth an attempt, as the snapshot stands.

A job could get GPUs in three ways: the pool has room that is idle or coming free; its project is entitled to more, and
another project holds more than it keeps; the job outranks a run of its own project. If none of these is possible, an
attempt would fail, and is not made.
Invariant: the check may be too optimistic, never too pessimistic: skipping a job that could start is a defect
(tests/properties/test_schedulability.py). It should be as exact as it can, all the same: a job whose attempt will fail
is the head of its queue until then, and gives the queue another position than the job behind it would.
Cost: a check of each sort of jobs, and of each class of the sorts that pass it. `UnschedulableRequests` answer for all
requests that ask for no less than a failed one. If 9,165 jobs wait that nearly all differ in CPU and memory, a cycle
takes 8x without the check of sorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from gpuctl.engine.admit.head_reservation import HeadReservations
from gpuctl.engine.admit.repacking import Repacking
from gpuctl.engine.capacity.gang import PoolOption, has_place
from gpuctl.engine.jobs.project_queue import JobClass, JobSort, PendingJob, ProjectQueue, Rank, is_first_class
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.consolidation import MigrationSearch
from gpuctl.engine.victims.preempt import makes_way
from gpuctl.engine.victims.reclaim import ReclaimStrategy, over_allocated
from gpuctl.engine.victims.rules import rules_by_right
from gpuctl.engine.victims.search import is_unschedulable
from gpuctl.model.ids import DomainName, JobId
from gpuctl.model.job import Job

K = TypeVar("K")
T = TypeVar("T")


class Schedulability:
    """The check for one pass over the pending jobs.

    `within_share`: only jobs that leave their projects within their fair shares are attempted now. During a pass idle
    room only shrinks: a class without room when the pass begins has none later, even if all admissions of this cycle
    are repacked.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that an attempt depends on
        self,
        snapshot: Snapshot,
        reservations: HeadReservations,
        repacking: Repacking,
        migrations: MigrationSearch | None,
        queues: Iterable[ProjectQueue],
        cut_off: set[JobId],
    ) -> None:
        """`migrations`: None if no run may be moved. `cut_off`: receives the jobs that are not attempted, because their
        attempt would only end in a search that is cut off."""
        self._snapshot = snapshot
        self._reservations = reservations
        self._repacking = repacking
        self._migrations = migrations
        self._cut_off = cut_off
        self.within_share = False
        self._room: dict[object, bool] = {}
        self._with_room = {
            job_class
            for queue in queues
            for sort in queue.sorts.values()
            if any(map(self._has_room, sort.least))
            for job_class in sort.classes
            if any(map(self._has_room, job_class.first.options))
        }

    def _once(self, check: Callable[[K], T], of: K) -> T:
        """The result of a check, found once until the snapshot changes."""
        return self._snapshot.once((check.__name__, of), lambda: check(of))

    def classes(self, queue: ProjectQueue) -> Iterator[tuple[Rank, JobClass]]:
        """The classes of a project's jobs for which an attempt could succeed now, or once others have started.

        If a sort is not open, not due or not entitled now, the starts of others do not change that.
        """
        is_head = any(reservation.pending.job.id.project == queue.project for reservation in self._reservations)
        known: dict[JobSort, tuple[bool, bool]] = {}
        for rank, job_class in queue.ranked:
            sort = job_class.sort
            if sort not in known:
                is_worth_it = self._is_worth_it(sort)
                known[sort] = is_worth_it, is_worth_it and (is_head or self._once(self._may_claim, sort))
            is_worth_it, is_claiming = known[sort]
            if is_claiming or (is_worth_it and job_class in self._with_room):
                yield rank, job_class

    def of(self, pending: PendingJob, job_class: JobClass) -> bool:
        """Whether an attempt for a job of a class could succeed."""
        sort = job_class.sort
        if not self._is_worth_it(sort):
            return False
        self._snapshot.counters.checks += 1
        if self._reservations and self._reservations.of(pending) is not None:
            return True
        if job_class in self._with_room and any(self._may_start(pending, option) for option in pending.options):
            return True
        if not self._once(self._may_claim, sort):
            return False
        of_sort = partial(self._may_make_room, sort.first.job, sort.least)
        may_make_room, is_cut_off = self._snapshot.once(("may make room", sort), of_sort)
        if may_make_room and len(sort.classes) > 1:
            may_make_room, is_cut_off = self._may_make_room(pending.job, pending.options)
        if is_cut_off:
            self._cut_off.add(pending.job.id)
        return may_make_room

    # Checks of a whole sort

    def _is_worth_it(self, sort: JobSort) -> bool:
        return self._once(self._is_open, sort) and (not self.within_share or self._once(self._is_due, sort))

    def _is_open(self, sort: JobSort) -> bool:
        """Whether no quota forbids a job of a sort, with the fewest workers it may start with.

        A job that a quota forbids waits for that reason, whatever was searched for before.
        """
        first = sort.first
        found = any(self._snapshot.is_open(first.job, option.fewest) for option in first.options)
        if self._cut_off and not found:
            self._cut_off.difference_update(each.job.id for job_class in sort.classes for each in job_class.jobs)
        return found

    def _is_due(self, sort: JobSort) -> bool:
        """Whether a project may stay within its share with a job of a sort: as it is, or once own runs have left."""
        accounts, job = self._snapshot.accounts, sort.first.job
        return any(
            self._snapshot.stays_within_share(job, option.fewest)
            or (
                option.least_milli <= max(accounts.entitled(option.domain, project_owner(job.id.project)))
                and self._outranks_a_run(job, option.domain)
            )
            for option in sort.first.options
        )

    def _may_claim(self, sort: JobSort) -> bool:
        """Whether a job of a sort outranks a run of its project, or its project is entitled to more and there are
        sources: for a job without an object only GPUs that come free, because no run is paused for it."""
        has_sources = sort.has_run or self._snapshot.is_freeing
        return has_sources and any(self._claims(sort.first.job, option) for option in sort.first.options)

    def _claims(self, job: Job, option: PoolOption) -> bool:
        if not option.request.gpu_milli:
            return False
        if self._outranks_a_run(job, option.domain):
            return True
        rights = rights_of(self._snapshot.accounts, option.domain, job.id.project, option.least_milli)
        return any(rights) and self._once(self._has_sources, option.domain)

    def _has_sources(self, domain: DomainName) -> bool:
        """Whether an entitled job may get GPUs: some come free, a project holds too many, or some are reserved."""
        snapshot = self._snapshot
        comes = self._migrations is not None or snapshot.is_freeing
        return (
            bool(self._reservations)
            or any(over_allocated(snapshot, domain, strategy) for strategy in ReclaimStrategy)
            or any(snapshot.without_gpus(domain).values())
            or (comes and any(map(snapshot.future_idle.all_free_milli, snapshot.capacity.pools_of(domain))))
        )

    def _outranks_a_run(self, job: Job, domain: DomainName) -> bool:
        """Whether a run of the same project may make way for a job."""
        snapshot, project = self._snapshot, job.id.project
        pausable = snapshot.pausable(domain).get(project)
        return bool(pausable) and (is_first_class(job) or snapshot.lowest(domain, project) < job.priority)

    # Idle room

    def _has_room(self, option: PoolOption) -> bool:
        """Whether an option with the fewest workers has idle room when the pass begins."""
        least = option.fewest
        key = least.pool.name, least.request
        if key not in self._room:
            self._room[key] = has_place(self._snapshot.idle, least) or self._has_reserved_room(least)
        return self._room[key]

    def _may_start(self, pending: PendingJob, option: PoolOption) -> bool:
        """Whether an option has idle room, by repacking or backfill if necessary, within every ceiling."""
        least = option.fewest
        is_open = has_place(self._snapshot.idle, least) or self._repacking.may_repack(least)
        is_open = is_open or self._repacking.may_make_way(pending, least)
        if not is_open and not (self._has_reserved_room(least) and self._may_backfill(pending, option)):
            return False
        return self._snapshot.allows(pending.job, least)

    def _has_reserved_room(self, option: PoolOption) -> bool:
        """Whether an option's GPUs have idle room if the pool's head reservation is left out."""
        if self._reservations.in_pool(option.pool.name) is None:
            return False
        key = "reserved", option.sort
        if key not in self._room:
            with self._reservations.lifted():
                without_cpu = PoolOption(option.pool, option.request.without_cpu())
                self._room[key] = has_place(self._snapshot.idle, without_cpu)
        return self._room[key]

    def _may_backfill(self, pending: PendingJob, option: PoolOption) -> bool:
        """Whether a job may use a place reserved for another: it may end in time, or could take the place back."""
        reservation, job = self._reservations.in_pool(option.pool.name), pending.job
        if reservation is None or job.max_duration_ms is not None:
            return True
        head = reservation.pending.job
        if head.id.project == job.id.project:
            return makes_way(self._snapshot, head, job, option.domain, option.least_milli)
        return any(rights_of(self._snapshot.accounts, option.domain, job.id.project, option.least_milli))

    # Room that must be made

    def _may_make_room(self, job: Job, options: Iterable[PoolOption]) -> tuple[bool, bool]:
        """Whether runs may be paused or moved for a job, or are leaving anyway; and whether a search for such runs is
        cut off."""
        snapshot, project, is_cut_off = self._snapshot, job.id.project, False
        for option in options:
            if not self._claims(job, option):
                continue
            guaranteed, _ = rights_of(snapshot.accounts, option.domain, project, option.least_milli)
            is_reserved = guaranteed and self._reservations.in_pool(option.pool.name) is not None
            if option.least or is_reserved or self._outranks_a_run(job, option.domain):
                return True, is_cut_off
            above, settled = snapshot.accounts.tree.above(project), snapshot.settled.get(project)
            key = "may gain", guaranteed, above, settled, option.pool.name, option.request
            may_gain, is_cut = snapshot.once(key, partial(self._may_gain, job, option))
            is_cut_off |= is_cut
            if may_gain:
                return True, is_cut_off
        return False, is_cut_off

    def _may_gain(self, job: Job, option: PoolOption) -> tuple[bool, bool]:
        """Whether GPUs come free for an option, or runs could be moved or reclaimed for it; if not, whether the search
        for such runs is cut off."""
        snapshot, migrations = self._snapshot, self._migrations
        if has_place(snapshot.future_idle, option):
            return True, False
        rules = rules_by_right(snapshot, job, option)
        may_move = migrations is not None and migrations.may_find(rules)
        if may_move:
            return True, False
        may_pause = not all(map(is_unschedulable, rules))
        return may_pause, not may_pause and may_move is None
