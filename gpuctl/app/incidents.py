"""The port by which a cycle finds out why runs do not start, where no pod says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuctl.model.ids import RunKey
from gpuctl.model.pod_problem import PodProblem
from gpuctl.observe import Unexplained


class Incidents(Protocol):
    """Finds out why runs do not start. Nothing is decided by it."""

    def of(self, late: Sequence[Unexplained]) -> Mapping[RunKey, PodProblem]:
        """What is known of these runs by now; more is found out later. Returns at once, never raises."""
        ...

    def has_news(self) -> bool:
        """Whether more is known than was last told."""
        ...


class NoIncidents:
    """Implements the port Incidents where pods say all there is to know."""

    def of(self, late: Sequence[Unexplained]) -> Mapping[RunKey, PodProblem]:
        """Nothing."""
        del late
        return {}

    def has_news(self) -> bool:
        """Never."""
        return False


NO_INCIDENTS = NoIncidents()
