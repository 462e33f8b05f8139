"""Nodes: what they can hold and what others have taken there.

Where a DRA driver or HAMi publishes a node's devices they are known one by one. Elsewhere only the kubelet can tell the
GPUs apart: indexes are slots then, and what is known only by a count (pods of others, broken GPUs) gets the highest
slots that no run of gpuctl's holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import condition, flag, is_deleting, items, labels_of, mapping, milli, text, whole
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName, ObjectRef, RunKey
from gpuctl.model.memo import Sweep
from gpuctl.model.state import Body, CutGpu, Node, Run, RunPhase, Taint
from gpuctl.model.units import MOST_NODE_GPUS, WHOLE_GPU
from gpuctl.observe.devices import HeldDevice, NodeDevices
from gpuctl.observe.pods import Pod, Requests, requests_of
from gpuctl.observe.roster import Workloads
from gpuctl.observe.slices import counted_gpus, with_others
from gpuctl.observe.unreadable import Faults, Unreadable, read

Use: TypeAlias = tuple[NodeName, Requests]
"""What a foreign pod requests on its node."""

_KEEPS_PODS_OUT = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slots:
    """GPU indexes of a node: how many, which of them are out of order, and how many more are, unknown which.

    `cut` are those that are there in MIG slices. `certain` is False while a driver's publication is incomplete.
    `by_device`: what pods ask for by count is known by device as well.
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
        """Indexes that no whole GPU can be had at."""
        return self.lost | self.cut.keys()


_NOT_BELIEVED = _Slots(count=0, certain=False)
"""Of a node that says it has more GPUs than there can be: nothing is placed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What is taken on a node: how often each index is held, and what others have by index and by count."""

    held: Mapping[int, int]
    foreign_milli: Mapping[int, int]
    foreign_slices: Mapping[int, int]
    foreign: Requests


class NodeCache:
    """Cache of the nodes as they were last read, each with the inputs it was read from."""

    __slots__ = ("_nodes", "_slots")

    def __init__(self) -> None:
        self._nodes: Sweep[NodeName, Node | Unreadable[Node]] = Sweep()
        self._slots: Sweep[NodeName, _Slots | Unreadable[_Slots]] = Sweep()

    def slots(
        self, bodies: Mapping[NodeName, Body], devices: Mapping[NodeName, NodeDevices], faults: Faults
    ) -> dict[NodeName, _Slots]:
        """The indexes of each node's GPUs."""
        lives, given = list(bodies.values()), list(map(devices.get, bodies))
        readings = self._slots.over(
            bodies, [lives, given], lambda at: read(partial(_slots, lives[at], given[at]), _no_slots)
        )
        return dict(zip(bodies, faults.sift(_refs(bodies), readings), strict=True))

    def nodes(
        self,
        bodies: Mapping[NodeName, Body],
        slots: Mapping[NodeName, _Slots],
        taken: Sequence[_Taken],
        faults: Faults,
    ) -> tuple[Node, ...]:
        """All nodes. One that can't be read takes no new work; what runs there goes on."""
        names, lives, indexes = list(bodies), list(bodies.values()), list(slots.values())
        readings = self._nodes.over(
            names,
            [lives, indexes, taken],
            lambda at: read(
                partial(_node, names[at], lives[at], indexes[at], taken[at]), partial(_unreadable_node, names[at])
            ),
        )
        return tuple(faults.sift(_refs(bodies), readings))


def _refs(bodies: Iterable[NodeName]) -> list[ObjectRef]:
    return [ObjectRef(*kinds.NODE, "", name) for name in bodies]


def _no_slots() -> _Slots:
    return _Slots(count=0, certain=False)


def _unreadable_node(name: NodeName) -> Node:
    return Node(name=name, labels={}, gpus=0, cpu_milli=0, mem_bytes=0, usable=False)


