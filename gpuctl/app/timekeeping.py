"""The clock by which cycles decide: the machine's, while it agrees with the API server's. Also the delay of retries.

Limits of jobs and queue times are instants. By a clock that is days ahead, every job with a limit would be over its
time and ended for good. So gpuctl decides and writes nothing by such a clock.
"""

from __future__ import annotations

from gpuctl.app.ports import Clock, Reference, WrongTime
from gpuctl.diag.wording import message
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.units import DurationMs, Instant

MOST_APART_MS: DurationMs = 60_000
"""Clocks kept by NTP differ by far less, and every time limit of a job is longer."""
FIRST_RETRY_MS: DurationMs = 1_000
LAST_RETRY_MS: DurationMs = 300_000


def retry_ms(failures: int) -> DurationMs:
    """How long to wait after this many failures in a row: doubling, bounded."""
    return min(FIRST_RETRY_MS << min(failures - 1, 20), LAST_RETRY_MS)


class NoReference:
    """Implements the port Reference where there is no other clock: the cluster's time is this machine's."""

    def now_ms(self) -> None:
        """None: unknown."""


class CheckedClock:
    """Implements the port Clock. Raises WrongTime GPU7032 as long as the two clocks differ by more than a minute."""

    def __init__(self, clock: Clock, reference: Reference) -> None:
        self._clock = clock
        self._reference = reference

    def now_ms(self) -> Instant:
        """The machine's time, compared with the other clock at each call."""
        now_ms, there_ms = self._clock.now_ms(), self._reference.now_ms()
        if there_ms is not None and abs(now_ms - there_ms) > MOST_APART_MS:
            params = {"machine": format_timestamp(now_ms), "server": format_timestamp(there_ms)}
            raise WrongTime("GPU7032", message("GPU7032", params))
        return now_ms


NO_REFERENCE = NoReference()
