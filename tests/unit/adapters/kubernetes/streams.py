"""A network peer for sessions: one HTTP answer in pieces, or a WebSocket with channels, as a test's script says.

It knows nothing of pods or commands. Source of the frames: RFC 6455; of the channels: Kubernetes KEP-4006.
"""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from struct import pack, unpack
from threading import Thread

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE = 1, 2, 8


class Line:
    """One accepted connection. `request` is its request line, `headers` what came with it, names in lower case."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._input = peer.makefile("rb")
        self.request = self._input.readline().decode().strip()
        self.headers: dict[str, str] = {}
        while line := self._input.readline().strip():
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()

    def answer(self, status: str, body: bytes = b"") -> None:
        """One whole answer."""
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._peer.sendall(head.encode() + body)

    def begin(self) -> None:
        """An answer that comes in pieces."""
        self._peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def piece(self, data: bytes) -> None:
        """A piece of it; the empty one is its end."""
        self._peer.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def upgrade(self, protocol: str) -> None:
        """Agree to a WebSocket."""
        key = b64encode(sha1(self.headers["sec-websocket-key"].encode() + _MAGIC).digest()).decode()
        head = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                f"Sec-WebSocket-Accept: {key}", f"Sec-WebSocket-Protocol: {protocol}")  # fmt: skip
        self._peer.sendall(("\r\n".join(head) + "\r\n\r\n").encode())

    def send(self, channel: int, data: bytes, *, parts: int = 1) -> None:
        """A message, in so many frames."""
        payload = bytes([channel]) + data
        size = -(-len(payload) // parts)
        for index in range(parts):
            last = index == parts - 1
            self._frame(
                (_BINARY if index == 0 else 0) | (0x80 if last else 0), payload[index * size : (index + 1) * size]
            )

    def end(self, status: object) -> None:
        """Say how the command ended, and close."""
        self.send(3, json.dumps(status).encode())
        self._frame(0x80 | _CLOSE, pack("!H", 1000))

    def receive(self) -> tuple[int, bytes]:
        """The channel and data of the next message."""
        while True:
            first, second = self._input.read(2)
            size = second & 0x7F
            if size == 126:
                (size,) = unpack("!H", self._input.read(2))
            elif size == 127:
                (size,) = unpack("!Q", self._input.read(8))
            mask = self._input.read(4)
            data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self._input.read(size)))
            if first & 0x0F in {_TEXT, _BINARY}:
                return data[0], data[1:]

    def close(self) -> None:
        """Cut it."""
        self._input.close()
        self._peer.close()

    def _frame(self, first: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes([first, size]) if size < 126 else bytes([first, 126]) + pack("!H", size)
        self._peer.sendall(head + payload)


class Peer:
    """Answers connections one after the other, each by the next script."""

    def __init__(self, folder: Path, *scripts: Callable[[Line], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.requests: list[str] = []
        self.failures: list[BaseException] = []
        self.kubeconfig = folder / "kubeconfig"
        self.token = "first"
        self._write_kubeconfig()
        self._thread = Thread(target=self._serve, args=(scripts,))
        self._thread.start()

    def issue(self, token: str) -> None:
        """Give the client another token."""
        self.token = token
        self._write_kubeconfig()

    def finish(self) -> None:
        """Wait for the last script, and stop listening."""
        self._thread.join(120)
        self._listening.close()
        assert not self._thread.is_alive()
        assert self.failures == []

    def _serve(self, scripts: tuple[Callable[[Line], None], ...]) -> None:
        self._listening.settimeout(60)
        for script in scripts:
            try:
                accepted, _ = self._listening.accept()
                accepted.settimeout(60)
                line = Line(accepted)
                self.requests.append(line.request)
                try:
                    script(line)
                finally:
                    line.close()
            except BaseException as error:  # noqa: BLE001 - told to the test, which runs in another thread
                self.failures.append(error)

    def _write_kubeconfig(self) -> None:
        port = self._listening.getsockname()[1]
        self.kubeconfig.write_text(
            json.dumps({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "it", "user": {"token": self.token}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            })
        )
