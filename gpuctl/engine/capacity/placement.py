"""The best place for one worker in one pool.

Whole devices: in a packed pool where it breaks least of what is usually asked for, then the fullest node that has
enough; in a spread one the emptiest. A fraction: the device it leaves the least of, so that fractions fill as few
devices as they need; a new device is broken into only when none has room. Once many fractions are known in a packed
pool, the device whose rest loses the least worth instead, new or not: that fills fewer devices in the end. A slice of a
cut device: where it leaves the least; nothing is broken into. CPU work goes where it is in no GPU job's way.
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


def place_worker(ledger: FreeCapacity, pool: NodePool, request: Request) -> WorkerPlacement | None:
    """The best place for one worker, or None.

    Cost: where the pool's habits are known, a score for each node touched since such a request was last placed; else
    O(log devices) unless CPU or memory is what is short.
    """
    habits = ledger.habits.get(pool.name)
    if habits is None or request.profile or pool.placement is PlacementStrategy.SPREAD:
        return _place_by_rule(ledger, pool, request)
    best = ledger.best((pool.name, request), _grader(habits, pool, request), lambda: _nodes_able(ledger, pool, request))
    if best is None:
        return None
    grade, node = best
    room = ledger.rooms[node]
    if request.fraction_milli:
        return WorkerPlacement(node=node, gpus=(_first_with(room, grade[-1]),))
    return WorkerPlacement(node=node, gpus=whole_devices(room, request.devices))


def has_room(ledger: FreeCapacity, pool: NodePool, request: Request) -> bool:
    """Whether one worker has a place, the best or not. Cost: O(log devices) unless CPU or memory is what is short."""
    return any(holds(ledger.rooms[node], request) for node in _nodes_able(ledger, pool, request))


def _grader(habits: RequestMix, pool: NodePool, request: Request) -> Callable[[NodeFree], Grade | None]:
    """How good a node is for a request, by the habits of its pool: once for all nodes of which the same is free."""
    known: dict[tuple[Free, CpuMilli, MemBytes], Grade | None] = {}

    def grade(room: NodeFree) -> Grade | None:
        if room.pool != pool.name:
            return None
        state = room.free, room.cpu_milli, room.mem_bytes
        if state not in known:
            known[state] = _grade(habits, room, request)
        return known[state]

    return grade


def _grade(habits: RequestMix, room: NodeFree, request: Request) -> Grade | None:
    """None where the request does not fit."""
    if not holds(room, request):
        return None
    if request.fraction_milli:
        return _grade_fraction(habits, room, request)
    return _grade_whole(habits, room, request) if room.whole >= request.devices else None


def _grade_whole(habits: RequestMix, room: NodeFree, request: Request) -> Grade:
    """What it breaks, then how many devices are wholly free."""
    measure, free, devices = habits.fragmentation, room.free, request.devices
    after = (0,) * devices + free[: len(free) - devices]
    cpu = measure.cpu_step(room.cpu_milli), measure.cpu_step(room.cpu_milli - request.cpu_milli)
    return -measure.score(free, cpu[0], after, cpu[1]), room.whole


def _grade_fraction(habits: RequestMix, room: NodeFree, request: Request) -> Grade | None:
    """The best of the node's devices: its worth lost or else its rest, what that breaks; last, what is free on it."""
    measure, free, size = habits.fragmentation, room.free, request.fraction_milli
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
        lost = habits.worth[milli] - habits.worth[milli - size] if habits.worth else milli
        grade = (lost, -score, milli)
        if best is None or grade < best:
            best = grade
    return best


def _first_with(room: NodeFree, milli: int) -> int:
    """The first device that has so much free and is not cut."""
    return next(i for i, free in enumerate(room.gpu_milli) if free == milli and not room.profile_of(i))


def _place_by_rule(ledger: FreeCapacity, pool: NodePool, request: Request) -> WorkerPlacement | None:
    """By what is free alone."""
    if request.fraction_milli:
        shared = _on_shared_device(ledger, pool, request)
        if shared is not None or request.profile:
            return shared
    devices = 1 if request.fraction_milli else request.devices
    for node in _nodes_with(ledger, pool, devices):
        room = ledger.rooms[node]
        if holds(room, request):
            return WorkerPlacement(node=node, gpus=whole_devices(room, devices))
    return None


def _nodes_with(ledger: FreeCapacity, pool: NodePool, devices: int) -> Iterator[NodeName]:
    """Nodes with that many wholly free devices, best first by the pool's strategy, then by name."""
    buckets = ledger.nodes_by_whole(pool.name)
    enough = buckets[devices:]
    for bucket in enough if pool.placement is PlacementStrategy.BINPACK or devices == 0 else reversed(enough):
        yield from bucket


def _nodes_able(ledger: FreeCapacity, pool: NodePool, request: Request) -> Iterator[NodeName]:
    """The nodes with devices free for a worker, some more than once."""
    if request.fraction_milli:
        partial = ledger.partial_devices(pool.name, request.profile)
        for _, node, _ in partial[bisect_left(partial, (request.fraction_milli, NodeName(""), -1)) :]:
            yield node
    if not request.profile:
        yield from _nodes_with(ledger, pool, 1 if request.fraction_milli else request.devices)


def _on_shared_device(ledger: FreeCapacity, pool: NodePool, request: Request) -> WorkerPlacement | None:
    partial = ledger.partial_devices(pool.name, request.profile)
    start = bisect_left(partial, (request.fraction_milli, NodeName(""), -1))
    for _, node, index in partial[start:]:
        if holds(ledger.rooms[node], request):
            return WorkerPlacement(node=node, gpus=(index,))
    return None
