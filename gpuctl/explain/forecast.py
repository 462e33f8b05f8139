"""Forecast when waiting jobs start, if jobs end at their limits and nothing else changes.

The cluster is simulated as values: decisions take effect at once, and time advances to the next instant at which a run
reaches its limit or minRuntime, the starvation guard applies to a job, or a run that did not start is tried again. A
job that other jobs depend on is assumed to succeed just before its limit, so that they are queued. Runs without a limit
are assumed to keep running. So a forecast is an estimate of the latest start, without a guarantee.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from gpuctl.engine.jobs.timing import FULL_RIGHTS_AFTER_MS, latest_end_ms, min_runtime_ends, next_right_ms
from gpuctl.explain.progress import Jobs, come_to_rest
from gpuctl.explain.rest import Rest, at_rest
from gpuctl.model.decision import Admit
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Forecast
from gpuctl.model.ids import JobId
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase
from gpuctl.model.steps import settled
from gpuctl.model.units import DurationMs, Instant

MAX_ENDS = 24
"""The most instants that a forecast simulates: a bound on its cost."""
MAX_ASKED = 12_000
"""The most attempts to start a job, in all schedules together: the longer the queue, the shorter the forecast."""
MAX_PLACED = 10_000
"""The most searches for places, in all schedules together. Where many jobs could start if runs moved, each schedule
searches for each of them up to the bound of such searches. Measured: a plan for 199 jobs took 26 s of CPU without this
bound, and 4 s with it."""
STEPS = 8
"""Up to this many instants of minRuntime or the starvation guard are simulated one by one; more are merged, in steps of
an eighth of that time."""
CYCLES_AN_END = 2
"""The least number of schedules after a run's end that starts a job."""


def forecast(declared: Declared, state: ClusterState, now_ms: Instant, job: JobId) -> Forecast:
    """Simulate the cluster until the job starts. Cost: up to some MAX_ENDS x 4 schedules."""
    return forecasts(at_rest(declared, settled(declared, state, now_ms), now_ms), {job})[job]


def start_forecasts(
    declared: Declared, state: ClusterState, now_ms: Instant, jobs: AbstractSet[JobId]
) -> Mapping[JobId, Instant]:
    """When each of these jobs starts, without the jobs that have no forecast start. Cost: one forecast."""
    found = forecasts(at_rest(declared, settled(declared, state, now_ms), now_ms), jobs)
    return {job: told.start_ms for job, told in found.items() if told.start_ms is not None}


def forecasts(rest: Rest, wanted: AbstractSet[JobId]) -> Mapping[JobId, Forecast]:
    """Forecast the starts of several jobs, from a cluster at rest, in one simulation.

    A job's forecast does not depend on which other jobs are asked about. The engine's cache is used throughout. Cost:
    that of the last start, bounded by MAX_ENDS, MAX_ASKED and MAX_PLACED; none where the forecasts are known already.
    """
    if rest.forecasts is not None:
        return {job: rest.forecasts[job] for job in wanted}
    declared, state, now_ms = rest.declared, rest.state, rest.at_ms
    jobs = {job.id: job for job in declared.jobs}
    awaited = {each.job for job in declared.jobs for each in job.after}
    needed = frozenset(job.id for job in declared.jobs if job.declared_as in awaited or job.parallelism is not None)
    endless = sum(run.phase in ACTIVE and _end_ms(jobs, run, now_ms) is None for run in state.runs)
    at_once = Forecast(start_ms=now_ms, endless=endless, horizon_ms=0)
    found = {job: at_once for job in rest.starts if job in wanted}
    at_ms, looked = now_ms, 1
    queue = rest.decided.queue
    asked, placed = len(queue), 0
    while True:
        ends = dict(_ends(jobs, state, at_ms))
        grown_ms = _grown_ms(declared, state, at_ms)
        waits = _guarded_ms(declared, state, queue, at_ms), _tried_ms(jobs, state, at_ms)
        news = [*ends.values(), *filter(None, (grown_ms, *waits))]
        far = looked == MAX_ENDS or asked + CYCLES_AN_END * len(queue) > MAX_ASKED or placed > MAX_PLACED
        if len(found) == len(wanted) or far or not news:
            break
        at_ms = min(news)
        ended = tuple(sorted(run for run, end in ends.items() if end == at_ms))
        state = _succeeded(jobs, state, needed.intersection(ended), at_ms)
        for decided, after in come_to_rest(declared, state, at_ms, rest.engine_cache):
            state, queue = after, decided.queue
            asked += len(queue)
            placed += rest.engine_cache.counters.placings
            here = Forecast(
                start_ms=at_ms, ends=ended, endless=endless, grown=at_ms == grown_ms, horizon_ms=at_ms - now_ms
            )
            found |= {d.job: here for d in decided.decisions if isinstance(d, Admit) and d.job in wanted - found.keys()}
        looked += 1
    never = Forecast(start_ms=None, endless=endless, horizon_ms=at_ms - now_ms, more=bool(news))
    return {job: found.get(job, never) for job in wanted}


