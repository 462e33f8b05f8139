"""Reservations: the places of queued and moving runs, carried from cycle to cycle on the runs themselves.

A reservation is the placement on a queued run, and holds while its place is idle or coming free. If it is neither,
because a crash came between the reservation and the pauses, room is made for the job again, before all other jobs. The
next place of a run that stops is reserved on the run too, and counts as held by its project. Which reservations yield:
docs/concepts.md, "Reservations".
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.engine import reasons
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import Assignment, PoolOption, options_of, place, place_in
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import PendingJob
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.jobs.static_fit import StaticFit
from gpuctl.engine.shares.entitlement import rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import makes_way
from gpuctl.model.decision import Placement, Reason
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run


def reserved_for(pending: PendingJob, snapshot: Snapshot) -> Assignment | None:
    """The reservation of a queued run, if its place is one that the job could have in a pool that it may use."""
    return assignment_in(pending.run.placement if pending.run else None, pending.options, snapshot)


def is_loose(pending: PendingJob, pending_jobs: PendingJobs, snapshot: Snapshot) -> bool:
    """Whether a reservation is loose: no run was paused for it, or such runs neither stop nor wait any more."""
    job = pending.job.id
    if pending.last_code in {"", reasons.FOR_PAUSED} or job in pending_jobs.paused_for:
        return False
    return all(allocation.run.paused_for != job for allocation in snapshot.leaving_runs)


def yields(pending: PendingJob, assignment: Assignment, pending_jobs: PendingJobs, snapshot: Snapshot) -> bool:
    """Whether a loose reservation that is not held yields to a pending job: one of its project that would preempt its
    run and fits only if the place stays free; or, beyond its project's guarantee, one within another's. That of a moved
    run also yields if the run would be stopped again, and so starts later."""
    if pending.job.id in snapshot.restraints.delayed and pending.last_code == reasons.MOVED:
        return True
    if _is_outranked(pending, assignment, pending_jobs, snapshot):
        return True
    is_guaranteed = stays_guaranteed(snapshot, pending, assignment.option)
    return not is_guaranteed and _is_guaranteed_to_others(pending, pending_jobs, snapshot)


def stays_guaranteed(snapshot: Snapshot, pending: PendingJob, option: PoolOption) -> bool:
    """Whether an option asks for GPUs, and the project stays within its guarantee with them."""
    milli, project = option.request.total_milli, pending.job.id.project
    return milli > 0 and rights_of(snapshot.accounts, option.domain, project, milli)[0]


def _is_guaranteed_to_others(pending: PendingJob, pending_jobs: PendingJobs, snapshot: Snapshot) -> bool:
    """Whether a job of another project waits within its own project's guarantee.

    Cost: O(sorts), and the classes of those that stay within the guarantee.
    """
    queues = (queue for queue in pending_jobs.queues.values() if queue.project != pending.job.id.project)
    sorts = (sort for queue in queues for sort in queue.sorts.values() if sort.has_run)
    guaranteed = (
        sort
        for sort in sorts
        if any(stays_guaranteed(snapshot, sort.first, option.fewest) for option in sort.first.options)
    )
    others = (job_class.first.run for sort in guaranteed for job_class in sort.classes)
    return any(run is not None and run.placement is None for run in others)


def _is_outranked(pending: PendingJob, assignment: Assignment, pending_jobs: PendingJobs, snapshot: Snapshot) -> bool:
    """Whether a job waits that would preempt this run of its project, and fits only if the place stays free.

    Cost: O(sorts of the project), and two searches for a place for each that outranks the job.
    """
    job, domain = pending.job, assignment.option.domain
    queue = pending_jobs.queues.get((job.id.project, domain))
    if queue is None or not is_free(snapshot.idle, assignment):
        return False
    firsts = (sort.first for sort in queue.sorts.values())
    mates = (first for first in firsts if first.run is not None and first.run.placement is None)
    fitting = [
        option
        for mate in mates
        for option in (each.fewest for each in mate.options)
        if makes_way(snapshot, job, mate.job, domain, option.request.total_milli)
        and snapshot.allows(mate.job, option)
        and place_in(snapshot.idle, option) is not None
    ]
    snapshot.occupy(job, assignment)
    fits_only_there = any(place_in(snapshot.idle, option) is None for option in fitting)
    snapshot.vacate(job, assignment)
    return fits_only_there


def place_to_go_on(paused: Allocation, snapshot: Snapshot) -> Assignment | None:
    """A place for a paused run on GPUs idle or coming free; none for an elastic run, which waits like others."""
    job = paused.job
    options = () if job is None or job.is_elastic else options_of(job, snapshot.capacity)
    allowed = [o for o in options if o.request.gpu_milli and job is not None and snapshot.allows(job, o)]
    return place(snapshot.future_idle, allowed) if allowed else None


def keep_moves(moving: Iterable[tuple[Job, Run]], static_fit: StaticFit, snapshot: Snapshot) -> dict[JobId, Placement]:
    """Reserve again the next places of runs that are still stopping in order to move.

    A place that is neither idle nor coming free, or that breaks a ceiling now, is not reserved again.
    """
    reserved: dict[JobId, Placement] = {}
    for job, run in moving:
        assignment = assignment_in(run.reserved, static_fit.options(job), snapshot)
        if assignment is None or not is_free(snapshot.future_idle, assignment):
            continue
        if snapshot.allows(job, assignment.option):
            snapshot.occupy(job, assignment)
            reserved[job.id] = assignment.placement
    return reserved


def assignment_in(placement: Placement | None, options: Iterable[PoolOption], snapshot: Snapshot) -> Assignment | None:
    """A placement with the first option that it suits; None if there is none."""
    if placement is None or not placement.workers:
        return None
    for option in options:
        sized = option.sized(len(placement.workers))
        if sized is not None and is_place_for(sized, placement, snapshot):
            return Assignment(sized, placement)
    return None


def is_place_for(option: PoolOption, placement: Placement, snapshot: Snapshot) -> bool:
    """Whether the placement has the pool, the number of devices and the profile that an option asks for."""
    request = option.request
    devices = 1 if request.fraction_milli else request.devices
    for worker in placement.workers:
        room = snapshot.idle.rooms.get(worker.node)
        if room is None or room.pool != option.pool.name or len(set(worker.gpus)) != devices:
            return False
        if not all(0 <= index < len(room.gpu_milli) for index in worker.gpus):
            return False
        if any(room.profile_of(index) != request.profile for index in worker.gpus):
            return False
    return True


def waits_for(pending: PendingJob, assignment: Assignment, snapshot: Snapshot) -> Reason:
    """Why a job whose place is coming free waits. If runs were paused for it, the reason names those that still leave
    it.

    Once none does, the reason stays: it tells by what right the place is kept.
    """
    reason = pending.run.reason if pending.run else None
    if reason is None or reason.code != reasons.FOR_PAUSED:
        return reasons.WAITS_FOR_STOPPING
    devices = assignment.placement.devices
    left = [run.run.job for run in snapshot.leaving_runs if not devices.isdisjoint(run.placement.devices)]
    return reasons.waits_for_paused(left) if left else reason


def in_place(snapshot: Snapshot, placement: Placement) -> list[Allocation]:
    """The runs on the devices of a placement that are not leaving."""
    devices = placement.devices
    found = dict.fromkeys(run for node in placement.nodes for run in snapshot.on_node(node))
    return [run for run in found if not devices.isdisjoint(run.placement.devices)]


def is_free(free: FreeCapacity, assignment: Assignment) -> bool:
    """Whether everything that an assignment needs is free."""
    for node in assignment.placement.nodes:
        room = free.rooms[node]
        left = room.without((assignment,), -1)
        gpus = {gpu for worker in assignment.placement.workers if worker.node == node for gpu in worker.gpus}
        is_cpu_short = left.cpu_milli < min(0, room.cpu_milli) or left.mem_bytes < min(0, room.mem_bytes)
        if is_cpu_short or any(left.gpu_milli[gpu] < 0 for gpu in gpus):
            return False
    return True
