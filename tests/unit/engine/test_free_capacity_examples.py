"""Free capacity when one run leaves and another comes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gpuctl.engine.capacity.fit import Request, WorkerRequest
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, PoolName

NODE, POOL = NodeName("n1"), PoolName("a100")
TOO_LARGE = Request(2000, 0, 0, 1)


class Occupant(NamedTuple):
    """A worker that occupies a place."""

    placement: Placement
    per_worker: WorkerRequest


def on(gpus: tuple[int, ...], gpu_milli: int, cpu_milli: int = 4000, mem_bytes: int = 100) -> Occupant:
    """One worker on the node."""
    worker = WorkerPlacement(node=NODE, gpus=gpus)
    return Occupant(Placement(workers=(worker,)), WorkerRequest(gpu_milli, cpu_milli, mem_bytes))


def full_with(*occupants: Occupant) -> FreeCapacity:
    """A node of two devices with these occupants, and a request that failed there."""
    free = FreeCapacity({NODE: NodeFree(NODE, POOL, [1000, 1000], 16_000, 1000)})
    free.take(occupants)
    free.unschedulable(POOL).add(TOO_LARGE)
    return free


def exchange(free: FreeCapacity, leaving: Occupant, coming: Occupant) -> None:
    """Give back what one occupant had, and take what the other needs."""
    free.give_back([leaving])
    free.take([coming])


@pytest.mark.parametrize("coming", [on((0,), 700), on((0,), 1000, 3999), on((0,), 1000, 4000, 99)])
def test_requests_that_failed_are_forgotten_when_a_run_leaves(coming: Occupant) -> None:
    left = on((0,), 1000)
    free = full_with(left, on((1,), 1000))
    exchange(free, left, coming)
    assert not free.unschedulable(POOL).cover(TOO_LARGE)


def test_a_placement_may_take_more_than_the_run_that_left_gave_back() -> None:
    left = on((0,), 500)
    free = full_with(left)
    exchange(free, left, on((0, 1), 2000))
    assert free.rooms[NODE].gpu_milli == [0, 0]
    assert free.whole_devices(POOL) == 0


def test_a_run_on_an_unknown_node_gives_nothing_back() -> None:
    gone = Occupant(Placement(workers=(WorkerPlacement(node=NodeName("n9"), gpus=(0,)),)), WorkerRequest(1000, 0, 0))
    free = full_with(on((0,), 1000))
    exchange(free, gone, on((1,), 1000))
    assert free.rooms[NODE].gpu_milli == [0, 0]


def test_a_worker_that_asks_for_no_cpu_or_memory_fits_where_there_is_less_than_none() -> None:
    """Less than none is free where an occupied place is reserved, or where other pods exceed the node's amounts."""
    free = full_with(on((0,), 1000, cpu_milli=20_000, mem_bytes=2000))
    room = free.rooms[NODE]
    one, two = Request(1000, 0, 0, 1), Request(500, 0, 0, 2)
    assert (room.holds(one), room.slots(one), room.holds(two), room.slots(two)) == (True, 1, True, 2)
    assert not room.holds(Request(1000, 1, 0, 1))
    assert not room.holds(Request(1000, 0, 1, 1))
