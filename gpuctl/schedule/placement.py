"""The best place for one worker in one pool.

Whole devices: the fullest node that has enough (binpack) or the emptiest (spread). A fraction: the device it leaves the
least of, so that fractions fill as few devices as they need; a new device is broken into only when none has room, on a
node chosen as for a whole one. A slice of a cut device: likewise, but nothing is broken into. CPU work goes where the
fewest devices are free, so that it is in no GPU job's way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from gpuctl.model.decision import WorkerPlacement
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import NodeName
from gpuctl.schedule.fit import Request, holds
from gpuctl.schedule.ledger import Ledger, Room


def whole_devices(room: Room, count: int) -> tuple[int, ...]:
    """The first wholly free devices of a node."""
    return tuple(room.whole_devices()[:count])


def _nodes_with(ledger: Ledger, pool: NodePool, devices: int) -> Iterator[NodeName]:
    """Nodes with that many wholly free devices, best first by the pool's strategy, then by name."""
    buckets = ledger.nodes_by_whole(pool.name)
    enough = buckets[devices:]
    for bucket in enough if pool.placement is PlacementStrategy.BINPACK or devices == 0 else reversed(enough):
        yield from bucket


def _on_shared_device(ledger: Ledger, pool: NodePool, request: Request) -> WorkerPlacement | None:
    partial = ledger.partial_devices(pool.name, request.profile)
    start = bisect_left(partial, (request.fraction_milli, NodeName(""), -1))
    for _, node, index in partial[start:]:
        if holds(ledger.rooms[node], request):
            return WorkerPlacement(node=node, gpus=(index,))
    return None


def place_worker(ledger: Ledger, pool: NodePool, request: Request) -> WorkerPlacement | None:
    """The best place for one worker, or None.

    Cost: O(log devices) unless CPU or memory is what is short.
    """
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
