"""A way to the API server that fails as networks and servers do, for the requests that a test names and when it says
so.

It ends TLS with the server's own certificate, and speaks HTTP with both sides, one thread a connection.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

from controlplane.ports import free_port
from controlplane.server import ControlPlane

_HOPS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_GONE = {
    "type": "ERROR",
    "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
               "message": "too old resource version"},
}  # fmt: skip


class What(Enum):
    """What happens to a request."""

    CLOSE = auto()
    """The connection ends before any answer; the server never hears of the request."""
    SAY = auto()
    """The proxy answers with a status, without asking the server."""
    EXPIRE = auto()
    """A watch begins well and reports at once that its version is gone."""
    HALF = auto()
    """The server does it, but only the first half of its answer comes."""
    LOSE = auto()
    """The server does it, but nothing of its answer comes."""
    STALL = auto()
    """A watch begins well, then nothing more comes, not even its end."""


@dataclass(frozen=True, eq=False)
class Fault:
    """`on` is looked for in "METHOD PATH?QUERY". `times`: how often it is played; None: until it is taken back."""

    what: What
    on: str
    times: int | None = None
    code: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class FaultProxy:
    """The proxy; it listens from the start. `close` it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._server = urlsplit(plane.url).netloc
        self._trust = ssl.create_default_context(cafile=str(plane.ca_file))
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(plane.ca_file, plane.ca_file.with_suffix(".key"))
        self._lock = Lock()
        self._faults: dict[Fault, int] = {}
        self._ended = Event()
        self._threads: list[Thread] = []
        self._open: set[socket.socket] = set()
        self.played: list[str] = []
        self._port = free_port()  # while the proxy is away, nobody else gets the port
        self._listening = self._listen()
        self.url = f"https://127.0.0.1:{self._port}"

    def play(self, *faults: Fault) -> None:
        """Play these faults from now on, in place of the earlier ones."""
        with self._lock:
            self._faults = dict.fromkeys(faults, 0)

    def cut(self) -> None:
        """End every open connection."""
        with self._lock:
            for sock in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, which another thread is using

    def leave(self) -> None:
        """Go away: connections are refused."""
        self._ended.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def come_back(self) -> None:
        """Listen again at the same port."""
        self._ended.clear()
        self._listening = self._listen()

    close = leave

    def _listen(self) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", self._port))
        self._start(Thread(target=self._accept, args=(listening,)))
        return listening

    def _start(self, thread: Thread) -> None:
        self._threads.append(thread)
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            self._start(Thread(target=self._talk, args=(sock,)))

    def _talk(self, raw: socket.socket) -> None:
        raw.settimeout(30)
        try:
            client = self._tls.wrap_socket(raw, server_side=True)
        except OSError:
            raw.close()
            return
        client.settimeout(None)
        upstream = HTTPSConnection(self._server, context=self._trust)
        with client, closing(upstream):
            try:
                upstream.connect()
                self._note(client, upstream.sock)
                while (asked := _read(client)) is not None and self._answer(asked, client, upstream):
                    pass
            except (OSError, HTTPException):
                return  # one of the two sides is gone
            finally:
                self._forget(client, upstream.sock)

    def _note(self, *socks: socket.socket) -> None:
        with self._lock:
            self._open.update(socks)
            if self._ended.is_set():
                raise OSError

    def _forget(self, *socks: socket.socket | None) -> None:
        with self._lock:
            self._open.difference_update(filter(None, socks))

    def _fault(self, asked: Asked) -> Fault | None:
        with self._lock:
            for fault, played in self._faults.items():
                if (fault.times is None or played < fault.times) and re.search(fault.on, asked.line):
                    self._faults[fault] += 1
                    self.played.append(f"{fault.what.name} {fault.code or ''} {asked.line}")
                    return fault
        return None

    def _answer(self, asked: Asked, client: ssl.SSLSocket, upstream: HTTPSConnection) -> bool:
        """Answer one request. Returns whether the connection goes on."""
        fault = self._fault(asked)
        if fault is not None and fault.what is What.CLOSE:
            return False
        if fault is not None and fault.what is What.SAY:
            client.sendall(_said(fault))
            return True
        upstream.request(asked.method, asked.path, body=asked.body or None, headers=dict(asked.headers))
        answer = upstream.getresponse()
        if answer.chunked:
            return self._relay(answer, client, fault)
        data = answer.read()
        if fault is not None and fault.what is What.LOSE:
            return False
        whole = _head(answer, f"Content-Length: {len(data)}") + data
        if fault is not None and fault.what is What.HALF:
            client.sendall(whole[: len(whole) - len(data) // 2 - 1])
            return False
        client.sendall(whole)
        return True

    def _relay(self, answer: HTTPResponse, client: ssl.SSLSocket, fault: Fault | None) -> bool:
        """Pass a watch on: each part goes on as soon as it comes."""
        client.sendall(_head(answer, "Transfer-Encoding: chunked"))
        if fault is not None and fault.what is What.EXPIRE:
            client.sendall(_chunk(json.dumps(_GONE).encode() + b"\n") + _chunk(b""))
            return False
        if fault is not None and fault.what is What.STALL:
            client.recv(1)  # until the client gives up
            return False
        while data := answer.read1(1 << 16):
            client.sendall(_chunk(data) if fault is None else _chunk(data)[: len(data) // 2])
            if fault is not None:
                return False
        client.sendall(_chunk(b""))
        return True


def _read(client: ssl.SSLSocket) -> Asked | None:
    """The next request; None if none comes."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(1 << 16)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = dict(_headers(lines))
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        more = client.recv(1 << 16)
        if not more:
            return None
        body += more
    return Asked(method, path, {name: value for name, value in headers.items() if name not in _HOPS}, body)


def _headers(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(": ")
        yield name.lower(), value


def _head(answer: HTTPResponse, framing: str) -> bytes:
    kept = [f"{name}: {value}" for name, value in answer.getheaders() if name.lower() not in _HOPS]
    return "\r\n".join([f"HTTP/1.1 {answer.status} {answer.reason}", *kept, framing, "", ""]).encode("latin-1")


def _said(fault: Fault) -> bytes:
    told = f"the test says {fault.code}"
    data = json.dumps({"kind": "Status", "status": "Failure", "code": fault.code, "message": told}).encode()
    more = [f"{name}: {value}" for name, value in fault.headers.items()]
    lines = [f"HTTP/1.1 {fault.code} Said", "Content-Type: application/json", f"Content-Length: {len(data)}", *more]
    return "\r\n".join([*lines, "", ""]).encode() + data


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
