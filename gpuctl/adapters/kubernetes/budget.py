"""A bound on the rate of writes: a token bucket, in integers, on a clock that never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

_SECOND_NS = 1_000_000_000


class Budget:
    """`burst` at once, then `per_second`. Safe for threads; first come, first served."""

    def __init__(self, per_second: int, burst: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._each_ns = _SECOND_NS // per_second
        self._saved_ns = self._each_ns * (burst - 1)
        self._now_ns = now_ns
        self._next_ns = now_ns() - self._saved_ns
        self._lock = Lock()

    def take(self) -> int:
        """Take the next token. Returns in how many nanoseconds it may be used: 0 for at once."""
        with self._lock:
            now = self._now_ns()
            due = max(self._next_ns, now - self._saved_ns)
            self._next_ns = due + self._each_ns
            return max(0, due - now)
