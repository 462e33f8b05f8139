"""Nodes in the columns of `runai top node`: their capacity, what is allocated of it, and to which jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.diag.wording import thousandths
from gpuctl.k8s import kinds, objects
from gpuctl.model.decision import WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef
from gpuctl.model.state import Body, ClusterState, Node, Run
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes, format_gpus
from gpuctl.views.jobs import held_placement
from gpuctl.views.tables import NARROW, table

COLUMNS = (
    "NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)", "GPU(Others)", "CPU(Requested)",
    "MEMORY(Requested)",
)  # fmt: skip
DEVICE_COLUMNS = ("NODE", "GPU", "ALLOCATED", "STATUS", "JOBS")
ROLE_LABEL = "node-role.kubernetes.io/"
READY = "Ready"
"""The status of a node that takes jobs."""
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One GPU and the jobs' shares of it, in milli-GPU. `lost`: it is unhealthy or missing.

    `hidden_milli`: the shares of jobs that the reader may not see.
    """

    index: int
    shares: tuple[tuple[JobId, GpuMilli], ...]
    foreign_milli: GpuMilli
    lost: bool
    hidden_milli: GpuMilli = 0

    @property
    def allocated_milli(self) -> GpuMilli:
        """How much of it is allocated, to jobs and to other pods."""
        return sum(milli for _, milli in self.shares) + self.hidden_milli + self.foreign_milli


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node. Requested amounts are of all pods together; `foreign_milli` is of pods that are not gpuctl's."""

    name: NodeName
    address: str
    roles: tuple[str, ...]
    status: str
    devices: tuple[DeviceView, ...]
    cpu_milli: CpuMilli
    cpu_requested_milli: CpuMilli
    mem_bytes: MemBytes
    mem_requested_bytes: MemBytes

    @property
    def gpus(self) -> int:
        """Healthy GPUs."""
        return sum(not device.lost for device in self.devices)

    @property
    def allocated_milli(self) -> GpuMilli:
        """How many of its GPUs are allocated, to jobs and to other pods."""
        return sum(device.allocated_milli for device in self.devices)

    @property
    def foreign_milli(self) -> GpuMilli:
        """How many of its GPUs are allocated to pods that are not gpuctl's."""
        return sum(device.foreign_milli for device in self.devices)


def node_views(state: ClusterState) -> tuple[NodeView, ...]:
    """Every node, by name. Cost: linear in nodes, workers of runs, and the GPUs of both."""
    on_node: dict[NodeName, list[tuple[Run, WorkerPlacement]]] = {}
    for run in state.runs:
        for worker in _workers_there(run):
            on_node.setdefault(worker.node, []).append((run, worker))
    return tuple(_view(node, state, on_node.get(node.name, ())) for node in state.nodes)


def _workers_there(run: Run) -> Iterator[WorkerPlacement]:
    """The workers that hold something: those that have not ended, and leaving ones that are not gone yet."""
    placement = held_placement(run)
    if placement is not None:
        yield from (worker for at, worker in enumerate(placement.workers) if at not in run.ended)
        yield from run.leaving.workers if run.leaving is not None else ()


def _view(node: Node, state: ClusterState, workers: Iterable[tuple[Run, WorkerPlacement]]) -> NodeView:
    body = state.live.get(ObjectRef(*kinds.NODE, "", node.name), {})
    shares: dict[int, list[tuple[JobId, GpuMilli]]] = {gpu: [] for gpu in range(node.gpus)}
    cpu_milli, mem_bytes = node.foreign_cpu_milli, node.foreign_mem_bytes
    for run, worker in workers:
        cpu_milli += run.cpu_milli
        mem_bytes += run.mem_bytes
        for gpu in worker.gpus:
            shares.setdefault(gpu, []).append((run.job, min(WHOLE_GPU, run.gpu_milli)))
    foreign = dict(enumerate(node.foreign_gpu_milli))
    return NodeView(
        name=node.name,
        address=_address(body),
        roles=tuple(sorted(key.removeprefix(ROLE_LABEL) for key in node.labels if key.startswith(ROLE_LABEL))),
        status=_status(node, body),
        devices=tuple(
            DeviceView(
                index=gpu,
                shares=tuple(sorted(held)),
                foreign_milli=foreign.get(gpu, 0),
                lost=gpu in node.lost_gpus or gpu >= node.gpus,
            )
            for gpu, held in sorted(shares.items())
        ),
        cpu_milli=node.cpu_milli,
        cpu_requested_milli=cpu_milli,
        mem_bytes=node.mem_bytes,
        mem_requested_bytes=mem_bytes,
    )


