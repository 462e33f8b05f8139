"""GPUs that HAMi's device plugin registers on their node, and the devices that HAMi's scheduler gave to pods.

Source: Project-HAMi/HAMi, docs/develop/protocol.md, and pkg/device/nvidia of release 2.10.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.bounds import is_amount, whole_number
from gpuctl.k8s.objects import annotations_of, flag, items, mapping, number, text, whole
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body
from gpuctl.model.units import MOST_NODE_GPUS, WHOLE_GPU, GpuMilli
from gpuctl.observe.devices import HeldDevice, NodeDevices

_MILLI_PER_CORE = 10
_LONGEST_TEXT = 64 * 1024
"""The longest text about a pod's devices that is read."""
_SHARED_MODES = frozenset({"", names.HAMI_MODE})


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiNode:
    """A node's registered GPUs. `index` and `mem_mib` by uuid."""

    devices: NodeDevices
    index: Mapping[str, int] = field(default_factory=dict)
    mem_mib: Mapping[str, int] = field(default_factory=dict)


def hami_node(node: Body) -> HamiNode | None:
    """The GPUs that the node's annotations register; None where HAMi is not at work.

    An unreadable text counts as an incomplete publication: the node takes no new work until it is written anew.
    """
    notes = annotations_of(node)
    register = notes.get(names.HAMI_REGISTER_ANNOTATION)
    if register is None:
        return None
    cordoned = {uuid.strip() for uuid in str(notes.get(names.HAMI_CORDON_ANNOTATION, "")).split(",")}
    entries = _entries(register)
    uuids: dict[int, str] = {}
    out_of_use: set[int] = set()
    for entry in entries or ():
        gpu, uuid = number(entry, "index"), text(entry, "id")
        uuids[gpu] = uuid
        if not flag(entry, "health") or uuid in cordoned or text(entry, "mode") not in _SHARED_MODES:
            out_of_use.add(gpu)
    return HamiNode(
        devices=NodeDevices(
            minors=frozenset(uuids),
            out_of_use=frozenset(out_of_use),
            complete=entries is not None,
            ways=frozenset({Way.HAMI}),
            uuids=uuids,
            gpu_slots=min((number(entry, "count") for entry in entries or ()), default=None),
        ),
        index={uuid: gpu for gpu, uuid in uuids.items()},
        mem_mib={text(entry, "id"): number(entry, "devmem") for entry in entries or ()},
    )


def unreadable_hami_node() -> HamiNode:
    """Stands in for a registration that can't be read: the node takes no new work."""
    return HamiNode(
        devices=NodeDevices(minors=frozenset(), out_of_use=frozenset(), complete=False, ways=frozenset({Way.HAMI}))
    )


def _entries(register: object) -> list[Mapping[str, Any]] | None:
    try:
        found = json.loads(register) if isinstance(register, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(isinstance(entry, dict) and text(entry, "id") for entry in found):
        return None
    ours = (entry for entry in found if "NVIDIA" in (text(entry, "type") or "NVIDIA"))
    return [entry for entry in ours if is_amount(number(entry, "index"), MOST_NODE_GPUS - 1)]


def hami_devices(pod: Body, nodes: Mapping[NodeName, HamiNode]) -> tuple[HeldDevice, ...]:
    """The devices that HAMi's scheduler says it gave a pod: `uuid,type,MiB,cores` a device, `:` after it, `;` a
    container.

    Security: a tenant who may write the pod may write this as well. So it only tells which devices they are: no more
    than the pod requests, on the node it is bound to. How much of each device is taken from the pod's request, if that
    says so.
    """
    node = NodeName(text(pod, "spec", "nodeName"))
    known = nodes.get(node)
    if known is None:
        return ()
    asks = [ask for container in items(pod, "spec", "containers") for ask in _asked(container)]
    given = str(annotations_of(pod).get(names.HAMI_DEVICES_ANNOTATION, ""))[:_LONGEST_TEXT]
    return tuple(_devices(given, asks, node, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """The part of a device that a container requests; None where HAMi's own default decides."""

    mem_mib: int | None = None
    mem_percent: int | None = None
    cores: int | None = None


def _asked(container: Mapping[str, Any]) -> list[_Ask]:
    """The requests of a container, device by device."""
    limits = mapping(container, "resources", "limits")

    def amount(resource: str) -> int | None:
        return max(0, whole(limits, resource)) if resource in limits else None

    one = _Ask(
        mem_mib=amount(names.HAMI_MEMORY_RESOURCE),
        mem_percent=amount(names.HAMI_MEMORY_PERCENT_RESOURCE),
        cores=amount(names.HAMI_CORES_RESOURCE),
    )
    return [one] * min(MOST_NODE_GPUS, amount(names.GPU_RESOURCE) or 0)


def _devices(given: str, asks: list[_Ask], node: NodeName, known: HamiNode) -> Iterator[HeldDevice]:
    """The held devices. A device is held by its larger part, of cores or of memory, and by at least an equal sharer's
    part."""
    parts = (part.split(",") for part in given.replace(";", ":").split(":"))
    for fields, ask in zip((fields for fields in parts if fields[0] in known.index), asks, strict=False):
        uuid, amounts = fields[0], [whole_number(amount) for amount in fields[2:4]]
        gpu = known.index[uuid]
        mem, cores = ((amount or 0) for amount in (*amounts, None, None)[:2])
        milli = max(
            (cores if ask.cores is None else ask.cores) * _MILLI_PER_CORE,
            _of_memory(mem, known.mem_mib[uuid], ask),
            -(-WHOLE_GPU // max(1, known.devices.gpu_slots or 1)),
        )
        yield HeldDevice(node=node, gpu=gpu, milli=min(WHOLE_GPU, milli), uuid=uuid)


def _of_memory(given_mib: int, device_mib: int, ask: _Ask) -> GpuMilli:
    if ask.mem_mib is None and ask.mem_percent is not None:
        return ask.mem_percent * _MILLI_PER_CORE
    mem_mib = given_mib if ask.mem_mib is None else ask.mem_mib
    return -(-mem_mib * WHOLE_GPU // device_mib) if device_mib > 0 else WHOLE_GPU
