"""Why a decision is as it is, from what the engine wrote down; and what would change it, by asking the engine again.

Nothing here decides: each "it would start if" is a schedule by the same engine of a cluster that differs in just that.
"""

from __future__ import annotations

from gpuctl.explain.effect import effect_of, queue_places
from gpuctl.explain.forecast import forecast
from gpuctl.explain.remedies import remedies_for
from gpuctl.explain.rest import at_rest
from gpuctl.model.decision import Decision, Move, Pending, Preempt, Reclaim, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Explanation, Vacancy
from gpuctl.model.ids import JobId
from gpuctl.model.state import ClusterState
from gpuctl.schedule.reasons import GUARDED

__all__ = ["at_rest", "effect_of", "explain"]


def explain(
    declared: Declared, state: ClusterState, schedule: Schedule, job: JobId, vacancies: tuple[Vacancy, ...] = ()
) -> Explanation | None:
    """Explain the decision of one job in a schedule of that state; None for a job that has none.

    `vacancies` are what that schedule leaves free. Cost: for a job that waits, up to some twenty schedules of the
    whole cluster, and those of a forecast; else a look at the trace.
    """
    decision = next((d for d in schedule.decisions if d.job == job), None)
    asks = next((each for each in declared.jobs if each.id == job), None)
    if decision is None or asks is None:
        return None
    waits = isinstance(decision, Pending) and (decision.reserved is None or decision.reason.code == GUARDED)
    queued = waits and job in schedule.queue
    return Explanation(
        job=job,
        at_ms=schedule.at_ms,
        decision=type(decision).__name__,
        reason=decision.reason,
        workers=asks.workers,
        gpu_milli=asks.gpu_milli,
        beneficiary=_beneficiary(decision),
        shares=tuple(row for row in schedule.shares if row.project == job.project),
        steps=tuple(step for step in schedule.trace if step.job == job),
        vacancies=tuple(each for each in vacancies if each.pool in asks.pools) if waits else (),
        place=queue_places(schedule.queue)[job] if queued else None,
        remedies=remedies_for(declared, state, schedule, job) if waits else (),
        forecast=forecast(declared, state, schedule.at_ms, job) if queued else None,
    )


def _beneficiary(decision: Decision) -> JobId | None:
    return decision.beneficiary if isinstance(decision, Reclaim | Preempt | Move) else decision.record.paused_for
