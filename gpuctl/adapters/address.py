"""Where a server of gpuctl listens, as its users write it: HOST:PORT."""

from __future__ import annotations

from gpuctl.k8s.bounds import whole_number

_LAST_PORT = 65_535


def host_and_port(address: str) -> tuple[str, int] | None:
    """The host, without the brackets of an IPv6 address and empty for all addresses, and the port; None for others."""
    host, colon, port = address.rpartition(":")
    number = whole_number(port, _LAST_PORT)
    return None if not colon or number is None else (host.strip("[]"), number)
