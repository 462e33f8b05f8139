"""Instants from which on the engine may decide differently though nothing happens: limits and patience run out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.model.declared import Declared
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import Instant
from gpuctl.schedule.interactive import latest_end_ms

_HOLDING = frozenset({RunPhase.STARTING, RunPhase.RUNNING})


def wakeups(declared: Declared, state: ClusterState, now_ms: Instant) -> Iterator[Instant]:
    """Those still to come. Cost: linear in jobs and runs."""
    jobs = {job.id: job for job in declared.jobs}
    for run in state.runs:
        job = jobs.get(run.job)
        if job is not None and job.digest == run.digest and not run.phase.final:
            yield from (at_ms for at_ms in _of_run(declared, job, run, now_ms) if at_ms > now_ms)


def _of_run(declared: Declared, job: Job, run: Run, now_ms: Instant) -> Iterator[Instant]:
    policy = declared.cluster.scheduling
    if run.phase is RunPhase.QUEUED:
        yield run.queued_at_ms + policy.starvation_guard_ms
    if run.phase not in _HOLDING or run.started_at_ms is None:
        return
    if policy.min_runtime_ms:
        yield run.started_at_ms + policy.min_runtime_ms
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        yield run.idle_since_ms + job.idle_timeout_ms
    end_ms = latest_end_ms(job, run, now_ms)
    if end_ms is not None and job.type is JobType.INFERENCE:
        yield end_ms
