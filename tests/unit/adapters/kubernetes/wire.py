"""A plain loopback server that says what it is told to, byte for byte: what networks and proxies do to an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from threading import Event, Thread
from typing import Any

from gpuctl.adapters.kubernetes import Connection, Timings, connect

QUICK = Timings(
    connect_ms=1_000, answer_ms=1_000, first_retry_ms=1, patience_ms=5_000, silence_ms=200, longest_reconnect_ms=20
)


class Then(Enum):
    """What happens to the connection after an answer."""

    KEEP = auto()
    CUT = auto()
    STALL = auto()


@dataclass(frozen=True)
class Answer:
    data: bytes
    then: Then = Then.KEEP


def answer(code: int, body: Any = None, **headers: str) -> Answer:
    """An answer with a JSON body, or with a text."""
    data = body.encode() if isinstance(body, str) else json.dumps(body or {}).encode()
    kind = "text/plain" if isinstance(body, str) else "application/json"
    given = {"content-type": kind, "content-length": str(len(data))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return Answer(f"HTTP/1.1 {code} Said\r\n{head}\r\n".encode() + data)


def refusal(code: int, message: str = "no", **headers: str) -> Answer:
    """A Status object as API servers answer it."""
    return answer(code, {"kind": "Status", "status": "Failure", "code": code, "message": message}, **headers)


def watched(*events: dict[str, Any], then: Then = Then.KEEP) -> Answer:
    """The answer to a watch: a chunk an event; a KEEP is ended as a server ends a watch in order."""
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    chunks = b"".join(f"{len(line):x}\r\n".encode() + line + b"\r\n" for line in lines)
    end = b"0\r\n\r\n" if then is Then.KEEP else b""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    return Answer(head + chunks + end, then)


@dataclass
class Wire:
    """`asked`: the request lines that came, in order. The last answer is given again and again."""

    answers: list[Answer]
    asked: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ending = Event()
        self._threads: list[Thread] = []
        self._open: list[socket.socket] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        self._ending.set()
        for sock in (self._listening, *self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _start(self, work: Any, *args: Any) -> None:
        thread = Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(sock)
            self._start(self._talk, sock)

    def _talk(self, sock: socket.socket) -> None:
        with sock:
            while (request := self._request(sock)) is not None:
                self.asked.append(request.partition("\r\n")[0])
                self.headers.append(request)
                said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                try:
                    sock.sendall(said.data)
                except OSError:
                    return
                if said.then is Then.STALL:
                    self._ending.wait()
                if said.then is not Then.KEEP:
                    return

    def _request(self, sock: socket.socket) -> str | None:
        """The head of the next request; its body is read and dropped."""
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                more = sock.recv(65536)
                if not more:
                    return None
                data += more
            head, _, rest = data.partition(b"\r\n\r\n")
            text = head.decode().lower()
            length = int(text.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            while len(rest) < length:
                rest += sock.recv(65536)
        except OSError:
            return None
        return head.decode()


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None, name: str = "config") -> str:
    """A kubeconfig of one context `lab`."""
    path = folder / name
    path.write_text(
        json.dumps({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {"server": server}}],
            "users": [{"name": "lab", "user": user or {}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        })
    )
    return str(path)


@contextmanager
def wired(folder: Path, *answers: Answer, user: dict[str, Any] | None = None) -> Iterator[tuple[Wire, Connection]]:
    """A wire and a connection to it."""
    wire = Wire(list(answers))
    try:
        connection = connect(kubeconfig(folder, wire.url, user))
        try:
            yield wire, connection
        finally:
            connection.close()
    finally:
        wire.close()
