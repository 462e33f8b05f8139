"""The order in which runs are paused for other jobs: the one place to change for another criterion.

First the runs that are not young: a run that started a moment ago, or often, is left alone while another would do.
Among these the runs of the project most above its fair share; in a project the lowest priority; of equals the one that
started last, which loses the least work; of a sweep's jobs that started together the last index; then by name.
`RunOrder` is the part that does not depend on the moment, so a project's runs are kept sorted by it. `Preference` puts
the rest before it.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run
from gpuctl.model.units import DurationMs, GpuMilli, Instant

_NOT_STARTED: Instant = 1 << 62
"""A run without a start counts as newer than every other."""


class RunOrder(NamedTuple):
    """A run's position among those of its project; the lowest is paused first. `newest`: its start, negated.
    `from_end`: its index in its sweep, negated; 0 for a job outside a sweep."""

    priority: int
    newest: Instant
    from_end: int
    job: JobId


class Preference(NamedTuple):
    """A run's position among all that may be paused; the lowest is paused first.

    `spared`: see `Snapshot.spared`. `within_share_milli`: GPUs of its project above its fair share, negated.
    """

    spared: int
    within_share_milli: GpuMilli
    run: RunOrder

    def lost(self, now_ms: Instant) -> tuple[int, GpuMilli, int, DurationMs]:
        """What pausing it costs: how much it is spared, its project's share, its priority, and its work since its
        start.

        Among runs that are equal by this, the choice may depend on where they are.
        """
        return self.spared, self.within_share_milli, self.run.priority, max(0, now_ms + self.run.newest)


def run_order(run: Run, job: Job | None) -> RunOrder:
    """A run's position among its project's runs. A run that is no longer declared has priority 0."""
    newest = -(_NOT_STARTED if run.started_at_ms is None else run.started_at_ms)
    return RunOrder(job.priority if job else 0, newest, -job.position if job else 0, run.job)
