"""What there is: live nodes sorted into pools and quota domains, and what each offers to gpuctl's work.

It knows nodes and declarations, not jobs. A node belongs to the first pool, in preference order, whose labels it has;
a node of no pool offers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuctl.model.declared import Declared, DomainName, NodePool
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.state import Node
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpace:
    """A node's room for gpuctl's work. `gpu_milli` has one entry a device: what foreign pods and faults leave of it.

    `ready`: what runs here can stay. `usable`: new work may come.
    """

    name: NodeName
    pool: PoolName | None
    domain: DomainName | None
    gpu_milli: tuple[GpuMilli, ...]
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    ready: bool
    usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """All nodes by name, the pools by name, each pool's usable nodes in name order, and each pool's domain."""

    nodes: Mapping[NodeName, NodeSpace]
    pools: Mapping[PoolName, NodePool]
    usable: Mapping[PoolName, tuple[NodeSpace, ...]]
    domain_of: Mapping[PoolName, DomainName]

    def usable_milli(self, domain: DomainName) -> GpuMilli:
        """GPUs of a domain that new work may use."""
        pools = (pool for pool, its_domain in self.domain_of.items() if its_domain == domain)
        return sum(sum(node.gpu_milli) for pool in pools for node in self.usable.get(pool, ()))


def _pool_of(node: Node, pools: Iterable[NodePool]) -> NodePool | None:
    for pool in pools:
        if all(node.labels.get(key) == value for key, value in pool.match_labels.items()):
            return pool
    return None


def _devices(node: Node) -> tuple[GpuMilli, ...]:
    foreign = node.foreign_gpu_milli
    return tuple(
        0 if index in node.lost_gpus else max(0, WHOLE_GPU - (foreign[index] if index < len(foreign) else 0))
        for index in range(max(0, node.gpus))
    )


def survey(declared: Declared, nodes: Iterable[Node]) -> Capacity:
    """Sort the nodes into pools. Cost: O(nodes x pools)."""
    domain_of = {pool: domain.name for domain in declared.domains for pool in domain.pools}
    spaces: dict[NodeName, NodeSpace] = {}
    usable: dict[PoolName, list[NodeSpace]] = {pool.name: [] for pool in declared.cluster.pools}
    for node in sorted(nodes, key=lambda n: n.name):
        pool = _pool_of(node, declared.cluster.pools)
        space = NodeSpace(
            name=node.name,
            pool=pool.name if pool else None,
            domain=domain_of.get(pool.name) if pool else None,
            gpu_milli=_devices(node),
            cpu_milli=node.cpu_milli - node.foreign_cpu_milli,
            mem_bytes=node.mem_bytes - node.foreign_mem_bytes,
            ready=node.ready,
            usable=node.ready and node.usable and pool is not None,
        )
        spaces[node.name] = space
        if space.usable and space.pool is not None:
            usable[space.pool].append(space)
    return Capacity(
        nodes=spaces,
        pools={pool.name: pool for pool in declared.cluster.pools},
        usable={name: tuple(members) for name, members in usable.items()},
        domain_of=domain_of,
    )
