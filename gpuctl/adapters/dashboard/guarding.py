"""Which requests for pages are answered, and what a browser may do with the pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import TypeAlias

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuctl.adapters.files import secret_in

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine that a browser may use. Another machine's name that leads here is refused."""
ANY_HOST = ("*",)
"""Any name, for requests that have a secret: no page of another site can have a browser send one."""
SECRET_HEADER = b"x-proxy-secret"
SHORTEST_SECRET = 16

Network: TypeAlias = IPv4Network | IPv6Network

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
    """Which requests for pages are answered.

    `hosts` are the names in the address. `user_header`, if given, must be set by the proxy in front, which has
    authenticated the user. A proxy is known by its address in one of `proxies`, and by the secret in `secret_file`,
    which it sends in SECRET_HEADER; with neither, whatever reaches the port counts as the proxy.
    """

    hosts: tuple[str, ...] = LOOPBACK
    user_header: str | None = None
    proxies: tuple[Network, ...] = ()
    secret_file: Path | None = None


class Guard:
    """Sets the headers that limit what a page may do; lets only reading requests of known users through."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._user_header = access.user_header.lower().encode() if access.user_header else None

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
        if self._user_header is None or scope["path"] == "/healthz":
            return None
        if not self._is_proxy(scope):
            return PlainTextResponse("Ask the proxy in front of this dashboard.\n", 403)
        users = _values(scope, self._user_header)
        if len(users) != 1 or not users[0].strip():  # with two, the client may have sent one
            return PlainTextResponse("Sign in at the proxy in front of this dashboard.\n", 401)
        return None

    def _is_proxy(self, scope: Scope) -> bool:
        """Whether the request comes from a trusted proxy. Secrets are compared in constant time."""
        proxies, file = self._access.proxies, self._access.secret_file
        if proxies and not any(_address(scope) in network for network in proxies):
            return False
        if file is None:
            return True
        secret, given = secret_in(file).encode(), _values(scope, SECRET_HEADER)
        is_sent = len(given) == 1 and compare_digest(sha256(secret).digest(), sha256(given[0]).digest())
        return is_sent and len(secret) >= SHORTEST_SECRET


def _values(scope: Scope, header: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == header]


def _address(scope: Scope) -> object:
    """The address a connection comes from. An IPv4 address is given as such, also if the socket has it as IPv6."""
    found = ip_address(scope["client"][0])
    return getattr(found, "ipv4_mapped", None) or found
