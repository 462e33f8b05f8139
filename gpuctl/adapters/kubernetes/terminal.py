"""Logs and commands of a pod's container as raw streams, and its events.

Logs are one HTTP answer that is read as it comes. A command is a WebSocket, made by the kubernetes package, with
numbered channels: 0 input, 1 output, 2 errors, 3 how it ended, 4 the terminal's size, 255 the end of another channel.
Source: kubernetes/enhancements, KEP-4006 (v5.channel.k8s.io); servers that know only v4 keep the input open.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.faults import UNAUTHORIZED, fault_of, status_of
from gpuctl.adapters.kubernetes.incidents import bounded, events_path
from gpuctl.adapters.kubernetes.paths import item
from gpuctl.adapters.kubernetes.readable import readable
from gpuctl.app.ports import ClusterUnavailable, Forbidden, WorldFault
from gpuctl.app.session_ports import CommandRequest, Console, LogRequest
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import message
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.objects import items, mapping, text
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse
    from websocket import WebSocket

_INPUT, _OUTPUT, _ERRORS, _STATUS, _SIZE, _END = 0, 1, 2, 3, 4, 255
_NEWEST_PROTOCOL = "v5.channel.k8s.io"
_CONNECT_S = 10
_TICK_S = 0.25
"""How often the terminal's size is checked."""
_MOST_CODE = 2**32 - 1
_GRACE_S = 1.0
"""How long the server may take to close after it has said how the command ended."""


class PodSessions:
    """The sessions of one API server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def logs(self, pod: ObjectRef, request: LogRequest) -> Iterator[bytes]:
        """The log of one of the pod's containers; if it is followed, until its own end."""
        import urllib3  # noqa: PLC0415 - only now

        path = f"{item(pod)}/log?{urlencode(_log_query(request))}"
        answer = self._get(path, f"the log of {pod.name}", follow=request.follow)
        try:
            yield from answer.stream()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _broken(f"the log of {pod.name} broke off", error) from error
        finally:
            answer.close()

    def run(self, pod: ObjectRef, request: CommandRequest, console: Console) -> int:
        """Run a command in the pod until it ends. Returns its exit code."""
        socket = self.open(f"{item(pod)}/exec?{urlencode(_exec_query(request))}", f"a command in {pod.name}")
        try:
            return _Relay(socket, request, console).run()
        finally:
            socket.shutdown()  # type: ignore[no-untyped-call]

    def events(self, objects: Sequence[ObjectRef]) -> Sequence[Body]:
        """The events of objects, in no order; none for an object with too many. Cost: a request an object."""
        import urllib3  # noqa: PLC0415 - only now

        found: list[Body] = []
        for ref in objects:
            answer = self._get(events_path(ref), f"the events of {ref}", follow=False)
            with suppress(ValueError, urllib3.exceptions.HTTPError, OSError):
                found.extend(items(status_of(bounded(answer.stream())), "items"))
            answer.close()
        return found

    def _get(self, path: str, what: str, *, follow: bool) -> BaseHTTPResponse:
        """An answer of status 200, not read yet. Refused credentials are read anew once."""
        import urllib3  # noqa: PLC0415 - only now

        for last in (False, True):
            headers = self._connection.headers()
            try:
                answer = self._connection.pool.request(
                    "GET",
                    f"{self._connection.server}{path}",
                    headers=headers,
                    preload_content=False,
                    retries=False,
                    redirect=False,
                    timeout=urllib3.Timeout(connect=_CONNECT_S, read=None if follow else 4 * _CONNECT_S),
                )
            except urllib3.exceptions.HTTPError as error:
                raise _away(self._connection.server, error) from error
            if answer.status == 200:
                return answer
            data = b""
            with suppress(urllib3.exceptions.HTTPError, OSError):
                data = answer.read()
            answer.close()
            if last or answer.status != UNAUTHORIZED or not self._connection.renew(headers):
                raise self._refusal(what, answer.status, data)
        raise AssertionError("the second try returns or raises")

    def open(self, path: str, what: str) -> WebSocket:
        """A session that the server has accepted. Refused credentials are read anew once."""
        import websocket  # noqa: PLC0415 - only now
        from kubernetes.stream.ws_client import create_websocket  # noqa: PLC0415

        if self._connection.context.acts_as:
            why = "its user acts as another one, and the kubernetes package opens no session like that"
            raise ClusterUnavailable("GPU7011", message("GPU7011", {"where": self._connection.where, "why": why}))
        url = f"{self._connection.server}{path}".replace("http", "ws", 1)
        for last in (False, True):
            headers = self._connection.headers()
            try:
                socket: WebSocket = create_websocket(self._connection.configuration, url, headers)
            except websocket.WebSocketBadStatusException as error:
                data = error.resp_body or b""
                if last or error.status_code != UNAUTHORIZED or not self._connection.renew(headers):
                    raise self._refusal(what, error.status_code, data) from error
            except (websocket.WebSocketException, OSError) as error:
                raise _away(self._connection.server, error) from error
            else:
                return socket
        raise AssertionError("the second try returns or raises")

    def _refusal(self, what: str, code: int, data: bytes) -> WorldFault:
        """The fault of a refused session: rights and credentials as everywhere; anything else as GPU7042."""
        status = status_of(data)
        if code == UNAUTHORIZED:
            facts = {"server": self._connection.server, "where": self._connection.where}
            return ClusterUnavailable("GPU7014", message("GPU7014", {**facts, "why": text(status, "message") or "401"}))
        fault = fault_of(code, status, what)
        if isinstance(fault, Forbidden):
            return fault
        said = text(status, "message") or data.decode(errors="replace").strip() or f"HTTP status {code}"
        return ClusterUnavailable("GPU7042", message("GPU7042", {"what": f"{what}: {said}"}))


