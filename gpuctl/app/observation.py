"""Makes the checkpoints and transitions of a simulation from the reports of successive cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.app.cycle import CycleReport
from gpuctl.diag.wording import reason_text
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
class Sight:
    """One cycle's report by job: the declared jobs, and the removed jobs that still have a run."""

    report: CycleReport
    jobs: Mapping[JobId, Job]
    runs: Mapping[JobId, Run]
    decisions: Mapping[JobId, Decision]
    finished: Mapping[JobId, FinishedRun]
    states: Mapping[JobId, JobState]


def sight(report: CycleReport) -> Sight:
    """Index a report by job: with the run of the declared digest, or, of a removed job, the run that is left."""
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
    return Sight(report=report, jobs=jobs, runs=runs, decisions=decisions, finished=finished, states=states)


@dataclass(slots=True)
class Observer:
    """Collects the transitions of jobs from report to report. Instants are relative to `zero_ms`."""

    zero_ms: Instant
    transitions: list[Transition] = field(default_factory=list)
    _states: Mapping[JobId, JobState] = field(default_factory=dict)
    _acts: dict[JobId, Decision] = field(default_factory=dict)

    def take(self, seen: Sight) -> None:
        """Note how the jobs have changed since the last report, and what was decided on them now."""
        for job in sorted(seen.states.keys() | self._states.keys()):
            if self._states.get(job) is not seen.states.get(job):
                self.transitions.append(self._transition(seen, job))
        self._states = seen.states
        self._acts.update({job: decision for job, decision in seen.decisions.items() if isinstance(decision, ACTING)})

    def _transition(self, seen: Sight, job: JobId) -> Transition:
        """The transition of one job. A start or a pause has the reason of the decision that caused it, any other the
        reason of the latest decision."""
        before, after = self._states.get(job), seen.states.get(job)
        decision, act = seen.decisions.get(job), self._acts.get(job)
        made = after in ACTIVE | PAUSED and act is not None and decision is not None
        reason = act.reason if made and act else decision.reason if decision else None
        paused = made and after in PAUSED and isinstance(act, PAUSING)
        return Transition(
            at_ms=seen.report.at_ms - self.zero_ms,
            job=job,
            before=before,
            after=after,
            reason=reason.code if reason else "",
            message=reason_text(reason) if reason else "",
            nodes=tuple(worker.node for worker in _held(seen, job).workers),
            paused_for=act.beneficiary if paused and isinstance(act, Reclaim | Preempt | Move) else None,
            evicted=paused and before in ACTIVE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The heading of a checkpoint: the event or time, when it began, and the commit that is in force."""

    label: str
    begun_ms: Instant
    revision: str


def checkpoint(seen: Sight, caption: Caption, zero_ms: Instant) -> Checkpoint:
    """The checkpoint of the cluster as the report's cycle found it."""
    state = seen.report.state
    rows = tuple(_job_row(seen, job) for job in seen.states)
    capacity = sum(WHOLE_GPU * (node.gpus - len(node.lost_gpus)) for node in state.nodes if node.usable)
    return Checkpoint(
        at_ms=seen.report.at_ms - zero_ms,
        begun_ms=caption.begun_ms - zero_ms,
        label=caption.label,
        revision=caption.revision,
        nodes=tuple(
            NodeRow(name=node.name, gpus=node.gpus - len(node.lost_gpus), usable=node.usable) for node in state.nodes
        ),
        projects=tuple(_project_row(seen, project, rows) for project in seen.report.declared.projects),
        jobs=rows,
        free_milli=max(0, capacity - sum(held_milli(run) for run in state.runs)),
    )


def _project_row(seen: Sight, project: Project, rows: tuple[JobRow, ...]) -> ProjectRow:
    waiting = [row for row in rows if row.job.project == project.name and row.state in QUEUED_STATES]
    shares = [share for share in seen.report.schedule.shares if share.project == project.name]
    return ProjectRow(
        name=project.name,
        quota_milli=sum(allowance.quota_milli for allowance in project.allowances.values()),
        fair_share_milli=sum(share.share_milli for share in shares),
        allocated_milli=sum(held_milli(run) for run in seen.report.state.runs if run.job.project == project.name),
        pending=tuple(row.job.name for row in sorted(waiting, key=lambda row: (-row.queued_ms, row.job.name))),
    )


def _job_row(seen: Sight, job: JobId) -> JobRow:
    state, decision = seen.states[job], seen.decisions.get(job)
    run, finished = seen.runs.get(job), seen.finished.get(job)
    waits = decision if state in QUEUED_STATES else None
    return JobRow(
        job=job,
        state=state,
        reason=decision.reason.code if decision else "",
        message=reason_text(decision.reason) if decision else "",
        gpu_milli=_asked_milli(seen, job),
        placement=held_placement(run),
        starts=run.starts if run else finished.starts if finished else 0,
        queued_ms=seen.report.at_ms - waits.record.queued_at_ms if waits else 0,
        paused_for=waits.record.paused_for if waits else None,
    )


def _asked_milli(seen: Sight, job: JobId) -> GpuMilli:
    """The GPUs that the job requests; of a removed job, the GPUs that its last run still holds."""
    if job in seen.jobs:
        return seen.jobs[job].total_gpu_milli
    return held_milli(seen.runs[job])


def _held(seen: Sight, job: JobId) -> Placement:
    return held_placement(seen.runs.get(job)) or Placement(workers=())
