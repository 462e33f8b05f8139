"""Typed reasons, one name for each code of the GPU5xxx family: the only place that names codes and parameters.

Most are made from one value or from a job, and are rows of a table; the others are functions. What each code means, and
why a job has it, stands with the code in `gpuctl/diag/codes/pending.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
"""Reasons to run that follow from what the project holds, its guarantee and its fair share."""

FOR_ENDS = frozenset({FOR_OTHERS, IN_SWEEP})
"""Reasons to wait for the end of certain jobs."""

DEPENDENT = frozenset({*FOR_ENDS, "GPU5026"})
"""Reasons to wait for certain jobs: those that the job comes after, or others of its sweep. Such a job is in no queue
and demands nothing."""

FOR_ROOM = frozenset({
    "GPU5010", "GPU5011", "GPU5013", "GPU5014", "GPU5015", "GPU5016", "GPU5017", FOR_PAUSED, FOR_STOPPING, FOR_START,
    "GPU5024", "GPU5028", "GPU5060", "GPU5061", GUARDED, "GPU5081",
})  # fmt: skip
"""Reasons to wait that would end if more GPUs, or other GPUs, were free, as far as quotas allow."""

DISPLACED = frozenset({"GPU5034", "GPU5035", "GPU5036"})
"""Reasons to stop that concern no other job: the run goes on as soon as it can."""

MAX_NAMED = 3
"""The most jobs that a reason names: people read it, and a gang may pause hundreds."""


def _reason(code: str, **params: str | int) -> Reason:
    return Reason(code=code, params=tuple(sorted(params.items())))


def _with(code: str, name: str) -> Callable[[object], Reason]:
    """Make a function from a value to its reason; the value is the only parameter."""
    return lambda value: _reason(code, **{name: str(value)})


def _named(code: str, name: str) -> Callable[[Iterable[JobId]], Reason]:
    """Make a function from several jobs to their reason, which names a few of them."""

    def make(jobs: Iterable[JobId]) -> Reason:
        names = [str(job) for job in sorted(jobs)]
        more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        return _reason(code, **{name: " and ".join([", ".join(names[:MAX_NAMED]), *more])})

    return make


def _of_job(code: str, *names: str) -> Callable[[Job], Reason]:
    """Make a function from a job to its reason. `gpus`: of a worker if `workers` is given too, else of the fewest."""

    def make(job: Job) -> Reason:
        each = "workers" in names
        told: dict[str, str | int] = {
            "gpus": format_gpus(job.gpu_milli if each else job.gpu_milli * job.min_workers),
            "pools": _pools(job),
            "project": job.id.project,
            "workers": job.min_workers,
        }
        return _reason(code, **{name: told[name] for name in names})

    return make


def _pools(job: Job) -> str:
    return ", ".join(job.pools) or "no pool"


# The job runs

runs_in_quota: Callable[[ProjectName], Reason] = _with(IN_QUOTA, "project")
runs_in_share: Callable[[ProjectName], Reason] = _with("GPU5002", "project")
runs_on_idle: Callable[[ProjectName], Reason] = _with(ON_IDLE, "project")
runs_over_quota: Callable[[ProjectName], Reason] = _with("GPU5005", "project")
RUNS_WITHOUT_GPU = _reason("GPU5004")

# The job waits for room

no_free_gpus = _of_job("GPU5010", "gpus", "pools")
over_share = _of_job("GPU5011", "gpus", "project")
no_large_node = _of_job("GPU5014", "gpus", "workers", "pools")
scattered = _of_job("GPU5015", "gpus", "pools")
gang_short = _of_job("GPU5016", "gpus", "workers", "pools")
cpu_short = _of_job("GPU5017", "pools")
search_cut_off = _of_job("GPU5024", "gpus", "pools")
place_lost = _of_job("GPU5028", "gpus", "pools")
held_back: Callable[[JobId], Reason] = _with("GPU5081", "oldest")


def over_limit(job: Job, owner: str, limit_milli: GpuMilli) -> Reason:
    """The job would break the limit of its project or of a department."""
    gpus = format_gpus(job.gpu_milli * job.min_workers)
    return _reason("GPU5012", gpus=gpus, owner=owner, limit=format_gpus(limit_milli))


def fixed_over_quota(job: Job, owner: str, quota_milli: GpuMilli) -> Reason:
    """The job can't be paused, and such work never exceeds the quota."""
    gpus = format_gpus(job.gpu_milli * job.min_workers)
    return _reason("GPU5013", gpus=gpus, project=owner.removeprefix("project "), quota=format_gpus(quota_milli))


