"""Outcome: the result of the attempts of one cycle, and the decisions that follow from it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuctl.engine import reasons
from gpuctl.engine.capacity.gang import Assignment, PoolOption
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.runs import Allocation, paused_record
from gpuctl.engine.jobs.under_scaled import UnderScaled
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.engine.shares.entitlement import reason_to_run
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Room
from gpuctl.model.decision import Admit, Decision, Move, Pending, Placement, Preempt, Reason, Reclaim, TraceStep
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import named
from gpuctl.model.units import GpuMilli, Instant


@dataclass(frozen=True, slots=True)
class Pause:
    """A run that is paused, or gives up a surplus worker, for a beneficiary. `goes_on`: its next place, if any."""

    allocation: Allocation
    reason: Reason
    beneficiary: JobId
    goes_on: Assignment | None = None


@dataclass(slots=True)
class Outcome:
    """Result of the attempts of one cycle.

    `started`: jobs that run now. `reserved`: jobs with a place that is not free yet. `kept`: jobs with a head
    reservation. `pending_queues`: the jobs of each queue that are neither started nor reserved. `pauses`: runs that are
    paused or moved to make room; `given_up`: the surplus workers that elastic runs give up for it. `regained`: the
    elastic runs with places for missing workers. `cut_off`: jobs whose last attempt failed with a search for victims
    that was cut off. `all_unschedulable`: no attempt succeeded, and none considered migrations, whose candidates change
    with time alone.
    """

    started: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    reserved: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    kept: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    pending_queues: tuple[tuple[JobId, ...], ...] = ()
    pauses: dict[JobId, Pause] = field(default_factory=dict)
    given_up: dict[JobId, list[Pause]] = field(default_factory=dict)
    regained: dict[JobId, UnderScaled] = field(default_factory=dict)
    trace: list[TraceStep] = field(default_factory=list)
    cut_off: set[JobId] = field(default_factory=set)
    all_unschedulable: bool = True

    def start(self, job: JobId, assignment: Assignment, rule: str, snapshot: Snapshot) -> None:
        """Enter a start whose place is taken already."""
        option = assignment.option
        self.trace.append(gain_step(snapshot, job, rule, option))
        reason = reason_to_run(snapshot.accounts, option.domain, job.project, option.request.total_milli)
        self.started[job] = assignment, reason

    def hold_back(self, job: JobId, beside: JobId) -> Assignment:
        """Take back a start that is in the way of another. Returns its place."""
        self.trace.append(TraceStep(job=job, rule="hold back", numbers={"beside": str(beside)}))
        assignment, _ = self.started.pop(job)
        return assignment

    def pause(self, room: Room, beneficiary: JobId) -> None:
        """Enter the victims and moves that make room, and what each project holds before it loses them."""
        steps: dict[JobId, tuple[str, Allocation, GpuMilli]] = {}
        for allocation in room.victims:
            job, pause = allocation.run.job, Pause(allocation, room.rule.reason(allocation), beneficiary)
            if allocation.is_extra:
                self.given_up.setdefault(job, []).append(pause)
            else:
                self.pauses[job] = pause
            milli = steps[job][2] if job in steps else 0
            steps[job] = pause.reason.code, allocation, milli + allocation.total_milli
        for move in room.moves:
            job, reason = move.allocation.run.job, reasons.moved_for(beneficiary)
            self.pauses[job] = Pause(move.allocation, reason, beneficiary, move.assignment)
            steps[job] = reason.code, move.allocation, move.eviction.total_milli
        for job, (code, allocation, milli) in steps.items():
            numbers = _loss(room.rule.snapshot.accounts, allocation, milli, beneficiary)
            self.trace.append(TraceStep(job=job, rule=code, numbers=numbers))


def compete_afterwards(outcome: Outcome, snapshot: Snapshot) -> bool:
    """Whether runs that make way could take GPUs of others, or those that they leave, once they wait or lack workers.

    Runs of one project that all stop, or all go on elsewhere, for one job can't if they outrank no run of their
    project: none has a right to that job's place. If they were foreseen too, a gang that has runs paused on 1,000 nodes
    would take 2.7x.
    """
    ways = {(pause.beneficiary, job.project, pause.goes_on is None) for job, pause in outcome.pauses.items()}
    if outcome.given_up or len(ways) > 1:
        return True
    return any(_outranks_one(pause.allocation, snapshot) for pause in outcome.pauses.values())


def _outranks_one(paused: Allocation, snapshot: Snapshot) -> bool:
    job, domain = paused.job, paused.domain
    return job is not None and domain is not None and snapshot.lowest(domain, paused.project) < job.priority


def gain_step(snapshot: Snapshot, job: JobId, rule: str, option: PoolOption) -> TraceStep:
    """The trace step for a place that a job gains, with what its project holds then."""
    owner, domain = project_owner(job.project), option.domain
    numbers: dict[str, str | int] = {
        "pool": option.pool.name,
        "gpuMilli": option.request.total_milli,
        "heldMilli": snapshot.accounts.held(domain, owner),
        "shareMilli": snapshot.accounts.portion(domain, owner).share_milli,
    }
    return TraceStep(job=job, rule=rule, numbers=numbers)


def _loss(
    accounts: Accounts, allocation: Allocation, gpu_milli: GpuMilli, beneficiary: JobId
) -> Mapping[str, str | int]:
    """The numbers of a trace step for a run that makes room: its GPUs, and what its project holds before that."""
    numbers: dict[str, str | int] = {"for": str(beneficiary), "gpuMilli": gpu_milli}
    if allocation.domain is not None:
        owner = project_owner(allocation.project)
        portion = accounts.portion(allocation.domain, owner)
        numbers["heldMilli"] = accounts.held(allocation.domain, owner)
        numbers["guaranteeMilli"] = portion.guarantee_milli
        numbers["shareMilli"] = portion.share_milli
    return numbers


def further_nodes(job: Job, placement: Placement, capacity: Capacity) -> tuple[NodeName, ...]:
    """The nodes that further workers of a service may go to: one of its pool for each worker that it may gain.

    Its pods name them from its start on, because a pod template can't be changed without a new start. They are the next
    by name, so that services that start on different nodes have different ones.
    """
    pool = None if job.scaling is None else capacity.pool_of(placement)
    if job.scaling is None or pool is None:
        return ()
    mine = placement.nodes
    others = [space.name for space in capacity.usable.get(pool, ()) if space.name not in mine]
    at = bisect(others, placement.workers[0].node)
    return tuple([*others[at:], *others[:at]][: job.scaling.most - len(placement.workers)])


def decisions_of(
    outcome: Outcome, pending_jobs: PendingJobs, now_ms: Instant, uuids: Mapping[NodeName, tuple[str, ...]]
) -> Iterator[tuple[JobId, Decision]]:
    """The decisions about all jobs that gain a place, have one reserved, or lose theirs."""
    for job, (assignment, reason) in (outcome.kept | outcome.reserved).items():
        record = pending_jobs.find(job).record
        yield job, Pending(job=job, reason=reason, record=record, reserved=assignment.placement)
    for job, (assignment, reason) in outcome.started.items():
        pending, placement = pending_jobs.find(job), assignment.placement
        record, was_moved = pending.record, pending.last_code == reasons.MOVED
        record = record._replace(starts=record.starts + 1, paused_for=record.paused_for if was_moved else None)
        further = further_nodes(pending.job, placement, pending_jobs.capacity)
        yield job, Admit(job=job, reason=reason, record=record, placement=named(placement, uuids), further=further)
    for job, pause in outcome.pauses.items():
        reason, beneficiary, goes_on = pause.reason, pause.beneficiary, pause.goes_on
        record = paused_record(pause.allocation.run, now_ms, beneficiary)
        place = None if goes_on is None else goes_on.placement
        if place is not None and reason.code == reasons.MOVED:
            yield job, Move(job=job, reason=reason, record=record, beneficiary=beneficiary, reserved=place)
        else:
            kind = Preempt if beneficiary.project == job.project else Reclaim
            yield job, kind(job=job, reason=reason, record=record, beneficiary=beneficiary, reserved=place)
