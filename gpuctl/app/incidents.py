"""The port by which a cycle finds out why runs do not start, where no pod says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuctl.model.ids import RunKey
from gpuctl.model.pod_problem import PodProblem
from gpuctl.observe import Unexplained


class Incidents(Protocol):
    """Finds out why runs do not start. No decision depends on it."""

    def of(self, late: Sequence[Unexplained]) -> Mapping[RunKey, PodProblem]:
        """What is known of these runs by now; more may be known later. Returns at once, never raises."""
        ...

    def has_news(self) -> bool:
        """Whether more is known than at the last call of `of`."""
        ...


class NoIncidents:
    """Implements the port Incidents where nothing besides the pods is asked."""

    def of(self, late: Sequence[Unexplained]) -> Mapping[RunKey, PodProblem]:
        """Nothing."""
        del late
        return {}

    def has_news(self) -> bool:
        """Never."""
        return False


NO_INCIDENTS = NoIncidents()
