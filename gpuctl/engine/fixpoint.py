"""Whether a round is a fixpoint, so that another one would change nothing and need not be done.

That is so if jobs start and nothing else happens. Starts only use up room, and what each project holds, asks for and
may have is the same once they are seen as runs. So a job whose attempt failed could succeed only by way of those
starts: by pausing one of them, or by what can be reclaimed of their projects now that these hold more.

Cost and gain: without this check a replay of two days of Philly takes 1.1x to 1.6x, because each start has a second
round. Invariant: never too optimistic, see tests/properties/test_sequel.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuctl.engine.admit.head_reservation import is_head
from gpuctl.engine.admit.outcome import Outcome
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.job_class import PendingJob, is_first_class
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.shares.entitlement import rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.reclaim import ReclaimStrategy, floor_milli
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId
from gpuctl.model.units import GpuMilli


def is_fixpoint(outcome: Outcome, carried: CarriedState) -> bool:
    """Whether the round decides the cycle. Cost: O(starts), and the entitled classes that are pending."""
    if outcome.pauses or outcome.shifts or outcome.reserved or carried.elastic or carried.moving:
        return False
    pending_jobs, snapshot = carried.pending_jobs, carried.snapshot
    starts = [(pending_jobs.find(job)[0], assignment) for job, (assignment, _) in outcome.started.items()]
    if not all(_is_as_counted(pending, assignment, carried) for pending, assignment in starts):
        return False
    # Pending jobs decide whether a reservation is kept, and a head that starts leaves its reserved place to others.
    reserved = pending_jobs.promised()
    if any(is_head(pending) is (pending.job.id in outcome.started) for pending in reserved):
        return False
    if not outcome.pending_queues:
        return True
    heads = list(filter(is_head, reserved))
    if outcome.repacked or not all(_is_beside(pending, assignment, heads, snapshot) for pending, assignment in starts):
        return False
    if any(_is_outranked(pending, pending_jobs, outcome.started) for pending, _ in starts):
        return False
    # With a head reservation an entitled job may be let in by what the head's project holds then.
    is_more = bool(outcome.kept) or any(_can_lose(pending, assignment, snapshot) for pending, assignment in starts)
    return not any(
        is_more or _is_free(snapshot, domain, milli) for domain, milli in _entitled(carried, outcome.started)
    )


def _is_as_counted(pending: PendingJob, assignment: Assignment, carried: CarriedState) -> bool:
    """Whether its project asks for as much of each domain once the job runs as while it waits.

    Not if its run is not made yet: then it still waits in the next round, and is attempted again.
    """
    if pending.run is None or not pending.job_options.is_plain:
        return False
    if carried.pending_jobs.leaves_choice(pending.job.id.project):
        return False
    domain = carried.snapshot.capacity.domain_of[assignment.option.pool.name]
    return domain == pending.domain and assignment.option.request.total_milli == pending.gpu_milli


def _is_beside(pending: PendingJob, assignment: Assignment, heads: Collection[PendingJob], snapshot: Snapshot) -> bool:
    """Whether no head reservation can lapse by a start: it is on none of their nodes, and counts to no limit."""
    if not heads:
        return True
    nodes = assignment.placement.nodes
    places = (head.run.placement.nodes for head in heads if head.run is not None and head.run.placement is not None)
    domain = snapshot.capacity.domain_of[assignment.option.pool.name]
    return not snapshot.accounts.tree.limits(domain, pending.job.id.project) and all(map(nodes.isdisjoint, places))


def _can_lose(pending: PendingJob, assignment: Assignment, snapshot: Snapshot) -> bool:
    """Whether its project, or a department above it, has a surplus by any strategy."""
    domain = snapshot.capacity.domain_of[assignment.option.pool.name]
    accounts = snapshot.accounts
    return any(
        accounts.held(domain, owner) > floor_milli(accounts, domain, strategy, owner)
        for owner in accounts.tree.chain(pending.job.id.project)
        for strategy in ReclaimStrategy
    )


def _is_outranked(start: PendingJob, pending_jobs: PendingJobs, started: Collection[JobId]) -> bool:
    """Whether a pending job of the same project may have it paused."""
    classes = (found for queue in pending_jobs.queues_of(start.job.id.project) for found in queue.job_classes.values())
    return any(
        (found.first.job.priority > start.job.priority or is_first_class(found.first.job)) and _waits(found, started)
        for found in classes
    )


def _entitled(carried: CarriedState, started: Collection[JobId]) -> Iterator[tuple[DomainName, GpuMilli]]:
    """What pending jobs are entitled to, as the snapshot stands."""
    snapshot, accounts, domain_of = carried.snapshot, carried.snapshot.accounts, carried.snapshot.capacity.domain_of
    for queue in carried.pending_jobs.queues.values():
        needs = queue.needs(snapshot.capacity)
        if not any(any(rights_of(accounts, d, queue.project, needs.gpu_milli)) for d in needs.domains):
            continue
        for job_class in queue.job_classes.values():
            if job_class.first.run is None or not _waits(job_class, started):
                continue
            for option in job_class.first.options:
                domain, milli = domain_of[option.pool.name], option.request.total_milli
                if milli and any(rights_of(accounts, domain, queue.project, milli)):
                    yield domain, milli


def _waits(job_class: JobClass, started: Collection[JobId]) -> bool:
    return any(pending.job.id not in started for pending in job_class.jobs)


def _is_free(snapshot: Snapshot, domain: DomainName, milli: GpuMilli) -> bool:
    """Whether a domain has so much idle or coming free: it may be in one place once a start was migrated."""
    return milli <= sum(map(snapshot.future_idle.all_free_milli, snapshot.capacity.pools_of(domain)))