class _Relay:
    """Carries one session's data both ways until the command has ended."""

    def __init__(self, socket: WebSocket, request: CommandRequest, console: Console) -> None:
        self._socket = socket
        self._request = request
        self._console = console
        self._typing = request.stdin
        self._size: tuple[int, int] | None = None
        self._status: Body | None = None

    def run(self) -> int:
        """Relay until the end. Returns the exit code; raises ClusterUnavailable if there is none."""
        while self._socket.connected:
            if self._request.tty:
                self._tell_size()
            heard, typed = self._wait()
            if typed:
                self._pass_on()
            if heard and not self._hear():
                break
            if self._status is not None and not heard:
                break
        if self._status is None:
            raise _broken("the session broke off", "the connection was closed before the command ended")
        return _exit_code(self._status)

    def _wait(self) -> tuple[bool, bool]:
        """Whether something came, and whether something was typed; neither after a while."""
        below = self._socket.sock
        if isinstance(below, ssl.SSLSocket) and below.pending():
            return True, False
        sources: list[Any] = [below, self._console.fileno()] if self._typing else [below]
        patience = _GRACE_S if self._status is not None else _TICK_S if self._request.tty else None
        ready = readable(sources, patience)
        return below in ready, self._typing and self._console.fileno() in ready

    def _pass_on(self) -> None:
        data = self._console.read()
        if data:
            self._send(_INPUT, data)
            return
        self._typing = False
        if _protocol(self._socket) == _NEWEST_PROTOCOL:
            self._send(_END, bytes([_INPUT]))

    def _hear(self) -> bool:
        """Take in one frame; returns False for the last one."""
        from websocket import ABNF, WebSocketException  # noqa: PLC0415 - only now

        try:
            kind, frame = self._socket.recv_data_frame(control_frame=True)
        except (WebSocketException, OSError) as error:
            if self._status is not None:
                return False
            raise _broken("the session broke off", error) from error
        if kind == ABNF.OPCODE_CLOSE:
            return False
        if kind in {ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT} and frame.data:
            channel, data = frame.data[0], frame.data[1:]
            if channel in {_OUTPUT, _ERRORS} and data:
                self._console.write(data, error=channel == _ERRORS)
            elif channel == _STATUS:
                self._status = status_of(data)
        return True

    def _tell_size(self) -> None:
        size = self._console.size()
        if size is not None and size != self._size:
            self._size = size
            self._send(_SIZE, json.dumps({"Width": size[0], "Height": size[1]}).encode())

    def _send(self, channel: int, data: bytes) -> None:
        from websocket import WebSocketException  # noqa: PLC0415 - only now

        try:
            self._socket.send_binary(bytes([channel]) + data)
        except (WebSocketException, OSError) as error:
            raise _broken("the session broke off", error) from error


def _protocol(socket: WebSocket) -> str:
    """The protocol that the server agreed to; the package keeps it only among the headers."""
    headers: Mapping[str, str] = socket.getheaders() or {}
    return next((value for name, value in headers.items() if name.lower() == "sec-websocket-protocol"), "")


def _log_query(request: LogRequest) -> Mapping[str, Any]:
    flags = {"follow": request.follow, "previous": request.previous, "timestamps": request.timestamps}
    query: dict[str, Any] = {"container": request.container, **{name: "true" for name, given in flags.items() if given}}
    if request.tail is not None:
        query["tailLines"] = request.tail
    if request.since_ms is not None:
        query["sinceSeconds"] = max(1, -(-request.since_ms // 1000))
    return query


def _exec_query(request: CommandRequest) -> list[tuple[str, str]]:
    streams = {"stdin": request.stdin, "stdout": True, "stderr": not request.tty, "tty": request.tty}
    said = [(name, "true") for name, given in streams.items() if given]
    return [("container", request.container), *said, *(("command", word) for word in request.command)]


def _exit_code(status: Body) -> int:
    """The exit code of the command. Raises ClusterUnavailable if the command was not run."""
    if text(status, "status") == "Success":
        return 0
    for cause in items(mapping(status, "details"), "causes"):
        ended = whole_number(text(cause, "message"), _MOST_CODE)
        if cause.get("reason") == "ExitCode" and ended is not None:
            return ended
    said = printable(text(status, "message")) or "it ended without an exit code"
    raise ClusterUnavailable("GPU7044", message("GPU7044", {"what": said}))


def _broken(what: str, error: object) -> ClusterUnavailable:
    return ClusterUnavailable("GPU7043", message("GPU7043", {"what": f"{what}: {error}"}))


def _away(server: str, error: object) -> ClusterUnavailable:
    return ClusterUnavailable("GPU7001", message("GPU7001", {"what": f"{server} does not answer: {error}"}))
