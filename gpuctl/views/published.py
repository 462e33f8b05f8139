"""The published overview, for people who may not read the whole cluster: their own jobs by name, the rest by GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuctl.diag.wording import duration
from gpuctl.k8s.objects import uid
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import JobId
from gpuctl.model.overview import NodeOverview, Overview, ProjectOverview
from gpuctl.model.state import ClusterState
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant
from gpuctl.views.jobs import JobView
from gpuctl.views.nodes import DeviceView, NodeView
from gpuctl.views.projects import ProjectView

_SECOND_MS = 1000


def published_projects(overview: Overview, seen: Sequence[ProjectView], *, add: bool) -> tuple[ProjectView, ...]:
    """Projects with their fair shares, by name. `add`: also projects that were not read, as published."""
    published = {project.name: project for project in overview.projects}
    known = [
        replace(view, share_milli=published[view.name].share_milli) if view.name in published else view for view in seen
    ]
    names = {view.name for view in seen}
    others = [_view(project) for name, project in published.items() if add and name not in names]
    return tuple(sorted((*known, *others), key=lambda view: view.name))


def _view(project: ProjectOverview) -> ProjectView:
    return ProjectView(
        name=project.name,
        namespace=project.namespace,
        department=project.department,
        allowances=project.allowances,
        allocated_milli=project.allocated_milli,
        running=project.running,
        pending=project.waiting,
        pending_milli=project.waiting_milli,
        share_milli=project.share_milli,
    )


def published_nodes(overview: Overview, jobs: Sequence[JobView]) -> tuple[NodeView, ...]:
    """All nodes, by name. `jobs`: those that the reader may see; the shares of other jobs have no name."""
    shares: dict[tuple[str, int], list[tuple[JobId, GpuMilli]]] = {}
    for job in jobs:
        for worker in job.placement.workers if job.placement else ():
            for gpu in worker.gpus:
                shares.setdefault((worker.node, gpu), []).append((job.id, min(WHOLE_GPU, job.run.gpu_milli)))
    return tuple(
        NodeView(
            name=node.name,
            address="",
            roles=(),
            status=node.status,
            devices=tuple(_device(node, gpu, tuple(sorted(shares.get((node.name, gpu), ())))) for gpu in _gpus(node)),
            cpu_milli=node.cpu_milli,
            cpu_requested_milli=node.cpu_requested_milli,
            mem_bytes=node.mem_bytes,
            mem_requested_bytes=node.mem_requested_bytes,
        )
        for node in sorted(overview.nodes, key=lambda node: node.name)
    )


def _gpus(node: NodeOverview) -> range:
    return range(max(len(node.job_milli), len(node.foreign_milli), max(node.lost, default=-1) + 1))


def _device(node: NodeOverview, gpu: int, shares: tuple[tuple[JobId, GpuMilli], ...]) -> DeviceView:
    held = dict(enumerate(node.job_milli)).get(gpu, 0)
    return DeviceView(
        index=gpu,
        shares=shares,
        foreign_milli=dict(enumerate(node.foreign_milli)).get(gpu, 0),
        lost=gpu in node.lost,
        hidden_milli=max(0, held - sum(milli for _, milli in shares)),
    )


def turn_text(view: JobView, state: ClusterState, overview: Overview, now_ms: Instant) -> Iterator[str]:
    """The place of a waiting job in the queue and its forecast start, in sentences; empty if it is not in the queue."""
    mine = uid(state.live.get(view.ref, {}))
    position = overview.position(mine)
    if position is None:
        return
    own = [overview.position(uid(state.live.get(ref, {}))) for ref, of in state.own.items() if _same(of.run[0], view)]
    ahead = sum(other is not None and other < position for other in own)
    project = next((each for each in overview.projects if each.name == view.id.project), None)
    of_own = f" of {project.waiting}" if project is not None else ""
    yield (
        f"Its position in the queue is {1 + ahead}{of_own} in {view.id.project}, "
        f"and {position} of {overview.waiting} overall."
    )
    yield _start(overview.start_ms(mine), now_ms)


def _same(job: JobId, view: JobView) -> bool:
    return job.project == view.id.project


def _start(start_ms: Instant | None, now_ms: Instant) -> str:
    if start_ms is None:
        return "If jobs run until their limits and nothing else changes, no start is forecast."
    if start_ms <= now_ms:
        return "By the forecast it starts now."
    left = duration((start_ms - now_ms) // _SECOND_MS * _SECOND_MS)
    when = format_timestamp(start_ms)
    return f"It starts by {when} (in {left}) if jobs run until their limits and nothing else changes."
