"""Nodes as they are once some runs have left them: what is free there, and how many workers of a request fit then.

They change no snapshot: they are for trying. Which runs may leave is not their business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.engine.capacity.fit import Request, of_its_kind, slots_in
from gpuctl.engine.capacity.free import NodeFree, WorkerRequest
from gpuctl.engine.capacity.topology import Site, most_seated
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.model.decision import Placement
from gpuctl.model.ids import NodeName
from gpuctl.model.units import WHOLE_GPU, GpuMilli


class WhatIfNode:
    """A node's devices, CPU and memory as they are once some runs have left it."""

    __slots__ = ("cpu_milli", "gpu_milli", "mem_bytes", "name", "profiles")

    def __init__(self, room: NodeFree) -> None:
        self.name = room.name
        self.gpu_milli = list(room.gpu_milli)
        self.profiles = room.profiles
        self.cpu_milli = room.cpu_milli
        self.mem_bytes = room.mem_bytes

    def remove(self, allocation: Allocation, sign: int = 1) -> None:
        """Take a run off this node; with -1, put it back."""
        self.vacate(allocation.placement, allocation.per_worker, sign)

    def vacate(self, placement: Placement, per_worker: WorkerRequest, sign: int = 1) -> None:
        """What is taken by a placement on this node is free again; with -1, it is taken again."""
        for worker in placement.workers:
            if worker.node != self.name:
                continue
            self.cpu_milli += sign * per_worker.cpu_milli
            self.mem_bytes += sign * per_worker.mem_bytes
            for index in worker.gpus:
                if 0 <= index < len(self.gpu_milli):
                    self.gpu_milli[index] += sign * per_worker.on_device(worker)

    def slots(self, request: Request) -> int:
        """Workers that fit."""
        devices = of_its_kind(self.gpu_milli, self.profiles, request)
        return slots_in(devices, self.cpu_milli, self.mem_bytes, request)

    def short_milli(self, request: Request, wanted: int) -> GpuMilli:
        """GPUs that must leave, at least, before that many workers fit."""
        its_kind = of_its_kind(self.gpu_milli, self.profiles, request)
        if request.fraction_milli:
            free = [max(0, milli) for milli in its_kind]
            if sum(milli // request.fraction_milli for milli in free) >= wanted:
                return 0
            return request.fraction_milli - max((milli % request.fraction_milli for milli in free), default=0)
        devices = request.devices * wanted
        free = sorted((max(0, milli) for milli in its_kind), reverse=True)[:devices]
        return devices * WHOLE_GPU - sum(min(milli, WHOLE_GPU) for milli in free)


class WhatIfNodes:
    """Some nodes together. `slots`: workers of a request that fit on them, and on others that stay as they are."""

    __slots__ = ("_nodes", "_request", "slots")

    def __init__(self, nodes: Iterable[WhatIfNode], request: Request, elsewhere: int = 0) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._request = request
        self.slots = elsewhere + sum(node.slots(request) for node in self._nodes.values())

    def remove(self, allocations: Iterable[Allocation], sign: int = 1) -> None:
        """Take runs off these nodes; with -1, put them back."""
        for allocation in allocations:
            for node in (self._nodes[name] for name in allocation.nodes() if name in self._nodes):
                before = node.slots(self._request)
                node.remove(allocation, sign)
                self.slots += node.slots(self._request) - before

    def short_milli(self, wanted: int) -> GpuMilli:
        """GPUs that must leave, at least, before that many workers fit; not known for several nodes."""
        if len(self._nodes) != 1:
            return 0
        (node,) = self._nodes.values()
        return node.short_milli(self._request, wanted)


def in_one_rack(
    rooms: Mapping[NodeName, NodeFree],
    request: Request,
    slots_by_node: Mapping[NodeName, int],
    leaving: Mapping[NodeName, Iterable[Allocation]],
) -> frozenset[NodeName]:
    """Nodes of one rack on which all workers that have no place yet could have one, once the runs that may
    leave have left. Cost: O(those that may leave) where there are racks.
    """
    names = leaving.keys() | slots_by_node.keys()
    if not any(rooms[name].topology for name in names):
        return frozenset()
    more: dict[NodeName, int] = {}
    for name, allocations in leaving.items():
        floor = WhatIfNode(rooms[name])
        for allocation in allocations:
            floor.remove(allocation)
        more[name] = floor.slots(request) - slots_by_node.get(name, 0)
    sites = [Site(name, slots_by_node.get(name, 0), 0, rooms[name].topology) for name in sorted(names)]
    return most_seated(sites, more, request.workers - sum(slots_by_node.values()))
