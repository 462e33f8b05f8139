"""Ports of the loopback for servers that tests start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from itertools import count, islice

_LOWEST, _COUNT = 10_000, 20_000
"""Below those that systems give out by themselves."""


def free_ports(count: int) -> Sequence[int]:
    """Ports that nothing listens on, all different. Until this process ends, no other that runs tests is given them:
    between the choice of a port and its use lie seconds."""
    return [*islice(filter(_takes, _NUMBERS), count)]


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
    """From another one on in each process."""
    return (_LOWEST + number % _COUNT for number in count(101 * os.getpid()))


def _takes(port: int) -> bool:
    """Take a port if it is free. That of its number for datagrams is kept open: the sign for others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sign:
        try:
            sign.bind(("127.0.0.1", port))
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
        sign.detach()
        return True


_NUMBERS = _numbers()
