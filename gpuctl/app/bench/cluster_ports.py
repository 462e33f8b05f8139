"""What `gpuctl bench cluster` needs of the world besides the port Cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuctl.app.ports import Cluster, Machines, Workshop
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a controller has used since it was started. `writes` by kind, without those of its Lease and its `events`.

    `memory_mib` is resident now, `peak_mib` the most that ever was, 0 where the system does not say. `write_ms`: by
    kind, their time added up, from request to answer: what of all is the API server's own.
    """

    cpu_ms: DurationMs = 0
    memory_mib: int = 0
    peak_mib: int = 0
    writes: Mapping[str, int] = field(default_factory=dict)
    events: int = 0
    write_ms: Mapping[str, DurationMs] = field(default_factory=dict)


class Controller(Protocol):
    """A `gpuctl reconcile` under measurement, a process of its own."""

    def usage(self) -> Usage:
        """Asked now. Raises WorldFault GPU7090 when the process is not there any more."""
        ...

    def told(self) -> Sequence[Mapping[str, Any]]:
        """The entries of its journal so far."""
        ...

    def close(self) -> None:
        """End it and wait for its end."""
        ...


class Ground(Protocol):
    """A cluster that benchmarks have to themselves."""

    @property
    def cluster(self) -> Cluster:
        """The cluster, to be watched, and to be written with the same concurrency as by a controller."""
        ...

    def create(self, body: Body) -> None:
        """Create an object that is not there."""
        ...

    def clear(self) -> None:
        """Remove the namespaces and ledgers that benchmarks have left in it, and wait until they are gone."""
        ...

    def server_cpu_ms(self) -> DurationMs:
        """The CPU time that the API server has used in its life."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Yard:
    """Where it is measured. `workshop` makes a new repository, `launch` a controller that asks the one at
    a URL at an interval."""

    ground: Ground
    machines: Machines
    workshop: Callable[[], tuple[str, Workshop]]
    launch: Callable[[str, str], Controller]
