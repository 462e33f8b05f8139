"""Signals that ask the process to end, and a bell by which other threads wake it."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from gpuctl.model.units import DurationMs

_MANY = 4096


class StopOnSignal:
    """Ends the loop at SIGTERM or SIGINT: between two writes, or in the middle of a wait or a fetch.

    A wait also ends if `wake` was called since the last one; the threads that watch the cluster call it.
    """

    def __init__(self) -> None:
        self._requested = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)

    def requested(self) -> bool:
        """Whether a signal has come."""
        return self._requested

    def wait(self, duration_ms: DurationMs) -> bool:
        """Wait, but no longer than until a signal comes or the bell rings."""
        if not self._requested and select.select([self._reading], [], [], duration_ms / 1000)[0]:
            os.read(self._reading, _MANY)
        return self._requested

    def wake(self) -> None:
        """Ring the bell; from any thread, at any time."""
        with suppress(BlockingIOError):  # the pipe is full of rings already
            os.write(self._writing, b".")

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._requested = True
        self.wake()
