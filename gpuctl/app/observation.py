"""Makes the checkpoints and transitions of a simulation from the reports of successive cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.app.cycle import CycleReport
from gpuctl.diag.wording import reason_text
from gpuctl.model.checkpoint import work_since_checkpoint
from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    JobState,
    Move,
    Placement,
    Preempt,
    Reclaim,
    Suspended,
    TimeOut,
)
from gpuctl.model.declared import Project
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import FinishedRun, Run
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant
from gpuctl.simulate.report import QUEUED_STATES, Checkpoint, JobRow, NodeRow, ProjectRow, Transition
from gpuctl.views.jobs import held_milli, held_placement, job_state

ACTING = (Admit, Reclaim, Preempt, Displace, Move, Suspended, TimeOut)
"""Decisions that change a run; the others say why it stays as it is."""

PAUSING = (Reclaim, Preempt, Displace, Move)
ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING})
PAUSED = frozenset({JobState.STOPPING, JobState.PREEMPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportIndex:
    """One cycle's report by job: the declared jobs, and the removed jobs that still have a run."""

    report: CycleReport
    jobs: Mapping[JobId, Job]
    runs: Mapping[JobId, Run]
    decisions: Mapping[JobId, Decision]
    finished: Mapping[JobId, FinishedRun]
    states: Mapping[JobId, JobState]


def index_of(report: CycleReport) -> ReportIndex:
    """Index a report by job. A declared job has its run of the declared digest; a removed job has the run that is
    left."""
    jobs = {job.id: job for job in report.declared.jobs}
    digests = {job.id: job.digest for job in report.declared.jobs}
    runs = {run.job: run for run in report.state.runs if digests.get(run.job, run.digest) == run.digest}
    decisions = {decision.job: decision for decision in report.schedule.decisions}
    finished = {
        job: ledger.finished[job, digest]
        for job, digest in digests.items()
        if (ledger := report.state.ledgers.get(job.project)) and (job, digest) in ledger.finished
    }
    states = {
        job: job_state(runs.get(job), finished.get(job), decisions.get(job))
        for job in sorted(jobs.keys() | runs.keys())
    }
    return ReportIndex(report=report, jobs=jobs, runs=runs, decisions=decisions, finished=finished, states=states)


@dataclass(slots=True)
class Observer:
    """Collects the transitions of jobs from report to report. Instants are relative to `zero_ms`."""

    zero_ms: Instant
    transitions: list[Transition] = field(default_factory=list)
    _states: Mapping[JobId, JobState] = field(default_factory=dict)
    _acts: dict[JobId, Decision] = field(default_factory=dict)
    _ran: dict[JobId, Run] = field(default_factory=dict)

    def take(self, index: ReportIndex) -> None:
        """Note how the jobs have changed since the last report, and what was decided on them now."""
        for job in sorted(index.states.keys() | self._states.keys()):
            if self._states.get(job) is not index.states.get(job):
                self.transitions.append(self._transition(index, job))
        self._states = index.states
        self._ran.update({job: run for job, run in index.runs.items() if run.started_at_ms is not None})
        self._acts.update({job: decision for job, decision in index.decisions.items() if isinstance(decision, ACTING)})

    def _transition(self, index: ReportIndex, job: JobId) -> Transition:
        """The transition of one job. A start or a pause has the reason of the decision that caused it; any other
        transition has the reason of the latest decision."""
        before, after = self._states.get(job), index.states.get(job)
        decision, act = index.decisions.get(job), self._acts.get(job)
        made = after in ACTIVE | PAUSED and act is not None and decision is not None
        reason = act.reason if made and act else decision.reason if decision else None
        paused = made and after in PAUSED and isinstance(act, PAUSING)
        return Transition(
            at_ms=index.report.at_ms - self.zero_ms,
            job=job,
            before=before,
            after=after,
            reason=reason.code if reason else "",
            message=reason_text(reason) if reason else "",
            nodes=tuple(worker.node for worker in _held(index, job).workers),
            paused_for=act.beneficiary if paused and isinstance(act, Reclaim | Preempt | Move) else None,
            evicted=paused and before in ACTIVE,
            **(_loss(index, job, self._ran.get(job)) if paused and before in ACTIVE else {}),
        )


def _loss(index: ReportIndex, job: JobId, run: Run | None) -> Mapping[str, Any]:
    """The work that a pause costs the job now. `run`: the run as it was last seen while it ran."""
    declared = index.jobs.get(job)
    if run is None or declared is None or run.started_at_ms is None:
        return {}
    now_ms = index.report.at_ms
    lost_ms = work_since_checkpoint(declared.checkpoint_ms, run.started_at_ms, now_ms, run.checkpointed_at_ms)
    return {"lost_ms": lost_ms, "lost_milli": held_milli(run)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The heading of a checkpoint: the event or time, when it began, and the commit that is in force."""

    label: str
    begun_ms: Instant
    revision: str


def checkpoint(index: ReportIndex, caption: Caption, zero_ms: Instant) -> Checkpoint:
    """The checkpoint of the cluster as the report's cycle found it."""
    state = index.report.state
    rows = tuple(_job_row(index, job) for job in index.states)
    capacity = sum(WHOLE_GPU * (node.gpus - len(node.lost_gpus)) for node in state.nodes if node.usable)
    return Checkpoint(
        at_ms=index.report.at_ms - zero_ms,
        begun_ms=caption.begun_ms - zero_ms,
        label=caption.label,
        revision=caption.revision,
        nodes=tuple(
            NodeRow(name=node.name, gpus=node.gpus - len(node.lost_gpus), usable=node.usable) for node in state.nodes
        ),
        projects=tuple(_project_row(index, project, rows) for project in index.report.declared.projects),
        jobs=rows,
        free_milli=max(0, capacity - sum(held_milli(run) for run in state.runs)),
    )


def _project_row(index: ReportIndex, project: Project, rows: tuple[JobRow, ...]) -> ProjectRow:
    waiting = [row for row in rows if row.job.project == project.name and row.state in QUEUED_STATES]
    shares = [share for share in index.report.schedule.shares if share.project == project.name]
    return ProjectRow(
        name=project.name,
        quota_milli=sum(allowance.quota_milli for allowance in project.allowances.values()),
        fair_share_milli=sum(share.share_milli for share in shares),
        allocated_milli=sum(held_milli(run) for run in index.report.state.runs if run.job.project == project.name),
        pending=tuple(row.job.name for row in sorted(waiting, key=lambda row: (-row.queued_ms, row.job.name))),
    )


def _job_row(index: ReportIndex, job: JobId) -> JobRow:
    state, decision = index.states[job], index.decisions.get(job)
    run, finished = index.runs.get(job), index.finished.get(job)
    waits = decision if state in QUEUED_STATES else None
    return JobRow(
        job=job,
        state=state,
        reason=decision.reason.code if decision else "",
        message=reason_text(decision.reason) if decision else "",
        gpu_milli=_asked_milli(index, job),
        placement=held_placement(run),
        starts=run.starts if run else finished.starts if finished else 0,
        queued_ms=index.report.at_ms - waits.record.queued_at_ms if waits else 0,
        paused_for=waits.record.paused_for if waits else None,
    )


def _asked_milli(index: ReportIndex, job: JobId) -> GpuMilli:
    """The GPUs that the job requests; for a removed job, the GPUs that its last run still holds."""
    if job in index.jobs:
        return index.jobs[job].total_gpu_milli
    return held_milli(index.runs[job])


def _held(index: ReportIndex, job: JobId) -> Placement:
    return held_placement(index.runs.get(job)) or Placement(workers=())
