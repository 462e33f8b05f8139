"""What is free: of each device, CPU and memory of each usable node, while the engine decides.

A ledger belongs to one cycle, which takes and gives back whole placements; amounts are integers, so giving back what
was taken restores the ledger exactly and nothing needs an undo log. Devices may go below zero: a place can be reserved
that is still occupied. Two indexes answer the common questions without looking at every node: nodes by how many
devices are wholly free, and partly used devices by what is left of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes
from gpuctl.schedule.capacity import Capacity
from gpuctl.schedule.refusals import Refusals


class Charge:
    """What one worker costs where it is: GPUs over its devices, CPU and memory."""

    __slots__ = ("cpu_milli", "gpu_milli", "mem_bytes")

    def __init__(self, gpu_milli: GpuMilli, cpu_milli: CpuMilli, mem_bytes: MemBytes) -> None:
        self.gpu_milli = gpu_milli
        self.cpu_milli = cpu_milli
        self.mem_bytes = mem_bytes

    def on_device(self, worker: WorkerPlacement) -> GpuMilli:
        """The part on each of the worker's devices, rounded up."""
        return -(-self.gpu_milli // len(worker.gpus)) if worker.gpus else 0


class Room:
    """What is free on one node; changed only by its ledger."""

    __slots__ = ("cpu_milli", "gpu_milli", "mem_bytes", "name", "pool", "whole")

    def __init__(
        self, name: NodeName, pool: PoolName, gpu_milli: list[GpuMilli], cpu_milli: CpuMilli, mem_bytes: MemBytes
    ) -> None:
        self.name = name
        self.pool = pool
        self.gpu_milli = gpu_milli
        self.cpu_milli = cpu_milli
        self.mem_bytes = mem_bytes
        self.whole = sum(free >= WHOLE_GPU for free in gpu_milli)

    def copy(self) -> Room:
        """A room of its own with the same contents."""
        return Room(self.name, self.pool, list(self.gpu_milli), self.cpu_milli, self.mem_bytes)


class Ledger:
    """Free room by node, indexed a pool. Cost: O(devices + log nodes) to take or give back a worker."""

    __slots__ = ("_by_whole", "_partial", "_partial_milli", "_refusals", "_whole", "rooms")

    def __init__(self, rooms: dict[NodeName, Room]) -> None:
        self.rooms = rooms
        self._by_whole: dict[PoolName, list[list[NodeName]]] = {}
        self._partial: dict[PoolName, list[tuple[GpuMilli, NodeName, int]]] = {}
        self._whole: dict[PoolName, int] = {}
        self._partial_milli: dict[PoolName, GpuMilli] = {}
        self._refusals: dict[PoolName, Refusals] = {}
        for name in sorted(rooms):
            room = rooms[name]
            buckets = self._by_whole.setdefault(room.pool, [])
            while len(buckets) <= len(room.gpu_milli):
                buckets.append([])
            buckets[room.whole].append(name)
            self._whole[room.pool] = self._whole.get(room.pool, 0) + room.whole
            partial = self._partial.setdefault(room.pool, [])
            partial.extend((free, name, i) for i, free in enumerate(room.gpu_milli) if 0 < free < WHOLE_GPU)
        for pool, partial in self._partial.items():
            partial.sort()
            self._partial_milli[pool] = sum(free for free, _, _ in partial)

    @staticmethod
    def of(capacity: Capacity) -> Ledger:
        """The usable nodes with nothing on them."""
        return Ledger({
            node.name: Room(node.name, pool, list(node.gpu_milli), node.cpu_milli, node.mem_bytes)
            for pool, nodes in capacity.usable.items()
            for node in nodes
        })

    def copy(self) -> Ledger:
        """A ledger of its own with the same contents. Cost: O(devices)."""
        return Ledger({name: room.copy() for name, room in self.rooms.items()})

    def take(self, placement: Placement, charge: Charge) -> None:
        """Occupy a placement. Nodes and devices this ledger does not have are passed over."""
        self._move(placement, charge, -1)

    def give_back(self, placement: Placement, charge: Charge) -> None:
        """The exact opposite of `take`."""
        self._move(placement, charge, 1)
        for refusals in self._refusals.values():
            refusals.forget()

    def nodes_by_whole(self, pool: PoolName) -> list[list[NodeName]]:
        """Node names, sorted, by their number of wholly free devices. Not to be changed."""
        return self._by_whole.get(pool, [])

    def partial_devices(self, pool: PoolName) -> list[tuple[GpuMilli, NodeName, int]]:
        """(free, node, device) of every partly free device, sorted. Not to be changed."""
        return self._partial.get(pool, [])

    def refusals(self, pool: PoolName) -> Refusals:
        """What was found to have no place in a pool since something was last given back."""
        found = self._refusals.get(pool)
        if found is None:
            found = self._refusals[pool] = Refusals()
        return found

    def free_milli(self, pool: PoolName) -> GpuMilli:
        """All that is free in a pool, scattered or not."""
        return self.whole_devices(pool) * WHOLE_GPU + self._partial_milli.get(pool, 0)

    def whole_devices(self, pool: PoolName) -> int:
        """Devices of a pool that nobody uses a part of."""
        return self._whole.get(pool, 0)

    def _move(self, placement: Placement, charge: Charge, sign: int) -> None:
        for worker in placement.workers:
            room = self.rooms.get(worker.node)
            if room is None:
                continue
            room.cpu_milli += sign * charge.cpu_milli
            room.mem_bytes += sign * charge.mem_bytes
            milli = sign * charge.on_device(worker)
            if milli:
                self._move_devices(room, worker.gpus, milli)

    def _move_devices(self, room: Room, devices: tuple[int, ...], milli: GpuMilli) -> None:
        whole_before = room.whole
        partial = self._partial[room.pool]
        for index in devices:
            if not 0 <= index < len(room.gpu_milli):
                continue
            before = room.gpu_milli[index]
            after = before + milli
            room.gpu_milli[index] = after
            room.whole += (after >= WHOLE_GPU) - (before >= WHOLE_GPU)
            if 0 < before < WHOLE_GPU:
                del partial[bisect_left(partial, (before, room.name, index))]
                self._partial_milli[room.pool] -= before
            if 0 < after < WHOLE_GPU:
                insort(partial, (after, room.name, index))
                self._partial_milli[room.pool] += after
        if room.whole != whole_before:
            self._whole[room.pool] += room.whole - whole_before
            buckets = self._by_whole[room.pool]
            old = buckets[whole_before]
            del old[bisect_left(old, room.name)]
            insort(buckets[room.whole], room.name)
