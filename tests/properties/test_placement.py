"""Places: never more than there is, all workers or none, the same for any order of nodes, and without any memory."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.diag.span import SourceSpan
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place_in
from gpuctl.engine.capacity.request_mix import MANY_FRACTIONS, RequestMix
from gpuctl.model.declared import NodePool, PlacementStrategy, Sharing
from gpuctl.model.ids import NodeName, PoolName

POOL = PoolName("pool")
RACKS = ((), ("r1",), ("r2",), ("",))
GPUS = (0, 100, 250, 333, 400, 500, 600, 810, 1000, 2000, 4000)


def _pool(strategy: PlacementStrategy) -> NodePool:
    return NodePool(
        name=POOL, match_labels={}, nodes=(), gpu_mem_bytes=0, gpu_product="", placement=strategy, sharing=Sharing.DRA,
        span=SourceSpan(file="pool"),
    )  # fmt: skip


REQUESTS = st.builds(
    Request,
    gpu_milli=st.sampled_from(GPUS),
    cpu_milli=st.sampled_from((0, 1000, 4000)),
    mem_bytes=st.sampled_from((0, 1)),
    workers=st.sampled_from((1, 1, 1, 2, 3, 6)),
    profile=st.just(""),  # what is not given here is drawn: these nodes have no cut devices
)
NODES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 12), st.sampled_from(RACKS), st.booleans()), min_size=1, max_size=6
)
HABITS = st.lists(st.tuples(REQUESTS, st.integers(1, MANY_FRACTIONS)), max_size=6)


def _rooms(shapes: list[tuple[int, int, tuple[str, ...], bool]]) -> dict[NodeName, NodeFree]:
    """Nodes with so many devices, CPUs, a rack, and perhaps a device that others use a part of."""
    rooms = {}
    for index, (gpus, cpus, rack, shared) in enumerate(shapes):
        devices = [1000] * gpus
        if shared and devices:
            devices[-1] = 700
        name = NodeName(f"n{index}")
        rooms[name] = NodeFree(name, POOL, devices, 1000 * cpus, 8, topology=rack)
    return rooms


def _habits(seen: list[tuple[Request, int]]) -> RequestMix:
    counts: dict[tuple[int, int], int] = {}
    for request, count in seen:
        want = request.gpu_milli, request.cpu_milli
        counts[want] = counts.get(want, 0) + count
    fractions: dict[int, int] = {}
    for (gpu_milli, _), count in counts.items():
        if 0 < gpu_milli < 1000:
            fractions[gpu_milli] = fractions.get(gpu_milli, 0) + count
    return RequestMix({POOL: tuple(sorted(counts.items()))} if seen else {}, fractions)


def _fresh(ledger: FreeCapacity, order: random.Random) -> FreeCapacity:
    """The same rooms in a ledger that remembers nothing, in another order."""
    rooms = list(ledger.rooms.values())
    order.shuffle(rooms)
    return FreeCapacity(
        {
            room.name: NodeFree(
                room.name, room.pool, list(room.gpu_milli), room.cpu_milli, room.mem_bytes, (), room.topology
            )
            for room in rooms
        },
        mix=ledger.mix,
    )


@given(
    shapes=NODES,
    seen=HABITS,
    asked=st.lists(st.tuples(REQUESTS, st.integers(0, 3)), min_size=1, max_size=14),
    strategy=st.sampled_from(PlacementStrategy),
    seed=st.integers(0, 99),
)
@settings(max_examples=250)
def test_places(
    shapes: list[tuple[int, int, tuple[str, ...], bool]],
    seen: list[tuple[Request, int]],
    asked: list[tuple[Request, int]],
    strategy: PlacementStrategy,
    seed: int,
) -> None:
    order = random.Random(seed)
    pool = _pool(strategy)
    ledger = FreeCapacity(_rooms(shapes), mix=_habits(seen))
    placed: list[Assignment] = []
    for request, then in asked:
        found = place_in(ledger, PoolOption(pool, request))
        assert found == place_in(_fresh(ledger, order), PoolOption(pool, request))
        if found is not None:
            assert len(found.workers) == request.workers
            for worker in found.workers:
                assert len(set(worker.gpus)) == (1 if request.fraction_milli else request.devices)
            placed.append(Assignment(PoolOption(pool, request), found))
            ledger.take(placed[-1:])
        if then == 0 and placed:
            ledger.give_back([placed.pop(order.randrange(len(placed)))])
        for room in ledger.rooms.values():
            assert min(room.gpu_milli, default=0) >= 0
            assert room.cpu_milli >= 0
            assert room.mem_bytes >= 0
            assert room.free == tuple(sorted(room.gpu_milli))
