"""Sessions over real connections: logs as they come, commands with their input, output, terminal and exit code."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event

import pytest
from streams import Line, Peer

from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.portforward import fetch
from gpuctl.adapters.kubernetes.terminal import PodSessions
from gpuctl.app.ports import ClusterUnavailable, Forbidden
from gpuctl.app.session_ports import CommandRequest, LogRequest
from gpuctl.k8s import kinds
from gpuctl.model.ids import ObjectRef

POD = ObjectRef(*kinds.POD, "gpu-team-a", "a-1-g-0badcafe-x")
PATH = "/api/v1/namespaces/gpu-team-a/pods/a-1-g-0badcafe-x"
SUCCESS = {"status": "Success"}
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


class Pipes:
    """A console of pipes; its terminal has a size where it is given one."""

    def __init__(self, typed: bytes = b"", size: tuple[int, int] | None = None) -> None:
        self._read, write = os.pipe()
        os.write(write, typed)
        os.close(write)
        self.shown = b""
        self.errors = b""
        self.sizes = size

    def fileno(self) -> int:
        return self._read

    def read(self) -> bytes:
        return os.read(self._read, 5)

    def write(self, data: bytes, *, error: bool = False) -> None:
        if error:
            self.errors += data
        else:
            self.shown += data

    def size(self) -> tuple[int, int] | None:
        return self.sizes

    def close(self) -> None:
        os.close(self._read)


PeerOf = Callable[..., Peer]


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[PeerOf]:
    """`peer(*scripts)`; when the test ends, all must have been played."""
    made: list[Peer] = []

    def make(*scripts: Callable[[Line], None]) -> Peer:
        made.append(Peer(tmp_path, *scripts))
        return made[-1]

    yield make
    for one in made:
        one.finish()


def run(peer: Peer, console: Pipes, *command: str, stdin: bool = False, tty: bool = False) -> int:
    with closing(console), closing(connect(str(peer.kubeconfig))) as connection:
        return PodSessions(connection).run(POD, CommandRequest(command=command, stdin=stdin, tty=tty), console)


def logs(peer: Peer, request: LogRequest) -> bytes:
    with closing(connect(str(peer.kubeconfig))) as connection:
        return b"".join(PodSessions(connection).logs(POD, request))


def test_a_log_is_asked_for_and_read_as_it_comes(peer: PeerOf) -> None:
    def script(line: Line) -> None:
        line.begin()
        for piece in (b"epoch 1\n", b"epo", b"ch 2\n\xff\n", b""):
            line.piece(piece)

    asked = peer(script)
    request = LogRequest(follow=True, tail=10, timestamps=True, previous=True, since_ms=1500)
    assert logs(asked, request) == b"epoch 1\nepoch 2\n\xff\n"
    asked_for = "container=main&follow=true&previous=true&timestamps=true&tailLines=10&sinceSeconds=2"
    assert asked.requests == [f"GET {PATH}/log?{asked_for} HTTP/1.1"]


def test_a_line_is_there_before_the_next_one_is_printed(peer: PeerOf) -> None:
    read = Event()

    def script(line: Line) -> None:
        line.begin()
        line.piece(b"epoch 1\n")
        assert read.wait(60)
        line.piece(b"epoch 2\n")
        line.piece(b"")

    with closing(connect(str(peer(script).kubeconfig))) as connection:
        came = PodSessions(connection).logs(POD, LogRequest(follow=True))
        assert next(came) == b"epoch 1\n"
        read.set()
        assert list(came) == [b"epoch 2\n"]


def test_a_log_that_is_cut_off_is_told_after_what_came(peer: PeerOf) -> None:
    def script(line: Line) -> None:
        line.begin()
        line.piece(b"epoch 1\n")

    asked = peer(script)
    came: list[bytes] = []
    with closing(connect(str(asked.kubeconfig))) as connection, pytest.raises(ClusterUnavailable) as told:
        came.extend(PodSessions(connection).logs(POD, LogRequest(follow=True)))
    assert b"".join(came) == b"epoch 1\n"
    assert told.value.code == "GPU7043"
    assert "the log of a-1-g-0badcafe-x broke off" in str(told.value)


def refusing(status: str, message: str) -> Callable[[Line], None]:
    return lambda line: line.answer(status, json.dumps({"kind": "Status", "message": message}).encode())


@pytest.mark.parametrize("ask", [lambda p: logs(p, LogRequest()), lambda p: run(p, Pipes(), "true")])
def test_refusals_are_told_in_the_servers_words(peer: PeerOf, ask: Callable[[Peer], object]) -> None:
    waiting = 'container "main" in pod "a-1-g-0badcafe-x" is waiting to start: ContainerCreating'
    with pytest.raises(ClusterUnavailable, match="ContainerCreating") as told:
        ask(peer(refusing("400 Bad Request", waiting)))
    assert told.value.code == "GPU7042"


@pytest.mark.parametrize(
    ("ask", "what"),
    [(lambda p: logs(p, LogRequest()), "pods/log"), (lambda p: run(p, Pipes(), "true"), "pods/exec")],
)
def test_a_missing_right_is_named(peer: PeerOf, ask: Callable[[Peer], object], what: str) -> None:
    said = (
        f'pods "x" is forbidden: User "dana" cannot get resource "{what}" in API group "" in the namespace "gpu-team-a"'
    )
    with pytest.raises(Forbidden, match=what) as told:
        ask(peer(refusing("403 Forbidden", said)))
    assert told.value.code == "GPU7015"


@pytest.mark.parametrize("ask", [lambda p: logs(p, LogRequest()), lambda p: run(p, Pipes(), "true")])
def test_a_token_that_expired_is_read_anew_once(peer: PeerOf, ask: Callable[[Peer], object]) -> None:
    asked: list[Peer] = []

    def first(line: Line) -> None:
        assert line.headers["authorization"] == "Bearer first"
        asked[0].issue("second")
        line.answer("401 Unauthorized", b"{}")

    def second(line: Line) -> None:
        assert line.headers["authorization"] == "Bearer second"
        line.answer("401 Unauthorized", b'{"message": "Unauthorized"}')

    asked.append(peer(first, second))
    with pytest.raises(ClusterUnavailable) as told:
        ask(asked[0])
    assert told.value.code == "GPU7014"


def test_output_and_errors_come_apart_and_the_exit_code_is_the_commands(peer: PeerOf) -> None:
    def script(line: Line) -> None:
        line.upgrade(V5)
        line.send(1, b"out\xff", parts=3)
        line.send(2, b"err")
        line.send(1, b"x" * 5000)
        failed = {"reason": "ExitCode", "message": "7"}
        line.end({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [failed]}})

    console, asked = Pipes(), peer(script)
    assert run(asked, console, "sh", "-c", "exit 7") == 7
    assert (console.shown, console.errors) == (b"out\xff" + b"x" * 5000, b"err")
    asked_for = "container=main&stdout=true&stderr=true&command=sh&command=-c&command=exit+7"
    assert asked.requests == [f"GET {PATH}/exec?{asked_for} HTTP/1.1"]


def test_input_is_passed_on_to_its_end(peer: PeerOf) -> None:
    heard: list[tuple[int, bytes]] = []

    def script(line: Line) -> None:
        line.upgrade(V5)
        while not heard or heard[-1][0] != 255:
            heard.append(line.receive())
        line.end(SUCCESS)

    assert run(peer(script), Pipes(b"hello\x00world"), "cat", stdin=True) == 0
    assert b"".join(data for channel, data in heard if channel == 0) == b"hello\x00world"
    assert heard[-1] == (255, b"\x00")


def test_an_older_server_is_not_told_of_the_end_of_input(peer: PeerOf) -> None:
    heard: list[tuple[int, bytes]] = []

    def script(line: Line) -> None:
        line.upgrade(V4)
        heard.append(line.receive())
        line.end(SUCCESS)

    assert run(peer(script), Pipes(b"one"), "head", stdin=True) == 0
    assert heard == [(0, b"one")]


def test_a_terminal_tells_its_size_and_when_it_changes(peer: PeerOf) -> None:
    console = Pipes(size=(80, 24))
    heard: list[tuple[int, bytes]] = []

    def script(line: Line) -> None:
        line.upgrade(V5)
        heard.append(line.receive())
        console.sizes = (132, 50)
        heard.append(line.receive())
        line.end(SUCCESS)

    asked = peer(script)
    assert run(asked, console, "bash", tty=True) == 0
    assert [json.loads(data) for _, data in heard] == [{"Width": 80, "Height": 24}, {"Width": 132, "Height": 50}]
    assert {channel for channel, _ in heard} == {4}
    assert "tty=true" in asked.requests[0]
    assert "stderr" not in asked.requests[0]


def test_a_command_that_can_not_be_run_is_no_exit_code(peer: PeerOf) -> None:
    def script(line: Line) -> None:
        line.upgrade(V5)
        line.end({"status": "Failure", "reason": "InternalError", "message": 'exec: "bash": not found in $PATH'})

    with pytest.raises(ClusterUnavailable, match="not found") as told:
        run(peer(script), Pipes(), "bash")
    assert told.value.code == "GPU7044"


@pytest.mark.parametrize("parts", [0, 1])
def test_a_session_that_is_cut_off_is_told(peer: PeerOf, parts: int) -> None:
    def script(line: Line) -> None:
        line.upgrade(V5)
        if parts:
            line.send(1, b"some")

    console = Pipes()
    with pytest.raises(ClusterUnavailable, match="broke off") as told:
        run(peer(script), console, "true")
    assert told.value.code == "GPU7043"
    assert console.shown == b"some"[: 4 * parts]


def test_what_is_no_websocket_is_away(peer: PeerOf) -> None:
    with pytest.raises(ClusterUnavailable) as told:
        run(peer(lambda line: line.answer("200 OK", b"hello")), Pipes(), "true")
    assert told.value.code in {"GPU7001", "GPU7042"}


RAW = """
from gpuctl.adapters.console import ProcessConsole
console = ProcessConsole()
assert console.is_terminal and console.size() == (80, 24), console.size()
with console.raw():
    console.write(b"ready")
    console.write(repr(console.read()).encode())
