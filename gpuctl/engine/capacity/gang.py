"""A placement for all workers of a job or for none: the best over its pools, or by its list of pools.

All workers are in one pool, close together on as few nodes as possible. They prefer the same device indexes on each
node, because one claim template serves them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from gpuctl.engine.capacity.fit import Request, WorkerRequest, request_on
from gpuctl.engine.capacity.free import FreeCapacity, Grade, NodeFree
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.capacity.placement import has_room, place_worker
from gpuctl.engine.capacity.topology import Site, closest
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import WHOLE_CLUSTER, NodePool, PlacementStrategy
from gpuctl.model.ids import DomainName, NodeName, PoolName
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, GpuMilli

Sort: TypeAlias = tuple[PoolName, str, GpuMilli, int]
"""All of an option but CPU and memory: pool, profile, GPUs of a worker, workers."""


@dataclass(frozen=True, slots=True)
class PoolOption:
    """A pool that a job may use, and what it asks for there. `least`: the fewest workers it may start with; 0: all.
    `order`: the pool's position if the job's pools are listed, else 0 for all of them: then the best place decides.
    `domain`: the quota domain of the pool; placement does not need it."""

    pool: NodePool
    request: Request
    least: int = 0
    order: int = 0
    domain: DomainName = WHOLE_CLUSTER

    def sized(self, workers: int) -> PoolOption | None:
        """The same option with this many workers; None if the job may not run with that number."""
        if workers == self.request.workers:
            return self
        if not 0 < self.least <= workers < self.request.workers:
            return None
        return replace(self, request=self.request._replace(workers=workers))

    def smaller(self) -> Iterator[PoolOption]:
        """The same option with each lower number of workers that the job may run with, the highest first."""
        for workers in range(self.request.workers - 1, (self.least or self.request.workers) - 1, -1):
            yield replace(self, request=self.request._replace(workers=workers))

    def of(self, workers: int) -> PoolOption:
        """The same pool and request with exactly this many workers."""
        return PoolOption(self.pool, self.request._replace(workers=workers), domain=self.domain)

    def no_more_than(self, other: PoolOption) -> PoolOption:
        """The same option with no more CPU and memory than another option of its sort asks for."""
        cpu_milli, mem_bytes = self.request.cpu_milli, self.request.mem_bytes
        if cpu_milli <= other.request.cpu_milli and mem_bytes <= other.request.mem_bytes:
            return self
        cpu_milli, mem_bytes = min(cpu_milli, other.request.cpu_milli), min(mem_bytes, other.request.mem_bytes)
        return replace(self, request=self.request._replace(cpu_milli=cpu_milli, mem_bytes=mem_bytes), order=0)

    @property
    def fewest(self) -> PoolOption:
        """The same option with the fewest workers it may start with."""
        return self.sized(self.least) or self

    @property
    def sort(self) -> Sort:
        """All of it but CPU and memory."""
        request = self.request
        return self.pool.name, request.profile, request.gpu_milli, request.workers

    @property
    def least_milli(self) -> GpuMilli:
        """GPUs of the fewest workers it may start with."""
        return self.request.gpu_milli * (self.least or self.request.workers)


def options_of(job: Job, capacity: Capacity) -> Iterator[PoolOption]:
    """The pools that a job may use and that can serve it, with all its workers, in the job's order."""
    for position, name in enumerate(job.pools):
        pool, domain = capacity.pools.get(name), capacity.domain_of.get(name)
        request = request_on(job, pool) if pool is not None else None
        if pool is not None and domain is not None and request is not None:
            least, order = job.min_workers if job.is_elastic else 0, position if job.pools_in_order else 0
            yield PoolOption(pool, request, least, order, domain)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A job's placement, and the option it was found for."""

    option: PoolOption
    placement: Placement

    @property
    def per_worker(self) -> WorkerRequest:
        """What each worker is charged there."""
        return self.option.request.per_worker


def place(free: FreeCapacity, options: Iterable[PoolOption]) -> Assignment | None:
    """The best placement over the options; those with the lowest `order` come first. Takes nothing.

    The best has the most workers; then it loses the least worth and causes the least fragmentation, or for a gang has
    the fewest racks and nodes; then its first node comes first by name. How full a node is counts only within a pool:
    across pools it would fill those with small nodes first.
    """
    best: tuple[tuple[int, int, Grade, NodeName], Assignment] | None = None
    for option in options:
        if best is not None and best[0][0] < option.order:
            break
        found = _graded(free, option)
        if found is not None:
            grade, placement = found
            rank = option.order, -option.request.workers, grade[:2], placement.workers[0].node
            if best is None or rank < best[0]:
                best = rank, Assignment(option, placement)
    return None if best is None else best[1]


def place_all(free: FreeCapacity, wanted: Iterable[Iterable[PoolOption]]) -> list[Assignment] | None:
    """The best placement for one set of options after another, each taken; None, and nothing taken, if one has none."""
    found: list[Assignment] = []
    for options in wanted:
        assignment = place(free, options)
        if assignment is None:
            free.give_back(found)
            return None
        free.take((assignment,))
        found.append(assignment)
    return found


