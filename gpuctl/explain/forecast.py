"""When a waiting job starts, if jobs end at their limits and nobody changes anything.

The cluster is carried forward as values: what the engine decides is done at once, and time goes on to the next limit
that ends a run. What has no limit is taken to run on, so a forecast is the latest start and not a promise.
"""

from __future__ import annotations

from gpuctl.explain.progress import ACTIVE, Jobs, carried_out
from gpuctl.model.decision import Admit
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Forecast
from gpuctl.model.ids import JobId
from gpuctl.model.state import ClusterState, Run
from gpuctl.model.units import Instant
from gpuctl.schedule import schedule

MAX_ENDS = 24
"""Instants at which something ends that are looked at: a bound on what a question may cost."""
MAX_CYCLES = 4
"""Schedules at one instant: a pause, and the start that it was for."""


def forecast(declared: Declared, state: ClusterState, now_ms: Instant, job: JobId) -> Forecast:
    """Carry the cluster forward until the job starts. Cost: up to MAX_ENDS x MAX_CYCLES schedules."""
    jobs = {declared_job.id: declared_job for declared_job in declared.jobs}
    endless = sum(run.phase in ACTIVE and _end_ms(jobs, run, now_ms) is None for run in state.runs)
    at_ms, ended = now_ms, tuple[JobId, ...]()
    for _ in range(MAX_ENDS):
        for _ in range(MAX_CYCLES):
            decided = schedule(declared, state, at_ms)
            if any(isinstance(d, Admit) and d.job == job for d in decided.decisions):
                return Forecast(start_ms=at_ms, ends=ended, endless=endless, horizon_ms=at_ms - now_ms)
            after = carried_out(declared, jobs, state, decided)
            if after is state:
                break
            state = after
        ends = {run.job: end for run in state.runs if (end := _end_ms(jobs, run, at_ms)) is not None}
        if not ends:
            break
        at_ms = min(ends.values())
        ended = tuple(sorted(run for run, end in ends.items() if end == at_ms))
    return Forecast(start_ms=None, endless=endless, horizon_ms=at_ms - now_ms)


def _end_ms(jobs: Jobs, run: Run, now_ms: Instant) -> Instant | None:
    """When a run reaches its limit, if it is running and has one."""
    job = jobs.get(run.job)
    if job is None or job.digest != run.digest or job.max_duration_ms is None or run.phase not in ACTIVE:
        return None
    began_ms = now_ms if run.started_at_ms is None else run.started_at_ms
    return max(now_ms + 1, began_ms + job.max_duration_ms - run.ran_ms)
