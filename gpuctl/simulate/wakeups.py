"""Instants at which the engine may decide differently without any event: a limit ends, the starvation guard applies, or
past usage decays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuctl.engine import schedule
from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.jobs.timing import (
    has_failed_often,
    latest_end_ms,
    min_runtime_ends,
    next_right_ms,
    slow_at_ms,
    start_over_ms,
)
from gpuctl.model.decision import Pending, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import DurationMs, Instant

LOOKS_A_HALF_LIFE = 16
"""Checks in each of the first two half-lives; later ones are further and further apart, as less past usage is left."""

PRECISION_MS: DurationMs = 1000
"""The precision of the instant at which past usage has decayed enough."""

_HOLDING = frozenset({RunPhase.STARTING, RunPhase.RUNNING})


def wakeups(declared: Declared, state: ClusterState, now_ms: Instant) -> Iterator[Instant]:
    """The instants after now at which a run's limit or delay ends, without `retries`. Cost: linear in jobs and runs."""
    return _instants(declared, state, now_ms, lambda run: not has_failed_often(run))


def retries(declared: Declared, state: ClusterState, now_ms: Instant) -> Iterator[Instant]:
    """The same for waiting runs whose start has failed often: they are tried again without end. Cost: as above."""
    return _instants(declared, state, now_ms, has_failed_often)


def _instants(
    declared: Declared, state: ClusterState, now_ms: Instant, concerns: Callable[[Run], bool]
) -> Iterator[Instant]:
    jobs = {job.id: job for job in declared.jobs}
    for run in filter(concerns, state.runs):
        job = jobs.get(run.job)
        if job is None or job.digest != run.digest:
            continue
        if run.phase.final:
            yield from (at_ms for at_ms in _end_of_object(job, state) if at_ms > now_ms)
        else:
            yield from (at_ms for at_ms in _of_run(declared, job, run, now_ms) if at_ms > now_ms)


def _end_of_object(job: Job, state: ClusterState) -> Iterator[Instant]:
    """When the object of an ended run is no longer kept."""
    ledger = state.ledgers.get(job.id.project)
    past = ledger.finished.get((job.id, job.digest)) if ledger is not None else None
    if past is not None and job.ttl_ms is not None:
        yield past.at_ms + job.ttl_ms


def _of_run(declared: Declared, job: Job, run: Run, now_ms: Instant) -> Iterator[Instant]:
    policy = declared.cluster.scheduling
    starting = next_right_ms(run, now_ms), slow_at_ms(run), start_over_ms(run, policy.start_timeout_ms)
    yield from (at_ms for at_ms in starting if at_ms is not None)
    if run.phase is RunPhase.QUEUED:
        yield run.queued_at_ms + policy.starvation_guard_ms
    if run.phase not in _HOLDING or run.started_at_ms is None:
        return
    if job.preemptible:
        yield from min_runtime_ends(run, policy.min_runtime)
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        yield run.idle_since_ms + job.idle_timeout_ms
    end_ms = latest_end_ms(job, run, now_ms)
    if end_ms is not None and not job.has_deadline:
        yield end_ms


def faded(declared: Declared, state: ClusterState, now: Schedule, until_ms: Instant) -> Instant | None:
    """The first instant until `until_ms` at which decayed usage changes the engine's decisions; None: there is none.

    It is found by running the engine, and valid until the next event. Cost: some sixty schedules, while a job waits.
    """
    half_life_ms = declared.cluster.scheduling.fairness_half_life_ms
    waits = any(isinstance(decision, Pending) and decision.reserved is None for decision in now.decisions)
    if not half_life_ms or not waits or not any(ledger.usage for ledger in state.ledgers.values()):
        return None
    engine_cache, known = EngineCache(), _kinds(now)

    def otherwise(at_ms: Instant) -> bool:
        return _kinds(schedule(declared, state, at_ms, engine_cache)) != known

    same_ms = now.at_ms
    for look_ms in _looks(now.at_ms, until_ms, half_life_ms):
        if otherwise(look_ms):
            return _first(otherwise, same_ms, look_ms)
        same_ms = look_ms
    return None


def _first(otherwise: Callable[[Instant], bool], same_ms: Instant, other_ms: Instant) -> Instant:
    """The first instant in (same_ms, other_ms] at which decisions differ, by bisection."""
    while other_ms - same_ms > PRECISION_MS:
        between_ms = (same_ms + other_ms) // 2
        if otherwise(between_ms):
            other_ms = between_ms
        else:
            same_ms = between_ms
    return other_ms


def _looks(now_ms: Instant, until_ms: Instant, half_life_ms: DurationMs) -> Iterator[Instant]:
    """The instants to check, further and further apart; the last is `until_ms`."""
    step_ms = max(PRECISION_MS, half_life_ms // LOOKS_A_HALF_LIFE)
    at_ms = now_ms + step_ms
    while at_ms < until_ms:
        yield at_ms
        if at_ms - now_ms >= 2 * half_life_ms:
            step_ms *= 2
        at_ms += step_ms
    if now_ms < until_ms:
        yield until_ms


def _kinds(decided: Schedule) -> dict[JobId, tuple[type, bool]]:
    """The kind of each job's decision, and whether it has a reservation."""
    return {
        decision.job: (type(decision), isinstance(decision, Pending) and decision.reserved is not None)
        for decision in decided.decisions
    }
