"""The one state of a job, of what is observed and what was decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.engine import reasons
from gpuctl.model.decision import (
    Decision,
    Finished,
    JobState,
    Keep,
    Pending,
    Placement,
    RunRecord,
    Suspended,
    WorkerPlacement,
)
from gpuctl.model.ids import JobId, NodeName, RunDigest
from gpuctl.model.state import FinishedRun, Run, RunPhase
from gpuctl.views.jobs import held_milli, job_state

JOB = JobId.parse("a/a-1")
DIGEST = RunDigest("0123abcd")
RECORD = RunRecord(queued_at_ms=0)
PLACE = Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=(0,)),) * 2)


def run(phase: RunPhase, starts: int = 0, placement: Placement | None = None) -> Run:
    return Run(job=JOB, digest=DIGEST, phase=phase, starts=starts, placement=placement, gpu_milli=500)


def waits() -> Decision:
    return Pending(job=JOB, reason=reasons.WAITS_FOR_STOPPING, record=RECORD)


def keeps() -> Decision:
    return Keep(job=JOB, reason=reasons.RUNS_WITHOUT_GPU, record=RECORD, placement=PLACE)


def has_no_load() -> Decision:
    return Suspended(job=JOB, reason=reasons.SCALED_TO_ZERO, record=RECORD)


def stops() -> Decision:
    return Suspended(job=JOB, reason=reasons.SUSPENDED, record=RECORD)


@pytest.mark.parametrize(
    ("observed", "decision", "state"),
    [
        (None, None, JobState.PENDING),
        (None, waits(), JobState.PENDING),
        (None, stops(), JobState.SUSPENDED),
        (run(RunPhase.QUEUED), waits(), JobState.PENDING),
        (run(RunPhase.QUEUED, starts=1), waits(), JobState.PREEMPTED),
        (run(RunPhase.QUEUED, starts=1), stops(), JobState.SUSPENDED),
        (replace(run(RunPhase.QUEUED, starts=1), asked_workers=0), None, JobState.SCALED_TO_ZERO),
        (run(RunPhase.QUEUED, starts=1), has_no_load(), JobState.SCALED_TO_ZERO),
        (replace(run(RunPhase.QUEUED, starts=1), asked_workers=0), stops(), JobState.SUSPENDED),
        (replace(run(RunPhase.STOPPING, starts=1), asked_workers=0), None, JobState.STOPPING),
        (replace(run(RunPhase.QUEUED, starts=1), asked_workers=1), waits(), JobState.PENDING),
        (run(RunPhase.STARTING), keeps(), JobState.STARTING),
        (run(RunPhase.RUNNING), keeps(), JobState.RUNNING),
        (run(RunPhase.RUNNING), stops(), JobState.RUNNING),
        (run(RunPhase.STOPPING, starts=1), stops(), JobState.STOPPING),
        (run(RunPhase.FAILED), None, JobState.FAILED),
        (run(RunPhase.TIMED_OUT), None, JobState.TIMED_OUT),
    ],
)
def test_state(observed: Run | None, decision: Decision | None, state: JobState) -> None:
    assert job_state(observed, None, decision) is state


def test_the_ledger_and_the_engine_know_runs_that_are_gone() -> None:
    remembered = FinishedRun(job=JOB, digest=DIGEST, state="Deleted", at_ms=0)
    assert job_state(None, remembered) is JobState.DELETED
    reason = reasons.ended(JobState.SUCCEEDED)
    decision = Finished(job=JOB, reason=reason, record=RECORD, state=JobState.SUCCEEDED)
    assert job_state(None, None, decision) is JobState.SUCCEEDED


def test_a_reserved_place_is_not_held() -> None:
    assert held_milli(run(RunPhase.QUEUED, placement=PLACE)) == 0
    assert held_milli(run(RunPhase.RUNNING, placement=PLACE)) == 1000
    assert held_milli(run(RunPhase.STOPPING, placement=PLACE)) == 1000
    assert held_milli(run(RunPhase.SUCCEEDED, placement=PLACE)) == 0
