"""What the caller keeps from one cycle to the next, and hands back to `schedule`.

It changes no decision: a new cache in every cycle gives the same ones.
"""

from __future__ import annotations

from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.free import NodeFree
from gpuctl.engine.counters import Counters
from gpuctl.engine.jobs.effective import EffectiveJobs
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Vacancy
from gpuctl.model.ids import PoolName
from gpuctl.model.state import ClusterState
from gpuctl.model.units import Instant


class EngineCache:
    """The carried state, and what is known of the declarations.

    `counters`: the work of the last schedule, looking ahead included. `may_be_undone`: whether in the last cycle runs
    make way, or start again, while jobs compete for GPUs. `effective`: the jobs that depend on other jobs or on load.
    """

    def __init__(self) -> None:
        self._carried: CarriedState | None = None
        self._noted: tuple[Vacancy, ...] | None = None
        self.counters = Counters()
        self.may_be_undone = False
        self.effective = EffectiveJobs()

    def begin(self) -> None:
        """Begin a schedule."""
        self.counters = Counters()
        self._noted = None

    def note(self) -> None:
        """Note what the last cycle left free, before cycles are made in advance."""
        self._noted = None
        self._noted = self.vacancies()

    def over(self, declared: Declared, state: ClusterState, now_ms: Instant) -> CarriedState:
        """The carried state for these inputs. Cost: what changed since the last call, if cluster and projects are the
        same. `keep` puts it back: the state of a cycle that raised an error is dropped."""
        carried, self._carried = self._carried, None
        if carried is None or not carried.fits(declared, now_ms):
            carried = CarriedState(declared, state.nodes)
        carried.update(declared, state, now_ms, self.counters)
        return carried

    def keep(self, carried: CarriedState, *, may_be_undone: bool) -> None:
        """Keep the carried state at the end of a cycle."""
        self._carried, self.may_be_undone = carried, may_be_undone

    def vacancies(self) -> tuple[Vacancy, ...]:
        """What the last schedule left free in each pool, without reserved places. Cost: O(devices)."""
        if self._noted is not None:
            return self._noted
        if self._carried is None:
            return ()
        rooms: dict[PoolName, list[NodeFree]] = {pool: [] for pool in self._carried.capacity.usable}
        for room in self._carried.snapshot.idle.rooms.values():
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
