"""What is free: of each device, CPU and memory of each usable node, while the engine decides.

A ledger belongs to one cycle, which takes and gives back whole placements; amounts are integers, so giving back what
was taken restores the ledger exactly and nothing needs an undo log. Devices may go below zero: a place can be reserved
that is still occupied. Two indexes answer the common questions without looking at every node: nodes by how many
devices are wholly free, and partly used devices by what is left of them. Devices that are cut into slices are never
among the whole ones; those of each profile have an index of their own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import gt
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from gpuctl.engine.capacity.fragmentation import Free
from gpuctl.engine.capacity.nodes import Capacity, NodeCapacity
from gpuctl.engine.capacity.ranking import Grade, Ranking
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.counters import Counters
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes

_MANY = 8
"""So many changes a node are remembered before the nodes are ranked anew."""

T = TypeVar("T", NodeName, tuple[GpuMilli, NodeName, int])


class WorkerRequest:
    """What one worker costs where it is: GPUs over its devices, CPU and memory."""

    __slots__ = ("cpu_milli", "gpu_milli", "mem_bytes")

    def __init__(self, gpu_milli: GpuMilli, cpu_milli: CpuMilli, mem_bytes: MemBytes) -> None:
        self.gpu_milli = gpu_milli
        self.cpu_milli = cpu_milli
        self.mem_bytes = mem_bytes

    @property
    def sizes(self) -> tuple[GpuMilli, CpuMilli, MemBytes]:
        """The same as a tuple."""
        return self.gpu_milli, self.cpu_milli, self.mem_bytes

    def on_device(self, worker: WorkerPlacement) -> GpuMilli:
        """The part on each of the worker's devices, rounded up."""
        return -(-self.gpu_milli // len(worker.gpus)) if worker.gpus else 0


class _Placed(Protocol):
    """What has a place, and is charged for it there."""

    @property
    def placement(self) -> Placement:
        """Where."""
        ...

    @property
    def charge(self) -> WorkerRequest:
        """What for each worker."""
        ...


class NodeFree:
    """What is free on one node; changed only by its ledger."""

    __slots__ = (
        "_free", "cpu_milli", "gpu_milli", "mem_bytes", "name", "pool", "profiles", "topology", "version", "whole",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - what a node has
        self,
        name: NodeName,
        pool: PoolName,
        gpu_milli: list[GpuMilli],
        cpu_milli: CpuMilli,
        mem_bytes: MemBytes,
        profiles: tuple[str, ...] = (),
        topology: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.pool = pool
        self.gpu_milli = gpu_milli
        self.cpu_milli = cpu_milli
        self.mem_bytes = mem_bytes
        self.profiles = profiles
        self.topology = topology
        self.whole = len(self.whole_devices())
        self.version = 0
        self._free: tuple[int, Free] = (-1, ())

    def copy(self) -> NodeFree:
        """A room of its own with the same contents."""
        other = NodeFree(
            self.name, self.pool, list(self.gpu_milli), self.cpu_milli, self.mem_bytes, self.profiles, self.topology
        )
        other.version, other._free = self.version, self._free
        return other

    @property
    def free(self) -> Free:
        """What is free on each device that is not cut, least first."""
        version, free = self._free
        if version != self.version:
            whole = (
                self.gpu_milli
                if not self.profiles
                else (milli for milli, profile in zip(self.gpu_milli, self.profiles, strict=True) if not profile)
            )
            free = tuple(sorted(max(0, milli) for milli in whole))
            self._free = self.version, free
        return free

    def profile_of(self, index: int) -> str:
        """What a device is cut into; "" for one that is not."""
        return self.profiles[index] if self.profiles else ""

    def whole_devices(self) -> list[int]:
        """The wholly free devices that are not cut."""
        free = [index for index, milli in enumerate(self.gpu_milli) if milli >= WHOLE_GPU]
        return [index for index in free if not self.profiles[index]] if self.profiles else free


class FreeCapacity:
    """Free room by node, indexed a pool. Cost: O(devices + log nodes) to take or give back a worker."""

    __slots__ = (
        "_by_whole", "_moves", "_partial", "_partial_milli", "_rankings", "_touched", "_unschedulable", "_whole",
        "effort", "habits", "rooms",
    )  # fmt: skip

    def __init__(
        self,
        rooms: dict[NodeName, NodeFree],
        effort: Counters | None = None,
        habits: Mapping[PoolName, RequestMix] = MappingProxyType({}),
    ) -> None:
        self.rooms = rooms
        self.effort = effort or Counters()
        self.habits = habits
        self._moves = 0
        self._rankings: dict[object, Ranking[NodeFree]] = {}
        self._touched: list[NodeName] = []
        self._by_whole: dict[PoolName, list[list[NodeName]]] = {}
        self._partial: dict[tuple[PoolName, str], list[tuple[GpuMilli, NodeName, int]]] = {}
        self._whole: dict[PoolName, int] = {}
        self._partial_milli: dict[tuple[PoolName, str], GpuMilli] = {}
        self._unschedulable: dict[tuple[PoolName, str], UnschedulableRequests] = {}
        self._index()

    def _index(self) -> None:
        """Build the indexes from the rooms. Cost: O(devices log devices)."""
        self._by_whole.clear()
        self._partial.clear()
        self._whole.clear()
        self._partial_milli.clear()
        for name in sorted(self.rooms):
            self._enlist(self.rooms[name], list.append)
        for entries in self._partial.values():
            entries.sort()

    def _enlist(self, room: NodeFree, put: Callable[[list[Any], Any], None] = insort) -> None:
        """Have a room in the indexes."""
        buckets = self._by_whole.setdefault(room.pool, [])
        while len(buckets) <= len(room.gpu_milli):
            buckets.append([])
        put(buckets[room.whole], room.name)
        self._whole[room.pool] = self._whole.get(room.pool, 0) + room.whole
        for profile in ("", *room.profiles):
            if (room.pool, profile) not in self._partial:
                self._partial[room.pool, profile], self._partial_milli[room.pool, profile] = [], 0
        for profile, entry in _parts(room):
            put(self._partial[room.pool, profile], entry)
            self._partial_milli[room.pool, profile] += entry[0]

    def _delist(self, room: NodeFree) -> None:
        """The exact opposite of `_enlist`."""
        _remove(self._by_whole[room.pool][room.whole], room.name)
        self._whole[room.pool] -= room.whole
        for profile, entry in _parts(room):
            _remove(self._partial[room.pool, profile], entry)
            self._partial_milli[room.pool, profile] -= entry[0]

    @staticmethod
    def of(capacity: Capacity) -> FreeCapacity:
        """The usable nodes with nothing on them."""
        return FreeCapacity({
            node.name: _empty(node, pool) for pool, nodes in capacity.usable.items() for node in nodes
        })

    def refit(self, capacity: Capacity, nodes: Iterable[NodeName]) -> None:
        """Nodes that nothing is on are as they now are, or are not there. Cost: O(devices log devices) of these."""
        for name in nodes:
            before, space = self.rooms.pop(name, None), capacity.nodes.get(name)
            if before is not None:
                self._delist(before)
            if space is not None and space.usable and space.pool is not None:
                room = self.rooms[name] = _empty(space, space.pool)
                self._enlist(room)
                self._touch(room)
        self._unschedulable.clear()

    def copy(self) -> FreeCapacity:
        """A ledger of its own with the same contents. Cost: O(devices)."""
        other = FreeCapacity({}, self.effort, self.habits)
        other.rooms = {name: room.copy() for name, room in self.rooms.items()}
        other._by_whole = {pool: list(map(list, buckets)) for pool, buckets in self._by_whole.items()}
        other._partial = {kind: list(entries) for kind, entries in self._partial.items()}
        other._whole, other._partial_milli = dict(self._whole), dict(self._partial_milli)
        other._rankings = {key: ranking.copy() for key, ranking in self._rankings.items()}
        other._touched, other._moves = list(self._touched), self._moves
        return other

    def take(self, placement: Placement, charge: WorkerRequest) -> None:
        """Occupy a placement. Nodes and devices this ledger does not have are passed over."""
        self._move(placement, charge, -1)

    def adopt(self, habits: Mapping[PoolName, RequestMix]) -> None:
        """Rank nodes by these habits from now on."""
        if any(self.habits.get(pool) is not found for pool, found in habits.items()):
            self.habits = habits
            self._rankings.clear()
            self._touched.clear()

    def tidy(self) -> None:
        """Forget what was touched once that is more than ranking the nodes anew would cost."""
        if len(self._touched) > _MANY * len(self.rooms) + _MANY:
            self._rankings.clear()
            self._touched.clear()

    def take_all(self, runs: Collection[_Placed]) -> None:
        """Occupy the placements of many at once. Cost: O(runs), and O(devices) for each node they are on."""
        self._move_all(runs, -1)

    def give_back_all(self, runs: Collection[_Placed]) -> None:
        """The exact opposite of `take_all`."""
        self._move_all(runs, 1)
        self._forget_unschedulable()

    def exchange(self, leaving: Collection[_Placed], coming: _Placed) -> None:
        """Give back the placements of some and occupy that of another."""
        there = (self.rooms.get(worker.node) for run in leaving for worker in run.placement.workers)
        before = {room: (room.gpu_milli[:], room.cpu_milli, room.mem_bytes) for room in there if room is not None}
        self._move_all(leaving, 1)
        self._move_all((coming,), -1)
        if any(
            room.cpu_milli > cpu_milli or room.mem_bytes > mem_bytes or any(map(gt, room.gpu_milli, gpu_milli))
            for room, (gpu_milli, cpu_milli, mem_bytes) in before.items()
        ):
            self._forget_unschedulable()

    @contextmanager
    def without(self, runs: Collection[_Placed]) -> Iterator[None]:
        """As it would be without them, for a look: what had no place before has none after it."""
        unschedulable, self._unschedulable = self._unschedulable, {}
        self._move_all(runs, 1)
        yield
        self._move_all(runs, -1)
        self._unschedulable = unschedulable

    def give_back(self, placement: Placement, charge: WorkerRequest) -> None:
        """The exact opposite of `take`."""
        self._move(placement, charge, 1)
        self._forget_unschedulable()

    def _forget_unschedulable(self) -> None:
        for requests in self._unschedulable.values():
            requests.forget()

    def nodes_by_whole(self, pool: PoolName) -> list[list[NodeName]]:
        """Node names, sorted, by their number of wholly free devices. Not to be changed."""
        return self._by_whole.get(pool, [])

    def partial_devices(self, pool: PoolName, profile: str = "") -> list[tuple[GpuMilli, NodeName, int]]:
        """(free, node, device) of every partly free device, or of every cut one with a slice left, sorted.

        Not to be changed.
        """
        return self._partial.get((pool, profile), [])

    def best(
        self, key: object, grade: Callable[[NodeFree], Grade | None], able: Callable[[], Iterable[NodeName]]
    ) -> tuple[Grade, NodeName] | None:
        """The best node by a grade, and the grade; `key` is equal for equal grades, and only the `able` have one now.

        Cost: the nodes touched since; at first, those that are able.
        """
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = Ranking(grade)
        return ranking.best(self.rooms, self._touched, able)

    def unschedulable(self, pool: PoolName, profile: str = "") -> UnschedulableRequests:
        """What was found to have no place in a pool since something was last given back."""
        found = self._unschedulable.get((pool, profile))
        if found is None:
            found = self._unschedulable[pool, profile] = UnschedulableRequests()
        return found

    def free_milli(self, pool: PoolName, profile: str = "") -> GpuMilli:
        """All that is free in a pool, scattered or not: of devices that are not cut, or of those of one profile."""
        partial = self._partial_milli.get((pool, profile), 0)
        return partial if profile else self.whole_devices(pool) * WHOLE_GPU + partial

    def all_free_milli(self, pool: PoolName) -> GpuMilli:
        """All that is free in a pool, of devices of any kind."""
        partial = sum(milli for (of_pool, _), milli in self._partial_milli.items() if of_pool == pool)
        return self.whole_devices(pool) * WHOLE_GPU + partial

    def whole_devices(self, pool: PoolName) -> int:
        """Devices of a pool that nobody uses a part of."""
        return self._whole.get(pool, 0)

    def _move(self, placement: Placement, charge: WorkerRequest, sign: int) -> None:
        for worker in placement.workers:
            room = self.rooms.get(worker.node)
            if room is None:
                continue
            self._touch(room)
            room.cpu_milli += sign * charge.cpu_milli
            room.mem_bytes += sign * charge.mem_bytes
            milli = sign * charge.on_device(worker)
            if milli:
                self._move_devices(room, worker.gpus, milli)

    def _move_all(self, runs: Collection[_Placed], sign: int) -> None:
        """Each node is taken out of the indexes and put back once, however many leave it or come to it; where that is
        done with most nodes, the indexes are built anew.
        """
        nodes = dict.fromkeys([worker.node for run in runs for worker in run.placement.workers])
        moved = list(filter(None, map(self.rooms.get, nodes)))
        most = 2 * len(moved) > len(self.rooms)
        if not most:
            for room in moved:
                self._delist(room)
        for run in runs:
            charge = run.charge
            for worker in run.placement.workers:
                there = self.rooms.get(worker.node)
                if there is not None:
                    there.cpu_milli += sign * charge.cpu_milli
                    there.mem_bytes += sign * charge.mem_bytes
                    milli, free = sign * charge.on_device(worker), there.gpu_milli
                    for index in worker.gpus:
                        if 0 <= index < len(free):
                            free[index] += milli
        for room in moved:
            room.whole = len(room.whole_devices())
            self._touch(room)
            if not most:
                self._enlist(room)
        if most:
            self._index()

    def _touch(self, room: NodeFree) -> None:
        """It is another now than it, or its node, ever was."""
        self._moves += 1
        room.version = self._moves
        self._touched.append(room.name)

    def _move_devices(self, room: NodeFree, devices: tuple[int, ...], milli: GpuMilli) -> None:
        whole_before = room.whole
        for index in devices:
            if not 0 <= index < len(room.gpu_milli):
                continue
            profile = room.profile_of(index)
            kind = room.pool, profile
            partial = self._partial[kind]
            before = room.gpu_milli[index]
            after = before + milli
            room.gpu_milli[index] = after
            if not profile:
                room.whole += (after >= WHOLE_GPU) - (before >= WHOLE_GPU)
            if _is_partial(before, profile):
                _remove(partial, (before, room.name, index))
                self._partial_milli[kind] -= before
            if _is_partial(after, profile):
                insort(partial, (after, room.name, index))
                self._partial_milli[kind] += after
        if room.whole != whole_before:
            self._whole[room.pool] += room.whole - whole_before
            buckets = self._by_whole[room.pool]
            _remove(buckets[whole_before], room.name)
            insort(buckets[room.whole], room.name)


def _empty(node: NodeCapacity, pool: PoolName) -> NodeFree:
    """A node with nothing on it."""
    return NodeFree(node.name, pool, list(node.gpu_milli), node.cpu_milli, node.mem_bytes, node.profiles, node.topology)


def _parts(room: NodeFree) -> list[tuple[str, tuple[GpuMilli, NodeName, int]]]:
    """The devices of which a part can be had, as they are indexed, each with what it is cut into."""
    if room.whole == len(room.gpu_milli):
        return []
    name, free_of = room.name, enumerate(room.gpu_milli)
    if not room.profiles:
        return [("", (free, name, index)) for index, free in free_of if 0 < free < WHOLE_GPU]
    return [
        (room.profiles[index], (free, name, index))
        for index, free in free_of
        if _is_partial(free, room.profiles[index])
    ]


def _remove(entries: list[T], entry: T) -> None:
    """Take an entry out of a sorted list that has it."""
    del entries[bisect_left(entries, entry)]


def _is_partial(free: GpuMilli, profile: str) -> bool:
    """Whether a part of a device can be had without breaking into it: it is shared already, or was cut."""
    return 0 < free < WHOLE_GPU or (free > 0 and profile != "")
