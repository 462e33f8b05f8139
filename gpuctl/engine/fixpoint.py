"""Whether a round is a fixpoint, so that another one would change nothing and need not be done.

That is so if jobs start and nothing else happens. Starts only use up room, and what each project holds, asks for and
may have is the same once they are seen as runs. So a job whose attempt failed could succeed only by way of those
starts: by pausing one of them, or by what can be reclaimed of their projects now that these hold more.

Cost and gain: a question to each queue with pending jobs. Without this check a replay of two days of Philly takes 1.1x
to 1.6x, because each start has a second round. Invariant: never too optimistic, see tests/properties/test_sequel.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.engine.admit.head_reservation import is_head
from gpuctl.engine.admit.outcome import Outcome
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.shares.entitlement import rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.reclaim import ReclaimStrategy, floor_milli
from gpuctl.model.ids import JobId, NodeName


def is_fixpoint(outcome: Outcome, carried: CarriedState) -> bool:
    """Whether the round decides the cycle. Cost: O(starts), and the queues with pending jobs."""
    if outcome.pauses or outcome.shifts or outcome.reserved or carried.elastic or carried.moving:
        return False
    pending_jobs, snapshot = carried.pending_jobs, carried.snapshot
    starts = [(pending_jobs.find(job)[0], assignment) for job, (assignment, _) in outcome.started.items()]
    if not all(_is_as_counted(pending, assignment, carried) for pending, assignment in starts):
        return False
    # A paused run that starts again no longer settles the run it was paused for.
    if snapshot.settled and any(pending.run is not None and pending.run.paused_for for pending, _ in starts):
        return False
    # Pending jobs decide whether a reservation is kept, and a head that starts leaves its reserved place to others.
    reserved = pending_jobs.reserved_before()
    if any(is_head(pending) is (pending.job.id in outcome.started) for pending in reserved):
        return False
    if not outcome.pending_queues:
        return True
    places = [head.run.placement for head in filter(is_head, reserved) if head.run is not None]
    nodes = frozenset(worker.node for place in places if place is not None for worker in place.workers)
    if outcome.repacked or (places and not all(_is_beside(*start, nodes, snapshot) for start in starts)):
        return False
    # With a head reservation an entitled job may be let in by what the head's project holds then.
    is_more = bool(outcome.kept) or any(_can_lose(pending, assignment, snapshot) for pending, assignment in starts)
    return not any(_may_follow(jobs[0], starts, carried, is_more=is_more) for jobs in outcome.pending_queues)


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


def _is_beside(pending: PendingJob, assignment: Assignment, nodes: frozenset[NodeName], snapshot: Snapshot) -> bool:
    """Whether no head reservation can lapse by a start: it is on none of their nodes, and counts to no limit."""
    domain = snapshot.capacity.domain_of[assignment.option.pool.name]
    limits = snapshot.accounts.tree.limits(domain, pending.job.id.project)
    return not limits and nodes.isdisjoint(assignment.placement.nodes)


def _can_lose(pending: PendingJob, assignment: Assignment, snapshot: Snapshot) -> bool:
    """Whether its project, or a department above it, has a surplus by any strategy."""
    domain = snapshot.capacity.domain_of[assignment.option.pool.name]
    accounts = snapshot.accounts
    return any(
        accounts.held(domain, owner) > floor_milli(accounts, domain, strategy, owner)
        for owner in accounts.tree.chain(pending.job.id.project)
        for strategy in ReclaimStrategy
    )


def _may_follow(
    first: JobId, starts: Iterable[tuple[PendingJob, Assignment]], carried: CarriedState, *, is_more: bool
) -> bool:
    """Whether a job of a queue may have a start paused, or is entitled to GPUs that a start can lose or that are free.

    What is free may be in one place once a start was migrated.
    """
    snapshot, queue = carried.snapshot, carried.pending_jobs.find(first)[1].queue
    needs = queue.needs(snapshot.capacity)
    own = [pending.job.priority for pending, _ in starts if pending.job.id.project == queue.project]
    if own and (needs.is_fixed or needs.priority > min(own)):
        return True
    for domain in needs.domains:
        if any(rights_of(snapshot.accounts, domain, queue.project, needs.gpu_milli)):
            free = map(snapshot.future_idle.all_free_milli, snapshot.capacity.pools_of(domain))
            if is_more or needs.gpu_milli <= sum(free):
                return True
    return False