console.write(b" done")
"""


def test_a_raw_terminal_passes_every_key_on_and_is_put_back() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    child = subprocess.Popen([sys.executable, "-c", RAW], stdin=theirs, stdout=theirs)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(ours, 100)
    os.write(ours, b"\x03")
    while b"done" not in shown:
        shown += os.read(ours, 100)
    assert child.wait(60) == 0
    assert shown == b"readyb'\\x03' done"
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("code", ["9" * 5_000, "\u0663", "-1", 7])
def test_an_exit_code_that_is_none_is_told(peer: PeerOf, code: object) -> None:
    causes = [{"reason": "ExitCode", "message": code}]
    with pytest.raises(ClusterUnavailable) as caught:
        run(peer(ended({"status": "Failure", "details": {"causes": causes}})), Pipes(), "true")
    assert caught.value.code == "GPU7044"


def ended(status: object) -> Callable[[Line], None]:
    def script(line: Line) -> None:
        line.upgrade(V5)
        line.end(status)

    return script


def test_a_log_that_is_elsewhere_is_not_looked_for_there(peer: PeerOf) -> None:
    at = peer(lambda line: line._peer.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n"))
    with pytest.raises(ClusterUnavailable) as caught:
        list(PodSessions(connect(str(at.kubeconfig))).logs(POD, LogRequest()))
    assert caught.value.code == "GPU7042"


GARBLED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"


def test_events_that_can_not_be_read_are_none(peer: PeerOf) -> None:
    at = peer(lambda line: line._peer.sendall(GARBLED))
    assert PodSessions(connect(str(at.kubeconfig))).events([POD]) == []


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("frame", [(7, b"x"), (0, b"x"), (0, b"\x51\x00")], ids=["channel", "length", "port"])
def test_a_tunnel_that_says_nonsense_ends_the_connection(peer: PeerOf, frame: tuple[int, bytes]) -> None:
    """The thread that carries it ended with a traceback, and the other end was waited for."""

    def script(line: Line) -> None:
        line.upgrade(V4)
        line.send(*frame)
        with suppress(ConnectionError):  # what it had sent by then is not read, so that it may be cut off
            line._input.read()  # until it is closed: else it takes too long, and the test fails

    at = peer(script)
    with pytest.raises(ClusterUnavailable) as caught:
        fetch(PodSessions(connect(str(at.kubeconfig))), POD, 80, "/")
    assert (caught.value.code, "Unexpected" in str(caught.value)) == ("GPU7086", True)
