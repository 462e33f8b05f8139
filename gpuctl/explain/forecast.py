"""When waiting jobs start, if jobs end at their limits and nobody changes anything.

The cluster is carried forward as values: what the engine decides is done at once, and time goes on to the next limit
that ends a run. What has no limit is taken to run on, so a forecast is the latest start and not a promise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gpuctl.explain.progress import ACTIVE, Jobs, come_to_rest, settled
from gpuctl.explain.rest import Rest, at_rest
from gpuctl.model.decision import Admit
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Forecast
from gpuctl.model.ids import JobId
from gpuctl.model.state import ClusterState, Run
from gpuctl.model.units import Instant
from gpuctl.schedule.jobs.interactive import latest_end_ms

MAX_ENDS = 24
"""Instants at which something ends that are looked at: a bound on what a question may cost."""
MAX_ASKED = 12_000
"""Jobs that are asked whether they can start, in all schedules together: a long queue is not followed as far."""
CYCLES_AN_END = 2
"""Schedules that an end takes at least, where it lets somebody start."""


def forecast(declared: Declared, state: ClusterState, now_ms: Instant, job: JobId) -> Forecast:
    """Carry the cluster forward until the job starts. Cost: up to some MAX_ENDS x 4 schedules."""
    return forecasts(at_rest(declared, settled(declared, state, now_ms), now_ms), {job})[job]


def forecasts(rest: Rest, wanted: Collection[JobId]) -> Mapping[JobId, Forecast]:
    """When jobs start in a cluster that goes on from its rest, at the cost of the one that starts last.

    What the engine remembers of the cluster goes ahead in time with it. Cost: bounded by MAX_ENDS and MAX_ASKED.
    """
    declared, state, now_ms = rest.declared, rest.state, rest.at_ms
    jobs = {job.id: job for job in declared.jobs}
    endless = sum(run.phase in ACTIVE and _end_ms(jobs, run, now_ms) is None for run in state.runs)
    at_once = Forecast(start_ms=now_ms, endless=endless, horizon_ms=0)
    found = {job: at_once for job in rest.starts if job in wanted}
    at_ms, looked = now_ms, 1
    asked = waiting = len(rest.decided.queue)
    while True:
        ends = dict(_ends(jobs, state, at_ms))
        grown_ms = _grown_ms(declared, state, at_ms)
        more = bool(ends) or grown_ms is not None
        far = looked == MAX_ENDS or asked + CYCLES_AN_END * waiting > MAX_ASKED
        if len(found) == len(wanted) or far or not more:
            break
        at_ms = min((*ends.values(), *([grown_ms] if grown_ms is not None else [])))
        ended = tuple(sorted(run for run, end in ends.items() if end == at_ms))
        for decided, after in come_to_rest(declared, state, at_ms, rest.outlook):
            state = after
            waiting = len(decided.queue)
            asked += waiting
            for started in (d.job for d in decided.decisions if isinstance(d, Admit) and d.job in wanted):
                found.setdefault(
                    started, Forecast(start_ms=at_ms, ends=ended, endless=endless, horizon_ms=at_ms - now_ms)
                )
        looked += 1
    never = Forecast(start_ms=None, endless=endless, horizon_ms=at_ms - now_ms, more=more)
    return {job: found.get(job, never) for job in wanted}


def _ends(jobs: Jobs, state: ClusterState, at_ms: Instant) -> Iterator[tuple[JobId, Instant]]:
    for run in state.runs:
        end_ms = _end_ms(jobs, run, at_ms)
        if end_ms is not None:
            yield run.job, end_ms


def _grown_ms(declared: Declared, state: ClusterState, at_ms: Instant) -> Instant | None:
    """When the youngest run has run for minRuntime, and all may be paused for others."""
    least_ms = declared.cluster.scheduling.min_runtime_ms
    young = (
        run.started_at_ms + least_ms for run in state.runs if run.phase in ACTIVE and run.started_at_ms is not None
    )
    return max((grown_ms for grown_ms in young if grown_ms > at_ms), default=None) if least_ms else None


def _end_ms(jobs: Jobs, run: Run, now_ms: Instant) -> Instant | None:
    """When a run reaches its limit, if it is running and has one."""
    job = jobs.get(run.job)
    if job is None or job.digest != run.digest or run.phase not in ACTIVE:
        return None
    end_ms = latest_end_ms(job, run, now_ms)
    return None if end_ms is None else max(now_ms + 1, end_ms)
