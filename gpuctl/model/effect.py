"""The effect of a change of the declarations: which jobs start, which are paused for which, which wait and how long;
and what guards refuse of it."""

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
    """Why a run ends for good: its job is declared no more, it is another run now, a person's `suspend`, its limit."""

    REMOVED = "removed"
    CHANGED = "changed"
    SUSPENDED = "suspended"
    TIMED_OUT = "timedOut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A job that did not run and runs then. `pauses` are those that make way for it; `anew`: its old run is ended."""

    job: JobId
    gpu_milli: GpuMilli
    placement: Placement
    reason: Reason
    pauses: tuple[JobId, ...] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A job that ran and waits then. `beneficiary` None: it is paused for no other job, it can't stay where it was.

    `lost_ms`: the most work of it that it has to do again; None: not known.
    """

    job: JobId
    gpu_milli: GpuMilli
    reason: Reason
    beneficiary: JobId | None = None
    lost_ms: DurationMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A job that is stopped and runs again, elsewhere or in the same place. `lost_ms`: as of one that is paused."""

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
    """A job that waited and is in the queue no more, without having started: it is declared no more, or `suspended`."""

    job: JobId
    gpu_milli: GpuMilli
    suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """Where a waiting job stands in the queue, and when it is expected to start."""

    forecast: Forecast
    place: QueuePlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """A job that waits then. `before`: how it waited without the change; None: it did not. `advance`: how many places
    it goes forward in the queue, of those that wait in either case. `kept`: the place kept for it as it empties."""

    job: JobId
    gpu_milli: GpuMilli
    reason: Reason
    now: Prospect
    before: Prospect | None = None
    advance: int = 0
    kept: Placement | None = None

    @property
    def news(self) -> bool:
        """Whether the change makes it wait, or start at another time. Another place in the queue alone is none."""
        return self.before is None or self.before.forecast.start_ms != self.now.forecast.start_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a project holds in a quota domain and its fair share there, in milli-GPU, without the change and with it.

    `fixed`: what its jobs that can't be preempted hold of it.
    """

    project: ProjectName
    domain: DomainName
    held: tuple[GpuMilli, GpuMilli]
    share: tuple[GpuMilli, GpuMilli]
    fixed: tuple[GpuMilli, GpuMilli] = (0, 0)

    @property
    def changes(self) -> bool:
        """Whether it holds more or less with the change, or has another share."""
        return self.held[0] != self.held[1] or self.share[0] != self.share[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where an effect begins: a cluster as it is, or what is declared; with how many nodes and GPUs.

    `capacity`: the GPUs of each quota domain. Of a live cluster: how old what is known of it is; `revision`, the commit
    of its own files that was last enforced; and `unlike_base`, the owners of files that base declares otherwise than
    they are enforced there. None: not known.
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
    """The cluster at rest with the change, against the cluster at rest without it; each list sorted by job.

    `holdings` are of projects for which they change, `steady` of the others. `unaffected`: how many runs go on as they
    were. `endless`: how many of all that run then have no limit. `sweeps`: of each declared job that is one of a sweep.
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
    """What guards refuse of a change: `new` because of it, until a commit confirms it; `confirmed` by a commit that is
    there; `standing` without the change as well. `lifted`: those confirmed ones that stand without the change."""

    new: tuple[Diagnostic, ...] = ()
    confirmed: tuple[Diagnostic, ...] = ()
    standing: tuple[Diagnostic, ...] = ()
    lifted: tuple[Diagnostic, ...] = ()
