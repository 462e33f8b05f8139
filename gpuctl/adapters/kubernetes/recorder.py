"""Writes Events beside the objects, for `kubectl describe`: in a separate thread, seldom, and without delaying
anything.

Equal notes about an object are one Event, named by its text and its first time. Notes that are repeated soon are
counted and written later as a series. Notes that can't be written in time are dropped.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Condition, Thread
from typing import Any

from gpuctl.adapters.kubernetes.budget import Budget
from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.paths import item, with_query
from gpuctl.adapters.kubernetes.requests import APPLY, OnRequest, Request, Requests, always, encoded, ignored
from gpuctl.adapters.kubernetes.timings import Timings
from gpuctl.app.ports import Note, WorldFault
from gpuctl.k8s.kinds import EVENT
from gpuctl.k8s.names import FIELD_MANAGER, REPORTER
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

PER_SECOND = 5
BURST = 50
REPEAT_MS: DurationMs = 300_000
"""The shortest time between two writes of the same Event."""
_WAITING = 200
_REMEMBERED = 4_096
_LONGEST_MESSAGE_BYTES = 1_000
"""The server accepts 1,024, and refuses an Event with more."""
_LAST_WORDS_S = 2.0
_MS_NS = 1_000_000
_PATIENCE = Timings(tries=1, connect_ms=2_000, answer_ms=3_000)
_GLOBAL_NAMESPACE = "default"
"""The namespace of Events about objects without a namespace."""


@dataclass(slots=True)
class _Told:
    """An Event that was written: its first time, its count, and when it was last written."""

    since_ms: Instant
    count: int
    told_ms: Instant


class WaitingNotes:
    """Notes that wait to be written; namespaces take turns. If there are too many, the oldest note of the namespace
    with the most is dropped, so that many failing pods of one team keep no other team's events out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._of: OrderedDict[str, deque[Note]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._of)

    def extend(self, notes: Iterable[Note]) -> None:
        """Add notes to the queue. Cost: for each dropped note, linear in the namespaces."""
        for note in notes:
            self._of.setdefault(note.regarding.namespace, deque()).append(note)
            self._count += 1
            if self._count > self._most:
                self._take(max(self._of, key=lambda namespace: len(self._of[namespace])))

    def next(self) -> Note:
        """Take the oldest note of the namespace whose turn it is. There must be one."""
        namespace = next(iter(self._of))
        self._of.move_to_end(namespace)
        return self._take(namespace)

    def clear(self) -> None:
        """Drop all notes."""
        self._of.clear()
        self._count = 0

    def _take(self, namespace: str) -> Note:
        note = self._of[namespace].popleft()
        self._count -= 1
        if not self._of[namespace]:
            del self._of[namespace]
        return note


class EventRecorder:
    """Implements the port Recorder. Safe for threads. `close` writes the waiting notes if that takes no longer than 2
    s.

    `instance`: this process's name in the Events. `permit`: asked right before each is sent.
    """

    def __init__(
        self,
        connection: Connection,
        instance: str,
        *,
        permit: Callable[[], bool] = always,
        on_request: OnRequest = ignored,
    ) -> None:
        self._requests = Requests(connection, _PATIENCE, on_request)
        self._instance = instance
        self._permit = permit
        self._budget = Budget(PER_SECOND, BURST)
        self._waiting = WaitingNotes(_WAITING)
        self._told: OrderedDict[tuple[str, ...], _Told] = OrderedDict()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def record(self, notes: Sequence[Note]) -> None:
        """Add notes to the queue; if it is too long some are dropped."""
        if not notes:
            return
        with self._changed:
            self._waiting.extend(notes)
            self._changed.notify()

    def close(self) -> None:
        """Write the waiting notes, then end; what takes too long is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_S)
        with self._changed:
            self._waiting.clear()
        self._requests.close()
        self._thread.join()

    def _run(self) -> None:
        while (note := self._next()) is not None:
            try:
                self._tell(note)
            except WorldFault:
                continue  # nothing depends on it, and important facts are reported elsewhere

    def _next(self) -> Note | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.next() if self._waiting else None

    def _tell(self, note: Note) -> None:
        key = (str(note.regarding), note.uid, note.type, note.reason, note.message)
        told = self._told.get(key)
        if told is None:
            told = self._told[key] = _Told(since_ms=note.at_ms, count=0, told_ms=note.at_ms - REPEAT_MS)
            if len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)
        told.count += 1
        self._told.move_to_end(key)
        if note.at_ms - told.told_ms < REPEAT_MS:
            return
        told.told_ms = note.at_ms
        wait_ns = self._budget.take()
        if wait_ns:
            self._requests.pause(-(-wait_ns // _MS_NS))
        body = event(note, told.since_ms, told.count, self._instance)
        ref = ObjectRef(*EVENT, body["metadata"]["namespace"], body["metadata"]["name"])
        path = with_query(item(ref), {"fieldManager": FIELD_MANAGER, "force": "true"})
        what = f"apply {ref}"
        self._requests.send(
            Request(
                verb="patch", kind=EVENT, method="PATCH", path=path, what=what, body=encoded(body), content_type=APPLY
            ),
            self._permit,
        )


def event(note: Note, since_ms: Instant, count: int, instance: str) -> Body:
    """The Event of a note that has come up `count` times since then. Source: events.k8s.io/v1, Event and
    EventSeries."""
    ref = note.regarding
    said = "\n".join((str(since_ms), note.uid, note.type, note.reason, note.message))
    regarding = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": note.uid}
    body: dict[str, Any] = {
        "apiVersion": EVENT[0],
        "kind": EVENT[1],
        "metadata": {
            "name": f"{ref.name[:200].rstrip('.-')}.{sha256(said.encode()).hexdigest()[:16]}",
            "namespace": ref.namespace or _GLOBAL_NAMESPACE,
        },
        "eventTime": _micro(since_ms),
        "type": note.type,
        "reason": note.reason,
        "note": note.message.encode()[:_LONGEST_MESSAGE_BYTES].decode(errors="ignore"),
        "action": note.reason,
        "regarding": {**regarding, "namespace": ref.namespace} if ref.namespace else regarding,
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
    }
    if count > 1:
        body["series"] = {"count": count, "lastObservedTime": _micro(note.at_ms)}
    return body


def _micro(at_ms: Instant) -> str:
    return f"{format_timestamp(at_ms)[:-1]}000Z"
