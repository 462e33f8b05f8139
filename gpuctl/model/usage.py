"""GPU use that decays by halves: what a project has used of spare GPUs, weighed by how long ago that was.

It is kept as a value at an instant and a rate since then, which give the value at any later instant: nothing is written
while nothing changes. Integers only; a decay is exact to 1 part in 2^31, and rounds down to a milli-GPU-hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from gpuctl.model.units import DurationMs, GpuMilli, Instant

_ONE = 1 << 64
_INVERSE_LN2 = 26613026195688644983
"""1 / ln 2, in units of 2^-64: steady use converges to this many half-lives of itself."""

_MS_PER_HOUR = 3_600_000
_BITS = 32


def _roots() -> tuple[int, ...]:
    """2^-1/2, 2^-1/4, 2^-1/8 ... in units of 2^-64."""
    roots = [isqrt(1 << 127)]
    while len(roots) < _BITS:
        roots.append(isqrt(roots[-1] << 64))
    return tuple(roots)


_ROOTS = _roots()


def left_after(elapsed_ms: DurationMs, half_life_ms: DurationMs) -> int:
    """The part that is left after a time, 2^(-elapsed / half-life), in units of 2^-64.

    The time is taken bit by bit, so the result is exact to 32 binary places of a half-life.
    """
    halves, rest = divmod(max(0, elapsed_ms), half_life_ms)
    if halves > 64:
        return 0
    left = _ONE
    for root in _ROOTS:
        rest *= 2
        if rest >= half_life_ms:
            rest -= half_life_ms
            left = left * root >> 64
    return left >> halves


def full_use(milli: GpuMilli, half_life_ms: DurationMs) -> int:
    """The value that steady use of so many milli-GPU converges to, in milli-GPU-hours."""
    return (max(0, milli) * half_life_ms * _INVERSE_LN2 >> 64) // _MS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`milli_hours` of use, decayed up to `at_ms`, and the use `rate_milli` since."""

    at_ms: Instant
    milli_hours: int = 0
    rate_milli: GpuMilli = 0

    def value(self, now_ms: Instant, half_life_ms: DurationMs) -> int:
        """The use in milli-GPU-hours, decayed up to now; a clock that was put back changes nothing."""
        left = left_after(now_ms - self.at_ms, half_life_ms)
        kept = self.milli_hours * left >> 64
        return kept + (full_use(self.rate_milli, half_life_ms) * (_ONE - left) >> 64)
