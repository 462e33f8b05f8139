"""Live nodes sorted into pools and quota domains, and what each has for gpuctl's jobs.

A node belongs to the first pool, in preference order, whose labels it has; a node of no pool offers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared, NodePool, Sharing
from gpuctl.model.ids import DomainName, NodeName, PoolName
from gpuctl.model.state import Node
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """What a node has for gpuctl's jobs. `gpu_milli`: what foreign pods and faults leave of each device. `profiles`:
    what each device is cut into, "" for a whole one; () on a node without cut devices. `ready`: runs can stay.
    `usable`: new work may come. `served`: the devices can be requested in the pool's way. `topology`: zone, block,
    rack, as many as its pool has levels, "" for an unknown one; () if all are unknown."""

    name: NodeName
    pool: PoolName | None
    domain: DomainName | None
    gpu_milli: tuple[GpuMilli, ...]
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    ready: bool
    usable: bool
    profiles: tuple[str, ...] = ()
    served: bool = True
    topology: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Nodes by name, pools by name, each pool's usable nodes in name order, and each pool's domain."""

    nodes: Mapping[NodeName, NodeCapacity]
    pools: Mapping[PoolName, NodePool]
    usable: Mapping[PoolName, tuple[NodeCapacity, ...]]
    domain_of: Mapping[PoolName, DomainName]

    def usable_milli(self, domain: DomainName) -> GpuMilli:
        """GPUs of a domain that new work may use."""
        return sum(sum(node.gpu_milli) for pool in self.pools_of(domain) for node in self.usable.get(pool, ()))

    def pools_of(self, domain: DomainName) -> list[PoolName]:
        """The pools of a domain."""
        return [pool for pool, its_domain in self.domain_of.items() if its_domain == domain]

    def pool_of(self, placement: Placement) -> PoolName | None:
        """The pool of the first worker; all workers are in the same pool."""
        spaces = (self.nodes.get(worker.node) for worker in placement.workers[:1])
        return next((space.pool for space in spaces if space is not None), None)


def is_served(node: Node, pool: NodePool) -> bool:
    """Whether devices can be requested in the pool's way: its driver runs there and shares them as declared."""
    slots = pool.gpu_slots if pool.sharing is Sharing.HAMI else 0
    return (node.ways is None or pool.way in node.ways) and (node.gpu_slots is None or node.gpu_slots >= slots)


def _left_of(node: Node, pool: NodePool | None, index: int) -> GpuMilli:
    nameless = pool is not None and pool.by_uuid and node.ways is not None and not any(node.uuids[index : index + 1])
    if index in node.lost_gpus or nameless:
        return 0
    cut = node.cut.get(index)
    if cut is not None:
        return 0 if pool is None else pool.slice_milli(cut.profile) * max(0, cut.slices - cut.taken)
    foreign = node.foreign_gpu_milli
    return max(0, WHOLE_GPU - (foreign[index] if index < len(foreign) else 0))


def _space(node: Node, pool: NodePool | None, domain_of: Mapping[PoolName, DomainName]) -> NodeCapacity:
    path = tuple(node.labels.get(label, "") for label in pool.topology) if pool is not None else ()
    profiles = (node.cut[index].profile if index in node.cut else "" for index in range(node.gpus))
    served = pool is None or is_served(node, pool)
    return NodeCapacity(
        name=node.name,
        pool=pool.name if pool else None,
        domain=domain_of.get(pool.name) if pool else None,
        gpu_milli=tuple([_left_of(node, pool, index) if served else 0 for index in range(node.gpus)]),
        cpu_milli=node.cpu_milli - node.foreign_cpu_milli,
        mem_bytes=node.mem_bytes - node.foreign_mem_bytes,
        ready=node.ready,
        usable=node.ready and node.usable and pool is not None,
        profiles=tuple(profiles) if node.cut else (),
        served=served,
        topology=path if any(path) else (),
    )


def survey(
    declared: Declared, nodes: Iterable[Node], known: Mapping[NodeName, NodeCapacity] = MappingProxyType({})
) -> Capacity:
    """Sort the nodes into pools; `known` nodes are not read again. Cost: O(nodes + new nodes x pools).

    If all nodes were read, a cycle in which one of 1,000 comes back would take 1.5x.
    """
    domain_of = {pool: domain.name for domain in declared.domains for pool in domain.pools}
    spaces: dict[NodeName, NodeCapacity] = {}
    usable: dict[PoolName, list[NodeCapacity]] = {pool.name: [] for pool in declared.cluster.pools}
    for node in sorted(nodes, key=lambda n: n.name):
        space = known.get(node.name)
        if space is None:
            pool = next((pool for pool in declared.cluster.pools if pool.selects(node.labels)), None)
            space = _space(node, pool, domain_of)
        spaces[node.name] = space
        if space.usable and space.pool is not None:
            usable[space.pool].append(space)
    return Capacity(
        nodes=spaces,
        pools={pool.name: pool for pool in declared.cluster.pools},
        usable={name: tuple(members) for name, members in usable.items()},
        domain_of=domain_of,
    )


def changed_nodes(before: Capacity, after: Capacity) -> frozenset[NodeName]:
    """Nodes that changed, were added or were removed. Cost: O(nodes)."""
    old, new = before.nodes, after.nodes
    others = [(name, space) for name, space in new.items() if old.get(name) is not space]
    return frozenset(old.keys() - new.keys()).union(name for name, space in others if old.get(name) != space)
