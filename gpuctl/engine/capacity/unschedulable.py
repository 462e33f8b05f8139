"""The engine's one memory of failure: requests for which a search found nothing.

Example: a search that finds nothing for 1 GPU and 8 CPUs finds nothing for 1 GPU and 16 CPUs either. So a failed
request stands for every request that asks for no less of anything. There is one memory for each way of making room:
idle capacity, pausing runs under one rule, moving runs. It is emptied when capacity is released. Never changes a
decision.
"""

from __future__ import annotations

from typing import TypeAlias

Sizes: TypeAlias = tuple[int, int, int, int]
"""GPU, CPU and memory of a worker, and the number of workers."""


class UnschedulableRequests:
    """The smallest requests for which one kind of search failed since capacity was last released.

    Single workers and gangs are apart: a gang is placed worker by worker, which proves nothing for one.
    """

    __slots__ = ("_gangs", "_singles")

    def __init__(self) -> None:
        self._singles: list[Sizes] = []
        self._gangs: list[Sizes] = []

    def cover(self, sizes: Sizes) -> bool:
        """Whether a failed request asked for no more of anything. Cost: the number kept, which is small."""
        gpu, cpu, mem, workers = sizes
        for failed in self._singles if workers == 1 else self._gangs:
            if failed[0] <= gpu and failed[1] <= cpu and failed[2] <= mem and failed[3] <= workers:
                return True
        return False

    def add(self, sizes: Sizes) -> None:
        """Add a failed request, and drop those it stands for."""
        kept = self._singles if sizes[3] == 1 else self._gangs
        kept[:] = [old for old in kept if any(mine > theirs for mine, theirs in zip(sizes, old, strict=True))]
        kept.append(sizes)

    def forget(self) -> None:
        """Capacity was released: any request may succeed again."""
        self._singles.clear()
        self._gangs.clear()
