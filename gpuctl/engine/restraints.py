"""Restraints: what a schedule has to do otherwise, since looking ahead shows that it would be undone."""

from __future__ import annotations

from typing import NamedTuple

from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId


class Restraints(NamedTuple):
    """`unaided`: jobs for which no run makes way. `unmoved`: jobs whose runs are not moved, but may be paused.
    `untouched`: jobs whose runs make way for no job. `delayed`: jobs that do not start again yet. `placed`: jobs that
    start in these places if they are idle.
    """

    unaided: frozenset[JobId] = frozenset()
    unmoved: frozenset[JobId] = frozenset()
    untouched: frozenset[JobId] = frozenset()
    delayed: frozenset[JobId] = frozenset()
    placed: frozenset[tuple[JobId, Placement]] = frozenset()

    def __or__(self, other: Restraints) -> Restraints:
        """Those of both; of two places of a job the other's."""
        return Restraints(
            unaided=self.unaided | other.unaided,
            unmoved=self.unmoved | other.unmoved,
            untouched=self.untouched | other.untouched,
            delayed=self.delayed | other.delayed,
            placed=frozenset((dict(self.placed) | dict(other.placed)).items()),
        )


UNRESTRAINED = Restraints()
