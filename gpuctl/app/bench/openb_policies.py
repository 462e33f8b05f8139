"""The policies of the openb experiment: three of the paper, as in its simulator, and the engine's own."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from gpuctl.diag.span import SourceSpan
from gpuctl.engine.capacity.fit import Request, holds
from gpuctl.engine.capacity.fragmentation import Fragmentation, Mix
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.engine.capacity.placement import place_worker, whole_devices
from gpuctl.engine.capacity.ranking import Grade
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.model.decision import WorkerPlacement
from gpuctl.model.declared import NodePool, PlacementStrategy, Sharing
from gpuctl.model.ids import PoolName
from gpuctl.model.units import WHOLE_GPU, GpuMilli

POOL = NodePool(
    name=PoolName("openb"),
    match_labels={},
    nodes=(),
    gpu_mem_bytes=0,
    gpu_product="",
    placement=PlacementStrategy.BINPACK,
    sharing=Sharing.DRA,
    span=SourceSpan(file="openb"),
)
MAX_SPEC_CPU_MILLI = 128_000
MAX_SPEC_GPU_MILLI = 8_000
"""The paper's largest node, by which its BestFit weighs CPU against GPUs."""


RANDOM_TRIES = 100


def has_room(room: NodeFree, request: Request) -> bool:
    """Whether a worker fits a node."""
    free = room.free[-1] if room.free else 0
    return holds(room, request) and free >= request.fraction_milli and room.whole >= request.devices


class Placer(ABC):
    """A policy that places requests in one ledger. Requests have one worker each, and nothing is given back."""

    def __init__(self, ledger: FreeCapacity, seed: int) -> None:
        self.ledger = ledger
        self.seed = seed

    def learn(self, mix: Mix) -> None:  # noqa: B027 - most learn nothing
        """Learn the usual requests."""

    @abstractmethod
    def place(self, request: Request) -> WorkerPlacement | None:
        """A place for one worker; None if it fits nowhere."""


class Random(Placer):
    """Places a worker on a random node and random devices of all that fit."""

    def __init__(self, ledger: FreeCapacity, seed: int) -> None:
        super().__init__(ledger, seed)
        self._chance = random.Random(2000 + seed)  # noqa: S311 - the same every time
        self._rooms = list(ledger.rooms.values())
        self._full: set[Request] = set()

    def place(self, request: Request) -> WorkerPlacement | None:
        """See above."""
        room = None if request in self._full else self._room(request)
        if room is None:
            self._full.add(request)
            return None
        wanted = request.fraction_milli or WHOLE_GPU
        able = [index for index, milli in enumerate(room.gpu_milli) if milli >= wanted]
        count = 1 if request.fraction_milli else request.devices
        return WorkerPlacement(node=room.name, gpus=tuple(sorted(self._chance.sample(able, count))))

    def _room(self, request: Request) -> NodeFree | None:
        """A random node that fits: random ones are tried, and if none of them fits, all nodes are searched."""
        for _ in range(RANDOM_TRIES):
            room = self._chance.choice(self._rooms)
            if has_room(room, request):
                return room
        able = [room for room in self._rooms if has_room(room, request)]
        return self._chance.choice(able) if able else None


class Graded(Placer):
    """Places a worker on the node with the best grade; among equals, the first by name."""

    def place(self, request: Request) -> WorkerPlacement | None:
        """See above."""

        def grade(room: NodeFree) -> Grade | None:
            return self._grade(room, request) if has_room(room, request) else None

        best = self.ledger.best(request, grade, lambda: self.ledger.rooms)
        if best is None:
            return None
        room = self.ledger.rooms[best[1]]
        if request.fraction_milli:
            return WorkerPlacement(node=room.name, gpus=(self._device(room, request),))
        return WorkerPlacement(node=room.name, gpus=whole_devices(room, request.devices))

    @abstractmethod
    def _grade(self, room: NodeFree, request: Request) -> Grade:
        """The grade of a node; the smallest is best."""

    @abstractmethod
    def _device(self, room: NodeFree, request: Request) -> int:
        """The device of a node for a fraction of one."""


class BestFit(Graded):
    """Chooses the node with the least CPU and GPUs left, in hundredths of the largest, and its fullest device."""

    def _grade(self, room: NodeFree, request: Request) -> Grade:
        cpu = room.cpu_milli - request.cpu_milli
        gpu = sum(room.gpu_milli) - request.gpu_milli
        parts = MAX_SPEC_CPU_MILLI * MAX_SPEC_GPU_MILLI
        left = 50 * (cpu * MAX_SPEC_GPU_MILLI + gpu * MAX_SPEC_CPU_MILLI)
        return (-((100 * parts - left) // parts),)

    def _device(self, room: NodeFree, request: Request) -> int:
        able = (i for i, milli in enumerate(room.gpu_milli) if milli >= request.fraction_milli)
        return min(able, key=lambda index: (room.gpu_milli[index], index))


class Fgd(Graded):
    """Chooses the node and the device whose fragmentation grows least; among equals, the first device."""

    def __init__(self, ledger: FreeCapacity, seed: int) -> None:
        super().__init__(ledger, seed)
        self._measure = Fragmentation(())

    def learn(self, mix: Mix) -> None:
        """Learn the usual requests, by which fragmentation is measured."""
        self._measure = Fragmentation(mix)

    def _grade(self, room: NodeFree, request: Request) -> Grade:
        if request.fraction_milli:
            return (-max(self._scores(room, request).values()),)
        devices, free = request.devices, room.free
        after = (0,) * devices + free[: len(free) - devices]
        return (-self._score(room, request, after),)

    def _device(self, room: NodeFree, request: Request) -> int:
        scores = self._scores(room, request)
        best = max(scores.values())
        return next(index for index, milli in enumerate(room.gpu_milli) if scores.get(milli) == best)

    def _scores(self, room: NodeFree, request: Request) -> dict[GpuMilli, int]:
        """The score of each device that fits, by what is free on it."""
        free, size = room.free, request.fraction_milli
        scores = {}
        for index, milli in enumerate(free):
            if milli >= size and milli not in scores:
                after = sorted((*free[:index], milli - size, *free[index + 1 :]))
                scores[milli] = self._score(room, request, tuple(after))
        return scores

    def _score(self, room: NodeFree, request: Request, after: tuple[GpuMilli, ...]) -> int:
        measure = self._measure
        before, left = measure.cpu_step(room.cpu_milli), measure.cpu_step(room.cpu_milli - request.cpu_milli)
        return measure.score(room.free, before, after, left)


class Engine(Placer):
    """Places a worker as gpuctl does in a packed pool."""

    def learn(self, mix: Mix) -> None:
        """Learn the usual requests: the pool's habits."""
        self.ledger = FreeCapacity(self.ledger.rooms, habits={POOL.name: RequestMix(mix)})

    def place(self, request: Request) -> WorkerPlacement | None:
        """See above."""
        return place_worker(self.ledger, POOL, request)


ENGINE = "gpuctl"
POLICIES: Mapping[str, Callable[[FreeCapacity, int], Placer]] = {
    "random": Random,
    "bestfit": BestFit,
    "fgd": Fgd,
    ENGINE: Engine,
}
