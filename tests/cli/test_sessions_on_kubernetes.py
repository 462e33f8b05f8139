"""The commands that go into a container, on a real API server: logs, exec, bash, port-forward."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import warm
from commands import Run, heeding_ctrl_c
from controlplane.server import ControlPlane
from seen import Stage, stage_on

from gpuctl.adapters.kubernetes.readable import readable

PATIENCE_S = 180


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(control_plane, tmp_path_factory.mktemp("seen")) as made:
        yield made


def beside(stage: Stage, *line: str, typed: bytes = b"") -> tuple[int, bytes, bytes]:
    """A command of gpuctl in a process of its own: exit code, output, errors."""
    warm.write_command(stage.plane.folder / "bin")
    words = [str(stage.plane.folder / "bin" / "gpuctl"), line[0], "-p", "team-s", *stage.where, *line[1:]]
    done = subprocess.run(words, input=typed, capture_output=True, check=False, timeout=PATIENCE_S)
    return done.returncode, done.stdout, done.stderr


def test_what_a_container_prints(stage: Stage) -> None:
    log = stage.plane.pod_log
    log.unlink(missing_ok=True)
    code, out, error = beside(stage, "logs", "train")
    assert (code, out, error[:14]) == (2, b"", b"error GPU7042:"), "the kubelet has no such log"
    lines = [f"2026-11-21T10:00:0{n}.000000000Z stdout F step {n}\n" for n in range(3)]
    log.write_text("".join(lines))
    assert beside(stage, "logs", "train") == (0, b"step 0\nstep 1\nstep 2\n", b"")
    assert beside(stage, "logs", "gang", "--worker", "1", "--tail", "1") == (0, b"step 2\n", b"")
    assert beside(stage, "logs", "train", "--timestamps", "--tail", "1")[1].startswith(b"2026-11-21T10:00:02")


def test_a_command_in_a_container(stage: Stage) -> None:
    """KWOK keeps a command's input open and tells no exit code: those are shown on loopback connections."""
    assert beside(stage, "exec", "train", "--", "echo", "in there") == (0, b"in there\n", b"")
    assert beside(stage, "exec", "train", "-i", "--", "head", "-n", "1", typed=b"typed\n") == (0, b"typed\n", b"")
    code, out, error = beside(stage, "exec", "train", "--", "sh", "-c", "echo no >&2; exit 3")
    assert (code, out, error[:3]) == (2, b"", b"no\n")


def test_a_shell_in_a_container(stage: Stage) -> None:
    terminal, theirs = pty.openpty()
    line = [sys.executable, "-m", "gpuctl", "bash", "train", "-p", "team-s", *stage.where]
    with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs) as shell:
        os.close(theirs)
        try:
            os.write(terminal, b"echo $((6 * 7))\n")
            shown = b""
            while b"42" not in shown and readable([terminal], PATIENCE_S):
                shown += os.read(terminal, 4096)
            assert b"42" in shown, shown
            os.write(terminal, b"exit\n")
            with suppress(OSError):  # the end of a terminal
                while readable([terminal], PATIENCE_S) and os.read(terminal, 4096):
                    pass
            assert shell.wait(PATIENCE_S) == 0
        finally:
            shell.kill()  # else leaving the block waits for its end
            os.close(terminal)


def test_ports_of_a_container_are_reached_here(stage: Stage) -> None:
    """KWOK has `cat` behind every port, which answers what it hears. Two connections at once; Ctrl-C ends it."""
    line = [sys.executable, "-m", "gpuctl", "port-forward", "train", "0:8888", "-p", "team-s", *stage.where]
    piped = subprocess.PIPE
    with subprocess.Popen(line, stdout=piped, stderr=piped, preexec_fn=heeding_ctrl_c) as process:  # noqa: PLW1509 - it starts no thread
        try:
            assert process.stdout is not None
            said = process.stdout.readline().decode()
            assert said.startswith("Forwarding from 127.0.0.1:")
            assert said.endswith(" -> 8888\n")
            port = int(said.split(":")[1].split()[0])
            with (
                socket.create_connection(("127.0.0.1", port), PATIENCE_S) as one,
                socket.create_connection(("127.0.0.1", port), PATIENCE_S) as other,
            ):
                sent = bytes(range(256)) * 1000
                one.sendall(sent)
                other.sendall(b"another")
                assert heard(other, 7) == b"another"
                assert heard(one, len(sent)) == sent
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def heard(source: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length and (data := source.recv(1 << 16)):
        found += data
    return found


def test_a_port_that_is_none_or_taken_is_told(run: Run, stage: Stage) -> None:
    assert "error GPU7064: team-s/train exposes no port" in run("port-forward", "team-s/train", *stage.where).stderr
    assert "error GPU9002" in run("port-forward", "team-s/train", "80:http", *stage.where).stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pair = f"{taken.getsockname()[1]}:8888"
        assert "error GPU7065" in run("port-forward", "team-s/train", pair, *stage.where).stderr


def test_a_job_without_a_container_says_why(run: Run, stage: Stage) -> None:
    waits = run("logs", "large", "-p", "team-s", *stage.where)
    assert waits.stderr.startswith("error GPU7040: team-s/large has no container: it is waiting: GPU5")
    nobody = run("exec", "gang", "-p", "team-s", "--worker", "7", *stage.where, "--", "true")
    assert "it has no worker 7, only 0 to 1" in nobody.stderr
    assert run("logs", "nobody", *stage.where).stderr.startswith("error GPU9003: there is no job nobody")
