"""The smallest runs that together hold an amount: least GPUs beyond it, then fewest runs, then by preference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice

from gpuctl.engine.jobs.runs import Allocation
from gpuctl.model.units import GpuMilli

MAX_STEPS = 2_000
"""Combinations of sizes tried for one amount."""


class SmallestCover:
    """Runs by size. Example: of runs of 1, 1, 2 and 4 GPUs those of 1 and 2 cover 3 GPUs; the one of 4 covers 4."""

    __slots__ = ("_by_size", "_sizes")

    def __init__(self, allocations: Iterable[Allocation]) -> None:
        """`allocations` in order of preference."""
        self._by_size: dict[GpuMilli, list[Allocation]] = {}
        for allocation in allocations:
            if allocation.total_milli > 0:
                self._by_size.setdefault(allocation.total_milli, []).append(allocation)
        self._sizes = sorted(self._by_size, reverse=True)

    def beside(self, chosen: Sequence[Allocation], missing_milli: GpuMilli) -> tuple[Allocation, ...] | None:
        """Runs besides those chosen that hold so many GPUs; None when all together do not."""
        taken = Counter(allocation.total_milli for allocation in chosen if self._has(allocation))
        counts = _fewest([(size, len(self._by_size[size]) - taken[size]) for size in self._sizes], missing_milli)
        if counts is None:
            return None
        more = (
            islice((allocation for allocation in self._by_size[size] if allocation not in chosen), count)
            for size, count in zip(self._sizes, counts, strict=False)
        )
        return tuple(chain.from_iterable(more))

    def _has(self, allocation: Allocation) -> bool:
        return allocation in self._by_size.get(allocation.total_milli, ())


def _fewest(stock: Sequence[tuple[GpuMilli, int]], missing: GpuMilli) -> tuple[int, ...] | None:
    """How many of each size, the largest first, add up to an amount with the least beyond it; None if all are too few.

    Depth-first, with as many of the largest at first as there is use for, so that the first answer comes at once; it
    goes on to be exact up to MAX_STEPS.
    """
    rest = list(accumulate((size * count for size, count in reversed(stock)), initial=0))[::-1]
    best: tuple[GpuMilli, int, tuple[int, ...]] | None = None
    pending: list[tuple[tuple[int, ...], int]] = [((), _most(stock, 0, missing))] if stock else []
    steps = 0
    while pending and (best is None or steps < MAX_STEPS):
        steps += 1
        before, count = pending.pop()
        if count:
            pending.append((before, count - 1))
        counts = (*before, count)
        milli = sum(size * some for (size, _), some in zip(stock, counts, strict=False))
        left, runs, at = missing - milli, sum(counts), len(counts)
        if best is not None and (milli + max(0, left), runs + (left > 0)) >= best[:2]:
            continue
        if left <= 0:
            best = milli, runs, counts
        elif rest[at] >= left:
            pending.append((counts, _most(stock, at, left)))
    return None if best is None else best[2]


def _most(stock: Sequence[tuple[GpuMilli, int]], at: int, missing: GpuMilli) -> int:
    """As many of a size as there is use for."""
    size, count = stock[at]
    return min(count, -(-missing // size))
