"""`gpuctl` in processes that start at once: each is forked from a process that has only imported all of gpuctl.

Starting Python and importing gpuctl take half a second of processor time, which is most of many a command's time.
Behaviour that depends on a process's start is tested with `python -m gpuctl` itself, as in
tests/reconcile/test_process.py.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO

_MESSAGE_BYTES = 1 << 20
_HERE = Path(__file__).resolve()


class Begun:
    """A process of gpuctl, by its number, with the part of Popen that tests use."""

    def __init__(
        self,
        words: Sequence[str | Path],
        output: IO[bytes],
        *,
        errors: IO[bytes] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._answers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._answers.connect(_address())
        variables = dict(os.environ if env is None else env)
        asked = {"words": [*map(str, words)], "cwd": str(cwd or Path.cwd()), "env": variables}
        with Path(os.devnull).open("rb") as nothing:
            files = [nothing.fileno(), output.fileno(), (errors or output).fileno()]
            socket.send_fds(self._answers, [json.dumps(asked).encode()], files)
        self.pid = int(self._answers.recv(_MESSAGE_BYTES))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("gpuctl", timeout or 0)
            self.returncode = int(self._answers.recv(_MESSAGE_BYTES))
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(
    *words: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    together: bool = False,
    check: bool = False,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return its output; `together`: with errors among the output, as on a terminal.

    `check`: CalledProcessError for any exit code but 0.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        begun = Begun(words, output, errors=output if together else errors, cwd=cwd, env=env)
        try:
            code = begun.wait(timeout)
        except BaseException:
            begun.kill()
            raise
        output.seek(0)
        errors.seek(0)
        done = subprocess.CompletedProcess([*words], code, output.read().decode(), errors.read().decode())
        if check:
            done.check_returncode()
        return done


def write_command(folder: Path) -> None:
    """Make a folder with the command `gpuctl`, for shells that have the folder in their PATH."""
    folder.mkdir(exist_ok=True)
    script = folder / "gpuctl"
    script.write_text(_SCRIPT.format(python=sys.executable, address=_address()))
    script.chmod(0o755)


_SCRIPT = """#!{python} -IS
import json, os, signal, socket, sys
answers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
answers.connect({address!r})
asked = {{"words": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
socket.send_fds(answers, [json.dumps(asked).encode()], [0, 1, 2])
child = int(answers.recv(100))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(child, number))
code = int(answers.recv(100))
sys.exit(code if code >= 0 else 128 - code)
"""
"""Asks for a process as `Begun` does, with its own files. Starting this script takes a fiftieth of a second."""


@cache
def _address() -> str:
    """The socket of the process that has imported everything; that process ends with this one."""
    path = str(Path(mkdtemp(prefix="gpuctl-warm-")) / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, _HERE, str(listener.fileno())], stdin=subprocess.PIPE, pass_fds=[listener.fileno()]
        )
    atexit.register(_end, server, Path(path))
    return path


def _end(server: subprocess.Popen[bytes], listens: Path) -> None:
    server.communicate()  # closes its input
    listens.unlink()
    listens.parent.rmdir()


def _serve(listener: socket.socket) -> Mapping[str, object]:
    """Fork for each request, until the asking process ends. Returns in those forks, with what they should run."""
    from gpuctl.cli.main import COMMANDS  # noqa: PLC0415 - not in the process of the tests

    for each in (*(listed.module for listed in COMMANDS.values()), *_LATE):
        import_module(each)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # another process waits for each command
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        asking, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _begin(asking)
        asking.close()
    sys.exit()


_LATE = (
    "gpuctl.wiring.controller",
    "gpuctl.adapters.kubernetes.cluster",
    "gpuctl.app.demo",
    "gpuctl.app.play",
    "gpuctl.app.loop",
    "gpuctl.compile",
    "gpuctl.api",
    "kubernetes.client.rest",
    "kubernetes.config",
)
"""Modules that commands import only when they run."""


def _begin(asking: socket.socket) -> Mapping[str, object]:
    """Tell the number of the command's process and how it ended; returns in that process, which is like a new one."""
    message, files, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES, 3)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        for file in files:
            os.close(file)
        asking.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        asking.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    asking.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    asked: Mapping[str, object] = json.loads(message)
    return asked


def _become(asked: Mapping[str, object]) -> None:
    """Set the parts of a process that it has from its start."""
    words, env = asked["words"], asked["env"]
    assert isinstance(words, list)
    assert isinstance(env, dict)
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    random.seed()
    sys.argv = ["gpuctl", *words]


class _Leaving:
    """Ends the process once its exit code is known. Registered first, so it is called last at exit.

    Python would then take each imported module apart, and so copy the memory shared with the process it was forked
    from: five sixths of the processor time of a command as short as `version` (45 ms, not 7 ms).
    """

    def __init__(self) -> None:
        self.code: object = None
        atexit.register(self._leave)

    def _leave(self) -> None:
        with suppress(OSError, ValueError):  # Python tells what could not be written
            sys.stdout.flush()
            sys.stderr.flush()
            if isinstance(self.code, int):
                os._exit(self.code)


if __name__ == "__main__":
    leaving = _Leaving()
    sys.path[0] = str(_HERE.parents[1])  # as `python -m gpuctl` finds it
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
    from gpuctl.__main__ import main

    try:
        main()
        leaving.code = 0
    except SystemExit as ended:
        leaving.code = ended.code or 0
        raise
