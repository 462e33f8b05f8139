"""Ports on the loopback interface for servers that tests start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from itertools import count, islice

_LOWEST, _COUNT = 10_000, 20_000
"""Below the ports that operating systems assign themselves."""


def free_ports(count: int) -> Sequence[int]:
    """Free ports, all different. No other test process gets them until this one ends, because seconds pass between the
    choice of a port and its use."""
    return [*islice(filter(_takes, _NUMBERS), count)]


def free_port() -> int:
    """A free port."""
    return free_ports(1)[0]


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5):
            return True
    except OSError:
        return False


def _numbers() -> Iterator[int]:
    """Port numbers to try; each process begins at another one."""
    return (_LOWEST + number % _COUNT for number in count(101 * os.getpid()))


def _takes(port: int) -> bool:
    """Take a port if it is free. The UDP port of the same number is kept open, as the sign to other processes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sign:
        try:
            sign.bind(("127.0.0.1", port))
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
        sign.detach()
        return True


_NUMBERS = _numbers()
