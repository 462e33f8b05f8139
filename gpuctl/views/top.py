"""The use of GPUs, by job and by project: `gpuctl top job`, `gpuctl top project`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.units import Instant, format_gpus
from gpuctl.model.utilisation import ProjectUse, RunUse
from gpuctl.views.jobs import JobView
from gpuctl.views.projects import ProjectView
from gpuctl.views.sweeps import Row, idle_text, progress_of
from gpuctl.views.tables import NARROW, table

JOB_COLUMNS = ("NAME", "PROJECT", "TYPE", "NODE", "GPUs", "UTILISATION", "MEMORY", "IDLE", "PROGRESS")
PROJECT_COLUMNS = ("PROJECT", "GPU(Allocated)", "GPU(Measured)", "UTILISATION", "MEMORY", "GPU(Idle)")
_BAR = 10
_GIB = 1 << 30
_SEVERAL = "<multiple>"


def bar(percent: int) -> str:
    """A percentage as a bar of ten characters and a number: `#######...  70%`."""
    full = min(_BAR, (percent * _BAR + 50) // 100)
    return f"{'#' * full}{'.' * (_BAR - full)} {percent:>3}%"


def memory_text(use: RunUse | ProjectUse) -> str:
    """Used and total memory of the devices, in GiB: `29/80Gi`; `-` if it is not measured."""
    return (
        f"{(use.used_bytes + _GIB // 2) // _GIB}/{(use.total_bytes + _GIB // 2) // _GIB}Gi" if use.total_bytes else "-"
    )


def most_idle_first(jobs: Iterable[JobView]) -> tuple[JobView, ...]:
    """The jobs that hold GPUs: first those that are idle longest, then those that work least; unmeasured ones last."""
    held = [job for job in jobs if job.placement is not None and job.run.gpu_milli]
    return tuple(sorted(held, key=_rank))


def _rank(job: JobView) -> tuple[int, int, object]:
    if job.use is None:
        return 2, 0, job.id
    since_ms = job.use.idle_since_ms
    return (1, job.use.percent, job.id) if since_ms is None else (0, since_ms, job.id)


def job_use_table(jobs: Sequence[Row], now_ms: Instant, *, wide: bool) -> str:
    """The jobs as a table; a sweep is one row for its given jobs."""
    return table(JOB_COLUMNS, [_job_row(job, now_ms) for job in jobs], most=None if wide else NARROW)


def _job_row(job: Row, now_ms: Instant) -> tuple[str, ...]:
    node = job.nodes[0] if len(job.nodes) == 1 else _SEVERAL
    name = job.id.name if isinstance(job, JobView) else f"{job.id.name} ({len(job.jobs)})"
    use = ("-", "-") if job.use is None else (bar(job.use.percent), memory_text(job.use))
    about = (name, job.id.project, job.type_name, node, format_gpus(job.gpu_milli))
    return (*about, *use, idle_text(job, now_ms), progress_of(job))


def project_use_table(projects: Sequence[ProjectView], *, wide: bool) -> str:
    """The projects as a table."""
    return table(PROJECT_COLUMNS, [_project_row(each) for each in projects], most=None if wide else NARROW)


def _project_row(project: ProjectView) -> tuple[str, ...]:
    use, held = project.use, format_gpus(project.allocated_milli)
    if use is None:
        return project.name, held, "0", "-", "-", "-"
    measured, idle = format_gpus(use.held_milli), format_gpus(use.idle_milli)
    return project.name, held, measured, bar(use.percent), memory_text(use), idle


def job_use_form(job: JobView) -> dict[str, Any]:
    """One job as JSON and YAML show it."""
    use = job.use
    since_ms = None if use is None else use.idle_since_ms
    return {
        "name": job.id.name,
        "project": job.id.project,
        "nodes": list(job.nodes),
        "gpuMilli": job.gpu_milli,
        "progressPpm": job.progress_ppm,
        "use": None
        if use is None
        else {**_use_form(use), "idleSince": None if since_ms is None else format_timestamp(since_ms)},
    }


def project_use_form(project: ProjectView) -> dict[str, Any]:
    """One project as JSON and YAML show it."""
    use = project.use
    return {
        "name": project.name,
        "allocatedGpuMilli": project.allocated_milli,
        "use": None if use is None else {**_use_form(use), "idleGpuMilli": use.idle_milli},
    }


def _use_form(use: RunUse | ProjectUse) -> dict[str, Any]:
    return {
        "measuredGpuMilli": use.held_milli,
        "busyGpuMilli": use.busy_milli,
        "memoryUsedBytes": use.used_bytes,
        "memoryTotalBytes": use.total_bytes,
    }
