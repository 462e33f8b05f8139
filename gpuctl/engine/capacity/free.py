"""Free capacity: what is free of each device, and of CPU and memory, on each usable node.

A cycle takes and gives back whole placements. Amounts are integers, so giving back what was taken restores everything
exactly and no undo log is needed. A device may go below zero, because a place can be reserved while it is occupied. Two
indexes answer the common questions without a scan: nodes by their number of wholly free devices, and partly used
devices by what is left of them. Cut devices count as partly used, in an index for each profile.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import repeat
from typing import Protocol, TypeAlias, TypeVar

from gpuctl.engine.capacity.fit import Request, UnschedulableRequests, WorkerRequest
from gpuctl.engine.capacity.fragmentation import Free
from gpuctl.engine.capacity.nodes import Capacity, NodeCapacity
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.engine.counters import Counters
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes

T = TypeVar("T", NodeName, tuple[GpuMilli, NodeName, int])

Grade: TypeAlias = tuple[int, ...]
"""How good a node is for a request; the lowest is best."""

MOST_RANKED = 200_000
"""The most nodes in all rankings together, which take some 50 MiB; the rankings asked for last are kept. Without this
bound 2,000 jobs that all differ take 800 MiB on 2,000 nodes."""


class Placed(Protocol):
    """A placement with what each worker is charged there."""

    @property
    def placement(self) -> Placement:
        """Where the workers are."""
        ...

    @property
    def per_worker(self) -> WorkerRequest:
        """What each worker is charged."""
        ...


@dataclass(slots=True, eq=False)
class NodeFree:
    """What is free on one node; only its FreeCapacity changes it. `version` differs after each change."""

    name: NodeName
    pool: PoolName
    gpu_milli: list[GpuMilli]
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    profiles: tuple[str, ...] = ()
    topology: tuple[str, ...] = ()
    whole: int = field(init=False)
    version: int = 0

    def __post_init__(self) -> None:
        self.whole = len(self.whole_devices())

    @property
    def free(self) -> Free:
        """What is free on each device that is not cut, in ascending order."""
        return tuple(sorted(max(0, milli) for milli in self.free_of("")))

    def devices_of(self, profile: str) -> Sequence[int]:
        """The devices that are cut into a profile; "": those that are not cut."""
        if self.profiles:
            return [index for index, cut in enumerate(self.profiles) if cut == profile]
        return () if profile else range(len(self.gpu_milli))

    def free_of(self, profile: str) -> Sequence[GpuMilli]:
        """What is free on each of these devices."""
        if self.profiles:
            return [self.gpu_milli[index] for index in self.devices_of(profile)]
        return () if profile else self.gpu_milli

    def profile_of(self, index: int) -> str:
        """The profile that a device is cut into; "" for a device that is not cut."""
        return self.profiles[index] if self.profiles else ""

    def whole_devices(self) -> list[int]:
        """The wholly free devices that are not cut."""
        return [index for index in self.devices_of("") if self.gpu_milli[index] >= WHOLE_GPU]

    def slots(self, request: Request) -> int:
        """How many workers fit, up to all of them. For whole devices `whole` is used, not counted again."""
        if request.devices and not request.fraction_milli and not request.profile:
            by_cpu = request.slots_beside_gpus(self.cpu_milli, self.mem_bytes)
            return max(0, min(by_cpu, self.whole // request.devices))
        return request.slots_in(self.free_of(request.profile), self.cpu_milli, self.mem_bytes)

    def holds(self, request: Request) -> bool:
        """Whether one worker's CPU and memory fit. A worker that asks for none fits even if less than none is free."""
        return request.slots_beside_gpus(self.cpu_milli, self.mem_bytes) > 0

    def give_back(self, worker: WorkerPlacement, per_worker: WorkerRequest, sign: int = 1) -> None:
        """Give back what a worker was charged on this node; with a sign of -1, take it. Does not update `whole`."""
        self.cpu_milli += sign * per_worker.cpu_milli
        self.mem_bytes += sign * per_worker.mem_bytes
        milli, free = sign * per_worker.on_device(worker), self.gpu_milli
        for index in worker.gpus:
            if 0 <= index < len(free):
                free[index] += milli

    def without(self, placed: Iterable[Placed], sign: int = 1) -> NodeFree:
        """What if some placements had left the node; with a sign of -1, if they were there too."""
        what_if = copy_of(self, self.pool)
        for each in placed:
            per_worker = each.per_worker
            for worker in each.placement.workers:
                if worker.node == self.name:
                    what_if.give_back(worker, per_worker, sign)
        what_if.whole = len(what_if.whole_devices())
        return what_if


