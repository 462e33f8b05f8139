"""What drivers and plugins on a node publish about its GPUs: resources, labels, annotations, slices and their classes.

A node has only what its pool's way of sharing needs. GPUs that are cut have the highest indexes. A GPU's uuid is made
of its node's name and its index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.quantity import MEBIBYTE
from gpuctl.model.declared import DeclaredNode, NodePool, Sharing, Way
from gpuctl.model.state import Body

_KINDS = {
    names.DRA_DEVICE_CLASS: (names.DRA_DRIVER, "hami-gpu"),
    names.NVIDIA_GPU_CLASS: (names.NVIDIA_DRIVER, "gpu"),
    names.NVIDIA_MIG_CLASS: (names.NVIDIA_DRIVER, "mig"),
}
"""The driver and the type of the devices of each class."""
_CLASSES = {
    Way.HAMI_CLAIM: (names.DRA_DEVICE_CLASS,),
    Way.NVIDIA_CLAIM: (names.NVIDIA_GPU_CLASS, names.NVIDIA_MIG_CLASS),
}


def gpu_uuid(node: str, index: int) -> str:
    """The uuid of a node's GPU."""
    return f"GPU-{sha256(node.encode()).hexdigest()[:8]}-0000-4000-8000-{index:012x}"


def gpu_resources(pool: NodePool, node: DeclaredNode) -> dict[str, str]:
    """The resources that can be asked for by count."""
    counts: dict[str, int] = {}
    if pool.sharing is Sharing.HAMI:
        counts[names.GPU_RESOURCE] = node.gpus * pool.gpu_slots
    elif pool.way is Way.COUNT:
        counts[names.GPU_RESOURCE] = node.whole_gpus
        for profile in pool.profiles:
            counts[f"{names.MIG_RESOURCE_PREFIX}{profile.name}"] = node.mig.get(profile.name, 0) * profile.per_gpu
    return {name: str(count) for name, count in counts.items() if count}


def gpu_labels(pool: NodePool, node: DeclaredNode) -> dict[str, str]:
    """The labels of GPU feature discovery."""
    found = {
        "nvidia.com/gpu.count": str(node.gpus),
        names.GPU_MEMORY_LABEL: str(pool.gpu_mem_bytes // MEBIBYTE),
        "nvidia.com/gpu.product": pool.gpu_product,
    }
    return {**found, "nvidia.com/mig.strategy": "mixed"} if node.mig else found


def gpu_annotations(pool: NodePool, node: DeclaredNode) -> dict[str, str]:
    """The annotations of HAMi's device plugin."""
    if pool.sharing is not Sharing.HAMI:
        return {}
    register = [
        {"id": gpu_uuid(node.name, index), "index": index, "count": pool.gpu_slots, "devcore": 100, "numa": 0,
         "devmem": pool.gpu_mem_bytes // MEBIBYTE, "type": f"NVIDIA-{pool.gpu_product}", "mode": names.HAMI_MODE,
         "health": True}
        for index in range(node.gpus)
    ]  # fmt: skip
    return {names.HAMI_REGISTER_ANNOTATION: json.dumps(register)}


def device_classes(pools: Iterable[NodePool]) -> Iterator[Body]:
    """The classes that claims in these pools name."""
    for name in dict.fromkeys(name for pool in pools for name in _CLASSES.get(pool.way, ())):
        driver, kind = _KINDS[name]
        selector = f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"
        yield {
            "apiVersion": kinds.DEVICE_CLASS[0],
            "kind": kinds.DEVICE_CLASS[1],
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": selector}}]},
        }


def slice_names(node: str) -> tuple[str, ...]:
    """The possible names of a node's slices."""
    return f"{node}-hami-0", f"{node}-nvidia-0"


def resource_slice(pool: NodePool, node: DeclaredNode) -> Body | None:
    """The node's devices, if a driver publishes them."""
    hami, nvidia = slice_names(node.name)
    match pool.way:
        case Way.HAMI_CLAIM:
            return _slice(hami, names.DRA_DRIVER, node, _shared_devices(pool, node))
        case Way.NVIDIA_CLAIM:
            return _slice(nvidia, names.NVIDIA_DRIVER, node, list(_nvidia_devices(pool, node)))
        case Way.COUNT | Way.HAMI:
            return None


def _slice(name: str, driver: str, node: DeclaredNode, devices: list[dict[str, Any]]) -> Body:
    return {
        "apiVersion": kinds.RESOURCE_SLICE[0],
        "kind": kinds.RESOURCE_SLICE[1],
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": node.name, "devices": devices,
                 "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1}},
    }  # fmt: skip


def _shared_devices(pool: NodePool, node: DeclaredNode) -> list[dict[str, Any]]:
    memory = f"{pool.gpu_mem_bytes // MEBIBYTE}Mi"
    capacity = {
        "cores": {"value": "100", "requestPolicy": {
            "default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}},
        "memory": {"value": memory, "requestPolicy": {
            "default": memory, "validRange": {"min": "1Mi", "max": memory, "step": "1Mi"}}},
    }  # fmt: skip
    return [
        {"name": f"hami-gpu-{minor}", "allowMultipleAllocations": True, "capacity": capacity,
         "attributes": {"type": {"string": "hami-gpu"}, "minor": {"int": minor}}}
        for minor in range(node.gpus)
    ]  # fmt: skip


def _nvidia_devices(pool: NodePool, node: DeclaredNode) -> Iterator[dict[str, Any]]:
    """The whole GPUs, and every slice of the GPUs that are cut."""
    memory = pool.gpu_mem_bytes // MEBIBYTE
    for minor in range(node.whole_gpus):
        attributes = {"type": {"string": "gpu"}, "uuid": {"string": gpu_uuid(node.name, minor)}}
        yield {"name": f"gpu-{minor}", "attributes": attributes, "capacity": {"memory": {"value": f"{memory}Mi"}}}
    cut = [profile for profile in pool.profiles for _ in range(node.mig.get(profile.name, 0))]
    for minor, profile in enumerate(cut, start=node.whole_gpus):
        attributes = {
            "type": {"string": "mig"},
            "profile": {"string": profile.name},
            "parentUUID": {"string": gpu_uuid(node.name, minor)},
        }
        capacity = {"memory": {"value": f"{memory * profile.holds_milli // 1000}Mi"}}
        for position in range(profile.per_gpu):
            yield {"name": f"gpu-{minor}-mig-{position}", "attributes": attributes, "capacity": capacity}
