"""The effect of a change of the declarations: which jobs start, which are paused for which, which wait and how long;
and the refusals of guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.decision import Placement, Reason
from gpuctl.model.explanation import Forecast, QueuePlace
from gpuctl.model.ids import NO_REVISION, DomainName, JobId, ProjectName, Revision
from gpuctl.model.units import DurationMs, GpuMilli, Instant


class Stop(StrEnum):
    """Why a run ends for good: its job is no longer declared, needs a new run, has `suspend: true`, or is at its
    limit."""

    REMOVED = "removed"
    CHANGED = "changed"
    SUSPENDED = "suspended"
    TIMED_OUT = "timedOut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A job that starts by the change. `pauses`: the jobs that make way for it; `anew`: its old run is ended."""

    job: JobId
    gpu_milli: GpuMilli
    placement: Placement
    reason: Reason
    pauses: tuple[JobId, ...] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A job that runs without the change and waits with it. `beneficiary` None: it can't stay where it was.

    `lost_ms`: the most work that it has to do again; None: not known.
    """

    job: JobId
    gpu_milli: GpuMilli
    reason: Reason
    beneficiary: JobId | None = None
    lost_ms: DurationMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A job that is stopped and runs again, elsewhere or in the same place. `lost_ms`: as in Paused."""

    job: JobId
    gpu_milli: GpuMilli
    before: Placement
    after: Placement
    reason: Reason
    beneficiary: JobId | None = None
    lost_ms: DurationMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """An elastic job that goes on with another number of workers. `beneficiary`: the job for which it gives some up."""

    job: JobId
    before: int
    after: int
    beneficiary: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A run that ends and does not run again."""

    job: JobId
    gpu_milli: GpuMilli
    why: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequeued:
    """A job that waited and leaves the queue without having started: it is no longer declared, or is `suspended`."""

    job: JobId
    gpu_milli: GpuMilli
    suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """A waiting job's place in the queue, and its forecast start."""

    forecast: Forecast
    place: QueuePlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """A job that waits with the change. `before`: its prospect without the change; None: it did not wait. `advance`:
    how many places it moves up among the jobs that wait in either case. `kept`: the place kept for it as that empties.
    """

    job: JobId
    gpu_milli: GpuMilli
    reason: Reason
    now: Prospect
    before: Prospect | None = None
    advance: int = 0
    kept: Placement | None = None

    @property
    def news(self) -> bool:
        """Whether the change makes it wait, or start at another time. Only another place in the queue is not news."""
        return self.before is None or self.before.forecast.start_ms != self.now.forecast.start_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A project's GPUs in a quota domain and its fair share there, in milli-GPU: each without the change and with it.

    `fixed`: the part held by its jobs that can't be preempted.
    """

    project: ProjectName
    domain: DomainName
    held: tuple[GpuMilli, GpuMilli]
    share: tuple[GpuMilli, GpuMilli]
    fixed: tuple[GpuMilli, GpuMilli] = (0, 0)

    @property
    def changes(self) -> bool:
        """Whether the project holds more or less with the change, or has another share."""
        return self.held[0] != self.held[1] or self.share[0] != self.share[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What an effect is computed from: a live cluster or the declared inventory; with the number of nodes and GPUs.

    - `capacity`: the GPUs of each quota domain.
    - For a live cluster: `age_ms`, how old the knowledge of it is; `revision`, the last enforced commit of its own
      files; `unlike_base`, the owners of files that base declares otherwise than they are enforced (None: not known).
    """

    live: bool
    nodes: int
    gpus: int
    capacity: Mapping[DomainName, GpuMilli] = field(default_factory=dict)
    age_ms: DurationMs = 0
    revision: Revision = NO_REVISION
    unlike_base: tuple[ProjectName, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The cluster at rest with the change, compared with the cluster at rest without it; each list sorted by job.

    `holdings`: of projects for which they change; `steady`: of the others. `unaffected`: how many runs go on as they
    were. `endless`: how many of all runs with the change have no limit. `sweeps`: the sweep of each index.
    """

    at_ms: Instant
    started: tuple[Started, ...] = ()
    paused: tuple[Paused, ...] = ()
    moved: tuple[Moved, ...] = ()
    resized: tuple[Resized, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    dequeued: tuple[Dequeued, ...] = ()
    waits: tuple[Waits, ...] = ()
    holdings: tuple[Holding, ...] = ()
    steady: tuple[Holding, ...] = ()
    unaffected: int = 0
    endless: int = 0
    sweeps: Mapping[JobId, JobId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The refusals of guards for a change: `new`, because of it, until a commit confirms it; `confirmed`, by a commit;
    `standing`, without the change as well. `lifted`: the confirmed ones that exist without the change."""

    new: tuple[Diagnostic, ...] = ()
    confirmed: tuple[Diagnostic, ...] = ()
    standing: tuple[Diagnostic, ...] = ()
    lifted: tuple[Diagnostic, ...] = ()
