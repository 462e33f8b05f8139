"""The two clocks: the machine's, and one that stands still until it is moved."""

from __future__ import annotations

import time

from gpuctl.model.units import Instant


class SystemClock:
    """The machine's time."""

    def now_ms(self) -> Instant:
        """Milliseconds since the Unix epoch."""
        return int(time.time() * 1000)


class VirtualClock:
    """Time as a number: simulations and tests move it themselves. It never goes back."""

    def __init__(self, now_ms: Instant) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> Instant:
        """The instant last advanced to."""
        return self._now_ms

    def advance_to(self, now_ms: Instant) -> None:
        """Set the time; raises ValueError for an instant that has passed."""
        if now_ms < self._now_ms:
            raise ValueError(f"time does not go back: {now_ms} is before {self._now_ms}")
        self._now_ms = now_ms


class PassingClock(SystemClock):
    """The machine's time in the form of a clock that can be moved: moving it waits."""

    def advance_to(self, now_ms: Instant) -> None:
        """Wait until then."""
        time.sleep(max(0, now_ms - self.now_ms()) / 1000)
