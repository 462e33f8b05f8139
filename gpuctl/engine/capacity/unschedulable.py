"""The engine's one memory of failure: requests that found nothing, so that none is searched for twice in vain.

A search answers the question "is there room for a worker of this size?" for one way of making room: on what is idle, by
pausing runs under one rule, by moving runs. If it finds nothing for 1 GPU and 8 CPUs, it finds nothing for 1 GPU and 16
CPUs either. So one failed request stands for every request that asks for no less of anything. Whoever releases
capacity empties the memory, because any request may then succeed.
"""

from __future__ import annotations

from typing import TypeAlias

Sizes: TypeAlias = tuple[int, int, int, int]
"""GPU, CPU and memory of a worker, and how many workers: a `fit.Request`."""


class UnschedulableRequests:
    """The smallest requests for which one kind of search failed since capacity was last released.

    Requests of one worker and of several are apart: a gang is placed worker by worker, which proves nothing for one.
    """

    __slots__ = ("_gangs", "_singles")

    def __init__(self) -> None:
        self._singles: list[Sizes] = []
        self._gangs: list[Sizes] = []

    def cover(self, sizes: Sizes) -> bool:
        """Whether one of them asked for no more of anything. Cost: the number of those kept, which is small."""
        gpu, cpu, mem, workers = sizes
        for failed in self._singles if workers == 1 else self._gangs:
            if failed[0] <= gpu and failed[1] <= cpu and failed[2] <= mem and failed[3] <= workers:
                return True
        return False

    def add(self, sizes: Sizes) -> None:
        """Remember one more; those that ask for no less than it are covered by it now."""
        kept = self._singles if sizes[3] == 1 else self._gangs
        kept[:] = [old for old in kept if any(mine > theirs for mine, theirs in zip(sizes, old, strict=True))]
        kept.append(sizes)

    def forget(self) -> None:
        """Capacity was released: any request may succeed again."""
        self._singles.clear()
        self._gangs.clear()
