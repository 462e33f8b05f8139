"""A bell that watches ring, for whoever waits for a real cluster to move on."""

from __future__ import annotations

from threading import Event

from gpuctl.model.units import Instant

_PATIENCE_S = 0.05


class News:
    """Implements the port Progress: a real cluster moves on by itself, and nobody knows when."""

    def __init__(self) -> None:
        self._rung = Event()

    def ring(self) -> None:
        """Something was heard; from any thread."""
        self._rung.set()

    def settle(self) -> None:
        """Wait for the next news, but not long: some moves are heard of as several."""
        self._rung.wait(_PATIENCE_S)
        self._rung.clear()

    def next_event_ms(self) -> Instant | None:
        """Unknown."""
        return None
