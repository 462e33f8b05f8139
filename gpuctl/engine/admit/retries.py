"""Retries: starts of runs whose last start failed, on GPUs that are idle after all other jobs have been attempted.

How long a run is a retry: `jobs/timing`. The rule, with an example: docs/concepts.md, "Retries".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.engine.admit.outcome import Outcome
from gpuctl.engine.admit.start_conflicts import keep_apart
from gpuctl.engine.capacity.gang import PoolOption, place
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobOptions, PendingJob, age_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.elastic import smaller_options


def start_retries(pending_jobs: PendingJobs, snapshot: Snapshot, outcome: Outcome) -> None:
    """Start the retries that find idle GPUs and break no ceiling, the longest-waiting first.

    They come last, in a cycle that starts, pauses, moves and stops nothing: what follows from such a change comes
    first, so a retry changes no decision about another job. `outcome` is new, except for its head reservations. Cost: a
    search for a place for each kind of job that finds none, and for each start.
    """
    without_place: set[JobOptions] = set()
    for pending in sorted(pending_jobs.retries.values(), key=age_of):
        if pending.job_options in without_place:
            continue
        found = (place(snapshot.idle, options) for options in _choices(pending, snapshot))
        assignment = next(filter(None, found), None)
        if assignment is None:
            without_place.add(pending.job_options)
            continue
        snapshot.occupy(pending.job, assignment)
        outcome.start(pending.job.id, assignment, "start", snapshot)
    keep_apart(outcome, pending_jobs, snapshot)


def _choices(pending: PendingJob, snapshot: Snapshot) -> Iterator[list[PoolOption]]:
    """The options to choose from: those for all workers, then in each pool the most workers that idle GPUs allow."""
    yield [option for option in pending.options if snapshot.allows(pending.job, option)]
    for option in pending.options if pending.job.is_elastic else ():
        allowed = [each for each in option.smaller() if snapshot.allows(pending.job, each)]
        yield list(smaller_options(snapshot, allowed, ()))
