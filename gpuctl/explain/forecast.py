"""When waiting jobs start, if jobs end at their limits and nobody changes anything.

The cluster is carried forward as values: what the engine decides is done at once, and time goes on to the next limit
that ends a run, to when runs may be paused, or to when a place is kept for who has waited too long. What has no limit
is taken to run on, so a forecast is the latest start and not a promise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from gpuctl.explain.progress import Jobs, come_to_rest, settled
from gpuctl.explain.rest import Rest, at_rest
from gpuctl.model.decision import Admit
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Forecast
from gpuctl.model.ids import JobId
from gpuctl.model.state import ACTIVE, ClusterState, Run
from gpuctl.model.units import DurationMs, Instant
from gpuctl.schedule.jobs.interactive import latest_end_ms

MAX_ENDS = 24
"""Instants at which something ends, or is due, that are looked at: a bound on what a question may cost."""
MAX_ASKED = 12_000
"""Jobs that are asked whether they can start, in all schedules together: a long queue is not followed as far."""
STEPS = 8
"""So many instants at which runs may be paused, or places be kept, are looked at one by one; more, in eighths of what
it takes."""
CYCLES_AN_END = 2
"""Schedules that an end takes at least, where it lets somebody start."""


def forecast(declared: Declared, state: ClusterState, now_ms: Instant, job: JobId) -> Forecast:
    """Carry the cluster forward until the job starts. Cost: up to some MAX_ENDS x 4 schedules."""
    return forecasts(at_rest(declared, settled(declared, state, now_ms), now_ms), {job})[job]


def forecasts(rest: Rest, wanted: AbstractSet[JobId]) -> Mapping[JobId, Forecast]:
    """When jobs start in a cluster that goes on from its rest, at the cost of the one that starts last.

    What the engine remembers of the cluster goes ahead in time with it. Cost: bounded by MAX_ENDS and MAX_ASKED.
    """
    declared, state, now_ms = rest.declared, rest.state, rest.at_ms
    jobs = {job.id: job for job in declared.jobs}
    endless = sum(run.phase in ACTIVE and _end_ms(jobs, run, now_ms) is None for run in state.runs)
    at_once = Forecast(start_ms=now_ms, endless=endless, horizon_ms=0)
    found = {job: at_once for job in rest.starts if job in wanted}
    at_ms, looked = now_ms, 1
    queue = rest.decided.queue
    asked = len(queue)
    while True:
        ends = dict(_ends(jobs, state, at_ms))
        grown_ms = _grown_ms(declared, state, at_ms)
        news = [*ends.values(), *filter(None, (grown_ms, _guarded_ms(declared, state, queue, at_ms)))]
        far = looked == MAX_ENDS or asked + CYCLES_AN_END * len(queue) > MAX_ASKED
        if len(found) == len(wanted) or far or not news:
            break
        at_ms = min(news)
        ended = tuple(sorted(run for run, end in ends.items() if end == at_ms))
        for decided, after in come_to_rest(declared, state, at_ms, rest.outlook):
            state, queue = after, decided.queue
            asked += len(queue)
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


def _grown_ms(declared: Declared, state: ClusterState, at_ms: Instant) -> Instant | None:
    """When more runs have run for minRuntime, and may be paused for others."""
    least_ms = declared.cluster.scheduling.min_runtime_ms
    active = (run.started_at_ms for run in state.runs if run.phase in ACTIVE)
    grown = (started_ms + least_ms for started_ms in active if started_ms is not None)
    return _soonest(grown, at_ms, least_ms) if least_ms else None


def _guarded_ms(declared: Declared, state: ClusterState, queue: Collection[JobId], at_ms: Instant) -> Instant | None:
    """When more jobs have waited so long that places are kept for them."""
    patience_ms, asking = declared.cluster.scheduling.starvation_guard_ms, frozenset(queue)
    due = (run.queued_at_ms + patience_ms for run in state.runs if run.job in asking)
    return _soonest(due, at_ms, patience_ms)


def _soonest(due: Iterable[Instant], at_ms: Instant, span_ms: DurationMs) -> Instant | None:
    """The soonest of some instants; of many, the last of those that come close to it."""
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
