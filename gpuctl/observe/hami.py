"""GPUs that HAMi's device plugin registers on their node, and what HAMi's scheduler gave of them to pods.

Source: Project-HAMi/HAMi, docs/develop/protocol.md, and pkg/device/nvidia of release 2.10.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, flag, number, text
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body
from gpuctl.model.units import WHOLE_GPU
from gpuctl.observe.devices import HeldDevice, NodeDevices

_MILLI_PER_CORE = 10
_SHARED_MODES = frozenset({"", names.HAMI_MODE})


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiNode:
    """A node's registered GPUs. `index` and `mem_mib` by uuid."""

    devices: NodeDevices
    index: Mapping[str, int] = field(default_factory=dict)
    mem_mib: Mapping[str, int] = field(default_factory=dict)


def hami_node(node: Body) -> HamiNode | None:
    """What the node's annotations register; None where HAMi is not at work.

    A text that can't be read is an incomplete publication: the node takes no new work until it is written anew.
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


def _entries(register: object) -> list[Mapping[str, Any]] | None:
    try:
        found = json.loads(register) if isinstance(register, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(isinstance(entry, dict) and text(entry, "id") for entry in found):
        return None
    return [entry for entry in found if "NVIDIA" in (text(entry, "type") or "NVIDIA") and number(entry, "index") >= 0]


def hami_devices(pod: Body, nodes: Mapping[NodeName, HamiNode]) -> tuple[HeldDevice, ...]:
    """What HAMi's scheduler says it gave a pod: `uuid,type,MiB,cores` for each device, `:` after it, `;` a container.

    A device is held by its larger part, of cores or of memory, and by no less than each of its sharers may have.
    """
    notes = annotations_of(pod)
    node = NodeName(str(notes.get(names.HAMI_NODE_ANNOTATION, "")))
    known = nodes.get(node)
    if known is None:
        return ()
    return tuple(_parts(str(notes.get(names.HAMI_DEVICES_ANNOTATION, "")), node, known))


def _parts(given: str, node: NodeName, known: HamiNode) -> Iterator[HeldDevice]:
    for part in given.replace(";", ":").split(":"):
        fields = part.split(",")
        uuid, amounts = fields[0], fields[2:4]
        gpu = known.index.get(uuid)
        if gpu is None or len(amounts) < 2 or not all(amount.isdecimal() for amount in amounts):
            continue
        mem, cores = int(amounts[0]), int(amounts[1])
        of_memory = -(-mem * WHOLE_GPU // known.mem_mib[uuid]) if known.mem_mib[uuid] > 0 else WHOLE_GPU
        milli = max(cores * _MILLI_PER_CORE, of_memory, -(-WHOLE_GPU // max(1, known.devices.gpu_slots or 1)))
        yield HeldDevice(node=node, gpu=gpu, milli=min(WHOLE_GPU, milli), uuid=uuid)
