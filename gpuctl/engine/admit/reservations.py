"""Places held from cycle to cycle: who was promised a place starts there, or sooner elsewhere, or the promise lapses.

A promise is the placement on a queued run. It stands while its place is free or coming free, or as long as the job may
still have those paused who are in it; so a crash between the promise and the pauses ends in the same pauses. A run that
is moved has one before it has stopped, and counts as if it were there already.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import Assignment, PoolOption
from gpuctl.engine.jobs.demand import StaticFit
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.entitlement import forbidden
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.elastic import with_bound
from gpuctl.engine.victims.rules import Rule, VictimTotals, tally_with
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import Run


def promised(waiting: PendingJob, snapshot: Snapshot) -> Assignment | None:
    """The place a queued run was promised, if it is one the job could have in a pool it may use."""
    return _seat_of(waiting.run.placement if waiting.run else None, waiting.options, snapshot)


def keep_moves(moving: Iterable[tuple[Job, Run]], prospects: StaticFit, snapshot: Snapshot) -> dict[JobId, Placement]:
    """Enter the places that runs go to which still stop where they were, as far as those are free, or come free, and no
    ceiling forbids them by now."""
    kept: dict[JobId, Placement] = {}
    for job, run in moving:
        seat = _seat_of(run.reserved, prospects.options(job), snapshot)
        if seat is None or not is_free(snapshot.future_idle, seat):
            continue
        domain, milli = snapshot.capacity.domain_of[seat.option.pool.name], seat.option.request.total_milli
        if forbidden(snapshot.accounts, job, domain, milli) is None:
            snapshot.occupy(job, seat)
            kept[job.id] = seat.placement
    return kept


def _seat_of(placement: Placement | None, options: Iterable[PoolOption], snapshot: Snapshot) -> Assignment | None:
    if placement is None or not placement.workers:
        return None
    for option in options:
        sized = option.sized(len(placement.workers))
        if sized is not None and _is_place(placement, sized, snapshot):
            return Assignment(sized, placement)
    return None


def _is_place(placement: Placement, option: PoolOption, snapshot: Snapshot) -> bool:
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


def is_free(ledger: FreeCapacity, seat: Assignment) -> bool:
    """Everything the seat needs is free in a ledger."""
    return not _missing(ledger, seat)


def in_the_way(snapshot: Snapshot, seat: Assignment) -> tuple[Allocation, ...] | None:
    """The runs in place that would have to leave the seat; None when even that would not free it."""
    allocations: dict[int, Allocation] = {}
    for node in _missing(snapshot.future_idle, seat):
        for allocation in snapshot.on_node(node):
            if _touches(allocation, seat, node):
                allocations[id(allocation)] = allocation
    chosen = with_bound(snapshot, allocations.values())
    for allocation in chosen:
        snapshot.future_idle.give_back(allocation.placement, allocation.charge)
    free = is_free(snapshot.future_idle, seat)
    for allocation in chosen:
        snapshot.future_idle.take(allocation.placement, allocation.charge)
    return chosen if free and chosen else None


def may_pause_all(snapshot: Snapshot, rule: Rule, allocations: tuple[Allocation, ...]) -> bool:
    """The rule lets exactly these be paused."""
    if not {id(allocation) for allocation in allocations} <= {id(allocation) for allocation in rule.candidates()}:
        return False
    tally: VictimTotals = {}
    for allocation in allocations:
        tally = tally_with(tally, allocation, snapshot)
    return rule.price(tally) is not None


def _touches(allocation: Allocation, seat: Assignment, node: NodeName) -> bool:
    wanted = {index for worker in seat.placement.workers if worker.node == node for index in worker.gpus}
    return any(worker.node == node and not wanted.isdisjoint(worker.gpus) for worker in allocation.placement.workers)


def _missing(ledger: FreeCapacity, seat: Assignment) -> list[NodeName]:
    """Nodes of the seat on which something it needs is not free."""
    request: Request = seat.option.request
    charge = request.charge
    short: set[NodeName] = set()
    cpu: dict[NodeName, int] = {}
    mem: dict[NodeName, int] = {}
    gpu: dict[tuple[NodeName, int], int] = {}
    for worker in seat.placement.workers:
        node = worker.node
        cpu[node] = cpu.get(node, 0) + request.cpu_milli
        mem[node] = mem.get(node, 0) + request.mem_bytes
        room = ledger.rooms[node]
        if cpu[node] > max(0, room.cpu_milli) or mem[node] > max(0, room.mem_bytes):
            short.add(node)
        for index in worker.gpus:
            gpu[node, index] = gpu.get((node, index), 0) + charge.on_device(worker)
            if gpu[node, index] > room.gpu_milli[index]:
                short.add(node)
    return sorted(short)
