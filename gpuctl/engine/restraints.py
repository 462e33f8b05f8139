"""Restraints: what a schedule may not do, since looking ahead shows that it would be undone."""

from __future__ import annotations

from typing import NamedTuple

from gpuctl.model.ids import JobId


class Restraints(NamedTuple):
    """`unaided`: jobs for which no run makes way. `unmoved`: jobs whose runs are not moved, but may be paused.
    `untouched`: jobs whose runs make way for no job. `delayed`: jobs that do not start again yet.
    """

    unaided: frozenset[JobId] = frozenset()
    unmoved: frozenset[JobId] = frozenset()
    untouched: frozenset[JobId] = frozenset()
    delayed: frozenset[JobId] = frozenset()

    def __or__(self, other: Restraints) -> Restraints:
        """Those of both."""
        return Restraints(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))


UNRESTRAINED = Restraints()
