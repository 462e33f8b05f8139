"""The process that serves a controller's dashboard: `python -m gpuctl.adapters.dashboard.fed SITE`, as JSON.

It reads the changes of the cluster on its standard input, and writes a byte to its standard output each time that it
wants to be told of them. When its input ends, it ends.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.collector import collect_seldom
from gpuctl.adapters.dashboard.asking import Asking, InClone
from gpuctl.adapters.dashboard.feed import Feed
from gpuctl.adapters.dashboard.guarding import ANY_HOST, LOOPBACK, Access
from gpuctl.adapters.dashboard.pages import Pages
from gpuctl.adapters.dashboard.past import Past
from gpuctl.adapters.dashboard.routes import Routes
from gpuctl.adapters.dashboard.server import Dashboard
from gpuctl.app.inspect import LiveCache, measured, observed
from gpuctl.app.ports import Clock
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import NO_REVISION, ObjectRef, Revision
from gpuctl.model.state import Body, RawObjects
from gpuctl.model.units import DurationMs, Instant
from gpuctl.views.clusters import ClusterView, cluster_view, with_use
from gpuctl.views.tables import age

_EVERY_MS: DurationMs = 1_000
_OLD_MS: DurationMs = 60_000
"""Pages say so when the cluster was read longer ago: while they are looked at, the controller reads it each second."""


class FedView:
    """The cluster as the controller has handed it over. `take` is called in one thread, `view` in another."""

    def __init__(self, clock: Clock, ask: Callable[[], None]) -> None:
        self._clock = clock
        self._ask = ask
        self._lock = Lock()
        self._objects: dict[ObjectRef, Body] = {}
        self._has_changed = True
        self._came: tuple[RawObjects, Instant, str | None, tuple[str, ...]] | None = None
        self._revision = NO_REVISION
        self._cache = LiveCache()
        self._last: tuple[RawObjects, ClusterView] | None = None

    def take(self, line: bytes) -> None:
        """Take a line that the controller sent."""
        said: dict[str, Any] = json.loads(line)
        for body in said.get("set", ()):
            self._objects[ref_of(body)] = body
            self._has_changed = True
        if "at_ms" not in said:
            return
        for gone in said["gone"]:
            self._has_changed = self._objects.pop(ObjectRef(*gone), None) is not None or self._has_changed
        with self._lock:
            is_same = self._came is not None and not self._has_changed
            raw = self._came[0] if self._came and is_same else RawObjects(objects=dict(self._objects))
            self._came = raw, said["at_ms"], said["leader"], tuple(said["unread"])
            self._revision = NO_REVISION if said["leader"] is not None else Revision(said["revision"])
        self._has_changed = False

    def objects(self) -> RawObjects:
        """All objects as they were last handed over."""
        with self._lock:
            return RawObjects() if self._came is None else self._came[0]

    def revision(self) -> Revision:
        """The commit that this replica enforces; NO_REVISION in standby."""
        with self._lock:
            return self._revision

    def view(self) -> ClusterView:
        """The cluster as known now; it also asks the controller for more."""
        self._ask()
        with self._lock:
            came = self._came
        now_ms = self._clock.now_ms()
        if came is None:
            return ClusterView(at_ms=now_ms, note="The controller has not read the cluster yet.")
        raw, at_ms, leader, unread = came
        if self._last is None or self._last[0] is not raw:
            found = measured(observed(raw, self._cache), at_ms)
            view = cluster_view(found.state, found.jobs, at_ms, (), found.overview)
            self._last = raw, with_use(view, found.uses)
        return replace(self._last[1], at_ms=at_ms, unread=unread, note=_note(now_ms - at_ms, leader))


def _note(old_ms: DurationMs, leader: str | None) -> str:
    said = []
    if leader is not None:
        said.append(f"This replica is in standby: {leader or 'another'} leads.")
    if old_ms > _OLD_MS:
        said.append(f"The controller could not read the cluster for {age(old_ms)}.")
    return " ".join(said)


def main(site: Mapping[str, Any], lines: IO[bytes], asks: IO[bytes]) -> None:
    """Serve until the lines end, or a signal comes."""

    def ask() -> None:
        with suppress(OSError):  # the controller has ended, and so does this process
            asks.write(b".")
            asks.flush()

    clock = SystemClock()
    fed = FedView(clock, ask)
    secret = site["secret_file"]
    access = Access(
        hosts=LOOPBACK if secret is None else ANY_HOST,
        user_header=site["user_header"],
        secret_file=None if secret is None else Path(secret),
    )
    with closing(Feed(fed.view, _EVERY_MS)) as feed:
        feed.start()
        past = None if site["history"] is None else Past(Path(site["history"]), clock)
        routes = Routes(feed, Pages(site["title"], site["repository"]), clock.now_ms, past, _asking(site, fed, clock))
        dashboard = Dashboard(routes, socket.socket(fileno=site["socket"]), access)
        with closing(dashboard):
            Thread(target=_read, args=(lines, fed, dashboard), name="lines", daemon=True).start()
            dashboard.serve()


def _asking(site: Mapping[str, Any], fed: FedView, clock: Clock) -> Asking | None:
    if site["clone"] is None:
        return None
    return Asking(InClone(Path(site["clone"]), site["path"], fed.revision), fed.objects, clock)


def _read(lines: IO[bytes], fed: FedView, dashboard: Dashboard) -> None:
    for line in lines:
        fed.take(line)
    dashboard.stop()


if __name__ == "__main__":
    collect_seldom()
    main(json.loads(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
