"""Devices by name, where a driver publishes them: which node has which, and which claims and pods hold them.

A device's index is its minor: the number by which declarations and placements call it. HAMi's DRA driver publishes it
as an attribute. NVIDIA's driver does not, but names its devices by it, and publishes their uuid. A device that no slice
of the newest generation lists, or that is tainted, takes no new work.

Source: resource.k8s.io/v1, ResourceSlice.spec.pool on generations, ResourceClaim.status.allocation; NVIDIA
k8s-dra-driver-gpu, the canonical names of devices.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from gpuctl.k8s import kinds, names
from gpuctl.k8s.bounds import is_amount, whole_number
from gpuctl.k8s.objects import items, mapping, milli, number, ref_of, text
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName, ObjectRef
from gpuctl.model.state import Body, CutGpu
from gpuctl.model.units import MOST_NODE_GPUS, WHOLE_GPU, GpuMilli
from gpuctl.observe.unreadable import Faults, Unreadable, read

_GENERATION = ("spec", "pool", "generation")
_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""The phases of pods that no longer hold anything."""
_MINOR = re.compile(r"gpu-([0-9]{1,4})(-mig-.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """The devices of one node. `complete`: all slices of the newest generation are there.

    `out_of_use`: tainted, cordoned or not healthy. `gpu_slots`: how many workers may share a GPU, where that is
    limited.
    """

    minors: frozenset[int]
    out_of_use: frozenset[int]
    complete: bool
    ways: frozenset[Way] = frozenset({Way.HAMI_CLAIM})
    uuids: Mapping[int, str] = field(default_factory=dict)
    cut: Mapping[int, CutGpu] = field(default_factory=dict)
    gpu_slots: int | None = None

    def besides(self, other: NodeDevices) -> NodeDevices:
        """These devices together with those of another pool or driver on the same node: equal minors are the same
        GPU."""
        return NodeDevices(
            minors=self.minors | other.minors,
            out_of_use=self.out_of_use | other.out_of_use,
            complete=self.complete and other.complete,
            ways=self.ways | other.ways,
            uuids={**self.uuids, **other.uuids},
            cut={**self.cut, **other.cut},
            gpu_slots=self.gpu_slots if other.gpu_slots is None else other.gpu_slots,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """One device, or a part of it, that a pod was given. `slices`: how many of its MIG slices that is."""

    node: NodeName
    gpu: int
    milli: GpuMilli
    uuid: str = ""
    slices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInventory:
    """All devices by node, and what a claim's (driver, pool, device) would hold.

    `unreadable`: slices that can't be read, with the reason: their nodes take no new work.
    """

    nodes: Mapping[NodeName, NodeDevices] = field(default_factory=dict)
    index: Mapping[tuple[str, str, str], HeldDevice] = field(default_factory=dict)
    unreadable: tuple[tuple[ObjectRef, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim: its pods, the devices it holds, and whether it is removed when its pod has ended."""

    pods: frozenset[ObjectRef]
    held: tuple[HeldDevice, ...]
    is_removed_with_pod: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevices:
    """The devices that claims hold: by gpuctl's pods, and those that belong to no such pod."""

    of_pods: Mapping[ObjectRef, tuple[HeldDevice, ...]] = field(default_factory=dict)
    foreign: tuple[HeldDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class _Device:
    """One published device. `profile`: set for a MIG slice; `uuid` is then its GPU's."""

    name: str
    minor: int
    usable: bool
    uuid: str = ""
    profile: str = ""


def device_inventory(slices: Iterable[Body], classes: Iterable[Body] = ()) -> DeviceInventory:
    """The devices of the newest generation of each pool, for the drivers that gpuctl knows.

    A node may publish a pool under another node's name. Drivers name a pool after its node, so a claim from such a pool
    counts for the node with that name.
    """
    counted = any(_serves_counts(body) for body in classes)
    pools: dict[tuple[NodeName, str, str], list[Body]] = defaultdict(list)
    for body in slices:
        driver, node = text(body, "spec", "driver"), text(body, "spec", "nodeName")
        if driver in {names.DRA_DRIVER, names.NVIDIA_DRIVER} and node:
            pools[NodeName(node), driver, text(body, "spec", "pool", "name")].append(body)
    nodes: dict[NodeName, NodeDevices] = {}
    index: dict[tuple[str, str, str], HeldDevice] = {}
    faults = Faults()
    for (node, driver, pool), found in sorted(pools.items()):
        newest = max(number(body, *_GENERATION) for body in found)
        current = [body for body in found if number(body, *_GENERATION) == newest]
        wanted = number(current[0], "spec", "pool", "resourceSliceCount", default=1)
        readings = [read(partial(_published, body, driver), list[_Device]) for body in current]
        complete = len(current) >= wanted and not any(isinstance(each, Unreadable) for each in readings)
        listed: list[list[_Device]] = faults.sift(list(map(ref_of, current)), readings)
        devices = list(chain.from_iterable(listed))
        here = _node_devices(devices, driver, complete=complete, counted=counted)
        nodes[node] = nodes[node].besides(here) if node in nodes else here
        parts = {(driver, pool, device.name): _part(node, device, here.cut) for device in devices}
        index.update(parts if node == pool else {key: parts[key] for key in parts.keys() - index.keys()})
    return DeviceInventory(nodes=nodes, index=index, unreadable=tuple(faults.found))


def _published(body: Body, driver: str) -> list[_Device]:
    """The devices of one slice."""
    read_device = _nvidia_device if driver == names.NVIDIA_DRIVER else _hami_device
    return [device for entry in items(body, "spec", "devices") if (device := read_device(entry)) is not None]


def _serves_counts(device_class: Body) -> bool:
    """Whether NVIDIA's driver serves requests for plain counts of GPUs."""
    served = text(device_class, "spec", "extendedResourceName") == names.GPU_RESOURCE
    return served and text(device_class, "metadata", "name") == names.NVIDIA_GPU_CLASS


def _hami_device(device: Body) -> _Device | None:
    minor = number(device, "attributes", "minor", "int", default=-1)
    return (
        None if not is_amount(minor, MOST_NODE_GPUS - 1) else _Device(text(device, "name"), minor, _is_usable(device))
    )


def _nvidia_device(device: Body) -> _Device | None:
    """A GPU or a MIG slice; None for any other device, and for one without a usable name and uuid."""
    name, attributes = text(device, "name"), mapping(device, "attributes")
    found = _MINOR.fullmatch(name)
    is_slice = text(attributes, "type", "string") == "mig"
    uuid = text(attributes, "parentUUID" if is_slice else "uuid", "string")
    profile = text(attributes, "profile", "string")
    known = bool(profile) if is_slice else text(attributes, "type", "string") == "gpu"
    minor = whole_number(found[1], MOST_NODE_GPUS - 1) if found is not None else None
    if minor is None or not uuid or not known:
        return None
    return _Device(name, minor, _is_usable(device), uuid, profile if is_slice else "")


def _is_usable(device: Body) -> bool:
    return not any(taint.get("effect") in _BLOCKING_EFFECTS for taint in items(device, "taints"))


def _node_devices(devices: list[_Device], driver: str, *, complete: bool, counted: bool) -> NodeDevices:
    """The devices of one driver on a node. A GPU with published slices counts as cut, unless it is also published whole
    (to be cut on demand): then it counts as whole. A GPU with slices of several profiles counts as having those it has
    most of."""
    whole = frozenset(device.minor for device in devices if not device.profile)
    slices: dict[int, Counter[str]] = defaultdict(Counter)
    for device in devices:
        if device.profile and device.minor not in whole:
            slices[device.minor][device.profile] += device.usable
    ways = {Way.NVIDIA_CLAIM} if driver == names.NVIDIA_DRIVER else {Way.HAMI_CLAIM}
    if counted and driver == names.NVIDIA_DRIVER:
        ways.add(Way.COUNT)
    most = {gpu: max(counts.items(), key=lambda entry: (entry[1], entry[0])) for gpu, counts in sorted(slices.items())}
    return NodeDevices(
        minors=whole | most.keys(),
        out_of_use=frozenset(device.minor for device in devices if not device.usable and not device.profile),
        complete=complete,
        ways=frozenset(ways),
        uuids={device.minor: device.uuid for device in devices if device.uuid},
        cut={gpu: CutGpu(profile=profile, slices=count) for gpu, (profile, count) in most.items()},
    )


def _part(node: NodeName, device: _Device, cut: Mapping[int, CutGpu]) -> HeldDevice:
    """What a claim holds that was given a whole published device."""
    gpu = cut.get(device.minor)
    share = WHOLE_GPU if gpu is None or not device.profile else WHOLE_GPU // max(1, gpu.slices)
    return HeldDevice(node=node, gpu=device.minor, milli=share, uuid=device.uuid, slices=int(bool(device.profile)))


def read_claim(claim: Body, inventory: DeviceInventory) -> Claim:
    """Read one claim."""
    return Claim(
        pods=_users(claim), held=tuple(_held(claim, inventory)), is_removed_with_pod=_is_removed_with_pod(claim)
    )


def claimed_devices(
    claims: Iterable[Claim], our_pods: Container[ObjectRef], pods: Mapping[ObjectRef, Body]
) -> ClaimedDevices:
    """The devices that claims hold, by pod. If a claim is removed with its pod, its devices are free once the pod has
    ended.

    Any other claim holds its devices for as long as it exists: kube-scheduler gives them to nobody else.
    """
    of_pods: dict[ObjectRef, tuple[HeldDevice, ...]] = {}
    foreign: list[HeldDevice] = []
    for claim in claims:
        if claim.held:
            live = [pod for pod in claim.pods if not _has_ended(pods.get(pod))]
            ours = [pod for pod in live if pod in our_pods]
            for pod in ours:
                of_pods[pod] = of_pods.get(pod, ()) + claim.held
            if not ours and (live or not claim.is_removed_with_pod):
                foreign.extend(claim.held)
    return ClaimedDevices(of_pods=of_pods, foreign=tuple(sorted(foreign, key=lambda d: (d.node, d.gpu))))


def _has_ended(pod: Body | None) -> bool:
    return pod is None or text(pod, "status", "phase") in TERMINAL_PHASES


def _is_removed_with_pod(claim: Body) -> bool:
    """Whether Kubernetes removes the claim once its pod has ended: no finalizer of others keeps it."""
    meta = mapping(claim, "metadata")
    finalizers = meta.get("finalizers") or ()
    owned = any(owner.get("kind") == "Pod" for owner in items(claim, "metadata", "ownerReferences"))
    return owned and all(finalizer == _CLAIM_FINALIZER for finalizer in finalizers)


def _held(claim: Body, inventory: DeviceInventory) -> Iterable[HeldDevice]:
    for result in items(claim, "status", "allocation", "devices", "results"):
        device = inventory.index.get((text(result, "driver"), text(result, "pool"), text(result, "device")))
        if device is not None:
            consumed = mapping(result, "consumedCapacity")
            yield (
                replace(device, milli=min(WHOLE_GPU, milli(consumed, "cores") // 100))
                if "cores" in consumed
                else device
            )


def _users(claim: Body) -> frozenset[ObjectRef]:
    namespace = text(claim, "metadata", "namespace")
    reserved = (text(user, "name") for user in items(claim, "status", "reservedFor") if user.get("resource") == "pods")
    owners = (
        text(owner, "name") for owner in items(claim, "metadata", "ownerReferences") if owner.get("kind") == "Pod"
    )
    return frozenset(ObjectRef(*kinds.POD, namespace, name) for name in (*reserved, *owners))
