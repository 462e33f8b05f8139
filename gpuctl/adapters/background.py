"""Work in a thread beside the loop, so that the loop never waits for outside systems."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import TypeVar

R = TypeVar("R")


class ThreadBackground:
    """Implements the port Background. `wake` ends the loop's wait; the thread calls it, until this is closed.

    Nothing waits for a thread: one that hangs ends with the process.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = Lock()
        self._closed = False

    def start(self, work: Callable[[], R]) -> Future[R]:
        """Begin the work."""
        future: Future[R] = Future()
        Thread(target=self._do, args=(work, future), name="following", daemon=True).start()
        return future

    def close(self) -> None:
        """From now on, don't wake the loop: it may be gone."""
        with self._lock:
            self._closed = True

    def _do(self, work: Callable[[], R], future: Future[R]) -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
            future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - what would end a process ends no loop
            future.set_exception(RuntimeError(f"the work ended with {error!r}"))
        with self._lock:
            if not self._closed:
                self._wake()
