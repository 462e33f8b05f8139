"""The GPUs of a node by index: how many there are, and which take no work for a whole GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.k8s import names
from gpuctl.k8s.objects import mapping, whole
from gpuctl.model.declared import Way
from gpuctl.model.state import Body, CutGpu
from gpuctl.model.units import MOST_NODE_GPUS
from gpuctl.observe.devices import NodeDevices
from gpuctl.observe.slices import counted_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """GPU indexes of a node: how many there are, which are out of order, and how many more are, at unknown indexes.

    `cut`: the GPUs that are divided into MIG slices. `certain` is False while a driver's publication is incomplete.
    `by_device`: devices that pods ask for by count are known by name as well.
    """

    count: int
    lost: frozenset[int] = frozenset()
    lost_unknown: int = 0
    certain: bool = True
    cut: Mapping[int, CutGpu] = field(default_factory=dict)
    ways: frozenset[Way] = frozenset({Way.COUNT})
    by_device: bool = False
    devices: NodeDevices | None = None

    @property
    def unfit(self) -> frozenset[int]:
        """Indexes at which no whole GPU is available."""
        return self.lost | self.cut.keys()


_NOT_BELIEVED = Slots(count=0, certain=False)
"""For a node that reports more GPUs than there can be: nothing is placed there."""


def slots_of(body: Body, devices: NodeDevices | None) -> Slots:
    """The GPUs of a node: by its devices if they are published, else by the numbers in its status."""
    healthy = whole(mapping(body, "status", "allocatable"), names.GPU_RESOURCE)
    if devices is not None:
        count = max(devices.minors, default=-1) + 1
        if count > MOST_NODE_GPUS:
            return _NOT_BELIEVED
        lost = (frozenset(range(count)) - devices.minors) | devices.out_of_use
        hami = Way.HAMI in devices.ways
        plugin = {Way.COUNT} if healthy and not hami else set[Way]()
        return Slots(
            count=count,
            lost=lost,
            certain=devices.complete,
            cut=devices.cut,
            ways=devices.ways | plugin,
            by_device=hami or (Way.COUNT in devices.ways and not plugin),
            devices=devices,
        )
    count = max(healthy, whole(mapping(body, "status", "capacity"), names.GPU_RESOURCE))
    cut = counted_gpus(body, count)
    if count + len(cut) > MOST_NODE_GPUS:
        return _NOT_BELIEVED
    return Slots(count=count + len(cut), lost_unknown=count - healthy, cut=cut)


def no_slots() -> Slots:
    """Stands in for a node whose GPUs can't be read: it takes no new work."""
    return Slots(count=0, certain=False)


def highest_free(count: int, taken: set[int] | frozenset[int], wanted: int) -> tuple[int, ...]:
    """Up to `wanted` of the indexes below `count` that are not taken, the highest first."""
    return tuple(gpu for gpu in range(count - 1, -1, -1) if gpu not in taken)[:wanted]
