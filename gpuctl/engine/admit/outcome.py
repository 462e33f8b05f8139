"""Outcome: the result of the attempts of one round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.engine.capacity.gang import Assignment, PoolOption
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.rules import VictimRule
from gpuctl.model.decision import Reason, TraceStep, WorkerPlacement
from gpuctl.model.ids import DomainName, JobId
from gpuctl.model.units import GpuMilli


@dataclass(frozen=True, slots=True)
class Pause:
    """A run that is paused, or gives up a surplus worker, for a beneficiary. `goes_on`: where, if it is moved."""

    allocation: Allocation
    reason: Reason
    beneficiary: JobId
    goes_on: Assignment | None = None


@dataclass(slots=True)
class Regained:
    """Places for the missing workers of an elastic run; of these `coming` are not idle yet, and for `paid` others were
    paused.
    """

    domain: DomainName
    each_milli: GpuMilli
    workers: tuple[WorkerPlacement, ...] = ()
    coming: tuple[WorkerPlacement, ...] = ()
    paid: tuple[WorkerPlacement, ...] = ()


@dataclass(slots=True)
class Outcome:
    """Result of the attempts of one round.

    `started`: run now. `reserved`: has a place that is not free yet. `kept`: has a head reservation. `pending_queues`:
    the jobs of each queue that are neither started nor reserved. What makes room: `pauses`, moves too, and `given_up`,
    the surplus workers that elastic runs give up. `regained`: places for missing workers of elastic runs.
    `cut_off`: jobs whose last attempt failed with a search for victims that was cut off.
    `all_unschedulable`: no attempt succeeded, and none considered migration, whose candidates change with time alone.
    """

    started: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    reserved: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    kept: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    pending_queues: tuple[tuple[JobId, ...], ...] = ()
    pauses: dict[JobId, Pause] = field(default_factory=dict)
    given_up: dict[JobId, list[Pause]] = field(default_factory=dict)
    regained: dict[JobId, Regained] = field(default_factory=dict)
    trace: list[TraceStep] = field(default_factory=list)
    cut_off: set[JobId] = field(default_factory=set)
    all_unschedulable: bool = True

    def pause(self, victims: Sequence[Allocation], rule: VictimRule, beneficiary: JobId) -> None:
        """Enter the victims, and what each project loses by them as it stands before that."""
        steps: dict[JobId, tuple[str, Allocation, GpuMilli]] = {}
        for allocation in victims:
            job, pause = allocation.run.job, Pause(allocation, rule.reason(allocation), beneficiary)
            if allocation.is_extra:
                self.given_up.setdefault(job, []).append(pause)
            else:
                self.pauses[job] = pause
            milli = steps[job][2] if job in steps else 0
            steps[job] = pause.reason.code, allocation, milli + allocation.total_milli
        for code, allocation, milli in steps.values():
            numbers = loss(rule.snapshot.accounts, allocation, milli, beneficiary)
            self.trace.append(TraceStep(job=allocation.run.job, rule=code, numbers=numbers))


def gain_step(snapshot: Snapshot, job: JobId, rule: str, option: PoolOption) -> TraceStep:
    """The step of the trace for a place that a job gains, with what its project holds then."""
    owner, domain = project_owner(job.project), option.domain
    numbers: dict[str, str | int] = {
        "pool": option.pool.name,
        "gpuMilli": option.request.total_milli,
        "heldMilli": snapshot.accounts.held(domain, owner),
        "shareMilli": snapshot.accounts.portion(domain, owner).share_milli,
    }
    return TraceStep(job=job, rule=rule, numbers=numbers)


def loss(
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
