"""Restraints: what a schedule must do differently, because looking ahead shows that it would be undone otherwise."""

from __future__ import annotations

from typing import NamedTuple

from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId


class Restraints(NamedTuple):
    """The jobs that a schedule must treat differently.

    `unaided`: no run makes way for them. `unmoved`: their runs are not moved, but may be paused. `untouched`: their
    runs make way for no job. `delayed`: they do not start again yet. `placed`: they start in these places if idle.
    """

    unaided: frozenset[JobId] = frozenset()
    unmoved: frozenset[JobId] = frozenset()
    untouched: frozenset[JobId] = frozenset()
    delayed: frozenset[JobId] = frozenset()
    placed: frozenset[tuple[JobId, Placement]] = frozenset()

    def __or__(self, other: Restraints) -> Restraints:
        """The restraints of both; if both have a place for a job, the other's."""
        return Restraints(
            unaided=self.unaided | other.unaided,
            unmoved=self.unmoved | other.unmoved,
            untouched=self.untouched | other.untouched,
            delayed=self.delayed | other.delayed,
            placed=frozenset((dict(self.placed) | dict(other.placed)).items()),
        )


UNRESTRAINED = Restraints()
