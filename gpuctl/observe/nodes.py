"""Nodes: their capacity, and what others have taken there.

Where a DRA driver or HAMi publishes a node's devices, they are known one by one. Elsewhere only the kubelet can tell
the GPUs apart, and indexes are slots. GPUs that are known only by a count (other pods' GPUs, broken GPUs) get the
highest slots that no run of gpuctl holds. If those are too few, they also get slots that are planned for pods that do
not exist yet: kube-scheduler has given these GPUs away, for example to a pod of a higher PriorityClass.

A node that is not ready takes nothing new, and what runs there goes on. If the kubelet itself reports it, as each does
for some seconds after a restart, it still has its pods. Once that has lasted (five minutes by default), Kubernetes
evicts them, and their places are open on a node that takes no new pods. A silent node is lost once Kubernetes' node
controller has tainted it as unreachable, and another node has been heard all the while. Without the latter the network
or the API server is the cause, and all runs go on until Kubernetes evicts pods. The node controller has such a rule
too, but it applies the rule after it has looked at all nodes, and may have tainted a first one by then: seen on
Kubernetes 1.36, where the taint stayed until the nodes were heard again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, instant, is_deleting, items, labels_of, mapping, milli, status_of, text, whole
from gpuctl.k8s.requests import Requests
from gpuctl.k8s.tolerations import OF_ALL_PODS
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName, ObjectRef
from gpuctl.model.memo import Sweep
from gpuctl.model.state import Body, Node, Run
from gpuctl.model.taints import Taint, Toleration
from gpuctl.model.tenancy import Tenancy
from gpuctl.model.units import WHOLE_GPU, Instant
from gpuctl.observe.devices import HeldDevice, NodeDevices
from gpuctl.observe.numbering import beside_given, only_planned, with_indexes
from gpuctl.observe.pods import Pod
from gpuctl.observe.roster import Workloads
from gpuctl.observe.slices import with_others
from gpuctl.observe.slots import Slots, highest_free, no_slots, slots_of
from gpuctl.observe.unreadable import Faults, Unreadable, read

Use: TypeAlias = tuple[NodeName, Requests]
"""A foreign pod's requests on its node."""

_KEEPS_PODS_OUT = frozenset({"NoSchedule", "NoExecute"})
_NOT_READY = "node.kubernetes.io/not-ready"
"""The taint of a node whose condition Ready is False."""
_UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", value="", effect="NoExecute")
"""The taint of a node from which the node controller does not hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What is taken on a node: how often each index is held, and what others have by index and by count.

    `planned`: the held indexes that no pod on the node has.
    """

    held: Mapping[int, int]
    planned: frozenset[int] = frozenset()
    foreign_milli: Mapping[int, int]
    foreign_slices: Mapping[int, int]
    foreign: Requests


class NodeCache:
    """Caches the nodes as last read, each with the inputs it was read from."""

    __slots__ = ("_nodes", "_slots")

    def __init__(self) -> None:
        self._nodes: Sweep[NodeName, Node | Unreadable[Node]] = Sweep()
        self._slots: Sweep[NodeName, Slots | Unreadable[Slots]] = Sweep()

    def slots(
        self, bodies: Mapping[NodeName, Body], devices: Mapping[NodeName, NodeDevices], faults: Faults
    ) -> dict[NodeName, Slots]:
        """The indexes of each node's GPUs."""
        lives, given = list(bodies.values()), list(map(devices.get, bodies))
        readings = self._slots.over(
            bodies, [lives, given], lambda at: read(partial(slots_of, lives[at], given[at]), no_slots)
        )
        return dict(zip(bodies, faults.sift(_refs(bodies), readings), strict=True))

    def nodes(
        self,
        bodies: Mapping[NodeName, Body],
        slots: Mapping[NodeName, Slots],
        taken: Sequence[_Taken],
        tenancy: Tenancy | None,
        faults: Faults,
    ) -> tuple[Node, ...]:
        """All nodes. An unreadable node takes no new work; what runs there goes on."""
        names, lives, indexes = list(bodies), list(bodies.values()), list(slots.values())
        tolerant = tenancy if tenancy is not None and tenancy.pools else None
        tolerated = [() if tolerant is None else tolerant.tolerations(labels_of(body)) for body in lives]
        readings = self._nodes.over(
            names,
            [lives, indexes, taken, tolerated],
            lambda at: read(
                partial(_node, names[at], lives[at], indexes[at], taken[at], tolerated[at]),
                partial(_unreadable_node, names[at]),
            ),
        )
        return tuple(faults.sift(_refs(bodies), readings))


