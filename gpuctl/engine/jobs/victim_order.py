"""The order in which runs are paused for other jobs: the one place to change when another criterion is wanted.

First the runs of the project most above its fair share; in a project the lowest priority; of equals the one that
started last, which loses the least work; then by name. `RunOrder` is the part that does not depend on the moment, so a
project's runs are kept sorted by it. `Preference` puts the project before it. Invariant: a list sorted by `RunOrder`
within one project and domain is sorted by `Preference` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from gpuctl.engine.jobs.runs import Allocation
from gpuctl.model.ids import JobId
from gpuctl.model.units import DurationMs, GpuMilli, Instant

_NOT_STARTED: Instant = 1 << 62
"""A run without a start is newer than every other."""


class RunOrder(NamedTuple):
    """A run's place among those of its project; the smaller is paused first. `newest`: its start, negated."""

    priority: int
    newest: Instant
    job: JobId


class Preference(NamedTuple):
    """A run's place among all that may be paused; the smaller is paused first.

    `within_share_milli`: GPUs of its project above its fair share, negated.
    """

    within_share_milli: GpuMilli
    run: RunOrder

    def lost(self, now_ms: Instant) -> tuple[GpuMilli, int, DurationMs]:
        """What pausing it costs its project: share, priority, and work done since its start.

        Runs that are equal by this may be chosen by where they are.
        """
        return self.within_share_milli, self.run.priority, max(0, now_ms + self.run.newest)


def run_order(allocation: Allocation) -> RunOrder:
    """A run's place in its project. A run that is no longer declared has priority 0."""
    started_at_ms = allocation.run.started_at_ms
    priority = allocation.job.priority if allocation.job else 0
    return RunOrder(priority, -(_NOT_STARTED if started_at_ms is None else started_at_ms), allocation.run.job)


def in_order(
    lists: Iterable[Iterable[Allocation]], preference: Callable[[Allocation], Preference]
) -> tuple[Allocation, ...]:
    """The runs of several projects as one list; each list is sorted by `RunOrder`. Cost: O(runs * log(lists)).

    Raises AssertionError for a list in another order than that of this file.
    """
    ranked = [[(preference(allocation), allocation) for allocation in allocations] for allocations in lists]
    merged = list(merge(*ranked, key=itemgetter(0)))
    # Searches take the first run of a list as the first victim: another order would give wrong victims silently.
    assert all(first[0] <= second[0] for first, second in pairwise(merged)), "not in the order of victims"  # noqa: S101
    return tuple([allocation for _, allocation in merged])
