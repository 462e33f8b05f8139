"""Why a job is where it is: what its decision rests on, what would change it, and when that is to be expected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.model.decision import FairShare, Placement, Reason, TraceStep
from gpuctl.model.declared import WHOLE_CLUSTER, DomainName
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.units import DurationMs, GpuMilli, Instant


class RemedyKind(StrEnum):
    """What would have to be otherwise: a quota or a limit higher, a job ended, a node usable, a node more."""

    QUOTA = "quota"
    LIMIT = "limit"
    JOB_END = "jobEnd"
    NODE = "node"
    ANOTHER_NODE = "anotherNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """A quota or a limit that must be no less than that, and whose."""

    kind: RemedyKind
    subject: str
    milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change that would start the job at once, as the engine itself decides it.

    `subject`: whose quota or limit, which job, which node, or which node's like. `milli`: a quota or limit as it would
    have to be, in a quota `domain`. `paused`: who would be paused then. `also`: what must go up with a quota, or it is
    none.
    """

    kind: RemedyKind
    subject: str
    milli: GpuMilli | None = None
    domain: DomainName = WHOLE_CLUSTER
    paused: tuple[JobId, ...] = ()
    also: tuple[Raise, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Where a waiting job stands, each counted from 1: among its project's, and among all who were asked."""

    in_project: int
    of_project: int
    overall: int
    of_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a waiting job starts if jobs end at their limits and nothing else changes; None: not in what was foreseen.

    `ends` are the jobs whose limit makes room just then. `endless`: how many running jobs have no limit, and are taken
    to run on. `grown`: runs are old enough to be paused just then. `horizon_ms`: how far was looked; `more`: though
    jobs end after that, too.
    """

    start_ms: Instant | None
    ends: tuple[JobId, ...] = ()
    endless: int = 0
    grown: bool = False
    horizon_ms: DurationMs = 0
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacancy:
    """What a cycle leaves free in a pool: in all, the most whole GPUs on one node, and the most of one GPU."""

    pool: PoolName
    free_milli: GpuMilli
    whole: int
    part_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A time limit of a run, and how much of it is over."""

    limit: str
    limit_ms: DurationMs
    spent_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that is known of one decision.

    `decision` is its kind (Admit, Keep, Pending ...), `beneficiary` whom it was paused for, `victims` who makes way for
    it or did, `shares` its project's rows, `steps` the engine's own record of the job in that cycle. It asks for
    `workers` with `gpu_milli` each, `min_workers` at the least. `placement`: where it is, or what is kept for it.
    `leaving`: its pods are still there, though it is to stop. `spent`: its limits, while it runs.

    The rest is for jobs that wait; `vacancies` are of the pools that it may use, without what is `kept_for` others.
    """

    job: JobId
    at_ms: Instant
    decision: str
    reason: Reason
    workers: int
    gpu_milli: GpuMilli
    min_workers: int = 1
    placement: Placement | None = None
    leaving: bool = False
    spent: tuple[Spent, ...] = ()
    beneficiary: JobId | None = None
    victims: tuple[JobId, ...] = ()
    shares: tuple[FairShare, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    vacancies: tuple[Vacancy, ...] = ()
    kept_for: tuple[JobId, ...] = ()
    place: QueuePlace | None = None
    remedies: tuple[Remedy, ...] = ()
    forecast: Forecast | None = None
