"""Retries: starts of runs whose last start failed, on GPUs that are idle once all other jobs have been attempted.

The rules are in docs/concepts.md, "Retries"; how long a run is a retry stands in `jobs/timing`. They are decided after
all else, in a cycle that starts, pauses, moves and stops nothing: what follows from such a change comes first, and the
change brings another cycle. So a retry changes no decision about any other job.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.engine.admit.outcome import Outcome, gain_step
from gpuctl.engine.admit.start_conflicts import keep_apart
from gpuctl.engine.capacity.gang import PoolOption, place
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobOptions, PendingJob
from gpuctl.engine.shares.entitlement import reason_to_run
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.elastic import smaller_options


def start_retries(pending_jobs: PendingJobs, snapshot: Snapshot, outcome: Outcome) -> None:
    """Start those that find idle GPUs and break no ceiling, the one that waits longest first. `outcome` is new, but for
    its head reservations.

    Cost: a search for a place for each kind of job that finds none, and for each start.
    """
    without_place: set[JobOptions] = set()
    for pending in sorted(pending_jobs.retries.values(), key=lambda each: (each.queued_at_ms, each.job.id)):
        if pending.job_options not in without_place and not _start(pending, snapshot, outcome):
            without_place.add(pending.job_options)
    keep_apart(outcome, pending_jobs, snapshot)


def _start(pending: PendingJob, snapshot: Snapshot, outcome: Outcome) -> bool:
    job, choices = pending.job, _choices(pending, snapshot)
    assignment = next(filter(None, (place(snapshot.idle, options) for options in choices)), None)
    if assignment is None:
        return False
    option = assignment.option
    outcome.trace.append(gain_step(snapshot, job.id, "start", option))
    snapshot.occupy(job, assignment)
    reason = reason_to_run(snapshot.accounts, option.domain, job.id.project, option.request.total_milli)
    outcome.started[job.id] = assignment, reason
    return True


def _choices(pending: PendingJob, snapshot: Snapshot) -> Iterator[list[PoolOption]]:
    """The options to choose from: those for all workers, then in each pool the most workers that find idle GPUs."""
    yield [option for option in pending.options if snapshot.allows(pending.job, option)]
    for option in pending.options if pending.job.is_elastic else ():
        sized = (found for size in option.sizes[1:] if (found := option.sized(size)) is not None)
        yield list(smaller_options(snapshot, [each for each in sized if snapshot.allows(pending.job, each)], ()))
