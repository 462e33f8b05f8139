"""What a cycle hands to the history, and how the history's events are made of it: by comparing each run with its last
mark.

A cycle hands over references and goes on. A thread does the rest, and all writing. It takes only the newest hand-over,
so a slow disk costs details of the past and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpuctl.app.cycle import CycleReport
from gpuctl.app.predictions import Checked, few, predicted, told
from gpuctl.app.replaying import Inputs, inputs_of
from gpuctl.app.report import Entry, Level
from gpuctl.app.revisions import Desired
from gpuctl.diag.wording import message
from gpuctl.model.decision import FairShare, JobState
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.history import ALL, Amounts, Check, Mark, Moment, Note, RunEvent
from gpuctl.model.ids import NO_REVISION, JobId, ProjectName, RunKey
from gpuctl.model.job import Job
from gpuctl.model.state import FinishedRun, Ledger, Node, Run, RunPhase
from gpuctl.model.turns import in_turns
from gpuctl.model.units import WHOLE_GPU, Instant
from gpuctl.model.utilisation import RunUse
from gpuctl.views.jobs import HOLDING, held_milli, job_state

MOST_WAITS = 500
"""The most events of one moment about runs whose reason for waiting has changed, of each project in turn; the others
are told the next time."""

_WAITING = frozenset({JobState.PENDING, JobState.PREEMPTED})
OVER = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.TIMED_OUT, JobState.DELETED})
"""The final states of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a cycle saw, by reference."""

    at_ms: Instant
    runs: tuple[Run, ...]
    ledgers: Mapping[ProjectName, Ledger]
    shares: tuple[FairShare, ...] = ()
    queue: tuple[JobId, ...] = ()
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    inputs: Inputs | None = None
    uses: Mapping[RunKey, RunUse] = field(default_factory=dict)


class HistoryKeeper(Protocol):
    """Keeps the past. Nothing depends on it."""

    def offer(self, facts: Facts) -> None:
        """Offer a cycle for keeping; a newer one replaces one that still waits. Returns at once, never raises."""
        ...

    def note(self, notes: Sequence[Note]) -> None:
        """Keep notes on commits. Returns at once, never raises."""
        ...

    def fault(self) -> str:
        """Why nothing can be kept now; empty if the history works."""
        ...


class Unkept:
    """Implements the port HistoryKeeper where no history is wanted."""

    def offer(self, facts: Facts) -> None:
        """Drop it."""

    def note(self, notes: Sequence[Note]) -> None:
        """Drop them."""

    def fault(self) -> str:
        """None."""
        return ""


UNKEPT = Unkept()


def facts_of(report: CycleReport, desired: Desired, uses: Mapping[RunKey, RunUse]) -> Facts:
    """The facts of a cycle for the history, with the use of the runs' GPUs. Cost: linear in its queue and runs."""
    return Facts(
        at_ms=report.at_ms,
        runs=report.state.runs,
        ledgers=report.state.ledgers,
        shares=report.schedule.shares,
        queue=report.schedule.queue,
        jobs=report.declared.jobs,
        nodes=report.state.nodes,
        inputs=inputs_of(report, desired),
        uses=uses,
    )


def check_of(checked: Checked) -> Check:
    """The record of a checked prediction."""
    return Check(
        revision=checked.revision,
        at_ms=checked.at_ms,
        took_ms=checked.took_ms,
        result=checked.result.value,
        why=checked.why,
        predicted=tuple(predicted(checked)),
        differences=tuple(few(map(told, checked.differences))),
    )


def unkept(keeper: HistoryKeeper) -> list[Entry]:
    """The standing problem that the history cannot be kept; empty if it can."""
    why = keeper.fault()
    facts = {"code": "GPU8023", "message": message("GPU8023", {"why": why})}
    return [Entry(event="unkept", level=Level.WARNING, fields=facts, rewords=True)] if why else []


def moment(facts: Facts, before: Mapping[RunKey, Mark]) -> Moment:
    """The moment of a cycle: levels, events and the new marks. `before`: the last marks of all runs that had not ended.

    Cost: linear in runs.
    """
    marks: dict[RunKey, Mark] = {}
    events: list[RunEvent] = []
    waits: list[tuple[str, tuple[Run, Mark, Mark]]] = []
    finished = {key: run for ledger in facts.ledgers.values() for key, run in ledger.finished.items()}
    for run in facts.runs:
        key = (run.job, run.digest)
        mark = _mark(run, finished.get(key))
        known = before.get(key)
        if known == mark or (mark.state in OVER and known is None):
            if mark.state not in OVER:
                marks[key] = mark
            continue
        if mark.state not in OVER:
            marks[key] = mark
        if known is not None and {mark.state, known.state} <= _WAITING:
            waits.append((run.job.project, (run, mark, known)))
        else:
            events.append(_event(facts, run, mark, known))
    told = in_turns(waits, 1)
    events.extend(_event(facts, *wait) for wait in told[:MOST_WAITS])
    marks |= {(run.job, run.digest): known for run, _, known in told[MOST_WAITS:]}
    seen = {(run.job, run.digest) for run in facts.runs}
    events.extend(_gone(facts, before.keys() - seen, finished))
    events.sort(key=lambda event: (event.at_ms, event.job, event.digest))
    return Moment(at_ms=facts.at_ms, levels=_levels(facts), events=_in_sweeps(facts.jobs, events), marks=marks)


