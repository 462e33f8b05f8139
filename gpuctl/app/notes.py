"""The notes of a cycle: what it did, as events of the objects concerned. `kubectl describe` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from gpuctl.app.cycle import CycleReport
from gpuctl.app.lost_claims import claims_made_anew
from gpuctl.app.ports import Note
from gpuctl.app.rejections import that_are_sure
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import all_of, reason_text
from gpuctl.k8s import names
from gpuctl.k8s.annotations import decode_reason
from gpuctl.k8s.objects import annotations_of, uid
from gpuctl.k8s.workloads import is_workload, job_of
from gpuctl.model.change import Action, Change, OutcomeStatus
from gpuctl.model.decision import Admit, Decision, Displace, Move, Pending, Preempt, Reclaim, Resize, Suspended, TimeOut
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import ClusterState
from gpuctl.model.turns import in_turns
from gpuctl.model.units import Instant
from gpuctl.plan import Stage
from gpuctl.views.pod_problems import problem_text, remedy_of

_PAUSES: Mapping[type[Decision], str] = {
    Reclaim: "Reclaimed",
    Preempt: "Preempted",
    Displace: "Displaced",
    Move: "Moved",
    Suspended: "Suspended",
    TimeOut: "TimedOut",
}

MOST_WAITING = 20
"""The most notes of a cycle about waiting jobs: thousands may get another reason at once."""


class Unrecorded:
    """Implements the port Recorder where no events are wanted."""

    def record(self, notes: Sequence[Note]) -> None:
        """Drop the notes."""


def notes_of(report: CycleReport, previous: CycleReport | None = None) -> tuple[Note, ...]:
    """The notes of one cycle, about five things: each start and pause that was written, with its reason; each write
    that the server refused; each claim that was gone and was made anew; each run whose pods do not run, when that
    begins or its reason changes since the `previous` report; each waiting job, when the code of its reason is written
    anew.

    There are at most MOST_WAITING notes of the last kind, taken from each namespace in turn. They come first, so that a
    recorder that drops the oldest notes keeps the others; the annotation of the object tells all of them.

    Cost: linear in what was written, not in what waits.
    """
    waits = islice(_waits(report, previous), MOST_WAITING)
    return (*waits, *_notes(report), *_emptied(report), *_problems(report, previous))


def _waits(report: CycleReport, previous: CycleReport | None) -> Iterator[Note]:
    """Why jobs wait: a note when another reason is written, and one when the object of a new run is first seen.

    The comparison is with the reason in the object itself, so a restarted process repeats nothing.
    """
    made = {ref for ref in _written(previous, Action.CREATE) if ref in report.state.live} if previous else set()
    told = {*_written(report, Action.UPDATE), *made}
    if not told:
        return
    decisions = {each.job: each for each in report.schedule.decisions if isinstance(each, Pending)}
    for ref in in_turns(((ref.namespace, ref) for ref in sorted(told)), 1):
        live = report.state.live.get(ref)
        decision = decisions.get(job) if live is not None and (job := job_of(live)) is not None else None
        if live is None or decision is None:
            continue
        before = decode_reason(annotations_of(live).get(names.REASON_ANNOTATION))
        if ref in made or before is None or before.code != decision.reason.code:
            yield note_of(ref, report.state, "Waiting", reason_text(decision.reason), report.at_ms, is_warning=False)


def _written(report: CycleReport, action: Action) -> Iterator[ObjectRef]:
    """The workloads that were written with this action."""
    for outcome in report.result.outcomes:
        change = outcome.change
        if outcome.status is OutcomeStatus.APPLIED and change.action is action and is_workload(change.ref):
            yield change.ref


def _problems(report: CycleReport, previous: CycleReport | None) -> Iterator[Note]:
    failing = [run for run in report.state.runs if run.problem is not None]
    if not failing:
        return
    before = {(run.job, run.digest): run.problem for run in (previous.state.runs if previous else ()) if run.problem}
    objects = {own.run: ref for ref, own in report.state.own.items()}
    for run in failing:
        problem, known, ref = run.problem, before.get((run.job, run.digest)), objects.get((run.job, run.digest))
        if problem is None or ref is None or (known is not None and not _is_news(problem, known)):
            continue
        text = f"{problem_text(problem)}. {remedy_of(problem)}"
        yield note_of(ref, report.state, problem.reason, text, report.at_ms, is_warning=True)


def _is_news(problem: PodProblem, known: PodProblem) -> bool:
    """Whether a problem is news: another reason, or the first message for the same reason. The server's message about
    refused pods is found out later."""
    return problem.reason != known.reason or (bool(problem.message) and not known.message)


def _notes(report: CycleReport) -> Iterator[Note]:
    made: list[tuple[Change, JobId]] = []
    sure = that_are_sure(report.rejected)
    for outcome in report.result.outcomes:
        change = outcome.change
        if outcome.refused and change.ref in sure:
            yield note_of(change.ref, report.state, "Refused", outcome.error, report.at_ms, is_warning=True)
        job = job_of(change.body) if change.body is not None and is_workload(change.ref) else None
        if job is not None and outcome.status is OutcomeStatus.APPLIED:
            made.append((change, job))
    jobs = {job for _, job in made}
    decisions = {decision.job: decision for decision in report.schedule.decisions if decision.job in jobs}
    for change, job in made:
        told = _told(change, decisions[job])
        if told is not None:
            yield note_of(change.ref, report.state, *told, report.at_ms, is_warning=False)


def _emptied(report: CycleReport) -> Iterator[Note]:
    """A note on the run's object, as the claim itself is new."""
    for job, claim, text in claims_made_anew(report):
        ref = next((ref for ref, own in report.state.own.items() if own.run[0] == job), claim)
        yield note_of(ref, report.state, "Emptied", text, report.at_ms, is_warning=True)


def _told(change: Change, decision: Decision) -> tuple[str, str] | None:
    """The reason and the message of the note for a workload's write; None if the write carried out no decision."""
    why = reason_text(decision.reason)
    if change.stage == Stage.ADMIT and isinstance(decision, Admit):
        nodes = sorted(decision.placement.nodes)
        return "Admitted", f"on {all_of(nodes)}: {why}"
    if change.stage in (Stage.PAUSE, Stage.ADMIT) and isinstance(decision, Resize):
        return "Resized", f"to {len(decision.placement.workers)} workers: {why}"
    if change.stage == Stage.PAUSE and type(decision) in _PAUSES:
        return _PAUSES[type(decision)], why
    return None


def note_of(  # noqa: PLR0913 - what an event has
    ref: ObjectRef, state: ClusterState, reason: str, text: str, at_ms: Instant, *, is_warning: bool
) -> Note:
    """A note about an object, with the invisible characters in its text escaped."""
    return Note(
        regarding=ref,
        uid=uid(state.live.get(ref, {})),
        type="Warning" if is_warning else "Normal",
        reason=reason,
        message=printable(text),
        at_ms=at_ms,
    )
