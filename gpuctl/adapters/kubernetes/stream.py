"""A watch of one kind that a separate thread keeps going, and the events it has received.

It ends only when told to, or when the server no longer has its version (410) or never had it: then the caller lists
again. After any other failure (a server that closes, restarts or is away, a connection that falls silent) it goes on
from the last version seen, at growing intervals.

If etcd is restored from a snapshot, the server accepts a watch from a version that it has yet to reach, and is silent
until it does. So a watch that goes on first asks for the server's version: one request more each time. A server that is
past that version again looks as if nothing had happened: then the Lease tells (ADR 94).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Condition, Thread

from urllib3 import exceptions as http
from urllib3.response import BaseHTTPResponse

from gpuctl.adapters.kubernetes.decoding import decode
from gpuctl.adapters.kubernetes.faults import Passing, fault_of
from gpuctl.adapters.kubernetes.paths import with_query
from gpuctl.adapters.kubernetes.requests import NO_ANSWER, Request, Requests, backoff_ms
from gpuctl.app.ports import ClusterUnavailable, Gone, NotFound, WatchEvent, WorldFault
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import mapping, number, resource_version, text
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs

_CHUNK_BYTES = 1 << 16
_MOST_EVENTS = 20_000
"""The most events kept for a caller that does not take them: beyond it, a list costs less, and less memory."""
_BRIEF_NS = 1_000_000_000
_MS_NS = 1_000_000
_LOOK_MS = 200
"""How often a watch checks whether a server that was away has answered another request."""
_BRIEF_ENDS = 3
"""A watch that ends at once this often in a row is reported."""


class Stream:
    """The watch of one kind from a version on. Safe for threads."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        requests: Requests,
        *,
        kind: Kind,
        path: str,
        query: Mapping[str, str],
        keep: Callable[[Body], Body],
        on_news: Callable[[], None],
    ) -> None:
        """`query` holds the version to begin at, as `resourceVersion`. `keep` reduces each object to the part that is
        kept."""
        self._requests = requests
        self._kind = kind
        self._path = path
        self._query = query
        self._keep = keep
        self._on_news = on_news
        self._heard = Condition()
        self._events: list[WatchEvent] = []
        self._version = self.handed = query["resourceVersion"]
        self._fault: Exception | None = None
        self.failed_ns = 0
        """When the fault came."""
        self._open = False
        self._ending = False
        self._response: BaseHTTPResponse | None = None
        self._thread = Thread(target=self._run, name=f"watch {kind[1]}", daemon=True)
        self._thread.start()

    def drain(self, timeout_ms: DurationMs) -> list[WatchEvent]:
        """The events since the last call, then a bookmark; `handed` is its version.

        A watch that has just begun is first waited for until the server has accepted it. Then the call waits up to the
        timeout for the first event. Raises the watch's present failure: Gone permanently, else ClusterUnavailable,
        Forbidden.
        """
        timings = self._requests.timings
        with self._heard:
            begun_within_ms = timings.connect_ms + timings.answer_ms
            self._heard.wait_for(lambda: self._open or self._fault or self._ending, begun_within_ms / 1000)
            self._heard.wait_for(lambda: self._events or self._fault or self._ending, timeout_ms / 1000)
            if not self._events and self._fault is not None:
                raise self._fault.with_traceback(None)
            events, self._events = self._events, []
            self.handed = self._version
            return [*events, _bookmark(self._kind, self._version)]

    def end(self) -> None:
        """Stop listening at once, without waiting for the thread."""
        with self._heard:
            self._ending = True
            response = self._response
            self._heard.notify_all()
        if response is not None:
            # Another thread reads from it: this only makes that read return.
            with suppress(RuntimeError, ValueError, OSError):
                response.shutdown()

    def lose(self, fault: Gone) -> None:
        """End it as one that can't go on: `drain` raises the fault."""
        with self._heard:
            self._ending = True
            self._events, self._fault, self.failed_ns = [], fault, time.monotonic_ns()
        self.end()
        self._on_news()

    @property
    def alive(self) -> bool:
        """Whether its thread has not ended yet."""
        return self._thread.is_alive()

    def join(self, within_ms: DurationMs) -> None:
        """Wait until the thread has ended: at once, except while it is connecting."""
        self._thread.join(within_ms / 1000)

    def _run(self) -> None:
        failures = brief = 0
        is_first = True
        while not self._ending:
            began, version = time.monotonic_ns(), self._version
            try:
                if not is_first:
                    self._compare()
                is_first = False
                self._follow()
            except (Gone, NotFound) as fault:
                # If the kind is no longer served, a list will say so.
                self._fail(fault if isinstance(fault, Gone) else Gone("GPU7005", str(fault)))
                return
            except WorldFault as fault:
                failures = 1 if self._stable(began) else failures + 1
                self._fail(fault)
                if self._rest(failures, fault.wait_ms if isinstance(fault, Passing) else 0):
                    failures = 1
                continue
            except Exception as error:  # noqa: BLE001 - a thread that ends in silence would leave a copy that is old
                self._fail(error)
                return
            at_once = version == self._version and time.monotonic_ns() - began < _BRIEF_NS
            failures, brief = 0, brief + 1 if at_once else 0
            if brief >= _BRIEF_ENDS:
                self._fail(ClusterUnavailable("GPU7001", f"{self._what}: the server ends it as soon as it begins"))
            if brief:
                self._rest(brief, 0)

    @property
    def _what(self) -> str:
        return f"watch {self._kind[1]}"

    def _stable(self, began_ns: int) -> bool:
        return time.monotonic_ns() - began_ns > self._requests.timings.stable_ms * _MS_NS

    def _compare(self) -> None:
        """Raise Gone if the server is at an older version than this watch: its data was restored."""
        path = with_query(self._path, {**self._query, "resourceVersion": "", "limit": "1"})
        listed = self._requests.send(Request(verb="list", kind=self._kind, path=path, what=self._what))
        if _behind(resource_version(listed), self._version):
            raise self._restored(resource_version(listed), self._version)

    def _restored(self, heard: str, version: str) -> Gone:
        return Gone("GPU7005", f"{self._what}: the server went back from version {version} to {heard}")

    def _follow(self) -> None:
        """Listen from the last version until the server ends it or falls silent. Raises WorldFault."""
        timings = self._requests.timings
        lasts_s = random.randint(timings.shortest_watch_ms, timings.longest_watch_ms) // 1000  # noqa: S311 - jitter
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, lasts_s)),
        }
        path = with_query(self._path, query)
        response = self._requests.stream(Request(verb="watch", kind=self._kind, path=path, what=self._what))
        with self._heard:
            self._response = response
            if not self._ending:
                self._open, self._fault = True, None
            self._heard.notify_all()
        try:
            for lines in _lines(response.stream(_CHUNK_BYTES, decode_content=True)):
                if self._ending:
                    return
                self._take(lines)
        except (http.HTTPError, OSError, ValueError) as error:
            if self._ending:
                return
            self._requests.broke("watch", self._kind, NO_ANSWER)
            if not isinstance(error, http.ProtocolError | http.ReadTimeoutError):  # cut off, or silent for too long
                raise Passing(f"{self._what}: {error}") from error
        finally:
            with self._heard:
                self._response = None
            response.close()

    def _take(self, lines: Iterable[bytes]) -> None:
        """Keep the events of these lines, and signal them. Raises the fault of an ERROR among them.

        Raises ValueError if a line is no event: then none of them is kept, and the watch goes on from before them.
        """
        events: list[WatchEvent] = []
        version, fault = self._version, None
        for line in lines:
            kind, body = _event(line)
            if kind == "ERROR":
                code = number(body, "code", default=500)
                self._requests.broke("watch", self._kind, code)
                fault = fault_of(code, body, self._what)
                break
            heard = resource_version(body) or version
            if _behind(heard, version):
                fault = self._restored(heard, version)
                break
            version = heard
            if kind != "BOOKMARK":
                events.append(WatchEvent(type=kind, body=self._keep(body)))
        with self._heard:
            if self._ending:
                return
            self._version = version
            self._events += events
            full = len(self._events) > _MOST_EVENTS
            self._heard.notify_all()
        if events:
            self._on_news()
        if full:
            fault = Gone("GPU7005", f"{self._what}: more was heard than is kept")
        if fault is not None:
            raise fault

    def _fail(self, fault: Exception) -> None:
        with self._heard:
            if self._ending:
                return
            news = self._fault is None
            self._fault, self.failed_ns = fault, time.monotonic_ns()
            if isinstance(fault, Gone):
                self._events = []
            self._heard.notify_all()
        if news:
            self._on_news()

    def _rest(self, failures: int, wait_ms: DurationMs) -> bool:
        """Wait before the server is asked again. Returns whether it was away and answers other requests now."""
        timings, answers = self._requests.timings, self._requests.connection.time
        rest_ms = max(wait_ms, min(backoff_ms(timings.first_retry_ms, failures), timings.longest_reconnect_ms))
        began_ns, was_away = time.monotonic_ns(), answers.silent_ms() > timings.away_ms
        with self._heard:
            while not self._ending and (rested_ms := (time.monotonic_ns() - began_ns) // _MS_NS) < rest_ms:
                if was_away and answers.silent_ms() < rested_ms:
                    return True
                look_ms = min(rest_ms - rested_ms, _LOOK_MS if was_away else rest_ms)
                self._heard.wait_for(lambda: self._ending, look_ms / 1000)
        return False


def _lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The complete lines that have come with each chunk; half a line at the end is dropped."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if whole:
            yield [line for line in whole if line]


def _event(line: bytes) -> tuple[str, Body]:
    """The type and the object of an event. Raises ValueError for other JSON, or none."""
    decoded = decode(line)
    kind, body = text(decoded, "type"), mapping(decoded, "object")
    if not kind or not body:
        raise ValueError("a line that is no event")
    return kind, body


def _behind(heard: str, version: str) -> bool:
    """Whether a version is older than one seen before: then the server's data was restored from an earlier state."""
    now, before = whole_number(heard), whole_number(version)
    return now is not None and before is not None and now < before


def _bookmark(kind: Kind, version: str) -> WatchEvent:
    body: Body = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"resourceVersion": version}}
    return WatchEvent(type="BOOKMARK", body=body)
