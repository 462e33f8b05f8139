"""The ports that `gpuctl bench cluster` needs besides Cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuctl.app.ports import Cluster, Machines, Workshop
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a controller has used since its start. `writes` are by kind, without its Lease and its `events`.

    `memory_mib` is resident now, `peak_mib` the maximum so far, 0 where the system does not say. `write_ms`: by kind,
    the sum of the times from request to answer, which is the API server's part.
    """

    cpu_ms: DurationMs = 0
    memory_mib: int = 0
    peak_mib: int = 0
    writes: Mapping[str, int] = field(default_factory=dict)
    events: int = 0
    write_ms: Mapping[str, DurationMs] = field(default_factory=dict)


class Controller(Protocol):
    """A measured `gpuctl reconcile`, a process of its own."""

    def usage(self) -> Usage:
        """The usage now. Raises WorldFault GPU7090 if the process has ended."""
        ...

    def told(self) -> Sequence[Mapping[str, Any]]:
        """The entries of the controller's journal so far."""
        ...

    def close(self) -> None:
        """Stop the controller and wait for its end."""
        ...


class Ground(Protocol):
    """A cluster that only benchmarks use."""

    @property
    def cluster(self) -> Cluster:
        """The cluster, written with the same concurrency as a controller uses."""
        ...

    def create(self, body: Body) -> None:
        """Create an object that does not exist."""
        ...

    def clear(self) -> None:
        """Remove the namespaces and ledgers that benchmarks have left, and wait until they are gone."""
        ...

    def server_cpu_ms(self) -> DurationMs:
        """The CPU time that the API server has used since its start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Yard:
    """Where the benchmark runs. `workshop` makes a new repository, `launch` a controller that fetches the one at a URL
    at an interval."""

    ground: Ground
    machines: Machines
    workshop: Callable[[], tuple[str, Workshop]]
    launch: Callable[[str, str], Controller]
