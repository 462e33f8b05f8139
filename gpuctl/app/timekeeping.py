"""The time by which cycles decide: the machine's, as long as the cluster's server has the same. And when to try again.

Limits of jobs, queue times and what is written of them are instants. By a clock that is days ahead every limited job is
over its time, and ended for good; so nothing is decided by it, and nothing is written.
"""

from __future__ import annotations

from gpuctl.app.ports import Clock, Reference, WrongTime
from gpuctl.diag.wording import message
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.units import DurationMs, Instant

MOST_APART_MS: DurationMs = 60_000
"""Clocks that are kept by NTP differ by far less, and no limit of a job is so short."""
FIRST_RETRY_MS: DurationMs = 1_000
LAST_RETRY_MS: DurationMs = 300_000


def retry_ms(failures: int) -> DurationMs:
    """How long to wait after so many failures in a row: doubling, bounded."""
    return min(FIRST_RETRY_MS << min(failures - 1, 20), LAST_RETRY_MS)


class NoReference:
    """There is no other clock: the cluster's time is this machine's."""

    def now_ms(self) -> None:
        """Unknown."""


class CheckedClock:
    """Implements the port Clock. Raises WrongTime GPU7032 as long as the two clocks differ by more than a minute."""

    def __init__(self, clock: Clock, reference: Reference) -> None:
        self._clock = clock
        self._reference = reference

    def now_ms(self) -> Instant:
        """The machine's time, compared with the other clock's each time it is asked for."""
        now_ms, there_ms = self._clock.now_ms(), self._reference.now_ms()
        if there_ms is not None and abs(now_ms - there_ms) > MOST_APART_MS:
            params = {"machine": format_timestamp(now_ms), "server": format_timestamp(there_ms)}
            raise WrongTime("GPU7032", message("GPU7032", params))
        return now_ms


NO_REFERENCE = NoReference()
