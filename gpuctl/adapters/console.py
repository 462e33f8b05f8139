"""The terminal, or the pipes, that this process was started with: one end of a session."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 << 10


class ProcessConsole:
    """Standard input, output and error, without buffers in between."""

    def fileno(self) -> int:
        """The number of standard input."""
        return sys.stdin.fileno()

    def read(self) -> bytes:
        """The available bytes, once there are any; empty at the end of the input."""
        return os.read(self.fileno(), _CHUNK_BYTES)

    def write(self, data: bytes, *, error: bool = False) -> None:
        """Write and flush. Raises BrokenPipeError if the reader has closed the pipe."""
        stream = sys.stderr.buffer if error else sys.stdout.buffer
        stream.write(data)
        stream.flush()

    def size(self) -> tuple[int, int] | None:
        """The size of the terminal that output goes to."""
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return None
        return columns, rows

    @property
    def is_terminal(self) -> bool:
        """Whether a person types at it."""
        return sys.stdin.isatty()

    @contextmanager
    def raw(self) -> Iterator[None]:
        """Pass every key to the other end, including Ctrl-C; the terminal is restored afterwards."""
        before = termios.tcgetattr(self.fileno())
        tty.setraw(self.fileno(), termios.TCSADRAIN)
        try:
            yield
        finally:
            termios.tcsetattr(self.fileno(), termios.TCSADRAIN, before)


class CollectedOutput:
    """A console without a person: it keeps a command's output, at most `most_bytes` of each stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.output, self.errors = bytearray(), bytearray()

    def fileno(self) -> int:
        """No number: a command without input does not ask for it."""
        return -1

    def read(self) -> bytes:
        """Empty: the end of the input."""
        return b""

    def write(self, data: bytes, *, error: bool = False) -> None:
        """Keep the data, as far as there is room."""
        kept = self.errors if error else self.output
        kept += data[: self._most_bytes - len(kept)]

    def size(self) -> None:
        """None: it is no terminal."""