def _ends(jobs: Jobs, state: ClusterState, at_ms: Instant) -> Iterator[tuple[JobId, Instant]]:
    for run in state.runs:
        end_ms = _end_ms(jobs, run, at_ms)
        if end_ms is not None:
            yield run.job, end_ms


def _succeeded(jobs: Jobs, state: ClusterState, ended: AbstractSet[JobId], at_ms: Instant) -> ClusterState:
    """The state once these jobs have succeeded, just before their limits."""
    if not ended:
        return state
    runs = tuple([
        replace(run, phase=RunPhase.SUCCEEDED, placement=None, leaving=None, finished_at_ms=at_ms)
        if run.job in ended and run.digest == jobs[run.job].digest
        else run
        for run in state.runs
    ])
    return replace(state, runs=runs)


def _grown_ms(declared: Declared, state: ClusterState, at_ms: Instant) -> Instant | None:
    """When the next runs reach their minRuntime, so that they may be paused."""
    min_runtime = declared.cluster.scheduling.min_runtime
    grown = (end_ms for run in state.runs if run.phase in ACTIVE for end_ms in min_runtime_ends(run, min_runtime))
    return _soonest(grown, at_ms, max(min_runtime))


def _guarded_ms(declared: Declared, state: ClusterState, queue: Collection[JobId], at_ms: Instant) -> Instant | None:
    """When the starvation guard applies to the next jobs."""
    patience_ms, asking = declared.cluster.scheduling.starvation_guard_ms, frozenset(queue)
    due = (run.queued_at_ms + patience_ms for run in state.runs if run.job in asking)
    return _soonest(due, at_ms, patience_ms)


def _tried_ms(jobs: Jobs, state: ClusterState, at_ms: Instant) -> Instant | None:
    """When the next runs that did not start get wider rights for their start."""
    due = (next_right_ms(run, at_ms) for run in state.runs if run.job in jobs and jobs[run.job].digest == run.digest)
    return _soonest(filter(None, due), at_ms, FULL_RIGHTS_AFTER_MS)


def _soonest(due: Iterable[Instant], at_ms: Instant, span_ms: DurationMs) -> Instant | None:
    """The next instant; where there are many, the last of those close to it."""
    later = {due_ms for due_ms in due if due_ms > at_ms}
    near_ms = min(later, default=at_ms) + (span_ms // STEPS if len(later) > STEPS else 0)
    return max((due_ms for due_ms in later if due_ms <= near_ms), default=None)


def _end_ms(jobs: Jobs, run: Run, now_ms: Instant) -> Instant | None:
    """When a run reaches its limit, if it is running and has one."""
    job = jobs.get(run.job)
    if job is None or job.digest != run.digest or run.phase not in ACTIVE:
        return None
    end_ms = latest_end_ms(job, run, now_ms)
    return None if end_ms is None else max(now_ms + 1, end_ms)
