"""What time alone does to a run that runs: limits end it for good, and once minRuntime is over, other jobs may have it
stopped. What time does to a start is in `starts`.
"""

from __future__ import annotations

from gpuctl.engine import reasons
from gpuctl.model.decision import NOT_YET, Reason
from gpuctl.model.declared import MinRuntime
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import DurationMs, Instant

_RUNNING = RunPhase.RUNNING


def since_start_ms(run: Run, now_ms: Instant) -> DurationMs:
    """Time since the last start, however long it took to run: a tenant can make its pods start anew, and be no younger.

    0 before a start, or when the clock stepped back.
    """
    return 0 if run.started_at_ms is None else max(0, now_ms - run.started_at_ms)


def running_ms(run: Run, now_ms: Instant) -> DurationMs:
    """The time since the last start that counts for limits: without that of a start that took long."""
    return 0 if run.starting_ms == NOT_YET else max(0, since_start_ms(run, now_ms) - run.starting_ms)


def min_runtime_ends(run: Run, min_runtime: MinRuntime) -> tuple[Instant, ...]:
    """When a run in place is old enough to be stopped for others, by each reason, and to be spared less than others."""
    started_at_ms = run.started_at_ms
    if started_at_ms is None:
        return ()
    least = dict.fromkeys((*min_runtime.after(run.starts), min_runtime.fairness_ms))
    return tuple([started_at_ms + least_ms for least_ms in least if least_ms])


def latest_end_ms(job: Job | None, run: Run | None, now_ms: Instant) -> Instant | None:
    """When maxDuration ends a run, or a run that would start now; None: never. It may be past.

    Earlier running time counts; the time before a clock that stepped back does not.
    """
    if job is None or job.max_duration_ms is None:
        return None
    if run is None:
        return now_ms + job.max_duration_ms
    return now_ms - running_ms(run, now_ms) + job.max_duration_ms - run.ran_ms


def limit_reached(job: Job, run: Run, now_ms: Instant) -> Reason | None:
    """The limit that ends a running run now. A Job's own deadline normally comes first; a service has none."""
    if run.phase is not _RUNNING or (job.max_duration_ms is None and job.idle_timeout_ms is None):
        return None
    end_ms = latest_end_ms(job, run, now_ms)
    if end_ms is not None and end_ms <= now_ms:
        return reasons.TOO_LONG
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        idle_ms = now_ms - run.idle_since_ms
        return reasons.IDLE_TOO_LONG if idle_ms >= job.idle_timeout_ms else None
    return None
