"""Reads the events of a few objects, for runs that do not start: in a separate thread, within bounds.

A request is for one object's events, by a field selector, and its answer is read up to a bound. A run is checked at
once, and again at growing intervals while it does not start. Cost: nothing where all runs start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition, Thread

from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.decoding import decode
from gpuctl.adapters.kubernetes.paths import collection, with_query
from gpuctl.adapters.kubernetes.requests import OnRequest, Request, Requests, always, ignored
from gpuctl.adapters.kubernetes.timings import Timings
from gpuctl.app.ports import WorldFault
from gpuctl.k8s.kinds import CORE_EVENT
from gpuctl.k8s.objects import items
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import Body
from gpuctl.observe import Unexplained, problem_of_events

MOST_EVENTS = 100
MOST_BYTES = 1 << 20
"""The most bytes of one object's events. Tenants may write events of their own objects, as many and as large as they
like: for an object with more, none is read."""
AGAIN_S = (0, 30, 120, 300)
"""The intervals after which a run is checked again; the last one repeats."""
PER_SECOND = 4
_LAST_WORDS_S = 2.0
_PATIENCE = Timings(tries=1, connect_ms=2_000, answer_ms=5_000)


def events_path(ref: ObjectRef) -> str:
    """The path of an object's events."""
    selector = f"involvedObject.kind={ref.kind},involvedObject.name={ref.name}"
    query = {"fieldSelector": selector, "limit": str(MOST_EVENTS)}
    return with_query(collection(CORE_EVENT, ref.namespace), query)


def bounded(chunks: Iterable[bytes]) -> bytes:
    """An answer no longer than MOST_BYTES. Raises ValueError for a longer one."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MOST_BYTES:
            raise ValueError("more events than are read of an object")
    return bytes(data)


def _listed(chunks: Iterable[bytes]) -> Sequence[Body]:
    return tuple(items(decode(bounded(chunks)), "items"))


@dataclass(slots=True)
class _Asked:
    """A run to check: how often it was checked, and when it is due again."""

    late: Unexplained
    times: int = 0
    due_s: float = 0.0


class EventReader:
    """Implements the port Incidents. Safe for threads. `close` ends it after at most 2 s.

    `permit`: asked before each request. `on_news`: called, from another thread, when something has been found out.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        permit: Callable[[], bool] = always,
        on_news: Callable[[], None] = lambda: None,
        on_request: OnRequest = ignored,
    ) -> None:
        self._requests = Requests(connection, _PATIENCE, on_request)
        self._permit = permit
        self._on_news = on_news
        self._asked: dict[RunKey, _Asked] = {}
        self._found: Mapping[RunKey, PodProblem] = {}
        self._given: Mapping[RunKey, PodProblem] = self._found
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="incidents", daemon=True)
        self._thread.start()

    def of(self, late: Sequence[Unexplained]) -> Mapping[RunKey, PodProblem]:
        """What is known of these runs by now. All other runs are forgotten."""
        if not late and not self._asked:
            return self._given
        with self._changed:
            known = self._asked
            self._asked = {each.run: known.get(each.run) or _Asked(each) for each in late}
            for each in late:
                self._asked[each.run].late = each
            if self._found.keys() - self._asked.keys():
                self._found = {run: told for run, told in self._found.items() if run in self._asked}
            self._given = self._found
            self._changed.notify()
            return self._given

    def has_news(self) -> bool:
        """Whether more is known than `of` last returned."""
        return self._found is not self._given

    def close(self) -> None:
        """End it."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._requests.close()
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            late = asked.late
            events: list[Body] = []
            for ref in late.objects:
                if self._closing or not self._permit():
                    break
                events += self._read(ref)
                time.sleep(1 / PER_SECOND)
            self._tell(late, problem_of_events(late, events))

    def _next(self) -> _Asked | None:
        """The run that is due first, once it is due; None at the end."""
        with self._changed:
            while not self._closing:
                now_s = time.monotonic()
                first = min(self._asked.values(), key=lambda each: each.due_s, default=None)
                if first is not None and first.due_s <= now_s:
                    first.times += 1
                    first.due_s = now_s + AGAIN_S[min(first.times, len(AGAIN_S) - 1)]
                    return first
                self._changed.wait(None if first is None else first.due_s - now_s)
            return None

    def _read(self, ref: ObjectRef) -> Sequence[Body]:
        request = Request(verb="list", kind=CORE_EVENT, path=events_path(ref), what=f"list the events of {ref}")
        try:
            found: Sequence[Body] = self._requests.send(request, self._permit, read=_listed)
        except WorldFault:
            return ()  # nothing depends on it, and the request is repeated later
        return found

    def _tell(self, late: Unexplained, problem: PodProblem | None) -> None:
        with self._changed:
            before = self._found.get(late.run)
            if late.run not in self._asked or problem is None or problem == before:
                return
            self._found = {**self._found, late.run: problem}
        self._on_news()
