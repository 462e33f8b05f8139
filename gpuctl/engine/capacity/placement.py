"""The best place for one worker in one pool.

Whole devices: in a packed pool where the usual requests lose least, then the fullest node with enough; in a spread pool
the emptiest. A fraction: the device with the least left over, so that fractions fill few devices; a whole device only
when no used one has room. Once many fractions are known in a packed pool: the device whose rest loses the least worth,
used or not. A slice: the cut device with the least left. CPU work: where it hinders no GPU job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from gpuctl.engine.capacity.fit import Request, holds
from gpuctl.engine.capacity.fragmentation import Free
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.engine.capacity.ranking import Grade
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.model.decision import WorkerPlacement
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import NodeName
from gpuctl.model.units import CpuMilli, MemBytes


def whole_devices(room: NodeFree, count: int) -> tuple[int, ...]:
    """The first wholly free devices of a node."""
    return tuple(room.whole_devices()[:count])


def place_worker(free: FreeCapacity, pool: NodePool, request: Request) -> WorkerPlacement | None:
    """The best place for one worker, or None.

    Cost: with a learned mix a score for each node changed since such a request was last placed; else O(log devices),
    unless CPU or memory is short.
    """
    mixes = free.mixes.get(pool.name)
    if mixes is None or request.profile or pool.placement is PlacementStrategy.SPREAD:
        return _place_by_rule(free, pool, request)
    best = free.best((pool.name, request), _grader(mixes, pool, request), lambda: _nodes_able(free, pool, request))
    if best is None:
        return None
    grade, node = best
    room = free.rooms[node]
    if request.fraction_milli:
        return WorkerPlacement(node=node, gpus=(_first_with(room, grade[-1]),))
    return WorkerPlacement(node=node, gpus=whole_devices(room, request.devices))


def has_room(free: FreeCapacity, pool: NodePool, request: Request) -> bool:
    """Whether one worker has a place, the best or not. Cost: O(log devices), unless CPU or memory is short."""
    return any(holds(free.rooms[node], request) for node in _nodes_able(free, pool, request))


def _grader(mixes: RequestMix, pool: NodePool, request: Request) -> Callable[[NodeFree], Grade | None]:
    """The grade of a node for a request by a mix, computed once for all nodes with the same free capacity.

    Reclaim at 1,000 nodes takes 1.15x without that memory.
    """
    known: dict[tuple[Free, CpuMilli, MemBytes], Grade | None] = {}

    def grade(room: NodeFree) -> Grade | None:
        if room.pool != pool.name:
            return None
        state = room.free, room.cpu_milli, room.mem_bytes
        if state not in known:
            known[state] = _grade(mixes, room, request)
        return known[state]

    return grade


def _grade(mixes: RequestMix, room: NodeFree, request: Request) -> Grade | None:
    """The grade; None where the request does not fit."""
    if not holds(room, request):
        return None
    if request.fraction_milli:
        return _grade_fraction(mixes, room, request)
    return _grade_whole(mixes, room, request) if room.whole >= request.devices else None


def _grade_whole(mixes: RequestMix, room: NodeFree, request: Request) -> Grade:
    """The fragmentation it causes, then the number of wholly free devices."""
    measure, free, devices = mixes.fragmentation, room.free, request.devices
    after = (0,) * devices + free[: len(free) - devices]
    cpu = measure.cpu_step(room.cpu_milli), measure.cpu_step(room.cpu_milli - request.cpu_milli)
    return -measure.score(free, cpu[0], after, cpu[1]), room.whole


def _grade_fraction(mixes: RequestMix, room: NodeFree, request: Request) -> Grade | None:
    """The best of the node's devices: the worth lost or else the rest, the fragmentation, last the free amount."""
    measure, free, size = mixes.fragmentation, room.free, request.fraction_milli
    cpu = measure.cpu_step(room.cpu_milli), measure.cpu_step(room.cpu_milli - request.cpu_milli)
    best: Grade | None = None
    seen = -1
    for index in range(bisect_left(free, size), len(free)):
        milli = free[index]
        if milli == seen:
            continue
        seen = milli
        after = [*free[:index], *free[index + 1 :]]
        insort(after, milli - size)
        score = measure.score(free, cpu[0], tuple(after), cpu[1])
        lost = mixes.worth[milli] - mixes.worth[milli - size] if mixes.worth else milli
        grade = (lost, -score, milli)
        if best is None or grade < best:
            best = grade
    return best


def _first_with(room: NodeFree, milli: int) -> int:
    """The first device that has so much free and is not cut."""
    return next(i for i, free in enumerate(room.gpu_milli) if free == milli and not room.profile_of(i))


def _place_by_rule(free: FreeCapacity, pool: NodePool, request: Request) -> WorkerPlacement | None:
    """The place by what is free alone, without a mix."""
    if request.fraction_milli:
        for node, index in _shared_devices(free, pool, request):
            if holds(free.rooms[node], request):
                return WorkerPlacement(node=node, gpus=(index,))
        if request.profile:
            return None
    devices = 1 if request.fraction_milli else request.devices
    for node in _nodes_with(free, pool, devices):
        room = free.rooms[node]
        if holds(room, request):
            return WorkerPlacement(node=node, gpus=whole_devices(room, devices))
    return None


def _nodes_with(free: FreeCapacity, pool: NodePool, devices: int) -> Iterator[NodeName]:
    """Nodes with so many wholly free devices, best first by the pool's strategy, then by name."""
    buckets = free.nodes_by_whole(pool.name)
    enough = buckets[devices:]
    for bucket in enough if pool.placement is PlacementStrategy.BINPACK or devices == 0 else reversed(enough):
        yield from bucket


def _nodes_able(free: FreeCapacity, pool: NodePool, request: Request) -> Iterator[NodeName]:
    """Nodes with devices free for a worker; some appear more than once."""
    for node, _ in _shared_devices(free, pool, request) if request.fraction_milli else ():
        yield node
    if not request.profile:
        yield from _nodes_with(free, pool, 1 if request.fraction_milli else request.devices)


def _shared_devices(free: FreeCapacity, pool: NodePool, request: Request) -> Iterator[tuple[NodeName, int]]:
    """Used or cut devices with room for the fraction, the one with the least left first."""
    partial = free.partial_devices(pool.name, request.profile)
    for _, node, index in partial[bisect_left(partial, (request.fraction_milli, NodeName(""), -1)) :]:
        yield node, index
