"""Runs git as a child process: bounded in time, memory and output, and ignoring commands in a repository's own
settings.

Security: a repository may belong to another user, and its `.git/config` may name commands (hooks, promisor remotes,
fsmonitor, signature checks). Commands here run none of them, and those that only read reach no network. People's input
(addresses, branches, revisions) never reaches git as an option, only transports that run no commands are allowed, and
no password is asked for.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from gpuctl.app.ports import SourceUnavailable
from gpuctl.diag.wording import message
from gpuctl.model.units import DurationMs

_ANSWER_BYTES = 1 << 20
_ERROR_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16
_STEP_S = 0.1
_LAST_WAIT_S = 1
_SHELL = "/bin/sh"
_BOUNDED = '{ ulimit -c 0; ulimit -d "$1"; ulimit -f "$2"; } 2>/dev/null; shift 2; exec "$@"'
"""The limits of the child and of all processes that it starts."""
_FILE_TOO_LARGE = ("file too large", f"signal {signal.SIGXFSZ:d}")
_NO_MEMORY = ("out of memory", "cannot allocate memory")
_ELSEWHERE = frozenset({
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_INDEX_FILE",
    "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
})  # fmt: skip
"""Variables that would lead git to another repository: Git's hooks set them for the programs they start."""
_ENVIRONMENT = {
    "GIT_ASKPASS": "",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "SSH_ASKPASS": "",
}
_TRANSPORTS = "file:https:ssh"
_NO_TRANSPORT = "none"
"""Also keeps a git before 2.44, which ignores GIT_NO_LAZY_FETCH, from fetching objects of a promisor remote."""
_SETTINGS = (
    "core.alternateRefsCommand=",
    "core.askPass=",
    "core.bigFileThreshold=16m",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.warnAmbiguousRefs=true",
    "gc.auto=0",
    "gc.autoDetach=false",
    "gc.bigPackThreshold=256m",
    "gc.pruneExpire=never",
    "log.showSignature=false",
    "maintenance.auto=false",
    "pack.threads=1",
    "pack.windowMemory=64m",
    "safe.bareRepository=explicit",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one git command. With gpuctl's own share, its memory stays below the limit that `install` sets."""

    time_ms: DurationMs = 60_000
    first_ms: DurationMs = 10_000
    """For the first fetch into a clone from an earlier process: a silent remote must not keep a new process from
    enforcing the last good commit."""
    memory_bytes: int = 384 << 20
    file_bytes: int = 1536 << 20
    """The largest file that the command may write, which is also the most that one fetch may bring: the clone's volume
    has 2 GiB."""


def never() -> bool:
    """The stop that is never requested."""
    return False


def unavailable(code: str, **params: str) -> SourceUnavailable:
    """The fault of a code, with its message."""
    return SourceUnavailable(code, message(code, params))


def _too_much(bound: str) -> SourceUnavailable:
    """The fault when git was ended, or ended itself, at one of its bounds."""
    return unavailable("GPU8015", why=f"it needed more than {bound}")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a git command: its exit code, its output in bytes as far as it is read, and its error text."""

    code: int
    output: bytes
    error: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode("utf-8", "replace").strip()


class Git:
    """Runs git commands, one at a time. `stop`: whether to end the running command; asked ten times a second.

    Raises SourceUnavailable: GPU8011 git can't be run, GPU8001 it was told to stop or a remote does not answer in time,
    GPU8015 the command exceeds its limit of time, memory or disk.
    """

    def __init__(self, stop: Callable[[], bool] = never, limits: Limits | None = None) -> None:
        self._asked_to_stop = stop
        self._limits = limits or Limits()
        self._lock = Lock()
        self._child: _Child | None = None
        self._closed = False

    def run(self, *args: str, remote: bool = False, within_ms: DurationMs | None = None) -> Answer:
        """The command's exit code, and the first MiB of its output.

        `remote`: it may reach another machine. `within_ms`: a shorter time limit than usual.
        """
        output = bytearray()
        limits = replace(self._limits, time_ms=min(within_ms or self._limits.time_ms, self._limits.time_ms))
        command = _Command(args=args, limits=limits, remote=remote)
        with closing(self._child_of(command)) as child:
            for chunk in child.output(self._stopped):
                output += chunk[: _ANSWER_BYTES - len(output)]
            return Answer(child.ended(self._stopped), bytes(output), child.error)

    def stream(
        self,
        *args: str | bytes,
        otherwise: SourceUnavailable,
        feed: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> Generator[bytes]:
        """The output, as it comes, of a command that reaches no other machine; raises `otherwise` if it fails.

        `environment`: variables for processes that git starts. Closing the generator before its end kills the command.
        """
        command = _Command(args=args, limits=self._limits, feed=feed, environment=environment or {})
        with closing(self._child_of(command)) as child:
            yield from child.output(self._stopped)
            if child.ended(self._stopped):
                raise otherwise

    def close(self) -> None:
        """Kill the running command, from any thread; no other one is started afterwards."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def _stopped(self) -> bool:
        return self._closed or self._asked_to_stop()

    def _child_of(self, command: _Command) -> _Child:
        with self._lock:
            if self._closed:
                raise _stopped()
            self._child = _Child(command)
            return self._child


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """A command to run; `feed` is its input."""

    args: Sequence[str | bytes]
    limits: Limits
    feed: bytes = b""
    remote: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def begin(self) -> subprocess.Popen[bytes]:
        """Start it in a separate session, so that all processes that it starts can be ended with it."""
        program = shutil.which("git")
        if program is None:
            raise unavailable("GPU8011", why="not found")
        limits = (str(self.limits.memory_bytes >> 10), str(self.limits.file_bytes >> 9))
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        try:
            return subprocess.Popen(  # noqa: S603 - git, and never a shell for text from outside
                [_SHELL, "-c", _BOUNDED, "git", *limits, str(Path(program).absolute()), *settings, *self.args],
                stdin=subprocess.PIPE if self.feed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",  # the current folder must not matter: it may be another user's repository
                env={**_environment(remote=self.remote), **self.environment},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in text from outside
            raise unavailable("GPU8011", why=getattr(error, "strerror", None) or str(error)) from error

    def late(self) -> SourceUnavailable:
        """The fault when it did not end in time."""
        seconds = self.limits.time_ms // 1000
        if self.remote:
            return unavailable("GPU8001", url="git", why=f"no answer within {seconds} s")
        return _too_much(f"{seconds} s")


class _Child:
    """A running command. `close` it: then nothing is left of it."""

    def __init__(self, command: _Command) -> None:
        self._command = command
        self._process = process = command.begin()
        self._until = time.monotonic() + command.limits.time_ms / 1000
        self._error = bytearray()
        self._feed = memoryview(command.feed)
        self._pipes = {pipe.fileno(): pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe}

    @property
    def error(self) -> str:
        """Its error output."""
        return self._error.decode("utf-8", "replace").strip()

    def output(self, stop: Callable[[], bool]) -> Generator[bytes]:
        """Its output, until the end."""
        with selectors.DefaultSelector() as pipes:
            for number, pipe in self._pipes.items():
                os.set_blocking(number, False)
                pipes.register(number, selectors.EVENT_WRITE if pipe is self._process.stdin else selectors.EVENT_READ)
            while pipes.get_map():
                ready = pipes.select(_STEP_S)
                self._look_around(stop)
                if not ready and self._process.poll() is not None:
                    return  # processes that it left running, such as ssh's master, may hold its pipes open
                for key, _ in ready:
                    chunk = self._step(key.fd)
                    if chunk is None:
                        pipes.unregister(key.fd)
                        self._pipes.pop(key.fd).close()
                    elif chunk:
                        yield chunk

    def ended(self, stop: Callable[[], bool]) -> int:
        """Its exit code, once its output was read."""
        while (code := self._process.poll()) is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STEP_S)
            self._look_around(stop)
        if stop():
            raise _stopped()
        said = self.error.lower() if code else ""
        if code == -signal.SIGXFSZ or any(sign in said for sign in _FILE_TOO_LARGE):
            raise _too_much(f"{self._command.limits.file_bytes >> 20} MiB for a file")
        if any(sign in said for sign in _NO_MEMORY):
            raise _too_much(f"{self._command.limits.memory_bytes >> 20} MiB of memory")
        if code < 0:
            raise unavailable("GPU8015", why=f"by signal {-code}")
        return code

    def kill(self) -> None:
        """End it and all processes that it started."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, if it has not ended; a process that the kernel does not release is abandoned."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WAIT_S)
        for pipe in self._pipes.values():
            pipe.close()

    def _look_around(self, stop: Callable[[], bool]) -> None:
        if stop():
            raise _stopped()
        if time.monotonic() > self._until:
            raise self._command.late()

    def _step(self, number: int) -> bytes | None:
        """Continue with one pipe. Returns the new output; None if the pipe is at its end."""
        pipe, process = self._pipes[number], self._process
        if pipe is process.stdin:
            try:
                self._feed = self._feed[os.write(number, self._feed[:_CHUNK_BYTES]) :]
            except BrokenPipeError:  # it has read enough
                return None
            return b"" if self._feed else None
        chunk = os.read(number, _CHUNK_BYTES)
        if pipe is process.stderr and chunk:
            self._error += chunk[: _ERROR_BYTES - len(self._error)]
            return b""
        return chunk or None


_REFUSED_BY_SSH = ("Host key verification failed", "Permission denied (")
"""Besides these lines, git says only that it could not read."""


def last_line(text: str) -> str:
    """The most informative line of git's error output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    refused = [line for line in lines if any(words in line for words in _REFUSED_BY_SSH)]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:", "remote:"))]
    return (refused or told or lines or ["no reason given"])[0].removeprefix("fatal: ").removeprefix("error: ")


def _stopped() -> SourceUnavailable:
    return unavailable("GPU8001", url="git", why="stopped")


def _environment(*, remote: bool) -> dict[str, str]:
    """The environment of gpuctl, without variables that would lead git elsewhere.

    Settings in it (GIT_CONFIG_COUNT) are the user's own.
    """
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh")
    return {
        **{name: value for name, value in os.environ.items() if name not in _ELSEWHERE},
        **_ENVIRONMENT,
        "GIT_ALLOW_PROTOCOL": _TRANSPORTS if remote else _NO_TRANSPORT,
        "GIT_SSH_COMMAND": f"{ssh} -o BatchMode=yes -o ConnectTimeout=15",
    }