def place_in(free: FreeCapacity, option: PoolOption) -> Placement | None:
    """The best placement for all workers in one pool."""
    found = _graded(free, option)
    return None if found is None else found[1]


def _graded(free: FreeCapacity, option: PoolOption) -> tuple[Grade, Placement] | None:
    """The best placement in one pool, and its grade. A request is refused at once if a smaller one has failed.

    Cost: O(nodes) for several workers, see `place_worker` for one.
    """
    unschedulable = free.unschedulable(option.pool.name, option.request.profile)
    if unschedulable.cover(option.request):
        return None
    free.counters.placings += 1
    request = option.request
    if request.workers == 1:
        found = place_worker(free, option.pool, request)
    else:
        nodes = _nodes_for_all(free, option) or []
        racks = {free.rooms[name].topology for name, _ in nodes}
        found = ((len(racks), len(nodes)), _deal_all(free, request, nodes)) if nodes else None
    if found is None:
        unschedulable.add(request)
    return found


def has_place(free: FreeCapacity, option: PoolOption) -> bool:
    """Whether all workers have any placement in one pool. Cost: the nodes read until one is found."""
    unschedulable = free.unschedulable(option.pool.name, option.request.profile)
    if unschedulable.cover(option.request):
        return False
    is_one = option.request.workers == 1
    found = has_room(free, option.pool, option.request) if is_one else _has_slots(free, option)
    if not found:
        unschedulable.add(option.request)
    return found


def slots_by_node(free: FreeCapacity, option: PoolOption) -> Iterator[tuple[NodeName, int]]:
    """How many workers each node can hold, for nodes that can hold one; nodes with the most free devices first.

    Cost: O(nodes with enough whole devices).
    """
    for bucket in reversed(free.nodes_by_whole(option.pool.name)[option.request.devices :]):
        for name in bucket:
            count = free.rooms[name].slots(option.request)
            if count:
                yield name, count


def _has_slots(free: FreeCapacity, option: PoolOption) -> bool:
    request = option.request
    if free.free_milli(option.pool.name, request.profile) < request.total_milli:
        return False
    together = accumulate(count for _, count in slots_by_node(free, option))
    return any(total >= request.workers for total in together)


def _nodes_for_all(free: FreeCapacity, option: PoolOption) -> list[tuple[NodeName, int]] | None:
    """The fewest nodes that hold all workers, close together; of equals in a packed pool those with the least free."""
    request, pool = option.request, option.pool
    if free.free_milli(pool.name, request.profile) < request.total_milli:
        return None
    packed = pool.placement is PlacementStrategy.BINPACK
    rooms = ((free.rooms[name], count) for name, count in slots_by_node(free, option))
    sites = (Site(room.name, count, room.whole if packed else -room.whole, room.topology) for room, count in rooms)
    return closest(sites, request.workers, packed=packed)


def _deal_all(free: FreeCapacity, request: Request, nodes: list[tuple[NodeName, int]]) -> Placement:
    """Devices for the workers on the chosen nodes. Device indexes that are free on most of the nodes come first."""
    rooms = [free.rooms[name] for name, _ in nodes]
    least = request.fraction_milli or WHOLE_GPU
    popular: dict[int, int] = {}
    for room in rooms:
        for index in room.devices_of(request.profile):
            if room.gpu_milli[index] >= least:
                popular[index] = popular.get(index, 0) + 1
    workers: list[WorkerPlacement] = []
    for room, (_, count) in zip(rooms, nodes, strict=True):
        order = sorted(room.devices_of(request.profile), key=lambda i: (-popular.get(i, 0), i))
        if request.fraction_milli:
            order = _few_devices(room, order, request.fraction_milli, count)
        workers += deal(room, request, count, order)
    return Placement(workers=tuple(workers))


def _few_devices(room: NodeFree, order: Sequence[int], milli: GpuMilli, count: int) -> list[int]:
    """The devices of a node that this many fractions fill: as few whole ones as possible, and those before used ones.

    So a whole device that is needed takes all that it can, and what is free on used ones stays in one piece.
    """
    used = [index for index in order if room.gpu_milli[index] < WHOLE_GPU]
    left = count - sum(max(0, room.gpu_milli[index]) // milli for index in used)
    whole = [index for index in order if room.gpu_milli[index] >= WHOLE_GPU]
    return whole[: max(0, -(-left // (WHOLE_GPU // milli)))] + used


def deal(room: NodeFree, request: Request, count: int, order: Iterable[int]) -> list[WorkerPlacement]:
    """Devices of a node for this many workers, in the given order; a shared device is filled before the next."""
    size, fraction_milli = request.devices, request.fraction_milli
    if fraction_milli:
        gpus = [index for index in order for _ in range(room.gpu_milli[index] // fraction_milli)][:count]
        return [WorkerPlacement(node=room.name, gpus=(index,)) for index in gpus]
    whole = [index for index in order if room.gpu_milli[index] >= WHOLE_GPU]
    parts = (whole[size * worker : size * (worker + 1)] for worker in range(count))
    return [WorkerPlacement(node=room.name, gpus=tuple(sorted(part))) for part in parts]
