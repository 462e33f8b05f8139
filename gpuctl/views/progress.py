"""The progress of a job in words, with the time that is left at the pace so far."""

from __future__ import annotations

from gpuctl.k8s.progress import left_ms
from gpuctl.model.state import RunPhase
from gpuctl.model.units import DurationMs, Instant
from gpuctl.views.jobs import JobView
from gpuctl.views.tables import age


def percent_text(job: JobView) -> str:
    """`42%`, rounded down; `-` for a job that reports no progress, or does not run."""
    return "-" if job.progress_ppm is None or not _runs(job) else f"{job.progress_ppm // 10_000}%"


def rest_ms(job: JobView, now_ms: Instant) -> DurationMs | None:
    """How long a running job still takes, as far as its progress shows."""
    started_ms = job.run.started_at_ms
    if job.progress_ppm is None or started_ms is None or not _runs(job):
        return None
    return left_ms(job.progress_ppm, job.run.ran_ms + now_ms - started_ms)


def progress_text(job: JobView, now_ms: Instant) -> str:
    """`42%, about 3h left at the pace so far`."""
    rest = rest_ms(job, now_ms)
    return percent_text(job) + ("" if rest is None else f", about {age(rest)} left at the pace so far")


def _runs(job: JobView) -> bool:
    return job.run.phase is RunPhase.RUNNING
