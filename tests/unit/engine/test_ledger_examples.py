"""A place that some leave for another: where more is free by that, and what had no place before."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gpuctl.engine.capacity.free import FreeCapacity, NodeFree, WorkerRequest
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, PoolName

NODE, POOL = NodeName("n1"), PoolName("a100")
TOO_LARGE = (2000, 0, 0, 1)


class Occupant(NamedTuple):
    """What has a place."""

    placement: Placement
    charge: WorkerRequest


def on(gpus: tuple[int, ...], gpu_milli: int, cpu_milli: int = 4000, mem_bytes: int = 100) -> Occupant:
    """One worker on the node."""
    worker = WorkerPlacement(node=NODE, gpus=gpus)
    return Occupant(Placement(workers=(worker,)), WorkerRequest(gpu_milli, cpu_milli, mem_bytes))


def full_with(*occupants: Occupant) -> FreeCapacity:
    """A node of two devices with these on it, and a request that was refused a place there."""
    ledger = FreeCapacity({NODE: NodeFree(NODE, POOL, [1000, 1000], 16_000, 1000)})
    ledger.take_all(occupants)
    ledger.unschedulable(POOL).add(TOO_LARGE)
    return ledger


def test_who_leaves_just_the_place_of_another_leaves_nothing_to_anybody() -> None:
    left, stays = on((0,), 1000), on((1,), 1000)
    ledger = full_with(left, stays)
    ledger.exchange([left], on((0,), 1000))
    assert ledger.unschedulable(POOL).cover(TOO_LARGE)
    assert ledger.rooms[NODE].gpu_milli == [0, 0]


@pytest.mark.parametrize("coming", [on((0,), 700), on((0,), 1000, 3999), on((0,), 1000, 4000, 99)])
def test_who_leaves_more_of_anything_may_help_others(coming: Occupant) -> None:
    left = on((0,), 1000)
    ledger = full_with(left, on((1,), 1000))
    ledger.exchange([left], coming)
    assert not ledger.unschedulable(POOL).cover(TOO_LARGE)


def test_a_place_that_is_taken_beside_those_that_leave_is_not_counted_to_them() -> None:
    left = on((0,), 500)
    ledger = full_with(left)
    ledger.exchange([left], on((0, 1), 2000))
    assert ledger.rooms[NODE].gpu_milli == [0, 0]
    assert ledger.whole_devices(POOL) == 0


def test_those_that_leave_nodes_that_are_not_there_any_more_leave_nothing() -> None:
    gone = Occupant(Placement(workers=(WorkerPlacement(node=NodeName("n9"), gpus=(0,)),)), WorkerRequest(1000, 0, 0))
    ledger = full_with(on((0,), 1000))
    ledger.exchange([gone], on((1,), 1000))
    assert ledger.unschedulable(POOL).cover(TOO_LARGE)
    assert ledger.rooms[NODE].gpu_milli == [0, 0]
