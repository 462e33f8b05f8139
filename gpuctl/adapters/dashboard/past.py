"""The past, as pages ask for it: read from the history's file, one question at a time, and kept for some seconds.

So one request reads the file, however many pages ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TypeVar

from gpuctl.adapters.dashboard.recent import Recent
from gpuctl.adapters.history.reading import changes_in, read_history
from gpuctl.adapters.history.trends import read_trends
from gpuctl.app.ports import Clock, WorldFault
from gpuctl.model.history import Change, History, Subject, Trends
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import DurationMs, Instant

_HOUR_MS = 3_600_000
SPANS: Mapping[str, DurationMs] = {
    "1h": _HOUR_MS,
    "6h": 6 * _HOUR_MS,
    "1d": 24 * _HOUR_MS,
    "7d": 7 * 24 * _HOUR_MS,
    "30d": 30 * 24 * _HOUR_MS,
    "365d": 365 * 24 * _HOUR_MS,
}
"""The lengths of time that pages show, by the word in the address."""
USUAL = "1d"
_EVENTS_MS: DurationMs = 30 * 24 * _HOUR_MS
_FRESH_MS: DurationMs = 5_000
_MOST_KEPT = 50

T = TypeVar("T")


class Past:
    """The history in a file. Each method raises WorldFault if the file can't be read. Safe for threads."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._lock = Lock()
        self._kept = Recent(clock, _FRESH_MS, _MOST_KEPT)

    def job(self, job: JobId) -> History:
        """The events of a job, as long as events are kept."""
        return self._read(
            ("job", str(job)), lambda now_ms: read_history(self._file, Subject(job=job), now_ms - _EVENTS_MS, now_ms)
        )

    def trends(self, span: str, project: ProjectName | None) -> Trends:
        """The trends of a length of time of `SPANS` that ends now."""
        return self._read(
            ("trends", span, project or ""),
            lambda now_ms: read_trends(self._file, now_ms - SPANS[span], now_ms, project),
        )

    def changes(self) -> tuple[Change, ...]:
        """The commits that were taken up, newest first."""
        return self._read(("changes",), lambda now_ms: changes_in(self._file, now_ms - _EVENTS_MS, now_ms))

    def _read(self, key: tuple[str, ...], read: Callable[[int], T]) -> T:
        def present(now_ms: Instant) -> T:
            if not self._file.exists():
                raise NoPast
            return read(now_ms + 1)

        with self._lock:
            return self._kept.get(key, present)


class NoPast(WorldFault):
    """There is no history here."""

    def __init__(self) -> None:
        super().__init__("GPU7087", "there is no history here: the replica that leads keeps one, since it began")
