"""What the engine may carry from one cycle to the next: what declarations and nodes alone imply as long as both stay,
and where everybody stood.

Nothing of it decides anything; thrown away, it is worked out anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.free import NodeFree
from gpuctl.engine.capacity.nodes import Capacity, survey
from gpuctl.engine.counters import Counters
from gpuctl.engine.jobs.demand import StaticFit
from gpuctl.engine.shares.accounts import OwnerTree
from gpuctl.model.decision import Decision
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Vacancy
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.state import ClusterState, Node, uuids_of
from gpuctl.model.units import Instant


class EngineCache:
    """The nodes in their pools, the tree of owners, what each job could have on empty nodes, and where all stand.

    `effort` is what the last cycle took.
    """

    __slots__ = ("_declared", "_nodes", "_standing", "capacity", "effort", "prospects", "tree", "uuids")

    capacity: Capacity
    uuids: Mapping[NodeName, tuple[str, ...]]
    tree: OwnerTree
    prospects: StaticFit

    def __init__(self) -> None:
        self._declared: tuple[object, ...] = ()
        self._nodes: tuple[Node, ...] = ()
        self._standing: CarriedState | None = None
        self.effort = Counters()

    def over(self, declared: Declared, state: ClusterState, now_ms: Instant) -> CarriedState:
        """Where everybody stands now. Cost: what has changed since the last call, where cluster and nodes stay.

        Cluster and projects stay as long as they are the same objects: equal ones are right too, and a cold start.
        """
        self.effort = Counters()
        same = (declared.cluster, declared.domains, declared.departments, declared.projects)
        if self._standing is None or not all(map(is_, same, self._declared)):
            self._declared, self._nodes = same, state.nodes
            self.capacity, self.tree = survey(declared, state.nodes), OwnerTree(declared)
            self._standing, self.uuids = None, uuids_of(state.nodes)
        elif self._nodes != state.nodes:
            before = {node.name: node for node in self._nodes}
            spaces = self.capacity.nodes
            known = {node.name: spaces[node.name] for node in state.nodes if before.get(node.name) is node}
            self.capacity, self._nodes = survey(declared, state.nodes, known), state.nodes
            self.uuids = uuids_of(state.nodes)
        if self._standing is None or not self._standing.fits(declared, now_ms):
            self.prospects = StaticFit(self.capacity, self.tree)
            self._standing = CarriedState(declared, self.capacity, self.tree, self.prospects)
        standing, self._standing = self._standing, None
        standing.update(declared, state, self.capacity, now_ms, self.effort)
        return standing

    def keep(self, standing: CarriedState) -> None:
        """Remember where all stand: a cycle that did not come to its end is forgotten."""
        self._standing = standing

    def changed(self) -> list[Decision]:
        """What the last cycle decided otherwise than the one before it, in order of jobs."""
        return [decision for _, decision in sorted(self._standing.verdicts.changed.items())] if self._standing else []

    def vacancies(self) -> tuple[Vacancy, ...]:
        """What the last cycle left free, pool by pool: as its snapshot have it, without what is promised or kept.

        Cost: linear in devices.
        """
        rooms: dict[PoolName, list[NodeFree]] = {pool: [] for pool in self.capacity.usable}
        for room in self._standing.snapshot.idle.rooms.values() if self._standing is not None else ():
            rooms[room.pool].append(room)
        return tuple(
            Vacancy(
                pool=pool,
                free_milli=sum(max(0, milli) for room in members for milli in room.gpu_milli),
                whole=max((room.whole for room in members), default=0),
                part_milli=max((milli for room in members for milli in (0, *room.gpu_milli)), default=0),
            )
            for pool, members in rooms.items()
        )
