"""Limits that end a run for good: how long it may take, and how long its GPUs may be idle."""

from __future__ import annotations

from gpuctl.model.decision import Reason
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import DurationMs, Instant
from gpuctl.schedule import reasons


def running_ms(run: Run, now_ms: Instant) -> DurationMs:
    """How long it has run since it last started; 0 when it has not, or when the clock stepped back."""
    return 0 if run.started_at_ms is None else max(0, now_ms - run.started_at_ms)


def limit_reached(job: Job, run: Run, now_ms: Instant) -> Reason | None:
    """The limit that ends a running run now. A Job's own deadline normally comes first; a service has none."""
    if run.phase is not RunPhase.RUNNING:
        return None
    if job.max_duration_ms is not None and run.ran_ms + running_ms(run, now_ms) >= job.max_duration_ms:
        return reasons.too_long()
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        idle_ms = now_ms - run.idle_since_ms
        return reasons.idle_too_long() if idle_ms >= job.idle_timeout_ms else None
    return None
