"""Devices by name, where a DRA driver publishes them: which node has which, and which claims hold them.

A device's index is its `minor`: the number by which the declared inventory, placements and claim selectors call it.
Source: resource.k8s.io/v1, ResourceSlice.spec.pool on generations, ResourceClaim.status.allocation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuctl.k8s import names
from gpuctl.k8s.objects import items, labels_of, mapping, milli, number, text
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body
from gpuctl.model.units import WHOLE_GPU, GpuMilli

_GENERATION = ("spec", "pool", "generation")
_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """The devices of one node. `complete`: all slices of the newest generation are there."""

    minors: frozenset[int]
    tainted: frozenset[int]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """One device, or a part of it, that a claim was given."""

    node: NodeName
    gpu: int
    milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInventory:
    """All devices of the driver: by node, and the node and index of each (pool, device)."""

    nodes: Mapping[NodeName, NodeDevices] = field(default_factory=dict)
    index: Mapping[tuple[str, str], tuple[NodeName, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevices:
    """What claims hold: by (namespace, pod), and all that belongs to no pod of gpuctl's."""

    of_pods: Mapping[tuple[str, str], tuple[HeldDevice, ...]] = field(default_factory=dict)
    foreign: tuple[HeldDevice, ...] = ()


def device_inventory(slices: Iterable[Body]) -> DeviceInventory:
    """Devices of the newest generation of each pool of the driver."""
    pools: dict[tuple[NodeName, str], list[Body]] = defaultdict(list)
    for body in slices:
        if text(body, "spec", "driver") == names.DRA_DRIVER and text(body, "spec", "nodeName"):
            pools[NodeName(text(body, "spec", "nodeName")), text(body, "spec", "pool", "name")].append(body)
    nodes: dict[NodeName, NodeDevices] = {}
    index: dict[tuple[str, str], tuple[NodeName, int]] = {}
    for (node, pool), found in sorted(pools.items()):
        newest = max(number(body, *_GENERATION) for body in found)
        current = [body for body in found if number(body, *_GENERATION) == newest]
        minors, tainted = set(), set()
        for device in (device for body in current for device in items(body, "spec", "devices")):
            minor = number(device, "attributes", "minor", "int", default=-1)
            if minor < 0:
                continue
            index[pool, text(device, "name")] = (node, minor)
            minors.add(minor)
            if any(taint.get("effect") in _BLOCKING_EFFECTS for taint in items(device, "taints")):
                tainted.add(minor)
        wanted = number(current[0], "spec", "pool", "resourceSliceCount", default=1)
        before = nodes.get(node, NodeDevices(minors=frozenset(), tainted=frozenset(), complete=True))
        nodes[node] = NodeDevices(
            minors=before.minors | minors,
            tainted=before.tainted | tainted,
            complete=before.complete and len(current) >= wanted,
        )
    return DeviceInventory(nodes=nodes, index=index)


def claimed_devices(
    claims: Iterable[Body], inventory: DeviceInventory, our_pods: frozenset[tuple[str, str]], cluster: str = ""
) -> ClaimedDevices:
    """Who holds which devices. A claim of gpuctl's whose pod is gone is about to be removed and holds nothing."""
    of_pods: dict[tuple[str, str], tuple[HeldDevice, ...]] = {}
    foreign: list[HeldDevice] = []
    for body in claims:
        held = tuple(_held(body, inventory))
        if not held:
            continue
        namespace = text(body, "metadata", "namespace")
        ours = [(namespace, pod) for pod in _users(body) if (namespace, pod) in our_pods]
        for pod in ours:
            of_pods[pod] = of_pods.get(pod, ()) + held
        if not ours and not _is_managed(body, cluster):
            foreign.extend(held)
    return ClaimedDevices(of_pods=of_pods, foreign=tuple(sorted(foreign, key=lambda d: (d.node, d.gpu))))


def _is_managed(claim: Body, cluster: str) -> bool:
    """Whether gpuctl made it, for that cluster or, without one, for any."""
    labels = labels_of(claim)
    return labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and (
        not cluster or labels.get(names.CLUSTER_LABEL) == cluster
    )


def _held(claim: Body, inventory: DeviceInventory) -> Iterable[HeldDevice]:
    for result in items(claim, "status", "allocation", "devices", "results"):
        place = inventory.index.get((text(result, "pool"), text(result, "device")))
        if result.get("driver") != names.DRA_DRIVER or place is None:
            continue
        consumed = mapping(result, "consumedCapacity")
        share = milli(consumed, "cores") // 100 if "cores" in consumed else WHOLE_GPU
        yield HeldDevice(node=place[0], gpu=place[1], milli=share)


def _users(claim: Body) -> frozenset[str]:
    reserved = (text(user, "name") for user in items(claim, "status", "reservedFor") if user.get("resource") == "pods")
    owners = (
        text(owner, "name") for owner in items(claim, "metadata", "ownerReferences") if owner.get("kind") == "Pod"
    )
    return frozenset([*reserved, *owners])
