"""Exchanges with a code host's API: JSON, bounded in size and time, repeated a bounded number of times.

The clock waits for rate limits and faults of the server. A request that creates something is repeated only after a
check whether the first one did. Security: redirects are followed only on the same host, because they carry the token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3 import exceptions as http
from urllib3.response import BaseHTTPResponse

from gpuctl import __version__
from gpuctl.adapters.forge.address import ForgeAddress
from gpuctl.app.ports import ForgeFault, VirtualTime
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import duration, message
from gpuctl.model.units import DurationMs

ATTEMPTS = 5
LONGEST_WAIT_MS: DurationMs = 120_000
"""A longer rate limit is reported, not waited for."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
PAGE_ITEMS = 50
MAX_PAGES = 100
"""GitHub keeps 2,500 comments of a request, GitLab 5,000."""
_FIRST_WAIT_MS: DurationMs = 1_000
_UNSAID_WAIT_MS: DurationMs = 60_000
"""GitHub asks for at least a minute if it gives no time."""
_CONNECT_S, _READ_S = 10, 30
_CHUNK_BYTES = 64 * 1024
_REDIRECTS = 3
_SHOWN_CHARS = 300
_CODES = {401: "GPU6203", 403: "GPU6204", 404: "GPU6205", 410: "GPU6205"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer: its status, its headers with names in small letters, its decoded body (None: there is none)."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Requests:
    """Sends requests to one API with one token. `what` names the intent in messages, such as `the comment on #7`."""

    def __init__(self, address: ForgeAddress, headers: Mapping[str, str], time: VirtualTime) -> None:
        self._address = address
        self._headers = {**headers, "user-agent": f"gpuctl/{__version__}"}
        self._time = time
        options: dict[str, Any] = {"ca_certs": address.ca_file} if address.ca_file else {}
        self._pool = urllib3.ProxyManager(address.proxy, **options) if address.proxy else urllib3.PoolManager(**options)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        what: str,
        done: Callable[[], Any] | None = None,
    ) -> Any:
        """The body of the answer. `done`, for a request that creates: returns what an unanswered request created, or
        None.

        Raises ForgeFault. Cost: at most ATTEMPTS exchanges, with waits of at most LONGEST_WAIT_MS between them.
        """
        return self._repeated(method, path, body, what=what, done=done).body

    def pages(self, path: str, *, what: str) -> Iterator[Mapping[str, Any]]:
        """The items of a paged listing, at most PAGE_ITEMS times MAX_PAGES. `path` has a query already."""
        for page in range(1, MAX_PAGES + 1):
            answer = self._repeated("GET", f"{path}&per_page={PAGE_ITEMS}&page={page}", None, what=what)
            if not isinstance(answer.body, list):
                raise self.strange(what, "a listing is no list")
            yield from (item for item in answer.body if isinstance(item, dict))
            more = 'rel="next"' in answer.headers.get("link", "") or answer.headers.get("x-next-page", "")
            if not more:
                return

    def _repeated(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        what: str,
        done: Callable[[], Any] | None = None,
    ) -> Answer:
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt and done is not None and (made := done()) is not None:
                return Answer(status=200, headers={}, body=made)
            wait_ms = _FIRST_WAIT_MS << attempt
            try:
                answer = self._redirected(method, path, body, what)
            except (http.HTTPError, OSError) as error:
                why = _reason(error)
            else:
                limited = _limited_ms(answer, self._time.now_ms())
                if limited is None and answer.status < 500:
                    return self._checked(answer, what)
                why = f"HTTP status {answer.status}"
                wait_ms = wait_ms if limited is None else max(limited, _FIRST_WAIT_MS)
                if limited is not None and (wait_ms > LONGEST_WAIT_MS or attempt + 1 == ATTEMPTS):
                    raise self._fault("GPU6207", what, wait=duration(wait_ms // 1000 * 1000))
            if attempt + 1 < ATTEMPTS:
                self._time.advance_to(self._time.now_ms() + wait_ms)
        raise self._fault("GPU6208", what, attempts=ATTEMPTS, why=why)

    def _redirected(self, method: str, path: str, body: Mapping[str, Any] | None, what: str) -> Answer:
        """One exchange, and the further ones to which the same host redirects it."""
        url = self._address.base + path
        for _ in range(_REDIRECTS + 1):
            answer = self._exchange(method, url, body, what)
            if answer.status not in {301, 302, 307, 308}:
                return answer
            there = _joined(url, answer.headers.get("location", ""))
            if there is None:
                raise self.strange(what, "it redirects to another host")
            url = there
        raise self.strange(what, "it redirects too often")

    def _exchange(self, method: str, url: str, body: Mapping[str, Any] | None, what: str) -> Answer:
        headers = dict(self._headers)
        if body is not None:
            headers["content-type"] = "application/json"
        response = self._pool.request(
            method,
            url,
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            data = self._bounded(response, what)
        finally:
            response.release_conn()
        names = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status, headers=names, body=_decoded(data))

    def _bounded(self, response: BaseHTTPResponse, what: str) -> bytes:
        data = bytearray()
        for chunk in response.stream(_CHUNK_BYTES, decode_content=False):  # gpuctl asked for nothing compressed
            data += chunk
            if len(data) > MAX_ANSWER_BYTES:
                response.close()
                raise self.strange(what, f"it is larger than {MAX_ANSWER_BYTES >> 20} MiB")
        return bytes(data)

    def _checked(self, answer: Answer, what: str) -> Answer:
        """The answer, if it is a success. Else raises the fault that it means."""
        if 200 <= answer.status < 300:
            if isinstance(answer.body, _NotJson):
                raise self.strange(what, f"HTTP status {answer.status} without JSON")
            return answer
        why = _told(answer.body)
        if answer.status in {400, 409, 422}:
            raise self._fault("GPU6206", what, status=answer.status, why=why)
        if answer.status in _CODES:
            raise self._fault(_CODES[answer.status], what, why=why)
        raise self.strange(what, f"HTTP status {answer.status}: {why}")

    def strange(self, what: str, why: str) -> ForgeFault:
        """The fault of an answer that lacks what the API documents."""
        return self._fault("GPU6209", what, why=why)

    def _fault(self, code: str, what: str, **params: Any) -> ForgeFault:
        """A fault in the catalogue's words. Security: never with the token, even if the server sent it back."""
        text = message(code, {"what": what, "host": self._address.host, **params})
        return ForgeFault(code, text.replace(self._address.token, "..."))


class _NotJson:
    """A body that is no JSON."""


def _decoded(data: bytes) -> Any:
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _NotJson()


def _limited_ms(answer: Answer, now_ms: int) -> DurationMs | None:
    """The wait that a rate limit asks for; None if the answer is no rate limit."""
    if answer.status not in {403, 429, 503}:
        return None
    after = answer.headers.get("retry-after", "")
    if _is_number(after):
        return int(after) * 1000
    left, reset = answer.headers.get("x-ratelimit-remaining"), answer.headers.get("x-ratelimit-reset", "")
    if left is None:
        left, reset = answer.headers.get("ratelimit-remaining"), answer.headers.get("ratelimit-reset", "")
    if answer.status != 503 and left == "0" and _is_number(reset):
        return max(0, int(reset) * 1000 - now_ms)
    is_secondary = answer.status == 403 and "secondary rate limit" in _told(answer.body).lower()
    return _UNSAID_WAIT_MS if answer.status == 429 or is_secondary else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _told(body: Any) -> str:
    """The server's reason: `message`, GitHub's `errors`, or GitLab's `error`."""
    if not isinstance(body, dict):
        return "no reason is given"
    said = [body.get("message"), body.get("error_description") or body.get("error"), body.get("errors")]
    text = "; ".join(one if isinstance(one, str) else json.dumps(one) for one in said if one)
    return printable(text)[:_SHOWN_CHARS] or "no reason is given"


def _joined(url: str, location: str) -> str | None:
    """The target of a redirect on the same host; None on another one."""
    try:
        there = urljoin(url, location)
        return there if _origin(there) == _origin(url) else None
    except ValueError:
        return None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _reason(error: Exception) -> str:
    """The cause, without the address of the connection object that urllib3 puts before it."""
    text = str(error.args[-1] if error.args else error) or type(error).__name__
    return printable(text.rpartition(">: ")[2] or text)[:_SHOWN_CHARS]