def observe_nodes(  # noqa: PLR0913 - what there is, what is taken, what is known
    bodies: Mapping[ObjectRef, Body],
    devices: Mapping[NodeName, NodeDevices],
    foreign_use: Iterable[Use],
    foreign_devices: Iterable[HeldDevice],
    runs: tuple[Run, ...],
    *,
    own_pods: Iterable[Pod] = (),
    workloads: Workloads,
    known: NodeCache,
    faults: Faults,
) -> tuple[tuple[Node, ...], tuple[Run, ...]]:
    """All nodes by name, and the runs with an index for every GPU they hold.

    `own_pods` are those of runs, `workloads` the runs' own objects.
    """
    by_name = {NodeName(ref.name): bodies[ref] for ref in sorted(bodies)}
    slots = known.slots(by_name, devices, faults)
    held: dict[NodeName, Counter[int]] = defaultdict(Counter)
    foreign_milli: dict[NodeName, Counter[int]] = defaultdict(Counter)
    foreign_slices: dict[NodeName, Counter[int]] = defaultdict(Counter)
    for device in foreign_devices:
        if device.slices:
            foreign_slices[device.node][device.gpu] += device.slices
            continue
        held[device.node][device.gpu] += 1
        foreign_milli[device.node][device.gpu] += device.milli
    runs = _with_indexes(_beside_given(runs, workloads, slots, own_pods, held), slots, held)
    use: dict[NodeName, Requests] = defaultdict(Requests)
    for node, requests in foreign_use:
        use[node] = use[node].plus(requests)
    taken = []
    for name in by_name:
        foreign = _by_count(use.get(name, _NONE_USED), slots[name])
        # What runs hold there matters only where others' GPUs are known by their count.
        by_number = slots[name].lost_unknown or foreign.gpus or foreign.slices
        if not (by_number or name in use or name in foreign_milli or name in foreign_slices):
            taken.append(_UNTOUCHED)
            continue
        taken.append(
            _Taken(
                held=held[name] if by_number else _NONE_HELD,
                foreign_milli=foreign_milli.get(name, _NONE_HELD),
                foreign_slices=foreign_slices.get(name, _NONE_HELD),
                foreign=foreign,
            )
        )
    return known.nodes(by_name, slots, taken, faults), runs


_NONE_USED = Requests()
_NONE_HELD: Mapping[int, int] = {}
_UNTOUCHED = _Taken(held=_NONE_HELD, foreign_milli=_NONE_HELD, foreign_slices=_NONE_HELD, foreign=_NONE_USED)


def _by_count(use: Requests, slots: _Slots) -> Requests:
    """What others' pods ask for; nothing is counted twice.

    GPUs that a driver gives by claim are held by the claim. HAMi's are in `use` where nothing says which they are.
    """
    return replace(use, gpus=0) if slots.by_device and use.gpus and Way.HAMI not in slots.ways else use


