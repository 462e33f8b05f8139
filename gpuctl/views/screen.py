"""The live screen of a cluster, as lines: allocation and use, projects, running and waiting jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuctl.diag.wording import reason_text
from gpuctl.model.units import WHOLE_GPU, Instant, format_gpus
from gpuctl.views.clusters import ClusterView, quota_milli
from gpuctl.views.jobs import JobView
from gpuctl.views.sweeps import Row, folded, idle_text, progress_of, queued_ms, reason_of
from gpuctl.views.tables import age, table
from gpuctl.views.top import bar

_JOBS = ("RUNNING", "PROJECT", "STATUS", "NODE", "GPUs", "SINCE", "UTILISATION", "IDLE", "PROGRESS")
_WAITING = ("PENDING", "PROJECT", "GPUs", "WAITS", "REASON")
_PROJECTS = ("PROJECT", "GPUs", "QUOTA", "ALLOCATED", "UTILISATION", "RUNNING", "PENDING")


class ScreenLine(NamedTuple):
    """A line and its style: `head`, `strong`, `dim` or none."""

    text: str
    style: str = ""


def screen(view: ClusterView, now_ms: Instant, width: int, missed: str = "") -> tuple[ScreenLine, ...]:
    """All lines; tables are up to `width` wide. `missed`: why this is not the present state of the cluster."""
    head, *rest = _lines(view, now_ms, max(width - 1, 60))
    return (head, *([ScreenLine(missed, "strong")] if missed else []), *rest)


def _lines(view: ClusterView, now_ms: Instant, width: int) -> Iterator[ScreenLine]:
    held = f"{format_gpus(view.allocated_milli)}/{view.gpus} GPUs of {len(view.nodes)} nodes"
    counts = f"{len(view.running)} running, {len(view.pending)} pending"
    yield ScreenLine(f"gpuctl  {held}  {counts}  (q ends, arrows move)".ljust(width), "head")
    yield ScreenLine(f"Allocated    {bar(view.allocated_percent)}")
    if view.use is not None:
        idle = f"   idle: {format_gpus(view.idle_milli)} GPUs" if view.idle_milli else ""
        yield ScreenLine(f"Utilisation  {bar(view.busy_percent)}{idle}")
    yield from _table(_PROJECTS, [_project(view, at) for at in range(len(view.projects))], width)
    yield from _table(_JOBS, [_running(row, now_ms) for row in folded(view.running)], width)
    yield from _table(_WAITING, [_pending(row, now_ms) for row in folded(view.pending)], width)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]], width: int) -> Iterator[ScreenLine]:
    yield ScreenLine("")
    head, *lines = table(header, rows, most=width).splitlines()
    yield ScreenLine(head, "strong")
    yield from map(ScreenLine, lines)


def _project(view: ClusterView, at: int) -> tuple[str, ...]:
    project = view.projects[at]
    share = 100 * project.allocated_milli // (view.gpus * WHOLE_GPU) if view.gpus else 0
    return (
        project.name,
        format_gpus(project.allocated_milli),
        format_gpus(quota_milli(project)),
        bar(share),
        "-" if project.use is None else bar(project.use.percent),
        str(project.running),
        str(project.pending),
    )


def _running(row: Row, now_ms: Instant) -> tuple[str, ...]:
    return (
        row.id.name,
        row.id.project,
        row.status if isinstance(row, JobView) else row.counted,
        row.nodes[0] if len(row.nodes) == 1 else f"{len(row.nodes)} nodes",
        format_gpus(row.gpu_milli),
        age(now_ms - row.since_ms),
        "-" if row.use is None else bar(row.use.percent),
        idle_text(row, now_ms),
        progress_of(row),
    )


def _pending(row: Row, now_ms: Instant) -> tuple[str, ...]:
    reason = reason_of(row)
    name = row.id.name if isinstance(row, JobView) else f"{row.id.name} ({len(row.jobs)})"
    waits = age(now_ms - queued_ms(row))
    return (name, row.id.project, format_gpus(row.gpu_milli), waits, reason_text(reason) if reason else "-")
