"""Ports of the loopback for servers that tests start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from itertools import count, islice

_LOWEST, _EACH, _PROCESSES = 10_000, 1_000, 10
"""Below the ports that systems give out by themselves, and for each process of a run others: between the choice of a
port and its use lie seconds, in which another process would else be given it."""


def free_ports(count: int) -> Sequence[int]:
    """Ports that nothing listens on, all different."""
    return [*islice(filter(_is_free, _NUMBERS), count)]


def free_port() -> int:
    """A port that nothing listens on."""
    return free_ports(1)[0]


def listens(port: int) -> bool:
    """Whether something answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5):
            return True
    except OSError:
        return False


def _numbers() -> Iterator[int]:
    """The ports of this process, again and again; a run beside this one begins elsewhere."""
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
    return (_LOWEST + own * _EACH + number % _EACH for number in count(os.getpid()))


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


_NUMBERS = _numbers()
