"""HAMi's scheduler: it counts parts of GPUs itself, from what nodes register and what it wrote on pods.

Source: Project-HAMi/HAMi, pkg/scheduler and pkg/device/nvidia of release 2.10.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.adapters.embedded.amounts import pod_asks
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, text
from gpuctl.model.state import Body

UNCOUNTED = frozenset({
    names.HAMI_MEMORY_RESOURCE, names.HAMI_MEMORY_PERCENT_RESOURCE, names.HAMI_CORES_RESOURCE,
})  # fmt: skip
"""Resources that no node has: the extender counts them, so the scheduler ignores them."""
_ALL_CORES = 100


@dataclass(slots=True)
class _Use:
    """The use of one GPU."""

    workers: int = 0
    mem_mib: int = 0
    cores: int = 0


def is_hamis(pod: Body) -> bool:
    """Whether HAMi schedules the pod."""
    return text(pod, "spec", "schedulerName") == names.HAMI_SCHEDULER


def hami_decision(pod: Body, node: Body, others: Iterable[Body], first: Collection[int] = ()) -> str | None:
    """The GPUs a pod gets on a node beside the other pods, as written on the pod; None if it gets none.

    `first`: the GPUs to try before the others.
    """
    asks = pod_asks(pod, "limits")
    wanted = asks.get(names.GPU_RESOURCE, 0)
    allowed = set(str(annotations_of(pod).get(names.HAMI_USE_ANNOTATION, "")).split(",")) - {""}
    cordoned = str(annotations_of(node).get(names.HAMI_CORDON_ANNOTATION, "")).split(",")
    use = _in_use(others)
    given: list[str] = []
    register = json.loads(str(annotations_of(node).get(names.HAMI_REGISTER_ANNOTATION, "[]")))
    for gpu in sorted(register, key=lambda entry: entry["index"] not in first) if first else register:
        mem = asks.get(names.HAMI_MEMORY_RESOURCE) or (
            gpu["devmem"] * asks.get(names.HAMI_MEMORY_PERCENT_RESOURCE, _ALL_CORES) // 100
        )
        cores = asks.get(names.HAMI_CORES_RESOURCE, 0)
        is_blocked = (allowed and gpu["id"] not in allowed) or gpu["id"] in cordoned or not gpu["health"]
        if len(given) < wanted and not is_blocked and _fits(gpu, use.get(gpu["id"], _Use()), mem, cores):
            given.append(f"{gpu['id']},NVIDIA,{mem},{cores}:")
    return f"{''.join(given)};" if wanted and len(given) == wanted else None


def _fits(gpu: Mapping[str, Any], use: _Use, mem: int, cores: int) -> bool:
    if use.workers and _ALL_CORES in (cores, use.cores):
        return False
    left: tuple[int, ...] = (
        gpu["count"] - use.workers - 1,
        gpu["devmem"] - use.mem_mib - mem,
        gpu["devcore"] - use.cores - cores,
    )
    return min(left) >= 0


def _in_use(pods: Iterable[Body]) -> dict[str, _Use]:
    found: dict[str, _Use] = {}
    for pod in pods:
        given = str(annotations_of(pod).get(names.HAMI_DEVICES_ANNOTATION, "")).replace(";", ":")
        for part in filter(None, given.split(":")):
            uuid, _, mem, cores = part.split(",")
            use = found.setdefault(uuid, _Use())
            use.workers, use.mem_mib, use.cores = use.workers + 1, use.mem_mib + int(mem), use.cores + int(cores)
    return found
