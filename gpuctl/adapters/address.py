"""The address at which a server of gpuctl listens, as its users write it: HOST:PORT."""

from __future__ import annotations

from gpuctl.k8s.bounds import whole_number

_LAST_PORT = 65_535


def host_and_port(address: str) -> tuple[str, int] | None:
    """The host and the port; None for any other text. The host has no brackets of an IPv6 address; empty: all
    addresses."""
    host, colon, port = address.rpartition(":")
    number = whole_number(port, _LAST_PORT)
    return None if not colon or number is None else (host.strip("[]"), number)
