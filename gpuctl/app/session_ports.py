"""The ports of a person's session with a pod: its logs, a command in it, a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuctl.k8s.names import MAIN_CONTAINER
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """The wanted part of a container's log. `tail`: that many lines from its end; None: all of it.

    `previous`: the log of the container before the present one. `since_ms`: only lines that are no older. `container`:
    by default the job's own.
    """

    container: str = MAIN_CONTAINER
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since_ms: DurationMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command to run in a container; by default in a job's. `stdin`: it gets what the person types. `tty`: it has a
    terminal."""

    command: tuple[str, ...]
    container: str = MAIN_CONTAINER
    stdin: bool = False
    tty: bool = False


class Console(Protocol):
    """A person's end of a session."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when something was typed."""
        ...

    def read(self) -> bytes:
        """The typed bytes; empty at the end of the input."""
        ...

    def write(self, data: bytes, *, error: bool = False) -> None:
        """Show the data at once, on the error stream if `error`."""
        ...

    def size(self) -> tuple[int, int] | None:
        """Columns and rows of the terminal; None if there is none."""
        ...


class Sessions(Protocol):
    """Gives a person a pod's logs, lets them run commands in it, and reads events of objects."""

    def logs(self, pod: ObjectRef, request: LogRequest) -> Iterator[bytes]:
        """The log as it comes. Raises ClusterUnavailable, Forbidden."""
        ...

    def run(self, pod: ObjectRef, request: CommandRequest, console: Console) -> int:
        """Run a command in the pod until it ends. Returns its exit code. Raises ClusterUnavailable, Forbidden."""
        ...

    def events(self, objects: Sequence[ObjectRef]) -> Sequence[Body]:
        """The events of objects, in no order. Raises ClusterUnavailable, Forbidden."""
        ...
