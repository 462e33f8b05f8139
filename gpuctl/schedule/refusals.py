"""What need not be asked again: a request that found nothing, and all that ask for no less of anything.

Thousands of waiting jobs are rarely alike, but most ask for more than one that has just been refused.
"""

from __future__ import annotations

from typing import TypeAlias

Sizes: TypeAlias = tuple[int, int, int, int]
"""GPU, CPU and memory of a worker, and how many workers: a `fit.Request`."""


class Refusals:
    """The smallest requests that found nothing where no room has been made since. One worker and several are apart."""

    __slots__ = ("_gangs", "_singles")

    def __init__(self) -> None:
        self._singles: list[Sizes] = []
        self._gangs: list[Sizes] = []

    def cover(self, sizes: Sizes) -> bool:
        """Whether one of them asked for no more of anything. Cost: the number of those kept, which is small."""
        gpu, cpu, mem, workers = sizes
        for refused in self._singles if workers == 1 else self._gangs:
            if refused[0] <= gpu and refused[1] <= cpu and refused[2] <= mem and refused[3] <= workers:
                return True
        return False

    def add(self, sizes: Sizes) -> None:
        """Remember one more; those that ask for no less than it are covered by it now."""
        kept = self._singles if sizes[3] == 1 else self._gangs
        kept[:] = [old for old in kept if any(mine > theirs for mine, theirs in zip(sizes, old, strict=True))]
        kept.append(sizes)

    def forget(self) -> None:
        """Room was made: anything may have a chance again."""
        self._singles.clear()
        self._gangs.clear()
