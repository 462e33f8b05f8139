"""The server of the dashboard.

A page never has the cluster read: the feed reads it at its own pace. So the API server feels neither many clients nor
slow ones.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuctl.adapters.address import host_and_port
from gpuctl.adapters.dashboard.guarding import Access
from gpuctl.adapters.dashboard.routes import Routes
from gpuctl.app.ports import WorldFault
from gpuctl.diag.wording import message

_MOST_CONNECTIONS = 1_000
_MOST_HEADER_BYTES = 16_384
_ASKING_S = 10.0
"""How long a connection may take until its first request, and between requests. Uvicorn would let a connection ask
nothing for ever."""


class Dashboard:
    """Serves the pages at a socket of `listening`. `port`: the port of the socket."""

    def __init__(self, routes: Routes, listens: socket.socket, access: Access) -> None:
        self._socket = listens
        self.port: int = self._socket.getsockname()[1]
        app = routes.application(access)
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            http=_Asked,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,  # a client's address is that of its connection
        )
        self._server = uvicorn.Server(config)

    def serve(self) -> None:
        """Serve until `stop`, or a signal to the main thread."""
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Have `serve` return. From any thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """Stop listening, after `serve` or without it."""
        self._socket.close()


class _Asked(H11Protocol):
    """Closes a connection without requests. Security: else silent connections, or ones that send a byte at a time,
    would keep all others out."""

    _asked: object = None
    _looks: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to look at the connection at an interval."""
        super().connection_made(transport)
        self._looks = self.loop.call_later(_ASKING_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking at the connection."""
        if self._looks is not None:
            self._looks.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        last = self.cycle  # None at first
        is_busy = bool(last) and not last.response_complete
        if last is self._asked and not is_busy:
            self.transport.abort()
            return
        self._asked = last
        self._looks = self.loop.call_later(_ASKING_S, self._look)


def listening(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT; port 0 leaves the choice to the system.

    Raises WorldFault GPU7036 if the address is none, or can't be listened on.
    """
    wanted = host_and_port(address)
    if wanted is None:
        raise _unservable(address, "not HOST:PORT")
    host, port = wanted
    try:
        family, kind, proto, _, place = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen()
    except OSError as error:
        raise _unservable(address, error.strerror or str(error)) from error
    return made


def _unservable(address: str, why: str) -> WorldFault:
    return WorldFault("GPU7036", message("GPU7036", {"address": address, "why": why}))
