"""Where nothing can follow from what the turns came to: another look, at the cluster as it will be, would be the same.

That is so where some start and nothing else happens. Room only shrinks by starts, and what anybody holds, wants or may
hold is the same when those that start are seen as runs. So who was asked in vain could only be helped by these runs
themselves, or by what can be taken of their projects now that they hold more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuctl.engine.admit.head_reservation import is_guarded
from gpuctl.engine.admit.outcome import Outcome
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.job_class import PendingJob, is_first_class
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.shares.entitlement import rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.reclaim import ReclaimStrategy, slack
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli


def nothing_follows(outcome: Outcome, standing: CarriedState) -> bool:
    """Whether the cycle is decided. Cost: O(starts), and the kinds that wait in lines with a claim."""
    if outcome.pauses or outcome.shifts or outcome.reserved or standing.elastic or standing.moving:
        return False
    lineup, snapshot = standing.lineup, standing.snapshot
    starts = [(lineup.find(job)[0], seat) for job, (seat, _) in outcome.started.items()]
    if not all(_is_as_counted(waiting, seat, standing) for waiting, seat in starts):
        return False
    promised = lineup.promised()
    # Who waits decides whether a promise is held; and who starts leaves the place that was kept for it to others.
    if any(is_guarded(waiting) is (waiting.job.id in outcome.started) for waiting in promised):
        return False
    if not outcome.lanes:
        return True
    kept = list(filter(is_guarded, promised))
    if outcome.laid_anew or not all(_is_beside(waiting, seat, kept, snapshot) for waiting, seat in starts):
        return False
    if any(_outranks(waiting, lineup, outcome.started) for waiting, _ in starts):
        return False
    # Who has a claim may pass by a place that is kept for one who could lose it, by what that one's project holds.
    is_more = bool(outcome.kept) or any(_can_lose(waiting, seat, snapshot) for waiting, seat in starts)
    return not any(
        is_more or _is_free(snapshot, domain, milli) for domain, milli in _claiming(standing, outcome.started)
    )


def _is_as_counted(waiting: PendingJob, seat: Assignment, standing: CarriedState) -> bool:
    """Whether its project wants as much of each domain when it runs as while it waits. A run that is yet to be made
    waits still, and takes its turn again."""
    if waiting.run is None or not waiting.prospect.is_plain or standing.lineup.leaves_choice(waiting.job.id.project):
        return False
    domain, milli = standing.snapshot.capacity.domain_of[seat.option.pool.name], seat.option.request.total_milli
    return domain == waiting.domain and milli == waiting.gpu_milli


def _is_beside(waiting: PendingJob, seat: Assignment, kept: Collection[PendingJob], snapshot: Snapshot) -> bool:
    """Whether no place that is kept for another may be lost by it: it is in none, and counts to no limit."""
    if not kept:
        return True
    nodes = seat.placement.nodes
    places = (other.run.placement.nodes for other in kept if other.run is not None and other.run.placement is not None)
    domain = snapshot.capacity.domain_of[seat.option.pool.name]
    return not snapshot.accounts.tree.limits(domain, waiting.job.id.project) and all(map(nodes.isdisjoint, places))


def _can_lose(waiting: PendingJob, seat: Assignment, snapshot: Snapshot) -> bool:
    """Whether its project, or a department above it, holds more than it keeps: else nothing can be taken of them."""
    domain, owners = (
        snapshot.capacity.domain_of[seat.option.pool.name],
        snapshot.accounts.tree.chain(waiting.job.id.project),
    )
    return any(slack(snapshot, domain, claim, owner) > 0 for owner in owners for claim in ReclaimStrategy)


def _outranks(start: PendingJob, lineup: PendingJobs, started: Collection[JobId]) -> bool:
    """Whether one of its own project that waits may have it paused."""
    groups = (group for line in lineup.lines_of(start.job.id.project) for group in line.groups.values())
    return any(_ranks_above(group.first.job, start.job) and _waits(group, started) for group in groups)


def _ranks_above(job: Job, other: Job) -> bool:
    return job.priority > other.priority or is_first_class(job)


def _claiming(standing: CarriedState, started: Collection[JobId]) -> Iterator[tuple[DomainName, GpuMilli]]:
    """What those that wait still may have a right to, as the snapshot stand."""
    snapshot, accounts, domain_of = standing.snapshot, standing.snapshot.accounts, standing.snapshot.capacity.domain_of
    for line in standing.lineup.lines.values():
        needs = line.needs(snapshot.capacity)
        if not any(any(rights_of(accounts, d, line.project, needs.gpu_milli)) for d in needs.domains):
            continue
        for group in line.groups.values():
            if group.first.run is None or not _waits(group, started):
                continue
            for option in group.first.options:
                domain, milli = domain_of[option.pool.name], option.request.total_milli
                if milli and any(rights_of(accounts, domain, line.project, milli)):
                    yield domain, milli


def _waits(group: JobClass, started: Collection[JobId]) -> bool:
    return any(waiting.job.id not in started for waiting in group.jobs)


def _is_free(snapshot: Snapshot, domain: DomainName, milli: GpuMilli) -> bool:
    """Whether so much is free in a domain, or comes free: in one place, once some of those that start are moved."""
    return milli <= sum(map(snapshot.future_idle.all_free_milli, snapshot.capacity.pools_of(domain)))
