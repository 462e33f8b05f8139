"""Lists of jobs and one job in full, in Run:ai's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import duration, reason_text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import NodeName, ProjectName
from gpuctl.model.units import Instant, format_gpus
from gpuctl.views.jobs import JobView
from gpuctl.views.pod_problems import problem_form, problem_text
from gpuctl.views.progress import percent_text, progress_text
from gpuctl.views.sweeps import Row, SweepView, values_text
from gpuctl.views.tables import NARROW, age, table

COLUMNS = ("NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs")
WIDE_COLUMNS = (
    "NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs", "CREATED BY CLI", "SERVICE URL(S)",
    "SINCE", "DEVICES", "STARTS", "RESTARTS", "PAUSED FOR", "REASON",
)  # fmt: skip
MULTIPLE = "<multiple>"


def heading(project: ProjectName | None, namespace: str | None = None) -> str:
    """The line above a list. `namespace`: the only one that was read."""
    if namespace is not None:
        return f"Showing jobs{f' for project {project}' if project else ''} in namespace {namespace}"
    return f"Showing jobs for project {project}" if project else "Showing jobs for all projects"


def job_table(views: Sequence[Row], now_ms: Instant, *, wide: bool) -> str:
    """The list as a table: short, or with all of Run:ai's columns and gpuctl's own."""
    if not wide:
        return table(COLUMNS, [_cells(view, now_ms) for view in views], most=NARROW)
    return table(WIDE_COLUMNS, [_wide_cells(view, now_ms) for view in views])


def job_rows(views: Sequence[Row], now_ms: Instant, *, wide: bool) -> list[str]:
    """The lines of the list, each with its end: the header, then a line for each job."""
    return job_table(views, now_ms, wide=wide).splitlines(keepends=True)


def told_apart(view: Row) -> tuple[object, ...]:
    """The parts of a job whose change shows in the list: everything except passing times."""
    if isinstance(view, SweepView):
        return tuple(map(told_apart, view.jobs))
    return (view.ref, view.status, view.nodes, view.gpu_milli, view.image, view.urls, view.run.starts, view.restarts,
            view.why)  # fmt: skip


def _cells(view: Row, now_ms: Instant) -> tuple[str, ...]:
    one = view.jobs[0] if isinstance(view, SweepView) else view
    return (
        view.id.name,
        view.status,
        age(now_ms - one.created_ms),
        _nodes(view.nodes),
        one.image,
        one.type_name,
        view.id.project,
        "-",
        format_gpus(view.gpu_milli),
    )


def _wide_cells(view: Row, now_ms: Instant) -> tuple[str, ...]:
    if isinstance(view, SweepView):
        starts, since = str(sum(job.run.starts for job in view.jobs)), age(now_ms - view.newest.since_ms)
        restarts = str(sum(job.restarts for job in view.jobs))
        return (*_cells(view, now_ms), "false", "", since, "-", starts, restarts, "-", view.counted)
    workers = view.placement.workers if view.placement else ()
    devices = " ".join(f"{worker.node}:{','.join(str(gpu) for gpu in worker.gpus)}" for worker in workers)
    paused_for = str(view.run.paused_for) if view.run.paused_for else "-"
    since = age(now_ms - view.since_ms)
    more = (devices or "-", str(view.run.starts), str(view.restarts), paused_for, view.why)
    return (*_cells(view, now_ms), "false", ",".join(view.urls), since, *more)


def _nodes(nodes: Sequence[NodeName]) -> str:
    if not nodes:
        return "-"
    return nodes[0] if len(nodes) == 1 else MULTIPLE


def job_form(view: JobView) -> dict[str, Any]:
    """One job as JSON and YAML show it."""
    run = view.run
    return {
        "name": view.id.name,
        "project": view.id.project,
        "state": view.state.value,
        "type": view.type,
        "preemptible": view.preemptible,
        "image": view.image,
        "gpuMilli": view.gpu_milli,
        "workers": view.workers,
        "askedWorkers": view.run.asked_workers or view.asked_workers,
        "placement": [
            {"node": worker.node, "gpus": list(worker.gpus)}
            for worker in (view.placement.workers if view.placement else ())
        ],
        "queuedAt": format_timestamp(run.queued_at_ms),
        "startedAt": _timestamp(run.started_at_ms),
        "finishedAt": _timestamp(run.finished_at_ms),
        "ranMs": run.ran_ms,
        "starts": run.starts,
        "restarts": view.restarts,
        "reason": {"code": view.reason.code, "message": reason_text(view.reason)} if view.reason else None,
        "otherEngine": view.said or None,
        "problem": problem_form(run.problem),
        "progressPpm": view.progress_ppm,
        "pausedFor": str(run.paused_for) if run.paused_for else None,
        "sweep": {"name": view.sweep, "index": view.index, "values": dict(view.values)} if view.sweep else None,
        "urls": list(view.urls),
        "object": {"kind": view.ref.kind, "namespace": view.ref.namespace, "name": view.ref.name},
        "pods": [
            {
                "name": pod.name,
                "phase": pod.phase,
                "node": pod.node or None,
                "worker": pod.worker,
                "restarts": pod.restarts,
            }
            for pod in view.pods
        ],
    }


def job_text(view: JobView, now_ms: Instant) -> str:
    """One job in full."""
    run = view.run
    facts = [
        ("NAME", view.id.name),
        ("PROJECT", view.id.project),
        *([("SWEEP", view.sweep), ("VALUES", values_text(view))] if view.sweep else []),
        ("TYPE", view.type_name),
        ("STATUS", view.status),
        *([("PROBLEM", problem_text(run.problem))] if run.problem else []),
        ("REASON", view.why),
        ("NAMESPACE", view.ref.namespace),
        ("OBJECT", f"{view.ref.kind} {view.ref.name}"),
        ("IMAGE", view.image),
        ("GPUs", format_gpus(view.gpu_milli)),
        *([("WORKERS", _workers(view))] if _workers(view) else []),
        ("NODE", ", ".join(view.nodes) or "-"),
        *([("PROGRESS", progress_text(view, now_ms))] if percent_text(view) != "-" else []),
        ("AGE", age(now_ms - view.created_ms)),
        ("SINCE", f"{age(now_ms - view.since_ms)} ago"),
        ("RAN BEFORE", duration(run.ran_ms // 1000 * 1000)),
        ("STARTS", str(run.starts)),
        ("RESTARTS", str(view.restarts)),
        ("PAUSED FOR", str(run.paused_for) if run.paused_for else "-"),
        ("SERVICE URL(S)", ", ".join(view.urls) or "-"),
    ]
    width = max(len(name) for name, _ in facts) + 2
    lines = "".join(f"{name + ':':<{width}}{printable(value)}\n" for name, value in facts)
    return f"{lines}\nPods:\n{pod_table(view, now_ms)}"


def _workers(view: JobView) -> str:
    """How many workers it has, if it asks for more."""
    by_load = view.run.asked_workers or 0
    if by_load > view.workers:
        return f"{view.workers}; its load asks for {by_load}"
    return f"{view.workers} of {view.asked_workers}" if view.workers < view.asked_workers else ""


def pod_table(view: JobView, now_ms: Instant) -> str:
    """A job's pods."""
    rows = [
        (
            pod.name,
            pod.phase,
            "-" if pod.restarts is None else str(pod.restarts),
            age(now_ms - (pod.created_at_ms or now_ms)),
            pod.node or "-",
        )
        for pod in view.pods
    ]
    return table(("POD", "STATUS", "RESTARTS", "AGE", "NODE"), rows) if rows else "none\n"


def name_lines(views: Iterable[JobView]) -> str:
    """`project/name`, one in a line."""
    return "".join(f"{printable(str(view.id))}\n" for view in views)


def _timestamp(at_ms: Instant | None) -> str | None:
    return None if at_ms is None else format_timestamp(at_ms)
