"""Serves /metrics, /status and the two probes over HTTP, from a thread of its own."""

from __future__ import annotations

from http import HTTPStatus

from gpuctl.adapters.http_server import BoundedServer, BriefHandler
from gpuctl.adapters.prometheus import PrometheusMeters

MOST_AT_ONCE = 64
"""The most connections at once: several scrapers, the kubelet's probes and readers of /status, each for
milliseconds."""


class MetricsServer(BoundedServer):
    """Serves /metrics, /status, /healthz and /readyz at HOST:PORT until it is closed."""

    def __init__(self, meters: PrometheusMeters, address: str) -> None:
        """Raises WorldFault GPU7031 if the address is none, or can't be listened on."""

        class Handler(_Handler):
            measured = meters

        super().__init__(address, Handler, MOST_AT_ONCE)


class _Handler(BriefHandler):
    measured: PrometheusMeters
    oldest_makes_way = True

    def do_GET(self) -> None:  # noqa: N802 - the standard library calls it so
        """Answer one of the four paths."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self.answer(HTTPStatus.OK, *self.measured.exposition(self.headers.get("accept") or ""))
        elif path == "/healthz":
            self._say(well=self.measured.alive(), fault="the loop hangs")
        elif path == "/readyz":
            unready = self.measured.unready()
            self._say(well=not unready, fault=unready)
        elif path == "/status":
            document = self.measured.document
            known = HTTPStatus.OK if document else HTTPStatus.SERVICE_UNAVAILABLE
            self.answer(known, document or b"{}", "application/json")
        else:
            self.answer(HTTPStatus.NOT_FOUND, b"/metrics, /status, /healthz and /readyz are here\n")

    def _say(self, *, well: bool, fault: str) -> None:
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        self.answer(status, b"ok\n" if well else f"{fault}\n".encode())
