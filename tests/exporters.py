"""A server on loopback that answers as DCGM exporter or Prometheus would, with what a test has made up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

MIB = 1 << 20


class Answers:
    """What is answered to any GET, and what was asked for. `pieces`: the body, in parts; it may be endless."""

    def __init__(self, body: bytes = b"") -> None:
        self.status = 200
        self.pieces: Callable[[], Iterator[bytes]] = lambda: iter([self.body])
        self.body = body
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def queries(self) -> list[str]:
        """The PromQL of each request."""
        return [parse_qs(urlsplit(path).query)["query"][0] for path, _ in self.asked]


@contextmanager
def answering(answers: Answers) -> Iterator[Answers]:
    """Serve it on a free port until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append((self.path, dict(self.headers)))
            self.send_response(answers.status)
            for name, value in answers.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in answers.pieces():
                    self.wfile.write(piece)
            except OSError:
                return  # the client has had enough

        def log_message(self, *_: Any) -> None:
            """Requests are no news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    answers.port = server.server_address[1]
    try:
        yield answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def drops(seconds: float) -> Iterator[bytes]:
    """An answer of which a byte comes now and then, for ever."""
    while True:
        yield b"#"
        time.sleep(seconds)


def exposition(*gpus: tuple[str, str, str, float, int, int]) -> bytes:
    """What an exporter says of GPUs: namespace, pod, uuid, percent, MiB used, MiB free."""
    lines = []
    for number, (namespace, pod, uuid, percent, used, free) in enumerate(gpus):
        labels = f'gpu="{number}",UUID="{uuid}",Hostname="n",container="main",namespace="{namespace}",pod="{pod}"'
        for metric, value in (("GPU_UTIL", percent), ("FB_USED", used), ("FB_FREE", free)):
            lines.append(f"DCGM_FI_DEV_{metric}{{{labels}}} {value}\n")
    return "".join(lines).encode()


def matrix(*series: tuple[Mapping[str, str], list[tuple[float, str]]]) -> bytes:
    """Prometheus' answer to a query of a range of samples."""
    result = [{"metric": labels, "values": [list(value) for value in values]} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
