"""Why a job is in its state: the facts behind the decision, what would change it, and when the job is expected to
start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.decision import FairShare, Placement, Reason, TraceStep
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.ids import DomainName, JobId, PoolName
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.units import DurationMs, GpuMilli, Instant


class DecisionKind(StrEnum):
    """What was decided of a job, by the words of the JSON form; one for each type of `decision.Decision`."""

    START = "start"
    KEEP = "keep"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    DISPLACE = "displace"
    MOVE = "move"
    RESIZE = "resize"
    WAIT = "wait"
    SUSPEND = "suspend"
    TIME_OUT = "timeOut"
    FINISHED = "finished"


class RemedyKind(StrEnum):
    """A change that would start a job: a higher quota or limit, a job's end, a node that is usable again, a new
    node."""

    QUOTA = "quota"
    LIMIT = "limit"
    JOB_END = "jobEnd"
    NODE = "node"
    ANOTHER_NODE = "anotherNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """A quota or a limit that must be at least `milli`, and the project or department that has it."""

    kind: RemedyKind
    subject: str
    milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change that would start the job at once, as the engine itself decides.

    `subject`: the owner of the quota or limit, the job, the node, or the node that a new one would be like. `milli`:
    the quota or limit that is needed in the quota `domain`. `paused`: the jobs that would be paused for it. `also`:
    other quotas and limits that must be raised for the quota to be valid.
    """

    kind: RemedyKind
    subject: str
    milli: GpuMilli | None = None
    domain: DomainName = WHOLE_CLUSTER
    paused: tuple[JobId, ...] = ()
    also: tuple[Raise, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """A waiting job's position, counted from 1: in its project's queue, and in the queue of all projects."""

    in_project: int
    of_project: int
    overall: int
    of_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a waiting job starts if jobs end at their limits and nothing else changes; None: not within the horizon.

    `ends`: the jobs that end at their limits at that instant. `endless`: running jobs without a limit, which are
    assumed to keep running. `grown`: runs reach minRuntime at that instant, so that they may be paused. `horizon_ms`:
    how far the forecast went; `more`: limits end after the horizon, too.
    """

    start_ms: Instant | None
    ends: tuple[JobId, ...] = ()
    endless: int = 0
    grown: bool = False
    horizon_ms: DurationMs = 0
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacancy:
    """Free GPUs of a pool after a cycle: in total, the most whole GPUs on one node, and the largest part of one GPU."""

    pool: PoolName
    free_milli: GpuMilli
    whole: int
    part_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A time limit of a run, and how much of it has passed."""

    limit: str
    limit_ms: DurationMs
    spent_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything known about one decision.

    `beneficiary`: the job that this one was paused for. `victims`: the jobs paused or scaled down for this one.
    `shares`: the rows of its project. `steps`: the engine's trace of the job in that cycle. The job requests `workers`
    with `gpu_milli` each, at least `min_workers`. `placement`: where it is, or its reservation. `leaving`: it is to
    stop, and its pods are still there. `problem`: why its pods do not run. `spent`: its limits, while it runs.
    `refusal`: why its project is left as it is, where a guard refuses its namespace.

    The rest is for jobs that wait. `vacancies`: of the pools that it may use, without GPUs reserved for `kept_for`.
    """

    job: JobId
    at_ms: Instant
    decision: DecisionKind
    reason: Reason
    workers: int
    gpu_milli: GpuMilli
    min_workers: int = 1
    placement: Placement | None = None
    leaving: bool = False
    problem: PodProblem | None = None
    refusal: Diagnostic | None = None
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
