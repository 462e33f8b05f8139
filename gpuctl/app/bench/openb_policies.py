"""The policies of the openb experiment: three of the paper, as in its simulator, and the engine's own."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from gpuctl.app.bench.openb_pods import Ask, Counts, Pools
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.fragmentation import USUAL_PERCENT, Fragmentation, Mix, Want
from gpuctl.engine.capacity.free import FreeCapacity, Grade, NodeFree
from gpuctl.engine.capacity.gang import PoolOption, place
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import PoolName
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_SPEC_CPU_MILLI = 128_000
MAX_SPEC_GPU_MILLI = 8_000
"""The paper's largest node, by which its BestFit weighs CPU against GPUs."""


RANDOM_TRIES = 100


def has_room(room: NodeFree, ask: Ask) -> bool:
    """Whether a pod may use a node's pool, and fits the node."""
    request, free = ask.request, room.free[-1] if room.free else 0
    fits = room.holds(request) and free >= request.fraction_milli and room.whole >= request.devices
    return fits and room.pool in ask.pools


class Placer(ABC):
    """A policy that places pods in one set of nodes, each as a job of one worker. Capacity is never given back."""

    def __init__(self, ledger: FreeCapacity, pools: Pools, seed: int) -> None:
        self.ledger = ledger
        self.pools = pools
        self.seed = seed

    def learn(self, counts: Counts) -> None:  # noqa: B027 - most learn nothing
        """Learn the usual requests."""

    @abstractmethod
    def place(self, ask: Ask) -> Placement | None:
        """A place for one pod; None if it fits nowhere."""


class Random(Placer):
    """Places a worker on a random node and random devices of all that fit."""

    def __init__(self, ledger: FreeCapacity, pools: Pools, seed: int) -> None:
        super().__init__(ledger, pools, seed)
        self._chance = random.Random(2000 + seed)  # noqa: S311 - the same every time
        self._rooms = list(ledger.rooms.values())
        self._full: set[Ask] = set()

    def place(self, ask: Ask) -> Placement | None:
        """See above."""
        room = None if ask in self._full else self._room(ask)
        if room is None:
            self._full.add(ask)
            return None
        request = ask.request
        wanted = request.fraction_milli or WHOLE_GPU
        able = [index for index, milli in enumerate(room.gpu_milli) if milli >= wanted]
        count = 1 if request.fraction_milli else request.devices
        return _on(room, tuple(sorted(self._chance.sample(able, count))))

    def _room(self, ask: Ask) -> NodeFree | None:
        """A random node that fits: some random nodes are tried; if none of them fits, all nodes are searched."""
        for _ in range(RANDOM_TRIES):
            room = self._chance.choice(self._rooms)
            if has_room(room, ask):
                return room
        able = [room for room in self._rooms if has_room(room, ask)]
        return self._chance.choice(able) if able else None


class Graded(Placer):
    """Places a worker on the node with the best grade; among equals, the first by name."""

    def place(self, ask: Ask) -> Placement | None:
        """See above."""
        request = ask.request

        def grade(room: NodeFree) -> Grade | None:
            return self._grade(room, request) if has_room(room, ask) else None

        best = self.ledger.best(ask, grade, lambda: self.ledger.rooms)
        if best is None:
            return None
        room = self.ledger.rooms[best[1]]
        if request.fraction_milli:
            return _on(room, (self._device(room, request),))
        return _on(room, tuple(room.whole_devices()[: request.devices]))

    @abstractmethod
    def _grade(self, room: NodeFree, request: Request) -> Grade:
        """The grade of a node; the smallest is best."""

    @abstractmethod
    def _device(self, room: NodeFree, request: Request) -> int:
        """The device of a node for a fraction of one."""


