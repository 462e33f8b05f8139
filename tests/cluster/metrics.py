"""The metrics API of a cluster, for autoscalers on a real API server, as an adapter of Prometheus serves it.

The API server passes requests for `external.metrics.k8s.io` on to it, through an APIService whose Service is a name for
this machine.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from controlplane.server import ControlPlane

from gpuctl.adapters.clock import SystemClock
from gpuctl.k8s.timestamps import format_seconds

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
_SERVICES = "/api/v1/namespaces/default/services"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class Metrics:
    """The present measurements: `loads` by namespace and name of the metric, and the paths that were asked for."""

    def __init__(self) -> None:
        self.loads: dict[tuple[str, str], str] = {}
        self.asked: set[str] = set()

    def answer(self, path: str) -> dict[str, Any]:
        """The API's description of itself, or one value. Raises KeyError for a metric that is not measured."""
        self.asked.add(path)
        parts = path.partition("?")[0].strip("/").split("/")
        if "namespaces" not in parts:
            resources = [
                {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList",
                 "verbs": ["get"]}
                for _, name in self.loads
            ]  # fmt: skip
            head = {"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}"}
            return {**head, "resources": resources}
        name, value = parts[-1], self.loads[parts[-2], parts[-1]]
        at = format_seconds(SystemClock().now_ms())
        items = [{"metricName": name, "metricLabels": {}, "timestamp": at, "value": value}]
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "ExternalMetricValueList", "metadata": {}, "items": items}


@contextmanager
def metrics_of(plane: ControlPlane) -> Iterator[Metrics]:
    """Serve the metrics of a control plane."""
    found = Metrics()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                code, body = 200, found.answer(self.path)
            except KeyError:
                code, body = 404, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404}
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    certs = plane.folder / "certs"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "apiserver.crt", certs / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    port, name = server.server_address[1], f"{VERSION}.{GROUP}"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"},
               "spec": {"type": "ExternalName", "externalName": "localhost"}}  # fmt: skip
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "metrics", "port": port},
    }
    api = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}, "spec": spec}
    plane.call("POST", _SERVICES, service)
    plane.call("POST", _API_SERVICES, api)
    try:
        yield found
    finally:
        plane.call("DELETE", f"{_API_SERVICES}/{name}")
        plane.call("DELETE", f"{_SERVICES}/metrics")
        server.shutdown()
        server.server_close()
