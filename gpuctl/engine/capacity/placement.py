"""The best place for one worker in one pool, with a grade, so that places in several pools can be compared.

Once many fractions are known, a fraction goes to the device, used or not, whose remainder loses the least worth. Before
that it goes to the device with the least left over, so that fractions fill few devices. Among equals a packed pool
takes the place where the usual requests lose least, then the fullest node; a spread pool takes the emptiest; then the
first by name. Slices come from cut devices only. CPU work takes no device.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import partial

from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.fragmentation import NEUTRAL, Free
from gpuctl.engine.capacity.free import FreeCapacity, Grade, NodeFree
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import NodeName
from gpuctl.model.units import WHOLE_GPU


def place_worker(free: FreeCapacity, pool: NodePool, request: Request) -> tuple[Grade, Placement] | None:
    """The best place for one worker, and its grade. Cost: a grade for each node changed since the last such request."""
    grade_of = partial(_grade, free.mix, pool, request)
    best = free.best((pool.name, request), grade_of, lambda: _nodes_able(free, pool, request))
    if best is None:
        return None
    grade, node = best
    room = free.rooms[node]
    gpus = room.whole_devices()[: request.devices]
    if request.fraction_milli:
        gpus = [next(i for i in room.devices_of(request.profile) if room.gpu_milli[i] == grade[2])]
    return grade, Placement(workers=(WorkerPlacement(node=node, gpus=tuple(gpus)),))


def has_room(free: FreeCapacity, pool: NodePool, request: Request) -> bool:
    """Whether one worker has any place. Cost: O(log devices), unless CPU or memory is short."""
    return any(free.rooms[node].holds(request) for node in _nodes_able(free, pool, request))


def _grade(mix: RequestMix, pool: NodePool, request: Request, room: NodeFree) -> Grade | None:
    """A node's grade: the worth lost, the fragmentation caused, what is free on the device (for a fraction), and how
    full the node is. None if the request does not fit."""
    if room.pool != pool.name or not room.holds(request):
        return None
    free = tuple(sorted(room.free_of(request.profile))) if request.profile else room.free
    is_spread = pool.placement is PlacementStrategy.SPREAD
    worth = () if request.profile else mix.worth
    measure = None if request.profile else mix.measures.get(pool.name)

    def score(after: Free) -> int:
        if measure is None:
            return NEUTRAL
        cpu = measure.cpu_step(room.cpu_milli), measure.cpu_step(room.cpu_milli - request.cpu_milli)
        return measure.score(free, cpu[0], after, cpu[1])

    size, devices = request.fraction_milli, request.devices
    if not size:
        if room.whole < devices:
            return None
        lost = devices * (worth[WHOLE_GPU] if worth else WHOLE_GPU)
        return lost, -score((0,) * devices + free[: len(free) - devices]), 0, -room.whole if is_spread else room.whole
    best: Grade | None = None
    seen = -1
    for index in range(bisect_left(free, size), len(free)):
        milli = free[index]
        if milli == seen:
            continue
        seen = milli
        after = [*free[:index], *free[index + 1 :]]
        insort(after, milli - size)
        lost = worth[milli] - worth[milli - size] if worth else milli
        grade = lost, -score(tuple(after)), milli, -room.whole if is_spread else 0
        if best is None or grade < best:
            best = grade
    return best


def _nodes_able(free: FreeCapacity, pool: NodePool, request: Request) -> Iterator[NodeName]:
    """Nodes with enough free devices for a worker; some appear more than once."""
    if request.fraction_milli:
        partial = free.partial_devices(pool.name, request.profile)
        for _, node, _ in partial[bisect_left(partial, (request.fraction_milli, NodeName(""), -1)) :]:
            yield node
    if not request.profile:
        for bucket in free.nodes_by_whole(pool.name)[1 if request.fraction_milli else request.devices :]:
            yield from bucket
