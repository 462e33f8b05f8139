"""Which pending jobs are worth an attempt, as the snapshot stand.

The check asks for three ways in which a job could get its GPUs: the pool has room that is idle or coming free; the
project is entitled to more and some other project holds more than it keeps; the job outranks a run of its own project.
It may be too optimistic, never too pessimistic: to skip a job that could start is a defect (see
tests/properties/test_schedulability.py). So it changes no decision, only how many attempts fail.

Cost: a look at each class of a project of which any could start or has a claim. The failed requests of
`UnschedulableRequests` answer for all that ask for no less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuctl.engine.admit.head_reservation import HeadReservations
from gpuctl.engine.admit.repacking import Repacking
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.gang import PoolOption, Sort, has_place
from gpuctl.engine.jobs.job_class import PendingJob, Rank, is_first_class
from gpuctl.engine.jobs.project_queue import JobClass, ProjectQueue
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import forbidden, rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.consolidation import MigrationSearch
from gpuctl.engine.victims.reclaim import ReclaimStrategy, claims_of, overdrawn, slack
from gpuctl.engine.victims.search import finds_nobody
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import PoolName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli


class Reach(NamedTuple):
    """What could be had of a domain by a claim, in places that fit or not: what is free or comes free, and whether that
    may become a place; whether a run that can be paused belongs to a project above its guarantee, for then it may be of
    any size; what projects hold above their fair shares, which is all they may lose by fairness."""

    free_milli: GpuMilli
    comes: bool
    above_guarantee: bool
    above_shares_milli: GpuMilli

    def has(self, milli: GpuMilli, *, guaranteed: bool, fair: bool) -> bool:
        """Whether so much could be had by these rights."""
        missing_milli = milli - self.free_milli
        if missing_milli <= 0 and self.comes:
            return guaranteed or fair
        by_fairness = fair and self.above_shares_milli > 0 and missing_milli <= self.above_shares_milli
        return by_fairness or (guaranteed and self.above_guarantee)


class Schedulability:
    """The check for one pass over the pending jobs.

    During a pass idle room only shrinks: a class without room when the pass begins has none later, also if all that
    start in this cycle are placed anew.
    """

    __slots__ = (
        "_changes", "_claims", "_guards", "_layout", "_may_move", "_mover", "_reach", "_reserved_room", "_room",
        "_roomy", "_snapshot", "_takes", "_with_room",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - all that an attempt depends on
        self,
        snapshot: Snapshot,
        guards: HeadReservations,
        layout: Repacking,
        mover: MigrationSearch,
        lines: Iterable[ProjectQueue],
        *,
        may_move: bool,
    ) -> None:
        self._snapshot = snapshot
        self._guards = guards
        self._layout = layout
        self._mover = mover
        self._may_move = may_move
        self._changes = snapshot.changes
        self._claims: dict[ProjectQueue, bool] = {}
        self._reach: dict[DomainName, Reach] = {}
        self._takes: dict[object, bool] = {}
        self._reserved_room: dict[Sort, bool] = {}
        self._room: dict[tuple[PoolName, Request], bool] = {}
        self._roomy = {line: found for line in lines if (found := self._classes_with_room(line))}
        self._with_room = {group for found in self._roomy.values() for _, group in found}

    def _classes_with_room(self, line: ProjectQueue) -> list[tuple[Rank, JobClass]]:
        """Those that could start on idle GPUs. Where the least that any asks for has no room, none has."""
        if not any(map(self._has_room, line.needs(self._snapshot.capacity).least)):
            return []
        return [
            (rank, group)
            for rank, group in line.ranked
            if any(self._has_room(option.fewest) for option in group.first.options)
        ]

    def _has_room(self, option: PoolOption) -> bool:
        """Whether there is any when the pass begins."""
        key = option.pool.name, option.request
        if key not in self._room:
            self._room[key] = has_place(self._snapshot.idle, option) or self._has_reserved_room(option)
        return self._room[key]

    def classes(self, line: ProjectQueue) -> Sequence[tuple[Rank, JobClass]]:
        """The classes of a project's jobs for which an attempt could succeed now, or once others have started."""
        self._refresh()
        is_guarded = any(guard.waiting.job.id.project == line.project for guard in self._guards)
        return line.ranked if is_guarded or self._may_claim(line) else self._roomy.get(line, ())

    def _may_any_claim(self, line: ProjectQueue) -> bool:
        """Whether one of a project's jobs outranks a run of its own, or has a right to what may be had."""
        snapshot, needs, project = self._snapshot, line.needs(self._snapshot.capacity), line.project
        return any(
            ranks_above_some(snapshot, domain, project, needs.priority, is_fixed=needs.is_fixed)
            or (any(rights_of(snapshot.accounts, domain, project, needs.gpu_milli)) and self._has_sources(domain))
            for domain in needs.domains
        )

    def of(self, waiting: PendingJob, group: JobClass) -> bool:
        """Whether an attempt for a job of a class could succeed."""
        self._snapshot.effort.looks += 1
        self._refresh()
        if self._guards and self._guards.of(waiting) is not None:
            return True
        if group in self._with_room and any(self._may_start(waiting, option) for option in waiting.options):
            return True
        if waiting.run is None or not self._may_claim(group.line):
            return False
        return any(self._may_make_room(waiting, option) for option in waiting.options if option.request.gpu_milli)

    def _may_claim(self, line: ProjectQueue) -> bool:
        """`_may_any_claim`, judged once until the snapshot change."""
        if line not in self._claims:
            self._claims[line] = self._may_any_claim(line)
        return self._claims[line]

    def _refresh(self) -> None:
        """What was found is forgotten once the snapshot have changed."""
        if self._changes != self._snapshot.changes:
            self._changes, self._claims, self._reach, self._takes = self._snapshot.changes, {}, {}, {}

    def _may_start(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Whether there is idle room for it, or could be if this cycle's starts were placed anew, and no ceiling."""
        domain, least = self._snapshot.capacity.domain_of[option.pool.name], option.fewest
        if has_place(self._snapshot.idle, least) or self._layout.may_lay_out(least):
            is_open = True
        else:
            is_open = self._has_reserved_room(least) and self._may_pass(waiting, option, domain)
        return is_open and forbidden(self._snapshot.accounts, waiting.job, domain, option.least_milli) is None

    def _has_reserved_room(self, option: PoolOption) -> bool:
        """Whether its GPUs have room where a place is reserved for the longest-waiting job, if one is."""
        if self._guards.in_pool(option.pool.name) is None:
            return False
        found = self._reserved_room.get(option.sort)
        if found is None:
            with self._guards.lifted():
                found = has_place(self._snapshot.idle, PoolOption(option.pool, option.request.without_cpu()))
            self._reserved_room[option.sort] = found
        return found

    def _may_pass(self, waiting: PendingJob, option: PoolOption, domain: DomainName) -> bool:
        """Whether it may start in a place reserved for another: it ends in time, or could take the place back."""
        guard, job = self._guards.in_pool(option.pool.name), waiting.job
        if guard is None or job.max_duration_ms is not None or guard.waiting.job.id.project == job.id.project:
            return True
        return any(rights_of(self._snapshot.accounts, domain, job.id.project, option.least_milli))

    def _may_make_room(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Whether runs may have to be paused or moved for it, or may be about to leave."""
        snapshot, job = self._snapshot, waiting.job
        domain = snapshot.capacity.domain_of[option.pool.name]
        if ranks_above_some(snapshot, domain, job.id.project, job.priority, is_fixed=is_first_class(job)):
            return True
        guaranteed, fair = rights_of(snapshot.accounts, domain, job.id.project, option.least_milli)
        guard = self._guards.in_pool(option.pool.name) if guaranteed else None
        missing_milli = option.least_milli - (0 if guard is None else self._guards.free_milli(guard))
        if not self._reach_in(domain).has(missing_milli, guaranteed=guaranteed, fair=fair):
            return False
        if option.least or guard is not None:
            return True
        key = guaranteed, snapshot.accounts.tree.above(job.id.project), option.pool.name, option.request
        if key not in self._takes:
            self._takes[key] = self._may_take(job, option)
        return self._takes[key]

    def _may_take(self, job: Job, option: PoolOption) -> bool:
        """Whether GPUs of the pool come free for an option, or runs could be moved or reclaimed by a right to it."""
        snapshot = self._snapshot
        if has_place(snapshot.future_idle, option) or (self._may_move and not self._mover.finds_nobody(option)):
            return True
        claim = next(claims_of(snapshot, job.id, option), None)
        return claim is not None and not finds_nobody(snapshot, option, claim)

    def _has_sources(self, domain: DomainName) -> bool:
        """Whether anything could be had by a claim, or is reserved for the longest-waiting job."""
        reach = self._reach_in(domain)
        is_any = (reach.comes and reach.free_milli) or reach.above_guarantee or reach.above_shares_milli
        return bool(is_any or self._guards)

    def _reach_in(self, domain: DomainName) -> Reach:
        """What could be had of a domain by a claim."""
        snapshot, found = self._snapshot, self._reach.get(domain)
        if found is None:
            losers = map(project_owner, overdrawn(snapshot, domain, ReclaimStrategy.FAIRNESS))
            found = self._reach[domain] = Reach(
                free_milli=sum(map(snapshot.future_idle.all_free_milli, snapshot.capacity.pools_of(domain))),
                comes=self._may_move or snapshot.leaving > 0,
                above_guarantee=bool(overdrawn(snapshot, domain, ReclaimStrategy.GUARANTEE)),
                above_shares_milli=sum(slack(snapshot, domain, ReclaimStrategy.FAIRNESS, owner) for owner in losers),
            )
        return found


def ranks_above_some(
    snapshot: Snapshot, domain: DomainName, project: ProjectName, priority: int, *, is_fixed: bool
) -> bool:
    """Whether runs of the same project may make way."""
    there = snapshot.pausable(domain).get(project)
    return bool(there) and (is_fixed or snapshot.lowest(domain, project) < priority)