def _address(body: Body) -> str:
    addresses = objects.items(body, "status", "addresses")
    return next((objects.text(entry, "address") for entry in addresses if entry.get("type") == "InternalIP"), "")


def _status(node: Node, body: Body) -> str:
    """The status in kubectl's words; `Unusable` where a taint keeps gpuctl's pods off."""
    ready = READY if objects.condition(body, "Ready") else "NotReady"
    if objects.flag(body, "spec", "unschedulable"):
        return f"{ready},SchedulingDisabled"
    return f"{ready},Unusable" if ready == READY and not node.usable else ready


def node_table(views: Sequence[NodeView], *, wide: bool) -> str:
    """The nodes as a table, and the cluster's total below a line."""
    rows = [
        (
            view.name,
            view.address or "<none>",
            ",".join(view.roles) or "<none>",
            view.status,
            str(view.gpus),
            format_gpus(view.allocated_milli),
            format_gpus(view.foreign_milli),
            _part(thousandths(view.cpu_requested_milli), thousandths(view.cpu_milli), _percent_cpu(view)),
            _part(_gib(view.mem_requested_bytes), _gib(view.mem_bytes), _percent_memory(view)),
        )
        for view in views
    ]
    text = table(COLUMNS, rows, most=None if wide else NARROW)
    rule = "-" * max(len(line) for line in text.splitlines())
    total, held = sum(view.gpus for view in views), sum(view.allocated_milli for view in views)
    share = f" ({_percent(held, total * WHOLE_GPU)}%)" if total else ""
    return f"{text}{rule}\nAllocated/Total GPUs In Cluster:\n{format_gpus(held)}/{total}{share}\n"


def device_table(views: Sequence[NodeView], *, wide: bool) -> str:
    """The GPUs as a table, one in a line."""
    return table(
        DEVICE_COLUMNS,
        [
            (
                view.name,
                str(device.index),
                format_gpus(device.allocated_milli),
                "Lost" if device.lost else "Healthy",
                _holders(device),
            )
            for view in views
            for device in view.devices
        ],
        most=None if wide else NARROW,
    )


def _holders(device: DeviceView) -> str:
    held = [f"{job}" if milli == WHOLE_GPU else f"{job} ({format_gpus(milli)})" for job, milli in device.shares]
    held += [f"<other projects> ({format_gpus(device.hidden_milli)})"] if device.hidden_milli else []
    held += [f"<others> ({format_gpus(device.foreign_milli)})"] if device.foreign_milli else []
    return ", ".join(held) or "-"


def node_form(view: NodeView) -> dict[str, Any]:
    """One node as JSON and YAML show it."""
    return {
        "name": view.name,
        "address": view.address or None,
        "roles": list(view.roles),
        "status": view.status,
        "gpus": view.gpus,
        "allocatedGpuMilli": view.allocated_milli,
        "foreignGpuMilli": view.foreign_milli,
        "cpuMilli": view.cpu_milli,
        "requestedCpuMilli": view.cpu_requested_milli,
        "memoryBytes": view.mem_bytes,
        "requestedMemoryBytes": view.mem_requested_bytes,
        "devices": [
            {
                "index": device.index,
                "lost": device.lost,
                "allocatedGpuMilli": device.allocated_milli,
                "foreignGpuMilli": device.foreign_milli,
                "hiddenGpuMilli": device.hidden_milli,
                "jobs": [{"job": str(job), "gpuMilli": milli} for job, milli in device.shares],
            }
            for device in view.devices
        ],
    }


def _part(requested: str, total: str, percent: int) -> str:
    return f"{requested}/{total} ({percent}%)"


def _percent_cpu(view: NodeView) -> int:
    return _percent(view.cpu_requested_milli, view.cpu_milli)


def _percent_memory(view: NodeView) -> int:
    return _percent(view.mem_requested_bytes, view.mem_bytes)


def _percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 0


def _gib(size: MemBytes) -> str:
    """Bytes as GiB with at most one digit after the point."""
    tenths = (10 * size + _GIB // 2) // _GIB
    return f"{tenths // 10}Gi" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}Gi"
