"""Turns checkpoints and transitions into what a story shows: devices, projects, and the jobs that started or paused."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.model.decision import JobState
from gpuctl.model.ids import JobId
from gpuctl.simulate.report import QUEUED_STATES, Checkpoint, JobRow, Transition
from gpuctl.views.story import Moment, News, ProjectCell

ENDINGS = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.TIMED_OUT: "reached its time limit",
    JobState.SUSPENDED: "is suspended",
    JobState.SCALED_TO_ZERO: "is scaled to zero",
    JobState.DELETED: "was deleted by hand",
}


def moment(checkpoint: Checkpoint) -> Moment:
    """A checkpoint, as one line shows it."""
    return Moment(
        projects=tuple(
            ProjectCell(
                name=row.name,
                allocated_milli=row.allocated_milli,
                quota_milli=row.quota_milli,
                queued=len(row.pending),
            )
            for row in checkpoint.projects
        ),
        nodes={node.name: node.gpus if node.usable else 0 for node in checkpoint.nodes},
        placements=tuple((row.job.project, row.placement) for row in checkpoint.jobs if row.placement is not None),
    )


def news(transitions: Sequence[Transition], checkpoint: Checkpoint) -> tuple[News, ...]:
    """What happened to each job in the transitions up to a checkpoint, in the order of its first transition."""
    rows = {row.job: row for row in checkpoint.jobs}
    changed = {transition.job: None for transition in transitions}
    return tuple(_of_job(job, [t for t in transitions if t.job == job], rows.get(job)) for job in changed)


def _of_job(job: JobId, changes: Sequence[Transition], row: JobRow | None) -> News:
    pause = next((change for change in changes if change.evicted), None)
    started = [change for change in changes if change.after is JobState.RUNNING and change.before is not None]
    last = changes[-1].after
    return News(
        job=job,
        started_on=started[-1].nodes if started and last is JobState.RUNNING else (),
        again=row is not None and row.starts > 1,
        paused=pause is not None,
        paused_for=pause.paused_for if pause else None,
        queued=pause is None and last in QUEUED_STATES,
        ended=ENDINGS.get(last, "") if last else "",
        gone=last is None,
    )
