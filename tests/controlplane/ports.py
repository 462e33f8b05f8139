"""Ports of the loopback for servers that tests start."""

from __future__ import annotations

import socket
from collections.abc import Sequence


def free_ports(count: int) -> Sequence[int]:
    """Ports that nothing listens on, all different."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


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
