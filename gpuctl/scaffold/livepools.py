"""The nodes of a live cluster, grouped into node pools."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.compile.amounts import NAME_LENGTH
from gpuctl.k8s.names import GPU_MEMORY_LABEL
from gpuctl.k8s.quantity import format_bytes
from gpuctl.model.declared import Way
from gpuctl.model.state import Node
from gpuctl.scaffold.pools import Pool

POOL_LABEL = "gpuctl.dev/pool"
PRODUCT_LABEL = "nvidia.com/gpu.product"
_MEBIBYTE = 1024**2
_UNKNOWN = "gpu"
_SHARING = (
    (Way.COUNT, "", ""),
    (Way.HAMI, "hami", ""),
    (Way.HAMI_CLAIM, "dra", "hami"),
    (Way.NVIDIA_CLAIM, "dra", "nvidia"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The pools of a cluster, and notes for a person on how they were found."""

    pools: tuple[Pool, ...]
    notes: tuple[str, ...] = ()


def pools_seen(nodes: Iterable[Node]) -> Seen:
    """A pool for each value of the label gpuctl.dev/pool; for other nodes with GPUs, one for each GPU product.

    If nodes of a pool differ, CPU and memory are those of the smallest. Cost: linear in nodes.
    """
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Node]] = defaultdict(list)
    without = 0
    for node in nodes:
        label, product = node.labels.get(POOL_LABEL, ""), node.labels.get(PRODUCT_LABEL, "")
        if label:
            groups[label, ()].append(node)
        elif not node.gpus:
            without += 1
        elif product:
            groups[_name_of(product), ((PRODUCT_LABEL, product),)].append(node)
        else:
            groups[_UNKNOWN, ()].append(node)
    those = "1 node has" if without == 1 else f"{without} nodes have"
    notes = [f"{those} no GPU and no label {POOL_LABEL}: in no pool"] if without else []
    taken: Counter[str] = Counter()
    pools = []
    for (name, selector), members in sorted(groups.items()):
        taken[name] += 1
        own = name if taken[name] == 1 else f"{name[: NAME_LENGTH - 4]}-{taken[name]}"
        pools.append(_pool(own, selector, members, notes))
        unlabelled = [node.name for node in members if POOL_LABEL not in node.labels]
        if not selector and unlabelled:
            notes.append(f"label the nodes of pool {own}: kubectl label node {' '.join(unlabelled)} {POOL_LABEL}={own}")
    return Seen(pools=tuple(pools), notes=tuple(notes))


def _pool(name: str, selector: tuple[tuple[str, str], ...], nodes: Sequence[Node], notes: list[str]) -> Pool:
    usual = Counter(node.gpus for node in nodes).most_common(1)[0][0]
    products = {node.labels.get(PRODUCT_LABEL, "") for node in nodes}
    sizes = {node.labels.get(GPU_MEMORY_LABEL, "") for node in nodes}
    if len(products) > 1 or len(sizes) > 1:
        notes.append(f"the nodes of pool {name} have GPUs of several kinds: give each kind a pool of its own")
    ways = frozenset.intersection(*(node.ways or frozenset() for node in nodes))
    sharing, driver = next(((said, by) for way, said, by in _SHARING if way in ways), ("", ""))
    if any(node.cut for node in nodes):
        notes.append(f"GPUs of pool {name} are cut into slices: say so by `sharing` and `mig`")
    return Pool(
        name=name,
        selector=selector,
        nodes=tuple(sorted(node.name for node in nodes)),
        odd=tuple(sorted((node.name, node.gpus) for node in nodes if node.gpus != usual)),
        gpus=usual,
        memory=_gpu_memory(sizes),
        cpu=str(min(node.cpu_milli for node in nodes) // 1000),
        ram=format_bytes(min(node.mem_bytes for node in nodes) // _MEBIBYTE * _MEBIBYTE),
        product=next(iter(products)) if len(products) == 1 else "",
        sharing=sharing,
        driver=driver,
    )


def _gpu_memory(sizes: Iterable[str]) -> str:
    """The smallest GPU memory among labels in MiB; "" if one is not a number."""
    numbers = [int(each) if re.fullmatch(r"[0-9]{1,9}", each) else 0 for each in sizes]
    return f"{min(numbers)}Mi" if min(numbers) else ""


def _name_of(product: str) -> str:
    """A name for the pool: `Tesla-V100-SXM2-32GB` -> `tesla-v100-sxm2-32gb`."""
    return re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")[:NAME_LENGTH].strip("-") or _UNKNOWN
