"""Forwarding ports of a job's container to this machine: the ports asked for, and the port that forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuctl.k8s import names
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.objects import annotations_of, text
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

MOST_PORT = 65_535
_MOST_PORTS = 64


@dataclass(frozen=True, slots=True)
class PortPair:
    """A port of this machine (0: any free one), and the container's port that it leads to."""

    local: int
    remote: int


class Forwarder(Protocol):
    """Forwards connections on this machine to ports of a container."""

    def forward(self, pod: ObjectRef, pairs: Sequence[PortPair], told: Callable[[str], None]) -> None:
        """Forward connections until interrupted; `told` gets a line for each port, and for each failure of one.

        Raises ClusterUnavailable if a port of this machine is taken. KeyboardInterrupt ends it, with all connections.
        """
        ...


def declared_ports(workload: Body) -> tuple[int, ...]:
    """The ports that a job exposes, by the annotation of its run; none where the annotation is damaged."""
    said = text(annotations_of(workload), names.PORTS_ANNOTATION).split(",")[:_MOST_PORTS]
    found = (whole_number(part, MOST_PORT) for part in said)
    return tuple(dict.fromkeys(port for port in found if port))


def pair_of(said: str) -> PortPair:
    """Parse `[LOCAL:]REMOTE`, as kubectl takes it; LOCAL may be 0 or empty. Raises ValueError for anything else."""
    local, colon, remote = said.rpartition(":")
    there = whole_number(remote, MOST_PORT)
    here = whole_number(local or "0", MOST_PORT) if colon else there
    if not there or here is None:
        raise ValueError(said)
    return PortPair(local=here, remote=there)
