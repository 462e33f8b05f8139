"""The time by the API server's clock, from the `Date` of each of its answers."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from gpuctl.model.units import DurationMs, Instant

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LONGEST_DATE = 64
_MS_NS = 1_000_000


class ServerTime:
    """Implements the port Reference: the `Date` of the newest answer, plus the time passed since. Safe for threads.

    It is exact to a second and the time that an answer takes.
    """

    def __init__(self) -> None:
        self._heard: tuple[Instant, int] | None = None

    def hear(self, date: str) -> None:
        """Take the `Date` of an answer; anything but a date is ignored."""
        try:
            at_ms = int(parsedate_to_datetime(date[:_LONGEST_DATE]).timestamp()) * 1000
        except (ValueError, TypeError, OverflowError):
            return
        self._heard = at_ms, time.clock_gettime_ns(_CLOCK)

    def now_ms(self) -> Instant | None:
        """The server's time; None before its first answer."""
        if self._heard is None:
            return None
        at_ms, heard_ns = self._heard
        return at_ms + (time.clock_gettime_ns(_CLOCK) - heard_ns) // _MS_NS

    def silent_ms(self) -> DurationMs:
        """How long ago its newest answer came; 0 before the first."""
        return 0 if self._heard is None else (time.clock_gettime_ns(_CLOCK) - self._heard[1]) // _MS_NS
