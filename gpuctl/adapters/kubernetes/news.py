"""A signal that watches set when they have received something, to wait for changes of a real cluster."""

from __future__ import annotations

from threading import Event

from gpuctl.model.units import Instant

_PATIENCE_S = 0.05


class News:
    """Implements the port Progress for a real cluster, which changes by itself at unknown instants."""

    def __init__(self) -> None:
        self._rung = Event()

    def ring(self) -> None:
        """Signal that a watch has received something. Safe for threads."""
        self._rung.set()

    def settle(self) -> None:
        """Wait for the next signal, but not long: one change may come as several events."""
        self._rung.wait(_PATIENCE_S)
        self._rung.clear()

    def next_event_ms(self) -> Instant | None:
        """None: unknown."""
        return None
