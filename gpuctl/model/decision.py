"""The engine's decisions: one decision, with one typed reason, for each declared job."""

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
    """A catalogue code with its parameters. Only `diag` and `views` turn it into text.

    Parameters name the binding thing (a quota, a node, a job), never a time or a queue position: so a reason that has
    not changed is equal to the last one, and costs no write.
    """

    code: str
    params: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlacement:
    """One worker's node and the indexes of its devices there: several whole ones, or the one it has a fraction of.

    `uuids`: the same devices by the names that rendering needs, on nodes that publish them; the last known ones stay.
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
        """The nodes of all workers."""
        return {worker.node for worker in self.workers}

    @property
    def devices(self) -> set[tuple[NodeName, int]]:
        """The devices of all workers, each by its node and index."""
        return {(worker.node, gpu) for worker in self.workers for gpu in worker.gpus}


class RunRecord(NamedTuple):
    """What is remembered of a run from cycle to cycle: see `state.Run` for the fields.

    `failed_starts`: how many starts in a row did not reach running within startTimeout. `starting_ms`: how long the
    present start took until the run's workers ran, if that was long; 0: it was not.

    A named tuple: each decision has its own record, and a named tuple is made in a third of the time.
    """

    queued_at_ms: Instant
    starts: int = 0
    ran_ms: int = 0
    paused_for: JobId | None = None
    failed_starts: int = 0
    starting_ms: DurationMs = 0


NOT_YET: DurationMs = -1
"""The `starting_ms` of a start that takes long and is not over yet."""
SLOW_MS: DurationMs = 60_000
"""A start that takes longer than this is slow, and is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Start the job now, there. `record.starts` counts this start. `further`: nodes that more of its workers may go
    to."""

    job: JobId
    reason: Reason
    record: RunRecord
    placement: Placement
    further: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The run is starting or running, and stays as it is. `reserved`: places, not free yet, for workers that it
    lacks."""

    job: JobId
    reason: Reason
    record: RunRecord
    placement: Placement
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """Pause the run: its GPUs go to a job of another project. `reserved`: the place where it goes on."""

    job: JobId
    reason: Reason
    record: RunRecord
    beneficiary: JobId
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Pause the run: its GPUs go to a job of its own project. `reserved`: the place where it goes on."""

    job: JobId
    reason: Reason
    record: RunRecord
    beneficiary: JobId
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Displace:
    """Pause the run because it can't stay where it is: its node is lost, or it may not use its place."""

    job: JobId
    reason: Reason
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Pause the run and start it again at once elsewhere, in `reserved`: the beneficiary needs its present place."""

    job: JobId
    reason: Reason
    record: RunRecord
    beneficiary: JobId
    reserved: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """The run goes on with another number of workers. `beneficiary`: the job that it gives some up for, if any."""

    job: JobId
    reason: Reason
    record: RunRecord
    placement: Placement
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The job waits. `reserved`: a place kept for it, while the runs paused for it leave, while it moves there itself,
    or, once it has waited long, while that place empties."""

    job: JobId
    reason: Reason
    record: RunRecord
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The job has `suspend: true` from a person, or is a service without load: it is stopped, and not started."""

    job: JobId
    reason: Reason
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOut:
    """End the run now, for good: it was idle too long, or reached its limit and nothing else ends it."""

    job: JobId
    reason: Reason
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run has ended, or its object was removed: it is not started again. `state`: a final JobState.

    `expires_at_ms`: until when the run's object is kept; None: for ever. `is_expired`: that time is over.
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
    """One project's row in one quota domain, in milli-GPU. `allocated_milli`: after this cycle's decisions.

    `share_milli` is exact. `guarantee_milli` and `entitled_milli`: what the project keeps and may reach, in whole GPUs
    if its jobs ask for whole ones. They decide whether a job runs within the quota, within the share, or beyond it.
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
    """One step of the engine's work: what was considered, the rule, and the numbers it used."""

    job: JobId | None
    rule: str
    numbers: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Exactly one decision for each declared job, sorted by job; never over capacity; gangs all or none.

    `pending_queues`: jobs that could run and have no place, one queue for each project and quota domain, in order.
    `usage`: the projects' use of spare GPUs, to be remembered.
    """

    at_ms: Instant
    decisions: tuple[Decision, ...] = ()
    shares: tuple[FairShare, ...] = ()
    trace: tuple[TraceStep, ...] = ()
    pending_queues: tuple[tuple[JobId, ...], ...] = ()
    usage: Mapping[ProjectName, Usage] = field(default_factory=dict)

    @property
    def queue(self) -> tuple[JobId, ...]:
        """All jobs that could run and have no place, in order. Cost: linear, each time."""
        return tuple(chain.from_iterable(self.pending_queues))
