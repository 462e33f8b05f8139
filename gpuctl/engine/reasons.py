"""Typed reasons, one function for each code of the GPU5xxx family: the only place that names codes and parameters."""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.model.decision import JobState, Reason
from gpuctl.model.declared import NodePool, Sharing
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli, Instant, format_gpus

IN_QUOTA = "GPU5001"
ON_IDLE = "GPU5003"
FOR_PAUSED = "GPU5018"
FOR_STOPPING = "GPU5019"
FOR_START = "GPU5023"
START_FAILED = "GPU5092"
FOR_OTHERS = "GPU5025"
IN_SWEEP = "GPU5027"
NO_LOAD = "GPU5043"
GUARDED = "GPU5080"
MOVED = "GPU5082"

BY_AMOUNTS = frozenset({IN_QUOTA, "GPU5002", ON_IDLE, "GPU5005"})
"""Reasons to run that follow from what the project holds, is guaranteed and may have."""

FOR_ENDS = frozenset({FOR_OTHERS, IN_SWEEP})
"""Reasons to wait for the end of certain jobs."""

DEPENDENT = frozenset({*FOR_ENDS, "GPU5026"})
"""Reasons to wait for certain jobs, those that it comes after or others of its sweep: it is in no queue, and demands
nothing."""

FOR_ROOM = frozenset({
    "GPU5010", "GPU5011", "GPU5013", "GPU5014", "GPU5015", "GPU5016", "GPU5017", FOR_PAUSED, FOR_STOPPING, FOR_START,
    "GPU5024", "GPU5060", "GPU5061", GUARDED, "GPU5081",
})  # fmt: skip
"""Reasons to wait that more GPUs, or others, would end, as far as quotas allow: no GPUs are free that can be had."""

DISPLACED = frozenset({"GPU5034", "GPU5035", "GPU5036"})
"""Reasons to stop that are no other job's: the run goes on as soon as it can."""

MAX_NAMED = 3
"""Jobs a reason names at most: people read it, and a gang may pause hundreds."""


def _reason(code: str, **params: str | int) -> Reason:
    return Reason(code=code, params=tuple(sorted(params.items())))


def _pools(job: Job) -> str:
    return ", ".join(job.pools) or "no pool"


def _least(job: Job) -> str:
    """GPUs of the fewest workers it starts with."""
    return format_gpus(job.gpu_milli * job.min_workers)


