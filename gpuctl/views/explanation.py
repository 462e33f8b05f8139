"""An explanation in sentences for people, and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.diag.wording import all_of, duration, reason_text
from gpuctl.engine.reasons import DEPENDENT, FOR_ENDS, NO_LOAD, START_FAILED
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.decision import FairShare, Placement, WorkerPlacement
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.explanation import (
    DecisionKind,
    Explanation,
    Forecast,
    QueuePlace,
    Remedy,
    RemedyKind,
    Spent,
    Vacancy,
)
from gpuctl.model.ids import DomainName, JobId
from gpuctl.model.units import WHOLE_GPU, Instant, count_gpus, format_gpus
from gpuctl.views.pod_problems import problem_form, problem_text, remedy_of
from gpuctl.views.trace import step_text

SHOWN = 3
"""The most jobs that a sentence names."""
_SECOND_MS = 1000
_DECIDED = {
    DecisionKind.START: "starts now",
    DecisionKind.KEEP: "stays as it is",
    DecisionKind.WAIT: "waits",
    DecisionKind.RECLAIM: "is paused for another project",
    DecisionKind.PREEMPT: "is paused for a job of its own project",
    DecisionKind.DISPLACE: "is paused: it can't stay on its nodes",
    DecisionKind.MOVE: "is moved",
    DecisionKind.RESIZE: "changes its number of workers",
    DecisionKind.SUSPEND: "is suspended",
    DecisionKind.TIME_OUT: "has reached a time limit",
    DecisionKind.FINISHED: "has ended",
}


def headline(told: Explanation) -> str:
    """The decision with its reason, and the job that this one was paused for."""
    decided = _DECIDED[told.decision]
    if told.decision is DecisionKind.WAIT and told.leaving:
        decided = "is stopping"
    elif told.reason.code == NO_LOAD:
        decided = "has no worker now"
    elif _waits_for(told) not in {None, START_FAILED, *FOR_ENDS} and told.place is None and told.placement is None:
        decided = "can't start"
    known = told.beneficiary is None or _is_named(told.beneficiary, told)
    paused = "" if known else f" It was paused for {told.beneficiary} before."
    return f"{told.job} {decided}. {told.reason.code}: {reason_text(told.reason)}.{paused}"


def _is_named(job: JobId, told: Explanation) -> bool:
    """Whether the reason already names the job."""
    return any(str(job) in str(value).split(", ") for _, value in told.reason.params)


def explanation_text(told: Explanation) -> Iterator[str]:
    """Everything behind a decision besides its reason, one sentence for each fact."""
    if told.refusal is not None:
        yield f"{told.refusal.code}: {told.refusal.message}."
        yield f"Fix: {told.refusal.help}."
    yield _asked(told)
    if told.placement is not None:
        yield _where(told, told.placement)
    if told.problem is not None:
        yield f"Its pods: {problem_text(told.problem)}."
        yield f"Fix: {remedy_of(told.problem)}"
    for row in told.shares:
        yield _standing(row)
    for step in told.steps:
        yield f"Engine: {step_text(step, told.job.project)}."
    if not all(_is_named(victim, told) for victim in told.victims):
        yield f"Paused or scaled down for it: {_some(told.victims)}."
    for spent in told.spent:
        yield _limit(spent)
    yield from _queue(told)
    for remedy in told.remedies:
        yield f"It would start {_remedy(remedy)}."
    if told.forecast is not None:
        yield _forecast(told.forecast, told.at_ms)


def _queue(told: Explanation) -> Iterator[str]:
    """The place of a waiting job in the queue, or why it has none."""
    if told.place is not None:
        yield _place(told.place, told.job)
    elif told.decision is DecisionKind.WAIT and told.leaving:
        then = "It joins the queue" if told.placement is None else "It starts there"
        yield f"{then} once its own pods are gone."
    elif _waits_for(told) == START_FAILED:
        yield "It is not in the queue: jobs that wait there come first, and no run makes way for it."
    elif _waits_for(told) in DEPENDENT:
        yield "It is not in the queue, so it demands no GPUs and none are reserved for it."
    elif told.decision is DecisionKind.WAIT and told.placement is None:
        yield "It is not in the queue: the end of other jobs would not start it."


def _waits_for(told: Explanation) -> str | None:
    """The code of the reason for which the job waits; None: it does not wait."""
    return told.reason.code if told.decision is DecisionKind.WAIT else None


def _asked(told: Explanation) -> str:
    """What the job requests, and the free GPUs of the pools that it may use."""
    gpus = count_gpus(told.gpu_milli) if told.gpu_milli else "no GPU"
    request = f"It requests {gpus}" if told.workers == 1 else f"It requests {told.workers} workers with {gpus} each"
    if told.min_workers < told.workers:
        request = f"{request}, at least {told.min_workers}"
    free = [_free(each, told) for each in told.vacancies if told.gpu_milli]
    kept = f", not counting GPUs reserved for {_some(told.kept_for)}" if free and told.kept_for else ""
    return f"{'; '.join((request, *free))}{kept}."


def _where(told: Explanation, placement: Placement) -> str:
    """The place of the job, or its reservation."""
    workers = placement.workers
    if len(workers) == 1:
        nodes = on_devices(workers[0])
    else:
        nodes = f"{all_of(sorted({worker.node for worker in workers}))} with {len(workers)} workers"
    if told.decision in {DecisionKind.WAIT, DecisionKind.MOVE}:
        return f"It has a reservation on {nodes}."
    return f"It {'starts' if told.decision is DecisionKind.START else 'is'} on {nodes}."


def on_devices(worker: WorkerPlacement) -> str:
    """`dgx1-1 (GPU 0)`, `dgx1-1 (GPUs 0, 1)`; only the node if the worker has no GPU."""
    gpus = ", ".join(map(str, worker.gpus))
    return f"{worker.node} ({'GPU' if len(worker.gpus) == 1 else 'GPUs'} {gpus})" if gpus else worker.node


def _limit(spent: Spent) -> str:
    limit, over = _whole(spent.limit_ms), _whole(spent.spent_ms)
    if spent.limit == "idleTimeout":
        return f"Its GPUs have been idle for {over}; its idleTimeout is {limit}."
    return f"It has run for {over}; its {spent.limit} is {limit}."


def _free(vacancy: Vacancy, told: Explanation) -> str:
    if not vacancy.free_milli:
        return f"{vacancy.pool} has no free GPUs"
    if told.gpu_milli < WHOLE_GPU:
        most = f"{format_gpus(vacancy.part_milli)} of one GPU"
    else:
        most = f"{vacancy.whole} whole {'GPU' if vacancy.whole == 1 else 'GPUs'} on one node"
    return f"{vacancy.pool} has {count_gpus(vacancy.free_milli)} free, at most {most}"


def document(told: Explanation) -> dict[str, Any]:
    """The JSON form; times as in Kubernetes, amounts in milli-GPU."""
    forecast, place = told.forecast, told.place
    return {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "Explanation",
        "job": str(told.job),
        "at": format_timestamp(told.at_ms),
        "decision": told.decision.value,
        "reason": {"code": told.reason.code, "message": reason_text(told.reason), "params": dict(told.reason.params)},
        "beneficiary": None if told.beneficiary is None else str(told.beneficiary),
        "madeWay": [str(job) for job in told.victims],
        "workers": told.workers,
        "minWorkers": told.min_workers,
        "gpuMilli": told.gpu_milli,
        "placement": None
        if told.placement is None
        else [{"node": worker.node, "gpus": list(worker.gpus)} for worker in told.placement.workers],
        "stopping": told.leaving,
        "problem": problem_form(told.problem),
        "refusal": None
        if told.refusal is None
        else {"code": told.refusal.code, "message": told.refusal.message, "help": told.refusal.help},
        "limits": [{"limit": each.limit, "limitMs": each.limit_ms, "spentMs": each.spent_ms} for each in told.spent],
        "keptFor": [str(job) for job in told.kept_for],
        "free": [
            {
                "nodePool": each.pool,
                "gpuMilli": each.free_milli,
                "wholeGpusOnOneNode": each.whole,
                "gpuMilliOfOneGpu": each.part_milli,
            }
            for each in told.vacancies
        ],
        "shares": [_share_form(row) for row in told.shares],
        "trace": [{"rule": step.rule, "numbers": dict(step.numbers)} for step in told.steps],
        "queue": None
        if place is None
        else {
            "inProject": place.in_project,
            "ofProject": place.of_project,
            "overall": place.overall,
            "of": place.of_all,
        },
        "remedies": [_remedy_form(remedy) for remedy in told.remedies],
        "forecast": None
        if forecast is None
        else {
            "start": None if forecast.start_ms is None else format_timestamp(forecast.start_ms),
            "after": [str(job) for job in forecast.ends],
            "withoutLimit": forecast.endless,
            "horizonMs": forecast.horizon_ms,
            "beyondHorizon": forecast.more,
        },
        "text": list(explanation_text(told)),
    }


def _remedy_form(remedy: Remedy) -> dict[str, Any]:
    return {
        "kind": remedy.kind.value,
        "subject": remedy.subject,
        "gpuMilli": remedy.milli,
        "domain": remedy.domain if remedy.milli is not None else None,
        "paused": [str(job) for job in remedy.paused],
        "also": [{"kind": e.kind.value, "subject": e.subject, "gpuMilli": e.milli} for e in remedy.also],
    }


def _share_form(row: FairShare) -> dict[str, Any]:
    return {
        "domain": row.domain,
        "quotaGpuMilli": row.quota_milli,
        "fairShareGpuMilli": row.share_milli,
        "demandGpuMilli": row.demand_milli,
        "allocatedGpuMilli": row.allocated_milli,
    }


def _standing(row: FairShare) -> str:
    where = _where_of(row.domain)
    held, share = count_gpus(row.allocated_milli), format_gpus(row.share_milli)
    quota, demand = format_gpus(row.quota_milli), format_gpus(row.demand_milli)
    return f"{row.project} holds {held}{where}; its fair share is {share}, its quota {quota} and its demand {demand}."


def _place(place: QueuePlace, job: JobId) -> str:
    own = f"{place.in_project} of {place.of_project} in {job.project}"
    return f"Its position in the queue is {own}, and {place.overall} of {place.of_all} overall."


def _remedy(remedy: Remedy) -> str:
    pausing = f", pausing {_some(remedy.paused)}" if remedy.paused else ""
    match remedy.kind:
        case RemedyKind.QUOTA | RemedyKind.LIMIT:
            also = (_claim(each.kind, f"at least {format_gpus(each.milli)}", each.subject) for each in remedy.also)
            raised = [_claim(remedy.kind, format_gpus(remedy.milli or 0), remedy.subject), *also]
            return f"with {all_of(raised)}{_where_of(remedy.domain)}{pausing}"
        case RemedyKind.JOB_END:
            return f"if {remedy.subject} ended"
        case RemedyKind.NODE:
            return f"if node {remedy.subject} were usable again"
        case RemedyKind.ANOTHER_NODE:
            return f"with one more node like {remedy.subject}"


def _claim(kind: RemedyKind, gpus: str, owner: str) -> str:
    return f"a {kind.value} of {gpus} for {owner}"


def _where_of(domain: DomainName) -> str:
    return "" if domain == WHOLE_CLUSTER else f" in {domain}"


def _some(jobs: tuple[JobId, ...]) -> str:
    names = [str(job) for job in jobs]
    return all_of(names if len(names) <= SHOWN else [*names[:SHOWN], f"{len(names) - SHOWN} more"])


def _forecast(forecast: Forecast, now_ms: Instant) -> str:
    unlimited = f"; {without_limit(forecast.endless)}" if forecast.endless else ""
    if forecast.start_ms is None:
        if forecast.more and not forecast.horizon_ms:
            return "The queue is too long to forecast its start."
        far = f" within {_whole(forecast.horizon_ms)}" if forecast.more else ""
        return f"If nothing else changes, no start is forecast{far}{unlimited}."
    within = _whole(forecast.start_ms - now_ms)
    reach = "reaches its limit" if len(forecast.ends) == 1 else "reach their limits"
    after = f", when {_some(forecast.ends)} {reach}" if forecast.ends else ""
    if forecast.grown and not forecast.ends:
        after = ", when running jobs have reached minRuntime and may be paused"
    when = format_timestamp(forecast.start_ms)
    return f"It starts by {when} (in {within}){after}, if nothing else changes{unlimited}."


def without_limit(count: int) -> str:
    """The assumption of a forecast about running jobs without a limit."""
    if count == 1:
        return "1 running job has no maxDuration and is assumed to keep running"
    return f"{count} running jobs have no maxDuration and are assumed to keep running"


def _whole(milliseconds: int) -> str:
    """A duration in whole seconds."""
    return duration(max(0, milliseconds) // _SECOND_MS * _SECOND_MS)
