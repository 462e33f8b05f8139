"""Explain decisions: the facts behind a decision, from the engine's trace, and what would change it, from what-if
schedules.

Nothing here decides. Each "it would start if" is a schedule, by the same engine, of a cluster with just that
difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuctl.engine.jobs.timing import running_ms
from gpuctl.engine.reasons import DEPENDENT, FOR_ENDS, GUARDED, START_FAILED
from gpuctl.explain.effect import domains_of, effect_of, queue_places
from gpuctl.explain.forecast import forecast, start_forecasts
from gpuctl.explain.prediction import (
    BUG_TEXT,
    Cause,
    CauseKind,
    Difference,
    Fate,
    Fates,
    Passed,
    Prediction,
    causes_since,
    compare,
    fates_of,
    passed,
    predict,
    restless,
    touched,
)
from gpuctl.explain.remedies import remedies_for
from gpuctl.explain.rest import at_rest
from gpuctl.explain.running import reason_of_running
from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Finished,
    Keep,
    Move,
    Pending,
    Placement,
    Preempt,
    Reason,
    Reclaim,
    Resize,
    Schedule,
    Suspended,
    TimeOut,
)
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import DecisionKind, Explanation, Spent, Vacancy
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import Instant

__all__ = [
    "BUG_TEXT",
    "Cause",
    "CauseKind",
    "Difference",
    "Fate",
    "Fates",
    "Passed",
    "Prediction",
    "at_rest",
    "causes_since",
    "compare",
    "domains_of",
    "effect_of",
    "explain",
    "fates_of",
    "passed",
    "predict",
    "restless",
    "start_forecasts",
    "touched",
]

_KINDS: Mapping[type[Decision], DecisionKind] = {
    Admit: DecisionKind.START,
    Keep: DecisionKind.KEEP,
    Reclaim: DecisionKind.RECLAIM,
    Preempt: DecisionKind.PREEMPT,
    Displace: DecisionKind.DISPLACE,
    Move: DecisionKind.MOVE,
    Resize: DecisionKind.RESIZE,
    Pending: DecisionKind.WAIT,
    Suspended: DecisionKind.SUSPEND,
    TimeOut: DecisionKind.TIME_OUT,
    Finished: DecisionKind.FINISHED,
}


def explain(
    declared: Declared, state: ClusterState, schedule: Schedule, job: JobId, vacancies: tuple[Vacancy, ...] = ()
) -> Explanation | None:
    """Explain the decision on one job in a schedule of this state; None for a job without one.

    `vacancies`: the GPUs that the schedule leaves free. Cost: for a waiting job up to some twenty schedules of the
    whole cluster, and those of a forecast; for other jobs the trace is read.
    """
    decision = next((d for d in schedule.decisions if d.job == job), None)
    asked = next((each for each in declared.jobs if each.id == job), None)
    if decision is None or asked is None:
        return None
    waits = isinstance(decision, Pending) and (decision.reserved is None or decision.reason.code == GUARDED)
    queued = waits and job in schedule.queue
    comes = queued or (waits and decision.reason.code in {START_FAILED, *FOR_ENDS})
    depends = decision.reason.code in DEPENDENT
    run = next((each for each in state.runs if (each.job, each.digest) == (job, asked.digest)), None)
    return Explanation(
        job=job,
        at_ms=schedule.at_ms,
        decision=_KINDS[type(decision)],
        reason=_reason(declared, state, schedule, decision),
        workers=asked.workers,
        gpu_milli=asked.gpu_milli,
        min_workers=asked.min_workers,
        placement=_placement(decision),
        leaving=run is not None and run.phase is RunPhase.STOPPING,
        problem=run.problem if run is not None else None,
        spent=tuple(_spent(asked, run, schedule.at_ms)) if run is not None else (),
        beneficiary=_beneficiary(decision),
        victims=tuple(each.job for each in schedule.decisions if _makes_way(each, job)),
        shares=tuple(row for row in schedule.shares if row.project == job.project),
        steps=tuple(step for step in schedule.trace if step.job == job),
        vacancies=tuple(each for each in vacancies if each.pool in asked.pools) if waits else (),
        kept_for=tuple(_kept_for(declared, state, schedule, asked)) if waits else (),
        place=queue_places(schedule.queue)[job] if queued else None,
        remedies=remedies_for(declared, state, schedule, job) if waits and not depends else (),
        forecast=forecast(declared, state, schedule.at_ms, job) if comes else None,
    )


def _reason(declared: Declared, state: ClusterState, schedule: Schedule, decision: Decision) -> Reason:
    """The decision's reason; for a run that goes on, the reason as things stand now."""
    if isinstance(decision, Keep):
        return reason_of_running(declared, state, schedule, decision.job, decision.reason)
    return decision.reason


def _beneficiary(decision: Decision) -> JobId | None:
    given = decision.beneficiary if isinstance(decision, Reclaim | Preempt | Move | Resize) else None
    return given or decision.record.paused_for


def _makes_way(decision: Decision, job: JobId) -> bool:
    """Whether a run is paused, moved or scaled down for a job, or still waits after that."""
    stops = isinstance(decision, Reclaim | Preempt | Move | Resize | Pending)
    return stops and _beneficiary(decision) == job


def _kept_for(declared: Declared, state: ClusterState, schedule: Schedule, job: Job) -> Iterator[JobId]:
    """Other jobs with a reservation in pools that a job may use."""
    pools = [pool for pool in declared.cluster.pools if pool.name in job.pools]
    nodes = {node.name for node in state.nodes if any(pool.selects(node.labels) for pool in pools)}
    for each in schedule.decisions:
        kept = each.reserved if isinstance(each, Pending) and each.job != job.id else None
        if kept is not None and any(worker.node in nodes for worker in kept.workers):
            yield each.job


def _placement(decision: Decision) -> Placement | None:
    match decision:
        case Admit() | Keep() | Resize():
            return decision.placement
        case Pending() | Move():
            return decision.reserved
        case _:
            return None


def _spent(job: Job, run: Run, now_ms: Instant) -> Iterator[Spent]:
    """How much of its limits a running run has used."""
    if run.phase is not RunPhase.RUNNING:
        return
    if job.max_duration_ms is not None:
        ran_ms = run.ran_ms + running_ms(run, now_ms)
        yield Spent(limit="maxDuration", limit_ms=job.max_duration_ms, spent_ms=ran_ms)
    if job.idle_timeout_ms is not None:
        idle_ms = 0 if run.idle_since_ms is None else max(0, now_ms - run.idle_since_ms)
        yield Spent(limit="idleTimeout", limit_ms=job.idle_timeout_ms, spent_ms=idle_ms)
