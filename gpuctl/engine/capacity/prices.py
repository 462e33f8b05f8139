"""The worth of the remainder of a shared device: how much of a new device it saves the usual fractions.

Example: 500 free milli-GPU are worth half a device if halves are asked for, and a third if nothing between 330 and 500
is. This is the cutting-stock problem over one-GPU bins: pack all fractions of a mix into the fewest devices. Its dual
gives each fraction a price; a remainder is worth the highest sum of prices that fits into it. Placing each fraction
where the worth drops least costs the fewest devices in the end. Source: Gilmore and Gomory's column generation, exact
in integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import gcd

from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_SIZES = 24
"""The most different fractions that are priced; the most frequent ones."""

MAX_PATTERNS = 200
"""The most ways to fill a device that are tried. openb's fractions need 38; with fewer the prices are less exact."""


def worth_of_rest(counts: Mapping[GpuMilli, int]) -> tuple[int, ...]:
    """The worth of 0 to 1000 free milli-GPU of a device, for fractions and how often each is asked for.

    The unit is arbitrary: only differences and ratios within one table have a meaning. () for a mix without fractions.
    Cost: O(patterns x (sizes^2 + sizes x 1000 / the sizes' common divisor)); 25 ms for openb.
    """
    frequent = sorted(counts, key=lambda size: (-counts[size], size))
    sizes = sorted(size for size in frequent[:MAX_SIZES] if 0 < size < WHOLE_GPU and counts[size] > 0)
    if not sizes:
        return ()
    step = reduce(gcd, sizes)
    worth = _worth([size // step for size in sizes], [counts[size] for size in sizes], WHOLE_GPU // step)
    return tuple(worth[free // step] for free in range(WHOLE_GPU + 1))


def _worth(sizes: Sequence[int], counts: Sequence[int], room: int) -> list[int]:
    """The revised simplex method; rows are `[basis inverse | devices]` times the basis' determinant `unit`.

    The first basis fills each device with one size only. Division by the old determinant is exact (Edmonds).
    """
    unit = 1
    for size in sizes:
        unit *= room // size
    rows = [[0] * len(sizes) + [unit // (room // size) * count] for size, count in zip(sizes, counts, strict=True)]
    for index, size in enumerate(sizes):
        rows[index][index] = unit // (room // size)
    worth, last = _fill(sizes, _prices(rows), room)
    for _ in range(MAX_PATTERNS):
        if worth[room] <= unit:
            break
        pattern = _pattern(sizes, last, room)
        gains = [sum(map(int.__mul__, row, pattern)) for row in rows]
        leaving = _first_to_leave(rows, gains)
        pivot, pivot_row = gains[leaving], rows[leaving]
        for index, (row, gain) in enumerate(zip(rows, gains, strict=True)):
            if index != leaving:
                rows[index] = [(old * pivot - gain * of) // unit for old, of in zip(row, pivot_row, strict=True)]
        unit = pivot
        worth, last = _fill(sizes, _prices(rows), room)
    return worth


def _prices(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)][:-1]


def _fill(sizes: Sequence[int], prices: Sequence[int], room: int) -> tuple[list[int], list[int]]:
    """The most worth that fits into 0 to `room`, and the last size taken for it; -1 if a unit is left empty."""
    worth, last = [0] * (room + 1), [-1] * (room + 1)
    for free in range(1, room + 1):
        best, chosen = worth[free - 1], -1
        for index, size in enumerate(sizes):
            if size > free:
                break
            if worth[free - size] + prices[index] > best:
                best, chosen = worth[free - size] + prices[index], index
        worth[free], last[free] = best, chosen
    return worth, last


def _pattern(sizes: Sequence[int], last: Sequence[int], room: int) -> list[int]:
    """How often each size occurs in the best filling."""
    pattern = [0] * len(sizes)
    free = room
    while free > 0:
        chosen = last[free]
        if chosen < 0:
            free -= 1
        else:
            pattern[chosen] += 1
            free -= sizes[chosen]
    return pattern


def _first_to_leave(rows: Sequence[Sequence[int]], gains: Sequence[int]) -> int:
    """The row whose devices the new pattern uses up first; of equals the lowest."""
    leaving = -1
    for index, gain in enumerate(gains):
        if gain > 0 and (leaving < 0 or rows[index][-1] * gains[leaving] < rows[leaving][-1] * gain):
            leaving = index
    return leaving