def _in_sweeps(jobs: Sequence[Job], events: Sequence[RunEvent]) -> tuple[RunEvent, ...]:
    """The events, each with the sweep of its job."""
    named = {event.job for event in events}
    sweeps = {job.id: job.sweep.sweep for job in jobs if job.sweep is not None and job.id in named} if named else {}
    return tuple(replace(event, sweep=sweeps[event.job]) if event.job in sweeps else event for event in events)


def _mark(run: Run, finished: FinishedRun | None) -> Mark:
    state = job_state(run, finished)
    code = run.reason.code if run.reason is not None and run.phase is RunPhase.QUEUED else ""
    return Mark(state=state, gpu_milli=0 if state in OVER else held_milli(run), code=code)


def _event(facts: Facts, run: Run, mark: Mark, before: Mark | None) -> RunEvent:
    ledger = facts.ledgers.get(run.job.project)
    starts = run.phase in HOLDING and (before is None or before.gpu_milli == 0) and mark.gpu_milli > 0
    let_go_ms = run.let_go_at_ms if run.let_go_at_ms is not None else facts.at_ms
    held = run.placement.workers if run.placement is not None and run.phase in HOLDING else ()
    return RunEvent(
        at_ms=facts.at_ms,
        job=run.job,
        digest=run.digest,
        state=mark.state,
        gpu_milli=mark.gpu_milli,
        nodes=tuple(sorted({worker.node for worker in held})),
        reason=run.reason,
        paused_for=run.paused_for if run.phase in {RunPhase.QUEUED, RunPhase.STOPPING} else None,
        waited_ms=max(0, let_go_ms - run.queued_at_ms) if starts else None,
        revision=NO_REVISION if ledger is None else ledger.revision,
    )


def _gone(facts: Facts, keys: set[RunKey], finished: Mapping[RunKey, FinishedRun]) -> Iterator[RunEvent]:
    """The end of runs whose objects are no longer there."""
    for job, digest in keys:
        run, ledger = finished.get((job, digest)), facts.ledgers.get(job.project)
        yield RunEvent(
            at_ms=facts.at_ms,
            job=job,
            digest=digest,
            state=JobState.DELETED if run is None else JobState(run.state),
            revision=NO_REVISION if ledger is None else ledger.revision,
        )


def _levels(facts: Facts) -> Mapping[ProjectName, Amounts]:
    """The levels of each project that holds, wants or may have anything, and of all projects together."""
    held: Counter[ProjectName] = Counter()
    running: Counter[ProjectName] = Counter()
    waiting: Counter[ProjectName] = Counter()
    wanted: Counter[ProjectName] = Counter()
    share: Counter[ProjectName] = Counter()
    quota: Counter[ProjectName] = Counter()
    idle: Counter[ProjectName] = Counter()
    measured: Counter[ProjectName] = Counter()
    busy: Counter[ProjectName] = Counter()
    for (of, _), use in facts.uses.items():
        measured[of.project] += use.held_milli
        busy[of.project] += use.busy_milli
    for run in facts.runs:
        if run.phase in HOLDING:
            held[run.job.project] += held_milli(run)
            running[run.job.project] += 1
            idle[run.job.project] += held_milli(run) if run.idle_since_ms is not None else 0
    queued = set(facts.queue)
    for job in facts.jobs if queued else ():
        if job.id in queued:
            waiting[job.id.project] += 1
            wanted[job.id.project] += job.total_gpu_milli
    whole = {row.project for row in facts.shares if row.domain == WHOLE_CLUSTER}
    for row in facts.shares:
        if row.domain == WHOLE_CLUSTER or row.project not in whole:
            share[row.project] += row.share_milli
            quota[row.project] += row.quota_milli
    gpus_milli = sum(WHOLE_GPU * (node.gpus - len(node.lost_gpus)) for node in facts.nodes)
    names = {ALL, *held, *wanted, *share, *quota, *running, *waiting}
    for counts in (held, wanted, share, quota, running, waiting, idle, measured, busy):
        counts[ALL] = counts.total()
    return {
        name: Amounts(
            held_milli=held[name],
            waiting_milli=wanted[name],
            share_milli=share[name],
            quota_milli=quota[name],
            running=running[name],
            waiting=waiting[name],
            gpus_milli=gpus_milli if name == ALL else 0,
            idle_milli=idle[name],
            measured_milli=measured[name],
            busy_milli=busy[name],
        )
        for name in names
    }