class BestFit(Graded):
    """Chooses the node with the least CPU and GPUs left, in hundredths of the largest node, and its fullest device."""

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
    """Chooses the node and the device whose fragmentation grows least; among equals, the first device.

    A pod that may not use a pool can use none of its free GPUs: in the measure of that pool it asks for no GPU.
    """

    def __init__(self, ledger: FreeCapacity, pools: Pools, seed: int) -> None:
        super().__init__(ledger, pools, seed)
        self._measures = {pool: Fragmentation(()) for pool in pools}

    def learn(self, counts: Counts) -> None:
        """Learn the usual requests, by which fragmentation is measured."""
        typical = _typical(counts)
        self._measures = {pool: Fragmentation(_seen_from(pool, typical)) for pool in self.pools}

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
        measure = self._measures[room.pool]
        before, left = measure.cpu_step(room.cpu_milli), measure.cpu_step(room.cpu_milli - request.cpu_milli)
        return measure.score(room.free, before, after, left)


class Engine(Placer):
    """Places a pod as gpuctl places a job that lists no pools; all pools are packed."""

    def __init__(self, ledger: FreeCapacity, pools: Pools, seed: int) -> None:
        super().__init__(ledger, pools, seed)
        self._options: dict[Ask, tuple[PoolOption, ...]] = {}

    def learn(self, counts: Counts) -> None:
        """Learn the usual requests. A pod that may not use a pool asks for no GPU there, as for the engine."""
        mixes = {
            pool: _mix((a.want if pool in a.pools else (0, a.want[1]), n) for a, n in counts.items())
            for pool in self.pools
        }
        fractions: dict[GpuMilli, int] = {}
        for ask, count in counts.items():
            if ask.request.fraction_milli and ask.pools:
                fractions[ask.request.gpu_milli] = fractions.get(ask.request.gpu_milli, 0) + count
        self.ledger.adopt(RequestMix(mixes, fractions))

    def place(self, ask: Ask) -> Placement | None:
        """See above."""
        options = self._options.get(ask)
        if options is None:
            options = self._options[ask] = tuple(PoolOption(self.pools[name], ask.request) for name in ask.pools)
        found = place(self.ledger, options)
        return None if found is None else found.placement


def _on(room: NodeFree, devices: tuple[int, ...]) -> Placement:
    return Placement(workers=(WorkerPlacement(node=room.name, gpus=devices),))


Kind: TypeAlias = tuple[Want, tuple[PoolName, ...]]
"""GPUs, CPU and pools: pods that are equal in these are one kind in the paper."""


def _typical(counts: Counts) -> dict[Kind, int]:
    """The paper's typical pods: the most frequent kinds, which together make up USUAL_PERCENT of all pods."""
    by_kind: dict[Kind, int] = {}
    for ask, count in counts.items():
        by_kind[ask.want, ask.pools] = by_kind.get((ask.want, ask.pools), 0) + count
    total, seen = sum(by_kind.values()), 0
    kept = {}
    for kind, count in sorted(by_kind.items(), key=lambda entry: (-entry[1], entry[0])):
        if 100 * seen >= USUAL_PERCENT * total:
            break
        kept[kind] = count
        seen += count
    return kept


def _seen_from(pool: PoolName, typical: Mapping[Kind, int]) -> Mix:
    """The typical pods as a pool's nodes see them: pods that may not use the pool ask for no GPU there.

    `Fragmentation` drops the rarest 5 % of its mix, but these pods have been chosen already. So requests that occur
    once each are added until they are 5 % of the mix, and it drops those.
    """
    mix = _mix((want if pool in pools else (0, want[1]), 19 * count) for (want, pools), count in typical.items())
    return *mix, *(((0, -number), 1) for number in range(1, sum(typical.values()) + 1))


def _mix(counts: Iterable[tuple[Want, int]]) -> Mix:
    """How often each request occurs."""
    total: dict[Want, int] = {}
    for want, count in counts:
        total[want] = total.get(want, 0) + count
    return tuple(sorted(total.items()))


ENGINE = "gpuctl"
POLICIES: Mapping[str, Callable[[FreeCapacity, Pools, int], Placer]] = {
    "random": Random,
    "bestfit": BestFit,
    "fgd": Fgd,
    ENGINE: Engine,
}
