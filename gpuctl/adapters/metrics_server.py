"""/metrics, /status and the two probes over HTTP, from a thread of its own."""

from __future__ import annotations

import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

from gpuctl.adapters.address import host_and_port
from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.ports import WorldFault
from gpuctl.diag.wording import message

_SLOWEST_CLIENT_S = 10


class MetricsServer:
    """Serves /metrics, /status, /healthz and /readyz at HOST:PORT until it is closed."""

    def __init__(self, meters: PrometheusMeters, address: str) -> None:
        """Raises WorldFault GPU7031 for what is no address, or one that can't be listened on."""
        place = host_and_port(address)
        if place is None:
            raise _unservable(address, "not HOST:PORT")
        try:
            self._server = _listen(*place, meters)
        except OSError as error:
            raise _unservable(address, error.strerror or str(error)) from error
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on, also where port 0 left the choice to the system."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        """Itself; it serves already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listen(host: str, port: int, meters: PrometheusMeters) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        daemon_threads = True

    class Handler(_Handler):
        measured = meters

    return Server((host, port), Handler)


class _Handler(BaseHTTPRequestHandler):
    """One request. Answers are short and made from memory."""

    measured: PrometheusMeters
    timeout = _SLOWEST_CLIENT_S
    server_version, sys_version = "gpuctl", ""

    def do_GET(self) -> None:
        """Answer one of the four paths."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, *self.measured.exposition(self.headers.get("accept") or ""))
        elif path == "/healthz":
            self._say(well=self.measured.alive(), fault="the loop hangs")
        elif path == "/readyz":
            unready = self.measured.unready()
            self._say(well=not unready, fault=unready)
        elif path == "/status":
            document = self.measured.document
            known = HTTPStatus.OK if document else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(known, document or b"{}", "application/json")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"/metrics, /status, /healthz and /readyz are here\n", "text/plain")

    def _say(self, *, well: bool, fault: str) -> None:
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, b"ok\n" if well else f"{fault}\n".encode(), "text/plain")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Requests are no news."""


def _unservable(address: str, why: str) -> WorldFault:
    return WorldFault("GPU7031", message("GPU7031", {"address": address, "why": why}))
