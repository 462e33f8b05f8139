"""From where the pages may be asked for, and what a browser may do with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine that a browser may use; a name of another machine that leads here is refused."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """From where pages may be asked for.

    `hosts` are the names in the address; `user_header`, if given, must be set by the proxy in front, which has
    authenticated the user.
    """

    hosts: tuple[str, ...] = LOOPBACK
    user_header: str | None = None


class Guard:
    """Sets the headers that bound what a page may do; lets only reading requests of known users through."""

    def __init__(self, app: ASGIApp, user_header: str | None) -> None:
        self._app = app
        self._user_header = user_header.lower().encode() if user_header else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""

        async def answer(sent: Message) -> None:
            if sent["type"] == "http.response.start":
                sent["headers"] = [*sent.get("headers", ()), *_HEADERS.items()]
            await send(sent)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope)
        app: Callable[[Scope, Receive, Send], Awaitable[None]] = refused or self._app
        await app(scope, receive, answer)

    def _refused(self, scope: Scope) -> Response | None:
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("The dashboard can't change anything.\n", 405, headers={"allow": "GET, HEAD"})
        users = [value for name, value in scope["headers"] if name == self._user_header and value.strip()]
        if self._user_header is None or users or scope["path"] == "/healthz":
            return None
        return PlainTextResponse("Sign in at the proxy in front of this dashboard.\n", 401)
