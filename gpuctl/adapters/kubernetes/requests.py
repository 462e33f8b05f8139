"""Raw JSON over the connection: one request, its result, and whether to send it again.

Cost: some 0.4 ms of CPU a request, nearly all of it HTTP and TLS; bodies are decoded once and never copied. An answer
may be read as it comes, by a function given for it.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from threading import Event
from typing import Any, cast

import urllib3
from urllib3 import exceptions as http
from urllib3.response import BaseHTTPResponse

from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.decoding import decode
from gpuctl.adapters.kubernetes.faults import Passing, Unauthorized, Untrusted, fault_of, status_of
from gpuctl.adapters.kubernetes.paths import item, with_query
from gpuctl.adapters.kubernetes.timings import Timings
from gpuctl.app.ports import ClusterUnavailable, WorldFault
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.names import FIELD_MANAGER
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
"""The media type of server-side apply; JSON is YAML."""
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
NO_ANSWER = 0

Read = Callable[[Iterable[bytes]], Any]
"""Makes a value of an answer's bytes; raises ValueError for unexpected bytes."""
OnRequest = Callable[[str, str, int, DurationMs], None]
"""Called for every request: verb, kind, HTTP status (0: no answer, or not all of it), duration."""
CHUNK_BYTES = 1 << 18
_UNSENT = (http.NewConnectionError, http.ConnectTimeoutError, http.NameResolutionError, http.ProxyError)
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_MS_NS = 1_000_000


def ignored(verb: str, kind: str, code: int, duration_ms: DurationMs) -> None:
    """Ignore the measurement."""
    del verb, kind, code, duration_ms


def always() -> bool:
    """The permit that is always granted."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `verb` as in RBAC and the metrics; `path` with its query; `what` in words, for faults."""

    verb: str
    kind: Kind
    path: str
    what: str
    method: str = "GET"
    body: bytes | None = None
    content_type: str = JSON

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice has the same effect as once."""
        return self.method != "POST"


def encoded(body: Body) -> bytes:
    """An object's bytes, as sent."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, default=_plain).encode(errors="replace")


def _plain(value: object) -> object:
    """A part of a body that is no JSON yet: a mapping, or a share of a GPU in the form of another engine."""
    return float(value) if isinstance(value, Decimal) else dict(cast("Mapping[str, object]", value))


def patching(  # noqa: PLR0913 - the last ones by name
    ref: ObjectRef, patch: Any, content_type: str, plural: str = "", *, force: bool = True, dry_run: bool = False
) -> Request:
    """A patch by gpuctl's field manager. With `force`, a server-side apply takes over fields that others own."""
    query = {"fieldManager": FIELD_MANAGER} | ({"force": "true"} if force and content_type == APPLY else {})
    query |= {"dryRun": "All"} if dry_run else {}
    return Request(
        verb="patch", kind=(ref.api_version, ref.kind), method="PATCH", path=with_query(item(ref, plural), query),
        what=f"apply {ref}", body=encoded(patch), content_type=content_type,
    )  # fmt: skip