def no_slices(job: Job, profile: str) -> Reason:
    """Live nodes are not cut as their pool declares."""
    return _reason("GPU5060", pools=_pools(job), profile=profile)


def not_served(job: Job, pool: NodePool) -> Reason:
    """Live nodes don't share GPUs as their pool declares."""
    sharing = f"{pool.sharing} ({pool.driver})" if pool.sharing is Sharing.DRA else pool.sharing.value
    return _reason("GPU5061", pools=_pools(job), sharing=sharing)


# The job has a place that is not available yet

waits_for_paused = _named(FOR_PAUSED, "victims")
WAITS_FOR_STOPPING = _reason(FOR_STOPPING)
waits_for_start: Callable[[JobId], Reason] = _with(FOR_START, "other")
kept_for_oldest: Callable[[PoolName], Reason] = _with(GUARDED, "pool")
STILL_STOPPING = _reason("GPU5020")

# The job is in no queue

pinned: Callable[[ProjectName], Reason] = _with("GPU5021", "project")
unknown_project: Callable[[ProjectName], Reason] = _with("GPU5022", "project")
waits_for = _named(FOR_OTHERS, "jobs")
left_to: Callable[[str], Reason] = _with("GPU5037", "engine")


def dependency_failed(job: JobId, state: JobState) -> Reason:
    """The job is in no queue because a job that it comes after has ended without success."""
    return _reason("GPU5026", job=str(job), state=state.value)


def sweep_is_full(sweep: JobId, parallelism: int) -> Reason:
    """The job is in no queue until fewer jobs of its sweep are queued or running."""
    return _reason(IN_SWEEP, sweep=str(sweep), parallelism=parallelism)


def start_failed(problem: str, starts: int, retry_ms: Instant, rights_ms: Instant) -> Reason:
    """The run was stopped: it did not come to run. It gets idle GPUs from `retry_ms`, all rights from `rights_ms`.

    `problem` includes the server's words: while the run waits no pod shows them, and events last only an hour.
    """
    words = problem or "its pods did not run"
    return _reason(START_FAILED, starts=starts, problem=words, retry=retry_ms, rights=rights_ms)


# The run stops, moves or has fewer workers

paused_by_guarantee: Callable[[JobId], Reason] = _with("GPU5030", "beneficiary")
paused_by_fairness: Callable[[JobId], Reason] = _with("GPU5031", "beneficiary")
paused_by_priority: Callable[[JobId], Reason] = _with("GPU5032", "beneficiary")
paused_by_interactive: Callable[[JobId], Reason] = _with("GPU5033", "beneficiary")
moved_for: Callable[[JobId], Reason] = _with(MOVED, "beneficiary")
node_lost: Callable[[NodeName], Reason] = _with("GPU5034", "node")
node_closed: Callable[[NodeName], Reason] = _with("GPU5036", "node")
given_twice: Callable[[NodeName], Reason] = _with("GPU5035", "node")
SUSPENDED = _reason("GPU5040")
SCALED_TO_ZERO = _reason(NO_LOAD)
TOO_LONG = _reason("GPU5041")
IDLE_TOO_LONG = _reason("GPU5042")


def gave_up_workers(beneficiary: JobId, workers: int, declared: int) -> Reason:
    """An elastic job gives up workers for another job and goes on with the rest."""
    return _reason("GPU5090", beneficiary=str(beneficiary), workers=workers, declared=declared)


def lost_workers(node: NodeName, workers: int, declared: int) -> Reason:
    """An elastic job goes on without the workers of a node."""
    return _reason("GPU5091", node=node, workers=workers, declared=declared)


def ended(state: JobState) -> Reason:
    """Why a finished run is not started again."""
    codes = {JobState.SUCCEEDED: "GPU5050", JobState.FAILED: "GPU5051", JobState.TIMED_OUT: "GPU5052"}
    return _reason(codes.get(state, "GPU5053"))
