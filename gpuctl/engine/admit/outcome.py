"""What the turns of a cycle come to: who starts where, who makes way for whom, and who waits for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.engine.victims.consolidation import Migration
from gpuctl.model.decision import Reason, TraceStep, WorkerPlacement
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId
from gpuctl.model.units import GpuMilli


@dataclass(frozen=True, slots=True)
class Pause:
    """One victim, why, and for whom."""

    allocation: Allocation
    reason: Reason
    beneficiary: JobId


@dataclass(frozen=True, slots=True)
class Shift:
    """One run that is moved, why, where to, and for whom."""

    move: Migration
    reason: Reason
    beneficiary: JobId


@dataclass(frozen=True, slots=True)
class Regained:
    """Places of an elastic run's missing workers: those that are free, and those that are coming free."""

    now: tuple[WorkerPlacement, ...]
    coming: tuple[WorkerPlacement, ...]
    domain: DomainName
    each_milli: GpuMilli


@dataclass(slots=True)
class Outcome:
    """What the turns came to. `reserved` jobs wait for their place, which is not free yet; for those in `kept` one is
    kept as it empties; the others in `lanes` have none.
    `laid_anew`: some that start were moved for others, so there may be room again where others found none.
    `in_vain`: nobody got a place, and nobody was looked for who could be moved, which is by how long runs have run.
    `given_up` are workers that elastic runs lose, `regained` places of those that others lack and don't have yet."""

    started: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    reserved: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    kept: dict[JobId, tuple[Assignment, Reason]] = field(default_factory=dict)
    lanes: tuple[tuple[JobId, ...], ...] = ()
    pauses: dict[JobId, Pause] = field(default_factory=dict)
    given_up: dict[JobId, list[Pause]] = field(default_factory=dict)
    regained: dict[JobId, Regained] = field(default_factory=dict)
    shifts: dict[JobId, Shift] = field(default_factory=dict)
    trace: list[TraceStep] = field(default_factory=list)
    laid_anew: bool = False
    in_vain: bool = True


def loss(
    accounts: Accounts, allocation: Allocation, gpu_milli: GpuMilli, beneficiary: JobId
) -> Mapping[str, str | int]:
    """What a run gives, and how its project stands before that: the numbers of a step of the trace."""
    numbers: dict[str, str | int] = {"for": str(beneficiary), "gpuMilli": gpu_milli}
    if allocation.domain is not None:
        owner = project_owner(allocation.project)
        portion = accounts.portion(allocation.domain, owner)
        numbers["heldMilli"] = accounts.held(allocation.domain, owner)
        numbers["guaranteeMilli"] = portion.guarantee_milli
        numbers["shareMilli"] = portion.share_milli
    return numbers
