"""Keeps answers for a while, so that many pages that ask the same cost one answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gpuctl.app.ports import Clock
from gpuctl.model.units import DurationMs, Instant

T = TypeVar("T")


class Recent:
    """The newest answers by key, each as long as it is fresh. Not safe for threads: the owner holds the lock."""

    def __init__(self, clock: Clock, fresh_ms: DurationMs, most: int) -> None:
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[Instant, Any]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[Instant], T]) -> T:
        """The fresh answer, or else what `make` returns for the present time."""
        now_ms = self._clock.now_ms()
        kept = self._kept.get(key)
        if kept is None or not 0 <= now_ms - kept[0] < self._fresh_ms:
            kept = self._kept[key] = (now_ms, make(now_ms))
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        answer: T = kept[1]
        return answer
