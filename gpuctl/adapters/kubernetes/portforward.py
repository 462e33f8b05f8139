"""Ports of a container on this machine. A connection here is a WebSocket to the API server; the kubernetes package
carries its bytes.

Only this machine's own address is listened on. Each connection has its own thread, and both are bounded. Source:
kubernetes.stream.ws_client.PortForward, v4.channel.k8s.io.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException, HTTPResponse
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING

from gpuctl.adapters.kubernetes.paths import item
from gpuctl.adapters.kubernetes.readable import readable
from gpuctl.adapters.kubernetes.terminal import PodSessions
from gpuctl.app.forwarding import PortPair
from gpuctl.app.ports import ClusterUnavailable, WorldFault
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import message
from gpuctl.model.ids import ObjectRef

if TYPE_CHECKING:
    from kubernetes.stream.ws_client import PortForward
    from websocket import WebSocket

HERE = "127.0.0.1"
MOST_CONNECTIONS = 64
MOST_ANSWER = 64 << 20
"""The most bytes of an answer that a command reads."""
_ANSWER_S = 60.0
_CHUNK_BYTES = 1 << 16
_LAST_WORDS_S = 2.0
"""How long the container may still answer a client that has ended its own side: the protocol can't tell it about
that."""


class PortForwarder:
    """Implements the port Forwarder on the sessions of an API server."""

    def __init__(self, sessions: PodSessions) -> None:
        self._sessions = sessions
        self._free = BoundedSemaphore(MOST_CONNECTIONS)

    def forward(self, pod: ObjectRef, pairs: Sequence[PortPair], told: Callable[[str], None]) -> None:
        """Listen and forward connections until interrupted. One session is opened and closed first, so that a missing
        right is reported at once and not to a browser. Raises ClusterUnavailable GPU7065, and what the session
        raises."""
        for pair in pairs[:1]:
            self._open(pod, pair.remote).close()
        with ExitStack() as stack:
            listening = {stack.enter_context(closing(_listen(pair.local))): pair.remote for pair in pairs}
            for each, remote in listening.items():
                told(f"Forwarding from {HERE}:{each.getsockname()[1]} -> {remote}")
            while True:
                for each in readable(list(listening)):
                    client, _ = each.accept()
                    self._begin(client, pod, listening[each], told)

    def _open(self, pod: ObjectRef, remote: int) -> WebSocket:
        return self._sessions.open(f"{item(pod)}/portforward?ports={remote}", f"port {remote} of {pod.name}")

    def _begin(self, client: socket.socket, pod: ObjectRef, remote: int, told: Callable[[str], None]) -> None:
        if not self._free.acquire(blocking=False):
            client.close()
            told(f"port {remote}: more than {MOST_CONNECTIONS} connections at once")
            return
        Thread(target=self._carry, args=(client, pod, remote, told), name=f"port {remote}", daemon=True).start()

    def _carry(self, client: socket.socket, pod: ObjectRef, remote: int, told: Callable[[str], None]) -> None:
        try:
            with closing(client):
                carried = _carrier(self._open(pod, remote), remote)
                with closing(carried.socket(remote)) as far:
                    _relay(client, far)
                wrong = carried.error(remote)
                if wrong:
                    told(printable(f"port {remote}: {wrong}"))
        except WorldFault as fault:
            told(f"port {remote}: {fault.code}: {fault}")
        except OSError as error:
            told(printable(f"port {remote}: {error}"))
        finally:
            self._free.release()


def fetch(sessions: PodSessions, pod: ObjectRef, port: int, path: str) -> tuple[int, bytes]:
    """One HTTP answer of a port that only the pod itself can reach: its status, and at most `MOST_ANSWER` bytes of it.

    Raises WorldFault as the session does, ClusterUnavailable if nothing answers at that port.
    """
    tunnel = sessions.open(f"{item(pod)}/portforward?ports={port}", f"port {port} of {pod.name}")
    carried = _carrier(tunnel, port)
    try:
        with closing(carried.socket(port)) as far:
            far.settimeout(_ANSWER_S)
            far.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost:{port}\r\n\r\n".encode("ascii"))
            with closing(HTTPResponse(far)) as answer:
                answer.begin()
                content = answer.read(MOST_ANSWER + 1)
    except (OSError, HTTPException) as error:
        why = carried.error(port) or str(error) or type(error).__name__
        raise ClusterUnavailable("GPU7086", message("GPU7086", {"name": pod.name, "why": why})) from error
    if len(content) > MOST_ANSWER:
        raise ClusterUnavailable("GPU7086", message("GPU7086", {"name": pod.name, "why": "its answer is too long"}))
    return answer.status, content


def _carrier(tunnel: WebSocket, port: int) -> PortForward:
    """The carrier of a port's bytes, a thread of the package. If it fails, the connection ends, and says why."""
    from kubernetes.stream.ws_client import PortForward  # noqa: PLC0415 - slow to import

    class Carrier(PortForward):
        def _proxy(self) -> None:
            try:
                super()._proxy()  # type: ignore[no-untyped-call]
            except Exception as error:  # noqa: BLE001 - whatever the server sent: it is told, and ends nothing else
                for each in self.local_ports.values():
                    each.error = each.error or str(error) or type(error).__name__
                    each.python.close()
                self.websocket.shutdown()

    return Carrier(tunnel, [port])  # type: ignore[no-untyped-call]


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HERE, port))
    except OSError as error:
        why = error.strerror or str(error)
        raise ClusterUnavailable("GPU7065", message("GPU7065", {"port": port, "why": why})) from error


def _relay(client: socket.socket, far: socket.socket) -> None:
    """Carry bytes both ways until the container has ended its side, or no longer answers a client that ended its
    own."""
    sides = {client: far, far: client}
    reading = [client, far]
    while far in reading:
        ready = readable(reading, None if client in reading else _LAST_WORDS_S)
        if not ready:
            return
        for side in ready:
            data = side.recv(_CHUNK_BYTES)
            if data:
                sides[side].sendall(data)
            else:
                reading.remove(side)
    with suppress(OSError):
        client.shutdown(socket.SHUT_WR)
