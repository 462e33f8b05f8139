"""What the caller keeps from one cycle to the next, and hands back to `schedule`.

It decides nothing: with a new cache every cycle gives the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.free import NodeFree
from gpuctl.engine.capacity.nodes import Capacity, survey
from gpuctl.engine.counters import Counters
from gpuctl.engine.jobs.demand import StaticFit
from gpuctl.engine.jobs.effective import EffectiveJobs
from gpuctl.engine.shares.accounts import OwnerTree
from gpuctl.model.decision import Decision
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Vacancy
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.state import ClusterState, Node, uuids_of
from gpuctl.model.units import Instant


class EngineCache:
    """The node capacity, the tree of owners, the fit of each job on empty nodes, and the carried state.

    `counters`: the work of the last cycle. `effective`: the jobs that depend on other jobs or on load.
    """

    __slots__ = (
        "_carried", "_declared", "_nodes", "capacity", "counters", "effective", "static_fit", "tree", "uuids",
    )  # fmt: skip

    capacity: Capacity
    uuids: Mapping[NodeName, tuple[str, ...]]
    tree: OwnerTree
    static_fit: StaticFit

    def __init__(self) -> None:
        self._declared: tuple[object, ...] = ()
        self._nodes: tuple[Node, ...] = ()
        self._carried: CarriedState | None = None
        self.counters = Counters()
        self.effective = EffectiveJobs()

    def over(self, declared: Declared, state: ClusterState, now_ms: Instant) -> CarriedState:
        """The carried state for these inputs. Cost: what changed since the last call, while cluster and nodes stay.

        Cluster and projects are unchanged if they are the same objects: equal ones give the same result from a cold
        start.
        """
        self.counters = Counters()
        same = (declared.cluster, declared.domains, declared.departments, declared.projects)
        if self._carried is None or not all(map(is_, same, self._declared)):
            self._declared, self._nodes = same, state.nodes
            self.capacity, self.tree = survey(declared, state.nodes), OwnerTree(declared)
            self._carried, self.uuids = None, uuids_of(state.nodes)
        elif self._nodes != state.nodes:
            before = {node.name: node for node in self._nodes}
            spaces = self.capacity.nodes
            known = {node.name: spaces[node.name] for node in state.nodes if before.get(node.name) is node}
            self.capacity, self._nodes = survey(declared, state.nodes, known), state.nodes
            self.uuids = uuids_of(state.nodes)
        if self._carried is None or not self._carried.fits(declared, now_ms):
            self.static_fit = StaticFit(self.capacity, self.tree)
            self._carried = CarriedState(declared, self.capacity, self.tree, self.static_fit)
        carried, self._carried = self._carried, None
        carried.update(declared, state, self.capacity, now_ms, self.counters)
        return carried

    def keep(self, carried: CarriedState) -> None:
        """Keep the carried state. A cycle that raised an error does not get here, so its state is dropped."""
        self._carried = carried

    def changed(self) -> list[Decision]:
        """The decisions of the last cycle that differ from those before, in order of jobs."""
        return [decision for _, decision in sorted(self._carried.changed.items())] if self._carried else []

    def vacancies(self) -> tuple[Vacancy, ...]:
        """What the last cycle left free in each pool, without reserved places. Cost: O(devices)."""
        rooms: dict[PoolName, list[NodeFree]] = {pool: [] for pool in self.capacity.usable}
        for room in self._carried.snapshot.idle.rooms.values() if self._carried is not None else ():
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