def _refs(bodies: Iterable[NodeName]) -> list[ObjectRef]:
    return [ObjectRef(*kinds.NODE, "", name) for name in bodies]


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
    tenancy: Tenancy | None,
    known: NodeCache,
    faults: Faults,
) -> tuple[tuple[Node, ...], tuple[Run, ...]]:
    """All nodes by name, and the runs with an index for every GPU they hold.

    `own_pods`: the pods of runs. `workloads`: the runs' own objects.
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
    runs = with_indexes(beside_given(runs, workloads, slots, own_pods, held), slots, held)
    use: dict[NodeName, Requests] = defaultdict(Requests)
    for node, requests in foreign_use:
        use[node] = use[node].plus(requests)
    planned = only_planned(runs, held)
    taken = []
    for name in by_name:
        foreign = _by_count(use.get(name, _NONE_USED), slots[name])
        # What runs hold there matters only where others' GPUs are known by count.
        beyond = max(held.get(name) or _NO_NUMBERS) >= slots[name].count
        by_number = slots[name].lost_unknown or foreign.gpus or foreign.slices or beyond
        if not (by_number or name in use or name in foreign_milli or name in foreign_slices):
            taken.append(_UNTOUCHED)
            continue
        taken.append(
            _Taken(
                held=held[name] if by_number else _NONE_HELD,
                planned=planned.get(name, frozenset()) if by_number else frozenset(),
                foreign_milli=foreign_milli.get(name, _NONE_HELD),
                foreign_slices=foreign_slices.get(name, _NONE_HELD),
                foreign=foreign,
            )
        )
    return known.nodes(_with_believed_taints(by_name), slots, taken, tenancy, faults), runs


def _with_believed_taints(bodies: Mapping[NodeName, Body]) -> Mapping[NodeName, Body]:
    """The nodes, without the taint of being unreachable where no other node was heard all the while. Cost: O(nodes),
    and next to nothing while none has a taint."""
    tainted = [
        name for name, body in bodies.items() if "taints" in mapping(body, "spec") and _UNREACHABLE in _taints(body)
    ]
    if not tainted:
        return bodies
    heard_ms = min((_since_ms(body) for body in bodies.values() if status_of(body, "Ready") == "True"), default=None)
    believed = dict(bodies)
    for name in tainted:
        body = bodies[name]
        if status_of(body, "Ready") == "True" or heard_ms is None or heard_ms > _since_ms(body):
            others = [taint for taint in items(body, "spec", "taints") if _taint(taint) != _UNREACHABLE]
            believed[name] = {**body, "spec": {**mapping(body, "spec"), "taints": others}}
    return believed


def _since_ms(body: Body) -> Instant:
    """Since when a node's condition Ready has its status."""
    entries = items(body, "status", "conditions")
    return next((instant(each, "lastTransitionTime") for each in entries if each.get("type") == "Ready"), None) or 0


_NONE_USED = Requests()
_NONE_HELD: Mapping[int, int] = {}
_NO_NUMBERS = (-1,)
_UNTOUCHED = _Taken(held=_NONE_HELD, foreign_milli=_NONE_HELD, foreign_slices=_NONE_HELD, foreign=_NONE_USED)


def _by_count(use: Requests, slots: Slots) -> Requests:
    """What others' pods ask for, with nothing counted twice.

    GPUs that a driver gives by claim are held by the claim. HAMi's GPUs are in `use` if it is not known which they are.
    """
    return replace(use, gpus=0) if slots.by_device and use.gpus and Way.HAMI not in slots.ways else use


def _node(name: NodeName, body: Body, slots: Slots, taken: _Taken, tolerations: tuple[Toleration, ...]) -> Node:
    held = frozenset(taken.held)
    lost = slots.lost | frozenset(_free_first(slots, held, taken.planned, slots.lost_unknown))
    by_count = _free_first(slots, held | lost, taken.planned - lost, taken.foreign.gpus)
    blocking = [
        taint
        for taint in _taints(body)
        if taint.effect in _KEEPS_PODS_OUT and not any(each.covers(taint) for each in (*OF_ALL_PODS, *tolerations))
    ]
    ready = status_of(body, "Ready")
    is_there = bool(ready) and not is_deleting(body)
    takes_pods = ready == "True" and not blocking and not flag(body, "spec", "unschedulable")
    allocatable = mapping(body, "status", "allocatable")
    uuids = slots.devices.uuids if slots.devices is not None else {}
    return Node(
        name=name,
        labels={key: str(value) for key, value in labels_of(body).items()},
        gpus=slots.count,
        cpu_milli=milli(allocatable, "cpu"),
        mem_bytes=whole(allocatable, "memory"),
        usable=is_there and takes_pods and slots.certain,
        ready=is_there and not any(taint.effect == "NoExecute" and taint.key != _NOT_READY for taint in blocking),
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
        excess_gpus=sum(gpu >= slots.count for gpu in held) if slots.certain else 0,
    )


def _free_first(slots: Slots, held: frozenset[int], planned: frozenset[int], wanted: int) -> tuple[int, ...]:
    """Up to `wanted` slots: the highest that are not held, then the highest that are only planned."""
    found = highest_free(slots.count, held | slots.unfit, wanted)
    rest = wanted - len(found)
    return found + tuple(sorted(planned - slots.unfit, reverse=True))[:rest] if rest and planned else found


def _taints(body: Body) -> list[Taint]:
    return [_taint(taint) for taint in items(body, "spec", "taints")]


def _taint(taint: Body) -> Taint:
    return Taint(key=text(taint, "key"), value=text(taint, "value"), effect=text(taint, "effect"))