class Requests:
    """Sends requests. Safe for threads. Every failure is a WorldFault."""

    def __init__(self, connection: Connection, timings: Timings | None = None, on_request: OnRequest = ignored) -> None:
        self.connection = connection
        self.timings = timings or Timings()
        self._on_request = on_request
        self._closing = Event()

    def send(self, request: Request, permit: Callable[[], bool] = always, read: Read | None = None) -> Any:
        """Send and return the decoded answer, or what `read` makes of its bytes as they come.

        A temporary failure (no answer, half of one, 429, 5xx) is retried a few times, not before Retry-After allows; a
        request that may have taken effect only if it is repeatable. `permit` is asked right before each try. Raises the
        faults of `faults.fault_of`; ClusterUnavailable GPU7014 for a second 401, GPU7016 without permit.
        """
        renewed, failures, began = False, 0, time.monotonic_ns()
        while True:
            if not permit():
                raise ClusterUnavailable("GPU7016", message("GPU7016", {"what": request.what}))
            headers = self.connection.headers()
            try:
                return self._answer(request, headers) if read is None else self._read(request, headers, read)
            except Unauthorized as fault:
                if renewed or not self.connection.renew(headers):
                    raise self._disbelieved(fault) from fault
                renewed = True
            except Untrusted:
                if renewed or not self.connection.renew(headers):
                    raise
                renewed = True
            except Passing as fault:
                failures += 1
                wait_ms = max(fault.wait_ms, backoff_ms(self.timings.first_retry_ms, failures))
                spent_ms = (time.monotonic_ns() - began) // _MS_NS
                is_last = failures >= self.timings.tries or spent_ms + wait_ms > self.timings.patience_ms
                if is_last or (fault.sent and not request.repeatable):
                    raise
                self.pause(wait_ms)

    def stream(self, request: Request) -> BaseHTTPResponse:
        """Send, and return the answer to be read as it comes; silence longer than `silence_ms` ends it. One try."""
        headers = self.connection.headers()
        response = self._sent(request, headers, streaming=True)
        if response.status == 200:
            sock = getattr(response.connection, "sock", None)
            if sock is not None:
                sock.settimeout(self.timings.silence_ms / 1000)
            return response
        try:
            data = response.read()
        except (http.HTTPError, OSError):
            data = b""
        finally:
            response.close()
        fault = fault_of(response.status, status_of(data), request.what, response.headers.get("retry-after", ""))
        if isinstance(fault, Unauthorized):
            if not self.connection.renew(headers):
                raise self._disbelieved(fault)
            raise Passing(f"{request.what}: the credentials were renewed")
        raise fault

    def broke(self, verb: str, kind: Kind, code: int) -> None:
        """Measure an answer that began well, and broke off or became an error of that code, as one more request."""
        self._on_request(verb, kind[1], code, 0)

    def pause(self, duration_ms: DurationMs) -> None:
        """Wait; if this is closed, end the wait and raise ClusterUnavailable."""
        if self._closing.wait(duration_ms / 1000):
            raise ClusterUnavailable("GPU7001", "gpuctl is ending")

    def close(self) -> None:
        """End all waits; requests under way are finished."""
        self._closing.set()

    def _answer(self, request: Request, headers: Mapping[str, str]) -> Any:
        response = self._sent(request, headers, streaming=False)
        data: bytes = response.data
        if 200 <= response.status < 300:
            try:
                return _object(data) if data else {}
            except ValueError:
                raise self._strange(request, response) from None
        raise fault_of(response.status, status_of(data), request.what, response.headers.get("retry-after", ""))

    def _read(self, request: Request, headers: Mapping[str, str], read: Read) -> Any:
        """Read an answer piece by piece; one that breaks off counts as none."""
        response = self._sent(request, headers, streaming=True)
        try:
            if 200 <= response.status < 300:
                found = read(response.stream(CHUNK_BYTES, decode_content=True))
                response.drain_conn()
                return found
            data = response.read()
        except (http.HTTPError, OSError) as error:
            self.broke(request.verb, request.kind, NO_ANSWER)
            raise self._unanswered(request, error) from error
        except ValueError:
            raise self._strange(request, response) from None
        finally:
            response.close()
        raise fault_of(response.status, status_of(data), request.what, response.headers.get("retry-after", ""))

    def _sent(self, request: Request, headers: Mapping[str, str], *, streaming: bool) -> BaseHTTPResponse:
        """One exchange. Raises Passing if there was no whole answer, ClusterUnavailable if there can't be one."""
        timings = self.timings
        if request.body is not None:
            headers = urllib3.HTTPHeaderDict(headers)  # a dict would join headers that occur several times
            headers["content-type"] = request.content_type
        code, began = NO_ANSWER, time.monotonic_ns()
        try:
            response = self.connection.pool.urlopen(
                request.method,
                self.connection.server + request.path,
                body=request.body,
                headers=headers,
                timeout=urllib3.Timeout(connect=timings.connect_ms / 1000, read=timings.answer_ms / 1000),
                retries=False,
                redirect=False,
                preload_content=not streaming,
            )
            code = response.status
            self.connection.time.hear(response.headers.get("date", ""))
        except (http.HTTPError, OSError, ValueError) as error:
            raise self._unanswered(request, error) from error
        finally:
            self._on_request(request.verb, request.kind[1], code, (time.monotonic_ns() - began) // _MS_NS)
        if 300 <= code < 400:
            response.drain_conn()
            raise self._strange(request, response)
        return response

    def _unanswered(self, request: Request, error: Exception) -> WorldFault:
        why = printable(_reason(error))
        if isinstance(error, http.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Untrusted("GPU7018", message("GPU7018", {"server": self.connection.server, "why": why}))
        return Passing(f"{request.what}: {self.connection.server}: {why}", sent=not isinstance(error, _UNSENT))

    def _strange(self, request: Request, response: BaseHTTPResponse) -> WorldFault:
        """The fault for an answer that no API server gives; one that claims to be JSON was cut on its way."""
        kind = response.headers.get("content-type", "")
        if kind.startswith(JSON):
            return Passing(f"{request.what}: half an answer", sent=True)
        why = f"HTTP status {response.status}, {kind or 'no content type'}"
        return ClusterUnavailable("GPU7020", message("GPU7020", {"server": self.connection.server, "why": why}))

    def _disbelieved(self, fault: Unauthorized) -> ClusterUnavailable:
        connection = self.connection
        params = {"server": connection.server, "where": connection.where, "why": str(fault)}
        return ClusterUnavailable("GPU7014", message("GPU7014", params))


def _object(data: bytes) -> Body:
    """An answer's object. Raises ValueError for other JSON, or none."""
    found = decode(data)
    if not isinstance(found, dict):
        raise ValueError("an answer that is no object")  # noqa: TRY004 - as for one that is no JSON
    return found


def backoff_ms(first_ms: DurationMs, failures: int) -> DurationMs:
    """How long to wait after this many failures in a row: doubling, and at random between half and all of that."""
    longest = first_ms << min(failures - 1, 16)
    return random.randint(longest // 2, longest)  # noqa: S311 - spreads clients, guards nothing


def _reason(error: Exception) -> str:
    """The cause, without the address that urllib3 puts before it."""
    text = str(error.args[-1] if error.args else error) or type(error).__name__
    if isinstance(error, http.NewConnectionError | http.ConnectTimeoutError):
        return _ERRNO.sub("", text.rpartition(": ")[2])
    return text
