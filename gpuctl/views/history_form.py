"""A part of the past as JSON: what `gpuctl history -o json` prints, and what the controller answers with.

Fields are only ever added, so a reader ignores those that it does not know.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from gpuctl.diag.wording import reason_text
from gpuctl.k8s.timestamps import format_timestamp, parse_timestamp
from gpuctl.model.decision import JobState, Reason
from gpuctl.model.history import Change, Check, Grain, History, Period, RunEvent, Subject
from gpuctl.model.ids import JobId, NodeName, ProjectName, Revision, RunDigest
from gpuctl.views.status_form import StatusForm

_GRAINS: dict[Literal["raw", "minute", "hour"], Grain] = {
    "raw": Grain.RAW,
    "minute": Grain.MINUTE,
    "hour": Grain.HOUR,
}


class ReasonForm(StatusForm):
    """A code with its parameters."""

    code: str
    params: dict[str, str | int]
    text: str


class EventForm(StatusForm):
    """A run is in another state from then on, holds another number of GPUs, or waits for another reason."""

    at: str
    job: str
    run: str
    state: JobState
    gpu_milli: int
    nodes: list[str]
    reason: ReasonForm | None
    paused_for: str | None
    waited_ms: int | None
    commit: str
    measured_milli_s: int = 0
    busy_milli_s: int = 0
    sweep: str = ""


class PeriodForm(StatusForm):
    """Sums over the part of a period that was observed; an empty project is all of them together."""

    at: str
    project: str
    observed_ms: int
    held_milli_s: int
    waiting_milli_s: int
    share_milli_s: int
    quota_milli_s: int
    running_ms: int
    waiting_ms: int
    gpus_milli_s: int = 0
    idle_milli_s: int = 0
    measured_milli_s: int = 0
    busy_milli_s: int = 0


class CheckForm(StatusForm):
    """How the prediction of a commit ended."""

    at: str
    took_ms: int
    result: str
    why: str
    predicted: list[str]
    differences: list[str]


class ChangeForm(StatusForm):
    """A commit: what the log says of it, when it was taken up, and how its prediction ended."""

    commit: str
    author: str
    subject: str
    written: str | None
    taken_up: str | None
    check: CheckForm | None


class HistoryV1(StatusForm):
    """A part of the past."""

    api_version: Literal["gpuctl.dev/v1"]
    kind: Literal["History"]
    job: str | None
    project: str | None
    since: str
    until: str
    grain: Literal["raw", "minute", "hour"]
    events: list[EventForm]
    periods: list[PeriodForm]
    left_out: int
    changes: list[ChangeForm] = Field(default_factory=list)


def document(history: History) -> bytes:
    """The form in JSON."""
    return form_of(history).model_dump_json(by_alias=True).encode()


def form_of(history: History) -> HistoryV1:
    """The form of a history."""
    return HistoryV1(
        api_version="gpuctl.dev/v1",
        kind="History",
        job=None if history.subject.job is None else str(history.subject.job),
        project=history.subject.project,
        since=format_timestamp(history.since_ms),
        until=format_timestamp(history.until_ms),
        grain=next(name for name, grain in _GRAINS.items() if grain is history.grain),
        events=[_event(event) for event in history.events],
        periods=list(map(_period, history.periods)),
        left_out=history.left_out,
        changes=list(map(_change, history.changes)),
    )


def parsed(text: bytes) -> History:
    """Read a history. Raises ValueError, with the first mistake, for anything else."""
    try:
        form = HistoryV1.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return History(
        subject=Subject(
            project=None if form.project is None else ProjectName(form.project),
            job=None if form.job is None else JobId.parse(form.job),
        ),
        since_ms=parse_timestamp(form.since),
        until_ms=parse_timestamp(form.until),
        grain=_GRAINS[form.grain],
        events=tuple(map(_event_of, form.events)),
        periods=tuple(Period(at_ms=parse_timestamp(row.at), **row.model_dump(exclude={"at"})) for row in form.periods),
        left_out=form.left_out,
        changes=tuple(map(_change_of, form.changes)),
    )


def _change(change: Change) -> ChangeForm:
    check = change.check
    return ChangeForm(
        commit=change.revision,
        author=change.author,
        subject=change.subject,
        written=None if change.written_ms is None else format_timestamp(change.written_ms),
        taken_up=None if change.taken_ms is None else format_timestamp(change.taken_ms),
        check=None
        if check is None
        else CheckForm(
            at=format_timestamp(check.at_ms),
            took_ms=check.took_ms,
            result=check.result,
            why=check.why,
            predicted=list(check.predicted),
            differences=list(check.differences),
        ),
    )


def _change_of(form: ChangeForm) -> Change:
    check, revision = form.check, Revision(form.commit)
    return Change(
        revision=revision,
        author=form.author,
        subject=form.subject,
        written_ms=None if form.written is None else parse_timestamp(form.written),
        taken_ms=None if form.taken_up is None else parse_timestamp(form.taken_up),
        check=None
        if check is None
        else Check(
            revision=revision,
            at_ms=parse_timestamp(check.at),
            took_ms=check.took_ms,
            result=check.result,
            why=check.why,
            predicted=tuple(check.predicted),
            differences=tuple(check.differences),
        ),
    )


def _period(row: Period) -> PeriodForm:
    return PeriodForm(
        at=format_timestamp(row.at_ms),
        project=row.project,
        observed_ms=row.observed_ms,
        held_milli_s=row.held_milli_s,
        waiting_milli_s=row.waiting_milli_s,
        share_milli_s=row.share_milli_s,
        quota_milli_s=row.quota_milli_s,
        running_ms=row.running_ms,
        waiting_ms=row.waiting_ms,
        gpus_milli_s=row.gpus_milli_s,
        idle_milli_s=row.idle_milli_s,
        measured_milli_s=row.measured_milli_s,
        busy_milli_s=row.busy_milli_s,
    )


def _event(event: RunEvent) -> EventForm:
    reason = event.reason
    return EventForm(
        at=format_timestamp(event.at_ms),
        job=str(event.job),
        run=event.digest,
        state=event.state,
        gpu_milli=event.gpu_milli,
        nodes=list(event.nodes),
        reason=None if reason is None else _reason(reason),
        paused_for=None if event.paused_for is None else str(event.paused_for),
        waited_ms=event.waited_ms,
        commit=event.revision,
        measured_milli_s=event.measured_milli_s,
        busy_milli_s=event.busy_milli_s,
        sweep=event.sweep,
    )


def _reason(reason: Reason) -> ReasonForm:
    return ReasonForm(code=reason.code, params=dict(reason.params), text=reason_text(reason))


def _event_of(form: EventForm) -> RunEvent:
    reason = form.reason
    return RunEvent(
        at_ms=parse_timestamp(form.at),
        job=JobId.parse(form.job),
        digest=RunDigest(form.run),
        state=form.state,
        gpu_milli=form.gpu_milli,
        nodes=tuple(map(NodeName, form.nodes)),
        reason=None if reason is None else Reason(code=reason.code, params=tuple(sorted(reason.params.items()))),
        paused_for=None if form.paused_for is None else JobId.parse(form.paused_for),
        waited_ms=form.waited_ms,
        revision=Revision(form.commit),
        measured_milli_s=form.measured_milli_s,
        busy_milli_s=form.busy_milli_s,
        sweep=form.sweep,
    )
