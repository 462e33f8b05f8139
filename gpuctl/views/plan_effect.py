"""The effect of a change on jobs, for a PlanReport: rows for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.diag.wording import all_of, duration, one_of, reason_text
from gpuctl.k8s.names import CLUSTER_LEDGER
from gpuctl.k8s.timestamps import format_seconds, format_timestamp
from gpuctl.model.decision import Placement, Reason
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.effect import Effect, Ground, Holding, Moved, Paused, Prospect, Resized, Started, Stop, Waits
from gpuctl.model.explanation import QueuePlace
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant, count_gpus, format_gpus
from gpuctl.views.explanation import without_limit

SHOWN = 3
"""The most jobs that a sentence names."""
_SECOND_MS = 1000
_SHORT = 10
_STOPS = {
    Stop.REMOVED: "no longer declared",
    Stop.CHANGED: "its declaration changed",
    Stop.SUSPENDED: "suspended",
    Stop.TIMED_OUT: "it reached a time limit",
}
_QUEUE_ENDS = {False: "is deleted while it waits: no longer declared", True: "waits no more: suspended"}
"""By whether the job is suspended."""
_MOVES = ("paused because ", "paused to start again elsewhere: ")
"""Prefixes that the text of a move already says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What happens to one job. `mark`: + for a start, - for a pause or an end, ~ for another change, "" for a wait."""

    mark: str
    job: JobId
    gpu_milli: GpuMilli | None
    text: str


def headline(effect: Effect) -> str:
    """`1 job starts, 1 is paused, 2 have to wait`; a count of 0 is left out."""
    told_already = {each.job for each in effect.paused} | {each.job for each in effect.stopped}
    waiting = sum(each.before is None and each.job not in told_already for each in effect.waits)
    other = sum(each.before is not None and each.news for each in effect.waits)
    anew = sum(each.anew for each in effect.started)
    suspended = sum(each.suspended for each in effect.dequeued)
    told = (
        (len(effect.started) - anew, "starts", "start"),
        (anew, "is restarted", "are restarted"),
        (len(effect.paused), "is paused", "are paused"),
        (len(effect.moved), "is moved", "are moved"),
        (len(effect.resized), "is scaled", "are scaled"),
        (len(effect.stopped), "ends", "end"),
        (len(effect.dequeued) - suspended, "is deleted while it waits", "are deleted while they wait"),
        (suspended, "is suspended while it waits", "are suspended while they wait"),
        (waiting, "has to wait", "have to wait"),
        (other, "starts at another time", "start at another time"),
    )
    said = [_counted(count, one, many) for count, one, many in told if count]
    if not said:
        return "no job starts, stops or moves"
    first, _, rest = said[0].partition(" ")
    return ", ".join((f"{first} {'job' if first == '1' else 'jobs'} {rest}", *said[1:]))


def ground_text(ground: Ground | None) -> str:
    """`(16 GPUs on 2 nodes, as declared)`."""
    if ground is None:
        return ""
    nodes = "1 node" if ground.nodes == 1 else f"{ground.nodes} nodes"
    as_of = "declared"
    if ground.live:
        as_of = f"the cluster was {_whole(ground.age_ms)} ago" if ground.age_ms >= _SECOND_MS else "the cluster is now"
    return f"({count_gpus(ground.gpus * WHOLE_GPU)} on {nodes}, as {as_of})"


def state_text(ground: Ground, at_ms: Instant, base: str) -> str:
    """When the cluster was in the assumed state, and whether it has what base declares."""
    age = f", {_whole(ground.age_ms)} ago" if ground.age_ms >= _SECOND_MS else ""
    revision = (
        f"; its files outside of projects are enforced as of {ground.revision[:_SHORT]}" if ground.revision else ""
    )
    said = f"The cluster is as observed at {format_seconds(at_ms)}{age}{revision}"
    if ground.unlike_base is None:
        return f"{said}."
    if not ground.unlike_base:
        return f"{said}. It has all that {base} declares."
    return f"{said}. It differs from what {base} declares for {all_of(map(_owner, ground.unlike_base))}."


def _owner(name: ProjectName) -> str:
    return "the cluster itself" if name == CLUSTER_LEDGER else name


def rows(effect: Effect) -> Iterator[Row]:
    """A row for each affected job: starts first, then pauses, moves, resizes, ends, removals from the queue, waits.

    The starting jobs of a sweep share one row, and so do its jobs that wait for one reason: the row describes the first
    of them. A job that loses GPUs has its own row.
    """
    alike: dict[tuple[object, ...], list[Row]] = {}
    for place, (kind, row) in enumerate(_each_row(effect)):
        sweep = effect.sweeps.get(row.job) if kind else None
        alike.setdefault((sweep, kind) if sweep is not None else (place,), []).append(row)
    for first, *others in alike.values():
        if not others:
            yield first
            continue
        sweep = effect.sweeps[first.job]
        total = sum(row.gpu_milli or 0 for row in (first, *others))
        text = f"{len(others) + 1} of its jobs; the first, {first.job.name}: {first.text}"
        yield Row(mark=first.mark, job=sweep, gpu_milli=total, text=text)


def _each_row(effect: Effect) -> Iterator[tuple[str, Row]]:
    """A row for each affected job, with the kind that it shares with other jobs of its sweep; "" for a row of its
    own."""
    waits = {each.job: each for each in effect.waits}
    told = {each.job for each in effect.paused} | {each.job for each in effect.stopped}
    for start in effect.started:
        kind = "" if start.anew or start.pauses else "starts"
        yield kind, Row(mark="+", job=start.job, gpu_milli=start.gpu_milli, text=_start(start))
    for pause in effect.paused:
        text = f"{_pause(pause)}; {_next(waits[pause.job], effect)}"
        yield "", Row(mark="-", job=pause.job, gpu_milli=pause.gpu_milli, text=text)
    for move in effect.moved:
        yield "", Row(mark="~", job=move.job, gpu_milli=move.gpu_milli, text=_move(move))
    for size in effect.resized:
        yield "", Row(mark="~", job=size.job, gpu_milli=None, text=_size(size))
    for stop in effect.stopped:
        then = f"; its new run: {_next(waits[stop.job], effect)}" if stop.job in waits else ""
        yield "", Row(mark="-", job=stop.job, gpu_milli=stop.gpu_milli, text=f"ends: {_STOPS[stop.why]}{then}")
    for gone in effect.dequeued:
        yield "", Row(mark="-", job=gone.job, gpu_milli=gone.gpu_milli, text=_QUEUE_ENDS[gone.suspended])
    for wait in effect.waits:
        if wait.news and wait.job not in told:
            yield wait.reason.code, Row(mark="", job=wait.job, gpu_milli=wait.gpu_milli, text=_wait(wait, effect))


def remarks(effect: Effect) -> Iterator[str]:
    """Notes below the rows: what stays the same, and the assumptions of forecasts."""
    as_before = [each.job for each in effect.waits if not each.news]
    same = (
        [_counted(effect.unaffected, "keeps running unchanged", "keep running unchanged")] if effect.unaffected else []
    )
    if as_before:
        same.append(f"{_counted(len(as_before), 'waits as before', 'wait as before')} ({_listed(as_before)})")
    if same:
        yield f"Of {'the other' if any(rows(effect)) else 'all'} jobs, {all_of(same)}."
    shifted = sorted(
        (each for each in effect.waits if each.advance and not each.news), key=lambda w: (-abs(w.advance), w.job)
    )
    if shifted:
        yield f"In the queue, {_some([_shift(each) for each in shifted])}."
    if effect.waits and effect.endless:
        yield f"Forecast starts assume that jobs run for their maxDuration; {without_limit(effect.endless)}."


def holding_rows(effect: Effect) -> Iterator[tuple[str, str, str]]:
    """Projects that hold more or less, or whose fair share changes: the project, its GPUs, its share."""
    for each in effect.holdings:
        where = "" if each.domain == WHOLE_CLUSTER else f" on {each.domain}"
        yield f"{each.project}{where}", amounts(each.held), amounts(each.share)


def document(effect: Effect, ground: Ground | None) -> dict[str, Any]:
    """The JSON form. Waiting jobs with a forecast start are in `eta`, the others in `starved`."""
    waits = [(each, _wait_form(each, effect.at_ms)) for each in effect.waits]
    return {
        "ground": None if ground is None else _ground_form(ground, effect.at_ms),
        "summary": headline(effect),
        "started": [_started_form(each) for each in effect.started],
        "paused": [
            {
                "job": str(each.job),
                "gpuMilli": each.gpu_milli,
                "for": _name(each.beneficiary),
                "reason": _reason_form(each.reason),
                "lostMs": each.lost_ms,
            }
            for each in effect.paused
        ],
        "moved": [_moved_form(each) for each in effect.moved],
        "resized": [
            {
                "job": str(each.job),
                "workers": {"before": each.before, "after": each.after},
                "for": _name(each.beneficiary),
            }
            for each in effect.resized
        ],
        "stopped": [
            {"job": str(each.job), "gpuMilli": each.gpu_milli, "why": each.why.value} for each in effect.stopped
        ],
        "dequeued": [
            {
                "job": str(each.job),
                "gpuMilli": each.gpu_milli,
                "why": (Stop.SUSPENDED if each.suspended else Stop.REMOVED).value,
            }
            for each in effect.dequeued
        ],
        "starved": [form for each, form in waits if each.now.forecast.start_ms is None],
        "eta": [form for each, form in waits if each.now.forecast.start_ms is not None],
        "projects": [_holding_form(each) for each in effect.holdings],
        "unaffected": effect.unaffected,
        "withoutLimit": effect.endless,
    }


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _shift(wait: Waits) -> str:
    steps = _counted(abs(wait.advance), "position", "positions")
    return f"{wait.job} moves {'up' if wait.advance > 0 else 'down'} {steps}"


def _start(start: Started) -> str:
    room = f"; {_some(start.pauses)} {'makes' if len(start.pauses) == 1 else 'make'} room" if start.pauses else ""
    starts = "is restarted" if start.anew else "starts"
    return f"{starts} on {_nodes(start.placement)}, {_as(start.reason)}{room}"


def _as(reason: Reason) -> str:
    return reason_text(reason).removeprefix("runs ")


def _pause(pause: Paused) -> str:
    return f"is {reason_text(pause.reason)}{_loss(pause.lost_ms)}"


def _loss(lost_ms: DurationMs | None) -> str:
    """The work that a pause loses, if known."""
    if lost_ms is None:
        return ""
    return f", loses up to {duration(lost_ms)} of work" if lost_ms else ", loses no work"


def _move(move: Moved) -> str:
    before, after = _nodes(move.before), _nodes(move.after)
    where = f"moves from {before} to {after}" if before != after else f"starts again on {after}"
    reason = reason_text(move.reason)
    for prefix in _MOVES:
        reason = reason.removeprefix(prefix)
    return f"{where}: {reason}{_loss(move.lost_ms)}"


def _size(size: Resized) -> str:
    beneficiary = f" for {size.beneficiary}" if size.beneficiary is not None else ""
    return f"scales from {size.before} to {_counted(size.after, 'worker', 'workers')}{beneficiary}"


def _wait(wait: Waits, effect: Effect) -> str:
    return f"{reason_text(wait.reason)}; {_next(wait, effect)}"


def _next(wait: Waits, effect: Effect) -> str:
    """When the job starts and its position in the queue, with the values before the change if they differ."""
    was = wait.before
    said = [_eta(wait.now, effect.at_ms)]
    if was is not None and was.forecast.start_ms != wait.now.forecast.start_ms:
        said[0] += f" (before: {_eta(was, effect.at_ms)})"
    if wait.now.place is not None:
        said.append(f"position {_number(wait.now.place)} in the queue")
        if wait.advance and was is not None and was.place is not None:
            said[-1] += f" (before: {_number(was.place)})"
    if wait.kept is not None:
        said.append(f"with a reservation on {_nodes(wait.kept)}")
    return ", ".join(said)


def _eta(prospect: Prospect, at_ms: Instant) -> str:
    forecast = prospect.forecast
    if forecast.start_ms is None:
        if not forecast.more:
            return "no start is forecast"
        if not forecast.horizon_ms:
            return "the queue is too long to forecast its start"
        return f"no start is forecast within {_whole(forecast.horizon_ms)}"
    within = _whole(forecast.start_ms - at_ms)
    after = f" when {one_of([str(job) for job in forecast.ends[:SHOWN]])} ends" if forecast.ends else ""
    return f"starts within {within}{after}"


def _whole(milliseconds: int) -> str:
    """A duration in whole seconds."""
    return duration(max(0, milliseconds) // _SECOND_MS * _SECOND_MS)


def _number(place: QueuePlace) -> str:
    return f"{place.overall} of {place.of_all}"


def amounts(pair: tuple[GpuMilli, GpuMilli]) -> str:
    """GPUs before and after: `4 -> 8`, or `4` if they are the same."""
    before, after = (format_gpus(milli) for milli in pair)
    return before if before == after else f"{before} -> {after}"


def _nodes(placement: Placement) -> str:
    return _some(tuple(dict.fromkeys(worker.node for worker in placement.workers)))


def _listed(jobs: Sequence[JobId]) -> str:
    shown = [str(job) for job in jobs[:SHOWN]]
    return ", ".join(shown if len(jobs) <= SHOWN else [*shown, "..."])


def _some(named: Sequence[object]) -> str:
    shown = [str(each) for each in named[:SHOWN]]
    return all_of(shown if len(named) <= SHOWN else [*shown, f"{len(named) - SHOWN} more"])


def _name(job: JobId | None) -> str | None:
    return None if job is None else str(job)


def _reason_form(reason: Reason) -> dict[str, Any]:
    return {"code": reason.code, "message": reason_text(reason)}


def _places(placement: Placement) -> list[Mapping[str, Any]]:
    return [{"node": worker.node, "gpus": list(worker.gpus)} for worker in placement.workers]


def _ground_form(ground: Ground, at_ms: Instant) -> dict[str, Any]:
    """The nodes that the effect starts from; `at`: when a live cluster was observed."""
    return {
        "from": "cluster" if ground.live else "inventory",
        "at": format_timestamp(at_ms) if ground.live else None,
        "nodes": ground.nodes,
        "gpuMilli": ground.gpus * WHOLE_GPU,
        "ageMs": ground.age_ms if ground.live else None,
        "revision": ground.revision or None,
        "unlikeBase": None if ground.unlike_base is None else _unlike_form(ground.unlike_base),
    }


def _unlike_form(owners: Sequence[ProjectName]) -> dict[str, Any]:
    return {"cluster": CLUSTER_LEDGER in owners, "projects": [name for name in owners if name != CLUSTER_LEDGER]}


def _started_form(start: Started) -> dict[str, Any]:
    return {
        "job": str(start.job),
        "gpuMilli": start.gpu_milli,
        "placement": _places(start.placement),
        "reason": _reason_form(start.reason),
        "pauses": [str(job) for job in start.pauses],
        "anew": start.anew,
    }


def _moved_form(move: Moved) -> dict[str, Any]:
    return {
        "job": str(move.job),
        "gpuMilli": move.gpu_milli,
        "from": _places(move.before),
        "to": _places(move.after),
        "for": _name(move.beneficiary),
        "reason": _reason_form(move.reason),
        "lostMs": move.lost_ms,
    }


def _wait_form(wait: Waits, at_ms: Instant) -> dict[str, Any]:
    return {
        "job": str(wait.job),
        "gpuMilli": wait.gpu_milli,
        "reason": _reason_form(wait.reason),
        **_prospect_form(wait.now, at_ms),
        "before": None if wait.before is None else _prospect_form(wait.before, at_ms),
        "placeKept": None if wait.kept is None else _places(wait.kept),
    }


def _prospect_form(prospect: Prospect, at_ms: Instant) -> dict[str, Any]:
    forecast, place = prospect.forecast, prospect.place
    return {
        "startsInMs": None if forecast.start_ms is None else forecast.start_ms - at_ms,
        "after": [str(job) for job in forecast.ends],
        "horizonMs": forecast.horizon_ms,
        "queue": None if place is None else {"position": place.overall, "of": place.of_all},
    }


def _holding_form(each: Holding) -> dict[str, Any]:
    return {
        "project": each.project,
        "domain": each.domain,
        "allocatedGpuMilli": {"before": each.held[0], "after": each.held[1]},
        "fairShareGpuMilli": {"before": each.share[0], "after": each.share[1]},
    }
