"""How much of a node's free GPUs the usual requests could not use, and how a placement changes that.

Example: a node with 500 free milli-GPU on each of two devices is useless to requests for one GPU, so all of it is
fragmented for them. For each request of a mix, weighted by how often it is asked for, count the free GPUs it could not
use: all if it does not fit the node or asks for none, else those on devices with too little left. A placement's score
is the amount that it saves, mapped to 0..99; 50 changes nothing. Source: FGD (Weng et al., ATC 2023).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeAlias

from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli

Want: TypeAlias = tuple[GpuMilli, CpuMilli]
"""What one worker asks for: GPUs, a fraction or whole ones, and CPU."""

Mix: TypeAlias = tuple[tuple[Want, int], ...]
"""Requests, and how often each is asked for."""

Free: TypeAlias = tuple[GpuMilli, ...]
"""What is free on each device of a node, in ascending order."""

USUAL_PERCENT = 95
"""The percentage of requests that a mix keeps; the rarest are left out. Source: FGD."""

MAX_WANTS = 100
"""The most requests in a mix; openb's have 43. Without this bound 700 jobs that all differ take 20x on 40 nodes."""

MAX_STATES = 50_000
"""The most node states for which results are kept; then all are dropped. openb's nodes have 17,000."""

MICRO = 1_000_000

SCORES = (
    -4595120, -3891820, -3476099, -3178054, -2944439, -2751535, -2586689, -2442347, -2313635, -2197225, -2090741,
    -1992430, -1900959, -1815290, -1734601, -1658228, -1585627, -1516347, -1450010, -1386294, -1324925, -1265666,
    -1208311, -1152680, -1098612, -1045969, -994623, -944462, -895384, -847298, -800119, -753772, -708185, -663294,
    -619039, -575364, -532217, -489548, -447312, -405465, -363965, -322773, -281851, -241162, -200671, -160343,
    -120144, -80043, -40005, 0, 40005, 80043, 120144, 160343, 200671, 241162, 281851, 322773, 363965, 405465, 447312,
    489548, 532217, 575364, 619039, 663294, 708185, 753772, 800119, 847298, 895384, 944462, 994623, 1045969, 1098612,
    1152680, 1208311, 1265666, 1324925, 1386294, 1450010, 1516347, 1585627, 1658228, 1734601, 1815290, 1900959,
    1992430, 2090741, 2197225, 2313635, 2442347, 2586689, 2751535, 2944439, 3178054, 3476099, 3891820, 4595120,
)  # fmt: skip
"""Millionths of a GPU that must be saved for a score of 1, 2 ... 99: ln(k / (100 - k)). So the score is FGD's `int(100
* sigmoid(saved GPUs))` without a float."""

NEUTRAL = bisect_right(SCORES, 0)
"""The score of a placement that changes nothing."""


def usual(mix: Mix) -> Mix:
    """The most frequent requests that together make up USUAL_PERCENT of a mix, or the first MAX_WANTS of them."""
    total = sum(count for _, count in mix)
    kept: list[tuple[Want, int]] = []
    seen = 0
    for want, count in sorted(mix, key=lambda entry: (-entry[1], entry[0])):
        if 100 * seen >= USUAL_PERCENT * total or len(kept) == MAX_WANTS:
            break
        kept.append((want, count))
        seen += count
    return tuple(kept)


class Fragmentation:
    """The measure for one mix. Results are kept for each state of a node, because many nodes are in the same state.
    Without that `bench engine`'s consolidation takes 1.7x."""

    def __init__(self, mix: Mix) -> None:
        self._wants = usual(mix)
        self._weight = sum(count for _, count in self._wants)
        self._cpu_steps = sorted({cpu for (_, cpu), _ in self._wants})
        self._lost: dict[tuple[Free, int], int] = {}

    def cpu_step(self, cpu_milli: CpuMilli) -> int:
        """How many of the mix's CPU requests fit: all that matters here about free CPU."""
        return bisect_right(self._cpu_steps, cpu_milli)

    def score(self, before: Free, cpu_before: int, after: Free, cpu_after: int) -> int:
        """The score of a placement that takes a node from one state to another, CPU in steps; higher is better."""
        if not self._weight:
            return NEUTRAL
        saved = self.lost(before, cpu_before) - self.lost(after, cpu_after)
        return bisect_right(SCORES, saved * (MICRO // WHOLE_GPU) // self._weight)

    def lost(self, free: Free, cpu_step: int) -> int:
        """Free milli-GPU that the mix could not use, summed over its requests. Cost: O(requests), once."""
        found = self._lost.get((free, cpu_step))
        if found is None:
            if len(self._lost) >= MAX_STATES:
                self._lost.clear()
            found = self._lost[free, cpu_step] = self._count(free, set(self._cpu_steps[:cpu_step]))
        return found

    def _count(self, free: Free, cpu_that_fits: set[CpuMilli]) -> int:
        total, largest = sum(free), free[-1] if free else 0
        partly = free[: bisect_left(free, WHOLE_GPU)]
        partly_milli, whole = sum(partly), len(free) - len(partly)
        lost = 0
        for (gpu_milli, cpu_milli), count in self._wants:
            if not gpu_milli or cpu_milli not in cpu_that_fits:
                lost += count * total
            elif gpu_milli < WHOLE_GPU:
                lost += count * (total if largest < gpu_milli else sum(free[: bisect_left(free, gpu_milli)]))
            else:
                lost += count * (total if whole < gpu_milli // WHOLE_GPU else partly_milli)
        return lost
