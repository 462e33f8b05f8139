"""The requests of the openb experiment's pods, and the pools of its nodes: one for each GPU model.

A pod that names GPU models may use the pools of these; any other pod may use all pools. Where no pod of a list names a
model, all nodes are one pool, as nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gpuctl.diag.span import SourceSpan
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.fragmentation import Want
from gpuctl.model.declared import NodePool, PlacementStrategy, Sharing
from gpuctl.model.ids import PoolName
from gpuctl.simulate.trace_openb import OpenbNode, OpenbPod

Pools: TypeAlias = Mapping[PoolName, NodePool]

ALL_NODES = PoolName("openb")


class Ask(NamedTuple):
    """The request of one pod, and the pools that it may use, in the cluster's order."""

    request: Request
    pools: tuple[PoolName, ...]

    @property
    def want(self) -> Want:
        """GPUs and CPU, as a mix of requests counts them."""
        return self.request.gpu_milli, self.request.cpu_milli


Counts: TypeAlias = Mapping[Ask, int]
"""How often each request occurs."""


def pools_of(nodes: Sequence[OpenbNode], pods: Iterable[OpenbPod]) -> Pools:
    """The pools, in the order of their names."""
    names = sorted({node.model for node in nodes}) if any(pod.models for pod in pods) else [ALL_NODES]
    return {PoolName(name): _pool(PoolName(name)) for name in names}


def _pool(name: PoolName) -> NodePool:
    return NodePool(
        name=name,
        match_labels={},
        nodes=(),
        gpu_mem_bytes=0,
        gpu_product="",
        placement=PlacementStrategy.BINPACK,
        sharing=Sharing.DRA,
        span=SourceSpan(file="openb"),
    )


def pool_of(node: OpenbNode, pools: Pools) -> PoolName:
    """The pool that a node is in."""
    name = PoolName(node.model)
    return name if name in pools else ALL_NODES


def ask_of(pod: OpenbPod, pools: Pools) -> Ask:
    """What a pod asks for."""
    able = (name for name in pools if not pod.models or name in pod.models)
    return Ask(Request(pod.gpu_milli, pod.cpu_milli, pod.mem_bytes, 1), tuple(able))


def counted(asks: Iterable[Ask]) -> Counts:
    """How often each request occurs."""
    counts: dict[Ask, int] = {}
    for ask in asks:
        counts[ask] = counts.get(ask, 0) + 1
    return counts
