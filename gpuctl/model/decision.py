"""What the engine decides: one decision with one typed reason for each declared job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import NamedTuple, TypeAlias

from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.model.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A catalogue code with its parameters. Text is made of it in `diag` and `views` only.

    Parameters name what binds (a quota, a node, a job); never a clock or a queue position, so that a reason that has
    not changed is equal to itself and costs no write.
    """

    code: str
    params: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlacement:
    """One worker's node and the indexes of its devices there: several whole ones, or the one it has a fraction of.

    `uuids` are the same devices by the names that rendering needs, on nodes that tell them; the last known ones stay.
    """

    node: NodeName
    gpus: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where each worker goes, in worker order."""

    workers: tuple[WorkerPlacement, ...]

    @property
    def nodes(self) -> set[NodeName]:
        """Where any of them goes."""
        return {worker.node for worker in self.workers}

    @property
    def devices(self) -> set[tuple[NodeName, int]]:
        """The devices of all of them, each by its node and index."""
        return {(worker.node, gpu) for worker in self.workers for gpu in worker.gpus}


class RunRecord(NamedTuple):
    """What is remembered of a run from cycle to cycle, on its object: see `state.Run` for the fields.

    `failed_starts`: how often in a row it did not come to run within startTimeout. `starting_ms`: how long the present
    start took until the run's workers ran, where that was long; 0: it was not.

    A named tuple, for each decision has one of its own and it is made in a third of the time.
    """

    queued_at_ms: Instant
    starts: int = 0
    ran_ms: int = 0
    paused_for: JobId | None = None
    failed_starts: int = 0
    starting_ms: DurationMs = 0


NOT_YET: DurationMs = -1
"""The `starting_ms` of a start that takes long, and is not over."""
SLOW_MS: DurationMs = 60_000
"""A start that takes longer takes long, and is on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Start it now, there. `record.starts` counts this start. `further`: nodes that more workers of it may go to."""

    job: JobId
    reason: Reason
    record: RunRecord
    placement: Placement
    further: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """It is starting or running and stays as it is. `reserved`: places for workers that it lacks, not free yet."""

    job: JobId
    reason: Reason
    record: RunRecord
    placement: Placement
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """Pause it: its GPUs go to a job of another project. `reserved`: where it goes on then."""

    job: JobId
    reason: Reason
    record: RunRecord
    beneficiary: JobId
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Pause it: its GPUs go to a job of its own project. `reserved`: where it goes on then."""

    job: JobId
    reason: Reason
    record: RunRecord
    beneficiary: JobId
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Displace:
    """Pause it because it cannot stay where it is (its node is lost, or its place is not one it may use)."""

    job: JobId
    reason: Reason
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Pause it to start it again at once in another place, `reserved`: where it is, the beneficiary has no room."""

    job: JobId
    reason: Reason
    record: RunRecord
    beneficiary: JobId
    reserved: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """The run goes on with another number of workers. `beneficiary`: the job it gives some up for, if any."""

    job: JobId
    reason: Reason
    record: RunRecord
    placement: Placement
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """It waits. `reserved` is the place kept for it: while the jobs paused for it leave, while it moves there itself,
    or, when it has waited long, as the place empties."""

    job: JobId
    reason: Reason
    record: RunRecord
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """A person's `suspend: true`, or a service without load: stopped if it runs, and not started."""

    job: JobId
    reason: Reason
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOut:
    """End it now, for good: it was idle too long, or reached its limit and nothing else ends it."""

    job: JobId
    reason: Reason
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Its run has ended, or its object was removed: it is not started again. `state` is a final JobState.

    `expires_at_ms`: until when the run's object is kept; None: for good. `is_expired`: that is over.
    """

    job: JobId
    reason: Reason
    record: RunRecord
    state: JobState
    expires_at_ms: Instant | None = None
    is_expired: bool = False


Decision: TypeAlias = (
    Admit | Keep | Reclaim | Preempt | Displace | Move | Resize | Pending | Suspended | TimeOut | Finished
)


class JobState(StrEnum):
    """The state that people see. Preempted: pending again after a pause. Deleted: a person removed the run's object."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    PREEMPTED = "Preempted"
    SUSPENDED = "Suspended"
    SCALED_TO_ZERO = "ScaledToZero"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    DELETED = "Deleted"


class FairShare(NamedTuple):
    """One project's row in one quota domain, all in milli-GPU. `allocated_milli` is after this cycle's decisions.

    `share_milli` is exact. `guarantee_milli` and `entitled_milli` are what the project keeps and may reach, in whole
    GPUs where its jobs ask for those: by them its jobs run within the quota, within the share, or beyond it.
    """

    domain: DomainName
    project: ProjectName
    quota_milli: GpuMilli
    demand_milli: GpuMilli
    share_milli: GpuMilli
    allocated_milli: GpuMilli
    guarantee_milli: GpuMilli = 0
    entitled_milli: GpuMilli = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step of the engine's work, in order: what was considered, the rule, and the numbers it used."""

    job: JobId | None
    rule: str
    numbers: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Exactly one decision a declared job, sorted by job; never over capacity; gangs all or none.

    `pending_queues`: jobs that could run and have no place, a queue for each project and quota domain, in order.
    `usage`: what is to be remembered of projects' use of spare GPUs.
    """

    at_ms: Instant
    decisions: tuple[Decision, ...] = ()
    shares: tuple[FairShare, ...] = ()
    trace: tuple[TraceStep, ...] = ()
    pending_queues: tuple[tuple[JobId, ...], ...] = ()
    usage: Mapping[ProjectName, Usage] = field(default_factory=dict)

    @property
    def queue(self) -> tuple[JobId, ...]:
        """All that could run and have no place, in order. Cost: linear, each time."""
        return tuple(chain.from_iterable(self.pending_queues))
