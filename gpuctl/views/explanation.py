"""An explanation of the engine in sentences, and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.diag.wording import all_of, duration, reason_text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.decision import FairShare, Placement
from gpuctl.model.declared import WHOLE_CLUSTER, DomainName
from gpuctl.model.explanation import Explanation, Forecast, QueuePlace, Remedy, RemedyKind, Spent, Vacancy
from gpuctl.model.ids import JobId
from gpuctl.model.units import WHOLE_GPU, Instant, format_gpus
from gpuctl.views.trace import counted_gpus, step_text

SHOWN = 3
"""Jobs that a sentence names."""
_SECOND_MS = 1000
_DECIDED = {
    "Admit": "it starts now",
    "Keep": "it goes on as was decided before",
    "Pending": "it waits",
    "Reclaim": "it is paused for another project",
    "Preempt": "it is paused for its own project",
    "Displace": "it can't stay where it is",
    "Move": "it is moved",
    "Resize": "it goes on with another number of workers",
    "Suspended": "it is suspended",
    "TimeOut": "its time is over",
    "Finished": "it has ended",
}


def headline(told: Explanation) -> str:
    """The decision and its reason, and whom it was for."""
    decided = _DECIDED.get(told.decision, told.decision)
    if told.decision == "Pending" and told.leaving:
        decided = "it is stopping"
    elif told.decision == "Pending" and told.place is None and told.placement is None:
        decided = "it can't start"
    known = told.beneficiary is None or _is_named(told.beneficiary, told)
    paused = "" if known else f" It was paused for {told.beneficiary} before."
    return f"{told.job}: {decided}. {told.reason.code}: {reason_text(told.reason)}.{paused}"


def _is_named(job: JobId, told: Explanation) -> bool:
    """Whether the reason names it already."""
    return any(str(job) in str(value).split(", ") for _, value in told.reason.params)


def explanation_text(told: Explanation) -> Iterator[str]:
    """What the engine knows of a job besides what is written on it."""
    yield _asked(told)
    if told.placement is not None:
        yield _where(told, told.placement)
    for row in told.shares:
        yield _standing(row)
    for step in told.steps:
        yield f"The engine: {step_text(step, told.job.project)}."
    if not all(_is_named(victim, told) for victim in told.victims):
        yield f"Paused or made smaller for it: {_some(told.victims)}."
    for spent in told.spent:
        yield _limit(spent)
    if told.place is not None:
        yield _place(told.place, told.job)
    elif told.decision == "Pending" and told.leaving:
        then = "It takes its place in the queue" if told.placement is None else "It goes on there"
        yield f"{then} when its own pods are gone."
    elif told.decision == "Pending" and told.placement is None:
        yield "It has no place in the queue: no job's end would start it."
    for remedy in told.remedies:
        yield f"It would start {_remedy(remedy)}."
    if told.forecast is not None:
        yield _forecast(told.forecast, told.at_ms, alone=not told.remedies)


def _asked(told: Explanation) -> str:
    """What it asks for, and what is free of that where it may go."""
    gpus = counted_gpus(told.gpu_milli) if told.gpu_milli else "no GPU"
    asks = f"It asks for {gpus}" if told.workers == 1 else f"It asks for {told.workers} workers with {gpus} each"
    if told.min_workers < told.workers:
        asks = f"{asks}, {told.min_workers} at the least"
    free = [_free(each, told) for each in told.vacancies if told.gpu_milli]
    kept = f", besides what is kept for {_some(told.kept_for)}" if free and told.kept_for else ""
    return f"{'; '.join((asks, *free))}{kept}."


def _where(told: Explanation, placement: Placement) -> str:
    """Where it is, or where a place is kept for it."""
    workers = placement.workers
    if len(workers) == 1:
        gpus = ", ".join(map(str, workers[0].gpus))
        nodes = f"{workers[0].node} (GPU {gpus})" if gpus else workers[0].node
    else:
        nodes = f"{all_of(sorted({worker.node for worker in workers}))} with {len(workers)} workers"
    if told.decision in {"Pending", "Move"}:
        return f"A place on {nodes} is kept for it."
    return f"It {'goes to' if told.decision == 'Admit' else 'is on'} {nodes}."


def _limit(spent: Spent) -> str:
    limit, over = _whole(spent.limit_ms), _whole(spent.spent_ms)
    if spent.limit == "idleTimeout":
        return f"Its GPUs are idle since {over}, of an idleTimeout of {limit}."
    return f"It has run {over} of its {spent.limit} of {limit}."


def _free(vacancy: Vacancy, told: Explanation) -> str:
    if not vacancy.free_milli:
        return f"none are free in {vacancy.pool}"
    most = (
        f"{format_gpus(vacancy.part_milli)} of one GPU"
        if told.gpu_milli < WHOLE_GPU
        else f"{vacancy.whole} whole on one node"
    )
    return f"free in {vacancy.pool} are {format_gpus(vacancy.free_milli)}, at most {most}"


def document(told: Explanation) -> dict[str, Any]:
    """The JSON form; times as in Kubernetes, amounts in milli-GPU."""
    forecast, place = told.forecast, told.place
    return {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "Explanation",
        "job": str(told.job),
        "at": format_timestamp(told.at_ms),
        "decision": told.decision,
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
    held, share = format_gpus(row.allocated_milli), format_gpus(row.share_milli)
    quota, demand = format_gpus(row.quota_milli), format_gpus(row.demand_milli)
    return (
        f"{row.project} holds {held} GPUs{where}; its fair share is {share}, its quota {quota}, and it wants {demand}."
    )


def _place(place: QueuePlace, job: JobId) -> str:
    own = f"number {place.in_project} of {place.of_project} that wait in {job.project}"
    return f"It is {own}, and {place.overall} of {place.of_all} in all."


def _remedy(remedy: Remedy) -> str:
    pausing = f", pausing {_some(remedy.paused)}" if remedy.paused else ""
    match remedy.kind:
        case RemedyKind.QUOTA | RemedyKind.LIMIT:
            also = (_claim(each.kind, f"at least {format_gpus(each.milli)}", each.subject) for each in remedy.also)
            raised = [_claim(remedy.kind, format_gpus(remedy.milli or 0), remedy.subject), *also]
            return f"with {all_of(raised)}{_where_of(remedy.domain)}{pausing}"
        case RemedyKind.JOB_END:
            return f"when {remedy.subject} ends"
        case RemedyKind.NODE:
            return f"when node {remedy.subject} is back in use"
        case RemedyKind.ANOTHER_NODE:
            return f"with one more node like {remedy.subject}"


def _claim(kind: RemedyKind, gpus: str, owner: str) -> str:
    return f"a {kind.value} of {gpus} for {owner}"


def _where_of(domain: DomainName) -> str:
    return "" if domain == WHOLE_CLUSTER else f" in {domain}"


def _some(jobs: tuple[JobId, ...]) -> str:
    names = [str(job) for job in jobs]
    return all_of(names if len(names) <= SHOWN else [*names[:SHOWN], f"{len(names) - SHOWN} more"])


def _forecast(forecast: Forecast, now_ms: Instant, *, alone: bool) -> str:
    unlimited = ""
    if forecast.endless:
        jobs = (
            "1 running job has no maxDuration and is"
            if forecast.endless == 1
            else (f"{forecast.endless} running jobs have no maxDuration and are")
        )
        unlimited = f"; {jobs} taken to run on"
    if forecast.start_ms is None:
        if forecast.more and not forecast.horizon_ms:
            return "Too many jobs wait to foresee its start."
        far = f" within {_whole(forecast.horizon_ms)}" if forecast.more else ""
        nothing = f"Nothing is known that would start it{far}" if alone else f"Left alone, no start is in sight{far}"
        return f"{nothing}{unlimited}."
    within = _whole(forecast.start_ms - now_ms)
    reach = "reaches its limit" if len(forecast.ends) == 1 else "reach their limits"
    after = f", when {_some(forecast.ends)} {reach}" if forecast.ends else ""
    if forecast.grown and not forecast.ends:
        after = ", when those that run have run for minRuntime and may be paused"
    when = format_timestamp(forecast.start_ms)
    return f"It starts by {when} (in {within}){after}, if nothing else changes{unlimited}."


def _whole(milliseconds: int) -> str:
    """A duration in whole seconds."""
    return duration(max(0, milliseconds) // _SECOND_MS * _SECOND_MS)