def _slots(body: Body, devices: NodeDevices | None) -> _Slots:
    healthy = whole(mapping(body, "status", "allocatable"), names.GPU_RESOURCE)
    if devices is not None:
        count = max(devices.minors, default=-1) + 1
        if count > MOST_NODE_GPUS:
            return _NOT_BELIEVED
        lost = (frozenset(range(count)) - devices.minors) | devices.out_of_use
        hami = Way.HAMI in devices.ways
        plugin = {Way.COUNT} if healthy and not hami else set[Way]()
        return _Slots(
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
    return _Slots(count=count + len(cut), lost_unknown=count - healthy, cut=cut)


def _node(name: NodeName, body: Body, slots: _Slots, taken: _Taken) -> Node:
    held = frozenset(taken.held)
    lost = slots.lost | frozenset(highest_free(slots.count, held | slots.unfit, slots.lost_unknown))
    by_count = highest_free(slots.count, held | slots.unfit | lost, taken.foreign.gpus)
    blocking = [taint for taint in _taints(body) if taint.effect in _KEEPS_PODS_OUT and not _tolerated(taint)]
    ready = bool(condition(body, "Ready")) and not is_deleting(body)
    allocatable = mapping(body, "status", "allocatable")
    uuids = slots.devices.uuids if slots.devices is not None else {}
    return Node(
        name=name,
        labels={key: str(value) for key, value in labels_of(body).items()},
        gpus=slots.count,
        cpu_milli=milli(allocatable, "cpu"),
        mem_bytes=whole(allocatable, "memory"),
        usable=ready and not blocking and not flag(body, "spec", "unschedulable") and slots.certain,
        ready=ready and not any(taint.effect == "NoExecute" for taint in blocking),
        lost_gpus=lost,
        foreign_cpu_milli=taken.foreign.cpu_milli,
        foreign_mem_bytes=taken.foreign.mem_bytes,
        foreign_gpu_milli=tuple(
            WHOLE_GPU if gpu in by_count else min(WHOLE_GPU, taken.foreign_milli.get(gpu, 0))
            for gpu in range(slots.count)
        ),
        ways=slots.ways,
        uuids=tuple(uuids.get(gpu, "") for gpu in range(slots.count)) if uuids else (),
        cut=with_others(slots.cut, taken.foreign.slices, taken.foreign_slices, taken.held),
        gpu_slots=slots.devices.gpu_slots if slots.devices is not None else None,
    )


def highest_free(count: int, taken: set[int] | frozenset[int], wanted: int) -> tuple[int, ...]:
    """Up to `wanted` of the indexes below `count` that are not taken, the highest first."""
    return tuple(gpu for gpu in range(count - 1, -1, -1) if gpu not in taken)[:wanted]


def _taints(body: Body) -> list[Taint]:
    return [
        Taint(key=text(taint, "key"), value=text(taint, "value"), effect=text(taint, "effect"))
        for taint in items(body, "spec", "taints")
    ]


def _tolerated(taint: Taint) -> bool:
    return taint.effect == "NoSchedule" and taint.key in names.TOLERATED_TAINT_KEYS


def _beside_given(
    runs: tuple[Run, ...],
    workloads: Workloads,
    slots: Mapping[NodeName, _Slots],
    pods: Iterable[Pod],
    others: Mapping[NodeName, Counter[int]],
) -> tuple[Run, ...]:
    """Where GPUs are asked for by count and known by device once they are given: runs that still wait for theirs.

    A run that was planned at a device that another pod was given meanwhile will get another one; which is not known
    yet. A run that asks by claim will get that very device, or the slice of it that is left, or nothing.
    """
    nodes = {name for name, found in slots.items() if found.by_device and Way.COUNT in found.ways}
    if not nodes:
        return runs
    given = {name: set(others[name]) for name in nodes}
    told: set[tuple[RunKey, NodeName]] = set()
    for pod, device in ((each, device) for each in pods if each.live for device in each.devices):
        if device.node in nodes and pod.run is not None:
            given[device.node].add(device.gpu)
            told.add((pod.run, device.node))

    def still(run: Run, worker: WorkerPlacement) -> WorkerPlacement:
        key = (run.job, run.digest)
        here = given.get(worker.node, set()) if (key, worker.node) not in told else set[int]()
        place = workloads.places.get(key)
        moved = not here.isdisjoint(worker.gpus) and place is not None and _counts_gpus(workloads.bodies[place])
        return WorkerPlacement(node=worker.node) if moved else worker

    return tuple(
        run
        if run.placement is None or run.phase is RunPhase.QUEUED
        else replace(run, placement=Placement(workers=tuple(still(run, worker) for worker in run.placement.workers)))
        for run in runs
    )


def _counts_gpus(workload: Body) -> bool:
    """Whether its pods ask for a number of GPUs, whichever."""
    return requests_of(mapping(workload, "spec", "template", "spec")).gpus > 0


def _lacks_indexes(run: Run) -> bool:
    """Whether it holds GPUs of which the indexes are not all known."""
    place = run.placement
    return place is not None and run.gpu_milli > 0 and not all(worker.gpus for worker in place.workers)


def _with_indexes(
    runs: tuple[Run, ...], slots: Mapping[NodeName, _Slots], held: dict[NodeName, Counter[int]]
) -> tuple[Run, ...]:
    """Give indexes to GPUs that are known to be held, but not which: a pod that was bound without gpuctl's knowing.

    Adds to `held` what runs hold. A reservation of a queued run holds nothing yet.
    """
    placed = [(run, place) for run in runs if (place := run.placement) is not None]
    for worker in (worker for run, place in placed if run.phase is not RunPhase.QUEUED for worker in place.workers):
        taken = held[worker.node]
        for gpu in worker.gpus:
            taken[gpu] += 1
    if not any(_lacks_indexes(run) for run, _ in placed):
        return runs
    found: list[Run] = []
    for run in runs:
        if run.placement is None or not _lacks_indexes(run):
            found.append(run)
            continue
        wanted = max(1, run.gpu_milli // WHOLE_GPU)
        workers = []
        for worker in run.placement.workers:
            node_slots = slots.get(worker.node)
            if worker.gpus or node_slots is None:
                workers.append(worker)
                continue
            gpus = highest_free(node_slots.count, held[worker.node].keys() | node_slots.unfit, wanted)
            held[worker.node].update(gpus)
            workers.append(WorkerPlacement(node=worker.node, gpus=tuple(sorted(gpus))))
        found.append(replace(run, placement=Placement(workers=tuple(workers))))
    return tuple(found)
