"""The cluster as the dashboard's pages see it: one thread reads it at an interval, while pages are asked for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TypeAlias

from gpuctl.app.ports import WorldFault
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.views.clusters import ClusterView, allocation_of

Read: TypeAlias = Callable[[], ClusterView]

LOOKED_AT_MS: DurationMs = 60_000
"""How long the cluster is read after the last request."""

MOST_SAMPLES = 2_880
"""A sample for every 30 s of a day."""

_SAMPLE_MS: DurationMs = 30_000
_MOST_OF_TIME = 4
"""After a read that took long, the next one waits four times as long."""

_MS_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last view that was read. `version` grows when it changes; `fault`: why it is older than it should be."""

    version: int = 0
    view: ClusterView
    fault: WorldFault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The GPUs that each project held at an instant."""

    at_ms: Instant
    held_milli: Mapping[ProjectName, GpuMilli]


class Feed:
    """Reads the cluster for all viewers together. `start` it before it is asked; `close` ends its thread."""

    def __init__(self, read: Read, interval_ms: DurationMs, looked_at_ms: DurationMs = LOOKED_AT_MS) -> None:
        """`looked_at_ms`: how long the cluster is read after a page was asked for."""
        self._read = read
        self._interval_ns, self._looked_at_ns = interval_ms * _MS_NS, looked_at_ms * _MS_NS
        self._changed = Condition()
        self._seen: Seen | None = None
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._asked_ns = time.monotonic_ns()
        self._closed = False
        self._listeners: list[Callable[[], None]] = []
        self._thread = Thread(target=self._run, name="dashboard-feed", daemon=True)

    def start(self) -> None:
        """Read the cluster once, then go on in the background. Raises WorldFault if it can't be read at all."""
        self._take(self._read())
        self._thread.start()

    def close(self) -> None:
        """End the thread, after a read that is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def on_change(self, tell: Callable[[], None]) -> None:
        """Have a function called, in the feed's thread, after each change."""
        self._listeners.append(tell)

    def seen(self) -> Seen:
        """The last view that was read; wakes the thread if it sleeps."""
        with self._changed:
            slept = time.monotonic_ns() - self._asked_ns > self._looked_at_ns
            self._asked_ns = time.monotonic_ns()
            if slept:
                self._changed.notify_all()
            if self._seen is None:
                raise RuntimeError("the feed was not started")
            return self._seen

    def samples(self) -> tuple[Sample, ...]:
        """The GPUs that projects held since the feed began: at most `MOST_SAMPLES`, oldest first."""
        with self._changed:
            return tuple(self._samples)

    def _run(self) -> None:
        while self._wait():
            began_ns = time.monotonic_ns()
            try:
                self._take(self._read())
            except WorldFault as fault:
                self._fail(fault)
            self._pause(max(self._interval_ns, _MOST_OF_TIME * (time.monotonic_ns() - began_ns)))

    def _wait(self) -> bool:
        """Wait until a page was asked for lately. Returns whether to go on."""
        with self._changed:
            while not self._closed and time.monotonic_ns() - self._asked_ns > self._looked_at_ns:
                self._changed.wait()
            return not self._closed

    def _pause(self, least_ns: int) -> None:
        until_ns = time.monotonic_ns() + least_ns
        with self._changed:
            while not self._closed and (left_ns := until_ns - time.monotonic_ns()) > 0:
                self._changed.wait(left_ns / 1e9)

    def _take(self, view: ClusterView) -> None:
        with self._changed:
            before = self._seen
            is_new = before is None or before.fault is not None or _content(before.view) != _content(view)
            version = (before.version if before else 0) + is_new
            self._seen = Seen(version=version, view=view)
            held = allocation_of(view)
            last = self._samples[-1] if self._samples else None
            if last is None or last.held_milli != held or view.at_ms - last.at_ms >= _SAMPLE_MS:
                self._samples.append(Sample(at_ms=view.at_ms, held_milli=held))
        if is_new:
            self._tell()

    def _fail(self, fault: WorldFault) -> None:
        with self._changed:
            if self._seen is None or self._seen.fault is not None:
                return
            self._seen = Seen(version=self._seen.version + 1, view=self._seen.view, fault=fault)
        self._tell()

    def _tell(self) -> None:
        for tell in self._listeners:
            tell()


def _content(view: ClusterView) -> tuple[object, ...]:
    """The content of pages, without the time."""
    # Two runs that differ by their problem alone are equal.
    return (
        view.jobs,
        view.nodes,
        view.projects,
        view.departments,
        view.turns,
        view.unread,
        view.note,
        [job.run.problem for job in view.jobs],
    )