class Ranking:
    """The nodes in order for one kind of request, ties by name: a heap that skips entries of nodes changed since.

    `grade`: returns None for a node that can't hold the request.
    """

    def __init__(self, grade: Callable[[NodeFree], Grade | None]) -> None:
        self._grade = grade
        self._heap: list[tuple[Grade, NodeName, int]] = []
        self._seen: int | None = None

    def best(
        self, rooms: Mapping[NodeName, NodeFree], touched: Sequence[NodeName], able: Callable[[], Iterable[NodeName]]
    ) -> tuple[Grade, NodeName] | None:
        """The best node. `touched`: the names of all changed nodes in order; it only grows. `able`: called the first
        time; gives all nodes that may hold the request."""
        names = able() if self._seen is None else touched[self._seen :]
        for room in filter(None, map(rooms.get, dict.fromkeys(names))):
            grade = self._grade(room)
            if grade is not None:
                heappush(self._heap, (grade, room.name, room.version))
        self._seen = len(touched)
        while self._heap:
            found, name, version = self._heap[0]
            current = rooms.get(name)
            if current is not None and current.version == version:
                return found, name
            heappop(self._heap)
        return None


class FreeCapacity:
    """The free capacity of all usable nodes, indexed by pool. Cost: O(devices + log nodes) for each node of a
    placement.
    """

    def __init__(
        self,
        rooms: dict[NodeName, NodeFree],
        counters: Counters | None = None,
        mix: RequestMix | None = None,
    ) -> None:
        self.rooms = rooms
        self.counters = counters or Counters()
        self.mix = mix or RequestMix()
        self._moves = 0
        self._index()

    def _index(self) -> None:
        """Build the indexes, and forget rankings and failed requests. Cost: O(devices log devices)."""
        self._rankings: dict[object, Ranking] = {}
        self._touched: list[NodeName] = []
        self._by_whole: dict[PoolName, list[list[NodeName]]] = {}
        self._partial = defaultdict[tuple[PoolName, str], list[tuple[GpuMilli, NodeName, int]]](list)
        self._unschedulable = defaultdict[tuple[PoolName, str], UnschedulableRequests](UnschedulableRequests)
        for room in self.rooms.values():
            self._enlist(room)

    def _enlist(self, room: NodeFree) -> None:
        buckets = self._by_whole.setdefault(room.pool, [])
        while len(buckets) <= len(room.gpu_milli):
            buckets.append([])
        insort(buckets[room.whole], room.name)
        for profile, entry in _parts(room):
            insort(self._partial[room.pool, profile], entry)

    def _delist(self, room: NodeFree) -> None:
        _remove(self._by_whole[room.pool][room.whole], room.name)
        for profile, entry in _parts(room):
            _remove(self._partial[room.pool, profile], entry)

    @staticmethod
    def of(capacity: Capacity) -> FreeCapacity:
        """The usable nodes with nothing on them."""
        return FreeCapacity({
            node.name: copy_of(node, pool) for pool, nodes in capacity.usable.items() for node in nodes
        })

    def refit(self, capacity: Capacity, nodes: Iterable[NodeName]) -> None:
        """Replace nodes on which nothing runs by their present state; leave out those that are not usable."""
        for name in nodes:
            self.rooms.pop(name, None)
            space = capacity.nodes.get(name)
            if space is not None and space.usable and space.pool is not None:
                self.rooms[name] = copy_of(space, space.pool)
        self._index()

    def adopt(self, mix: RequestMix) -> None:
        """Rank nodes by this mix of requests from now on."""
        if self.mix is not mix:
            self.mix = mix
            self._drop_rankings()

    def _drop_rankings(self) -> None:
        self._rankings.clear()
        self._touched.clear()

    def take(self, placed: Collection[Placed]) -> None:
        """Occupy placements. Unknown nodes and devices are ignored. Cost: O(placed), and O(devices) of their nodes."""
        self._move(placed, -1)

    def give_back(self, placed: Collection[Placed]) -> None:
        """The exact opposite of `take`."""
        self._move(placed, 1)
        for requests in self._unschedulable.values():
            requests.forget()

    @contextmanager
    def without(self, placed: Collection[Placed]) -> Iterator[None]:
        """What if these had left: true inside the `with`. After it, the failed requests from before are known again."""
        unschedulable, self._unschedulable = self._unschedulable, defaultdict(UnschedulableRequests)
        self._move(placed, 1)
        yield
        self._move(placed, -1)
        self._unschedulable = unschedulable

    def nodes_by_whole(self, pool: PoolName) -> list[list[NodeName]]:
        """Sorted node names by their number of wholly free devices. Read only."""
        return self._by_whole.get(pool, [])

    def partial_devices(self, pool: PoolName, profile: str = "") -> list[tuple[GpuMilli, NodeName, int]]:
        """Sorted (free, node, device) of every partly free device, or of every device with a free slice of a profile.
        Read only.
        """
        return self._partial.get((pool, profile), [])

    def best(
        self, key: object, grade: Callable[[NodeFree], Grade | None], able: Callable[[], Iterable[NodeName]]
    ) -> tuple[Grade, NodeName] | None:
        """The best node by a grade, and the grade. `key`: equal for equal grades. `able`: see `Ranking.best`.

        Cost: the nodes changed since the last call for the key; the first time, the able ones.
        """
        ranking = self._rankings.pop(key, None) or Ranking(grade)
        self._rankings[key] = ranking
        while len(self._rankings) * len(self.rooms) > MOST_RANKED and len(self._rankings) > 1:
            del self._rankings[next(iter(self._rankings))]
        return ranking.best(self.rooms, self._touched, able)

    def unschedulable(self, pool: PoolName, profile: str = "") -> UnschedulableRequests:
        """Requests that had no place in a pool since capacity was last given back."""
        return self._unschedulable[pool, profile]

    def free_milli(self, pool: PoolName, profile: str = "") -> GpuMilli:
        """All that is free in a pool on devices that are not cut, or on those of one profile."""
        partial = sum(milli for milli, _, _ in self.partial_devices(pool, profile))
        return partial if profile else self.whole_devices(pool) * WHOLE_GPU + partial

    def all_free_milli(self, pool: PoolName) -> GpuMilli:
        """All that is free in a pool, on devices of any kind."""
        profiles = {profile for of_pool, profile in self._partial if of_pool == pool}
        return sum(self.free_milli(pool, profile) for profile in profiles | {""})

    def whole_devices(self, pool: PoolName) -> int:
        """Wholly free devices of a pool."""
        return sum(whole * len(nodes) for whole, nodes in enumerate(self.nodes_by_whole(pool)))

    def _move(self, placed: Collection[Placed], sign: int) -> None:
        """Take or give back placements. Each node is taken out of the indexes and entered again once."""
        nodes = dict.fromkeys([worker.node for each in placed for worker in each.placement.workers])
        moved = list(filter(None, map(self.rooms.get, nodes)))
        for room in moved:
            self._delist(room)
        for each in placed:
            per_worker = each.per_worker
            for worker in each.placement.workers:
                node = self.rooms.get(worker.node)
                if node is not None:
                    node.give_back(worker, per_worker, sign)
        for room in moved:
            room.whole = len(room.whole_devices())
            self._touch(room)
            self._enlist(room)

    def _touch(self, room: NodeFree) -> None:
        """Record that a node has changed, by a new version.

        After more changes than there are nodes, all rankings are dropped: without that, repacking takes 1.7x.
        """
        self._moves += 1
        room.version = self._moves
        self._touched.append(room.name)
        if len(self._touched) > len(self.rooms):
            self._drop_rankings()


def copy_of(node: NodeCapacity | NodeFree, pool: PoolName) -> NodeFree:
    """The free capacity of a node with nothing on it, or a copy of what is free on it now."""
    return NodeFree(node.name, pool, list(node.gpu_milli), node.cpu_milli, node.mem_bytes, node.profiles, node.topology)


def _parts(room: NodeFree) -> list[tuple[str, tuple[GpuMilli, NodeName, int]]]:
    """The index entries, with profiles, of devices that are partly used or cut, and not full."""
    devices = enumerate(zip(room.gpu_milli, room.profiles or repeat(""), strict=False))
    return [
        (profile, (free, room.name, index))
        for index, (free, profile) in devices
        if free > 0 and (free < WHOLE_GPU or profile)
    ]


def _remove(entries: list[T], entry: T) -> None:
    del entries[bisect_left(entries, entry)]
