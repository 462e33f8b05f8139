"""A small HTTP server in this process: it answers from threads of its own until it is closed.

Bounds: the connections at once, the bytes of a request before its body, and the time of each connection as a whole, so
that a client that sends single bytes can't prolong it. A connection too many is cut before anything of it is read.
Where answers take milliseconds the oldest connection is cut instead: so silent clients keep no others out, such as the
kubelet's probes.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread, Timer
from typing import IO, Any, Self

from gpuctl.adapters.address import host_and_port
from gpuctl.app.ports import WorldFault
from gpuctl.diag.wording import message

_BUSY = 64
"""How many threads may still make answers for connections that were cut. With more of them, a new connection is cut
too."""
MOST_HEAD_BYTES = 16 << 10
"""The most bytes of a request before its body. Security: the standard library keeps 100 lines of 64 KiB each, which
take 30 MB; eight strangers could have had the controller killed for its memory."""


class BoundedServer:
    """Serves `handler`'s answers at HOST:PORT, to at most `most_at_once` connections at a time, until it is closed."""

    def __init__(self, address: str, handler: type[BriefHandler], most_at_once: int, code: str = "GPU7031") -> None:
        """Raises WorldFault `code` if the address is none, or can't be listened on."""
        place = host_and_port(address)
        if place is None:
            raise unservable(address, "not HOST:PORT", code)
        try:
            self._server = _Server(*place, handler, most_at_once)
        except OSError as error:
            raise unservable(address, error.strerror or str(error), code) from error
        self._thread = Thread(target=self._server.serve_forever, name=handler.__module__, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port the server listens on, also if the system chose it (port 0)."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        """Return the server, which serves already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the server."""
        self.close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class BriefHandler(BaseHTTPRequestHandler):
    """Answers one request and then ends the connection. Answers are short and come from memory or one file."""

    timeout = 10.0
    """Seconds that a connection has in all."""
    oldest_makes_way = False
    """Whether the oldest connection is cut, not the newest, when there are too many."""
    server_version, sys_version = "gpuctl", ""

    def setup(self) -> None:
        """Start the timer that cuts the connection."""
        super().setup()
        self.rfile: Any = _Head(self.rfile, MOST_HEAD_BYTES)
        self._timer = Timer(self.timeout, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def finish(self) -> None:
        """Stop the timer: the request is over."""
        self._timer.cancel()
        super().finish()

    def answer(self, status: HTTPStatus, content: bytes = b"", kind: str = "text/plain") -> None:
        """Send an answer of a media type."""
        self.close_connection = True
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: requests are no news."""

    def _cut(self) -> None:
        _cut(self.connection)


class _Head:
    """What a client sends. The lines at its beginning (request and headers) may have a number of bytes in all."""

    def __init__(self, sent: IO[bytes], most_bytes: int) -> None:
        self._sent, self._left = sent, most_bytes
        self.read, self.close = sent.read, sent.close

    def readline(self, size: int) -> bytes:
        """Read a line. Raises LineTooLong beyond the bound; the standard library answers it with 431."""
        line = self._sent.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("header")
        return line


def _cut(connection: socket.socket) -> None:
    """End a connection, also for the thread that reads from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, handler: type[BriefHandler], most_at_once: int) -> None:
        self.address_family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        self._most_at_once = most_at_once
        self._oldest_makes_way = handler.oldest_makes_way
        self._lock = Lock()
        self._open: dict[socket.socket, None] = {}
        """The connections that are served, oldest first."""
        self._alive = 0
        """The number of threads, also of those that make the answer of a connection which was cut."""
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._makes_room():
            with self._lock:
                self._open[request] = None
                self._alive += 1
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
                self._alive -= 1

    def _makes_room(self) -> bool:
        with self._lock:
            is_full = len(self._open) >= self._most_at_once
            if self._alive >= self._most_at_once + _BUSY:
                return False
            if is_full and self._oldest_makes_way:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _cut(oldest)  # its thread ends at once, if it waits for the client
            return not is_full or self._oldest_makes_way

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no news."""


def unservable(address: str, why: str, code: str) -> WorldFault:
    """The fault of an address at which no server can listen."""
    return WorldFault(code, message(code, {"address": address, "why": why}))