def _named(jobs: Iterable[JobId]) -> str:
    names = [str(job) for job in sorted(jobs)]
    shown = ", ".join(names[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown} and {len(names) - MAX_NAMED} more"


def runs_in_quota(project: ProjectName) -> Reason:
    """It runs within its project's quota."""
    return _reason(IN_QUOTA, project=project)


def runs_in_share(project: ProjectName) -> Reason:
    """It runs over quota, within fair share."""
    return _reason("GPU5002", project=project)


def runs_on_idle(project: ProjectName) -> Reason:
    """It runs beyond the fair share, on otherwise idle GPUs."""
    return _reason(ON_IDLE, project=project)


def runs_over_quota(project: ProjectName) -> Reason:
    """It runs over quota; whether within the fair share is not known from the cluster alone."""
    return _reason("GPU5005", project=project)


def runs_without_gpu() -> Reason:
    """A CPU job runs."""
    return _reason("GPU5004")


def no_free_gpus(job: Job) -> Reason:
    """Entitled, but nothing is free and no run may be paused for it."""
    return _reason("GPU5010", gpus=_least(job), pools=_pools(job))


def over_share(job: Job) -> Reason:
    """Beyond the fair share, and nothing is idle."""
    return _reason("GPU5011", gpus=_least(job), project=job.id.project)


def over_limit(job: Job, owner: str, limit_milli: GpuMilli) -> Reason:
    """It would break the limit of its project or a department."""
    return _reason("GPU5012", gpus=_least(job), owner=owner, limit=format_gpus(limit_milli))


def fixed_over_quota(job: Job, owner: str, quota_milli: GpuMilli) -> Reason:
    """Work that can't be paused never exceeds quota."""
    return _reason("GPU5013", gpus=_least(job), project=owner.removeprefix("project "), quota=format_gpus(quota_milli))


def no_large_node(job: Job) -> Reason:
    """It would not fit empty nodes either."""
    return _reason("GPU5014", gpus=format_gpus(job.gpu_milli), workers=job.min_workers, pools=_pools(job))


def scattered(job: Job) -> Reason:
    """Enough is free, but not in one place."""
    return _reason("GPU5015", gpus=_least(job), pools=_pools(job))


def gang_short(job: Job) -> Reason:
    """Not all workers fit at once."""
    return _reason("GPU5016", gpus=format_gpus(job.gpu_milli), workers=job.min_workers, pools=_pools(job))


def cpu_short(job: Job) -> Reason:
    """GPUs are free, CPU or memory is not."""
    return _reason("GPU5017", pools=_pools(job))


def search_cut_off(job: Job) -> Reason:
    """No place was found, but the search for runs that could make way ended at its bound."""
    return _reason("GPU5024", gpus=_least(job), pools=_pools(job))


def waits_for_paused(victims: Iterable[JobId]) -> Reason:
    """Its place is reserved; the runs paused for it are still leaving."""
    return _reason(FOR_PAUSED, victims=_named(victims))


def waits_for_stopping() -> Reason:
    """Its place is reserved; the runs there are stopping anyway."""
    return _reason(FOR_STOPPING)


def waits_for_start(other: JobId) -> Reason:
    """Its place is reserved; a job that starts beside it now could be given its GPUs, or it that job's."""
    return _reason(FOR_START, other=str(other))


def still_stopping() -> Reason:
    """Its own pods are not gone yet."""
    return _reason("GPU5020")


def pinned(project: ProjectName) -> Reason:
    """Its project is pinned."""
    return _reason("GPU5021", project=project)


def waits_for(jobs: Iterable[JobId]) -> Reason:
    """It is in no queue until the jobs have ended that it comes after."""
    return _reason(FOR_OTHERS, jobs=_named(jobs))


def dependency_failed(job: JobId, state: JobState) -> Reason:
    """It is in no queue, for a job that it comes after has ended without success."""
    return _reason("GPU5026", job=str(job), state=state.value)


def sweep_is_full(sweep: JobId, parallelism: int) -> Reason:
    """It is in no queue until fewer jobs of its sweep are queued or run."""
    return _reason(IN_SWEEP, sweep=str(sweep), parallelism=parallelism)


def unknown_project(project: ProjectName) -> Reason:
    """Its project is not declared."""
    return _reason("GPU5022", project=project)


def no_slices(job: Job, profile: str) -> Reason:
    """Live nodes are not cut as their pool declares."""
    return _reason("GPU5060", pools=_pools(job), profile=profile)


def not_served(job: Job, pool: NodePool) -> Reason:
    """Live nodes don't share GPUs as their pool declares."""
    sharing = f"{pool.sharing} ({pool.driver})" if pool.sharing is Sharing.DRA else pool.sharing.value
    return _reason("GPU5061", pools=_pools(job), sharing=sharing)


def paused_by_guarantee(beneficiary: JobId) -> Reason:
    """Reclaimed for a job within its project's guarantee."""
    return _reason("GPU5030", beneficiary=str(beneficiary))


def paused_by_fairness(beneficiary: JobId) -> Reason:
    """Reclaimed for a job within its project's fair share."""
    return _reason("GPU5031", beneficiary=str(beneficiary))


def paused_by_priority(beneficiary: JobId) -> Reason:
    """Preempted by a job of higher priority."""
    return _reason("GPU5032", beneficiary=str(beneficiary))


def paused_by_interactive(beneficiary: JobId) -> Reason:
    """Preempted by interactive work within quota."""
    return _reason("GPU5033", beneficiary=str(beneficiary))


def kept_for_oldest(pool: PoolName) -> Reason:
    """It has waited longest in a pool, so a place there is reserved for it as it empties."""
    return _reason(GUARDED, pool=pool)


def held_back(oldest: JobId) -> Reason:
    """What is free is reserved for a job that has waited longer."""
    return _reason("GPU5081", oldest=str(oldest))


def moved_for(beneficiary: JobId) -> Reason:
    """It is moved to another place to make room for a job."""
    return _reason(MOVED, beneficiary=str(beneficiary))


def gave_up_workers(beneficiary: JobId, workers: int, declared: int) -> Reason:
    """An elastic job goes on with fewer workers."""
    return _reason("GPU5090", beneficiary=str(beneficiary), workers=workers, declared=declared)


def lost_workers(node: NodeName, workers: int, declared: int) -> Reason:
    """An elastic job goes on without the workers of a node."""
    return _reason("GPU5091", node=node, workers=workers, declared=declared)


def node_lost(node: NodeName) -> Reason:
    """Its node is gone or not ready."""
    return _reason("GPU5034", node=node)


def node_closed(node: NodeName) -> Reason:
    """Its node takes no new pods, and one of its own pods is not there yet."""
    return _reason("GPU5036", node=node)


def given_twice(node: NodeName) -> Reason:
    """Its device holds more than one device's worth."""
    return _reason("GPU5035", node=node)


def start_failed(problem: str, starts: int, retry_ms: Instant, rights_ms: Instant) -> Reason:
    """It was stopped, for it did not come to run; it takes idle GPUs from `retry_ms`, has all rights from `rights_ms`.

    `problem` has the server's words too: while the run waits there is no pod that says them, and events last an hour.
    """
    words = problem or "its pods did not run"
    return _reason(START_FAILED, starts=starts, problem=words, retry=retry_ms, rights=rights_ms)


def left_to(engine: str) -> Reason:
    """Another engine decides when it runs."""
    return _reason("GPU5037", engine=engine)


def suspended() -> Reason:
    """Suspended by its declaration."""
    return _reason("GPU5040")


def scaled_to_zero() -> Reason:
    """It has no load, so its autoscaler has taken its last worker."""
    return _reason(NO_LOAD)


def too_long() -> Reason:
    """Its maxDuration is over."""
    return _reason("GPU5041")


def idle_too_long() -> Reason:
    """Its idleTimeout is over."""
    return _reason("GPU5042")


def ended(state: JobState) -> Reason:
    """Why a finished run is not started again."""
    codes = {JobState.SUCCEEDED: "GPU5050", JobState.FAILED: "GPU5051", JobState.TIMED_OUT: "GPU5052"}
    return _reason(codes.get(state, "GPU5053"))
