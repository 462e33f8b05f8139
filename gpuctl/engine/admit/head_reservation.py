"""The starvation guard: for who has waited longest a place is kept as it empties, so that small jobs can't starve it.

One job a pool: pools are filled apart, and a job that waits for one should not keep another empty. The place is chosen
once, is written on the job's object like any promise, and stays until the job starts, or another can be free sooner.
It is the one that can be free soonest by what is left of maxDuration to the runs there; where that is not known, the
one with the least work on it whose end nobody knows. No place is kept beneath work that may never end, services and
what can't be paused without a maxDuration: GPUs would idle for nothing.

Others start there only if they can't delay it: they end by their maxDuration before it can start; or they have a claim
by which they could take the place back at once, were it running there, so that keeping it would be in vain.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.reservations import promised
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import NodeFree, WorkerRequest
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place_in
from gpuctl.engine.jobs.interactive import latest_end_ms
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import Preemption
from gpuctl.engine.victims.reclaim import Reclaim, ReclaimStrategy
from gpuctl.engine.victims.what_if_node import WhatIfNode
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, PoolName
from gpuctl.model.job import Job, JobType
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant

Emptying: TypeAlias = tuple[GpuMilli, Instant]
"""What must happen before a place is free: GPUs without a known end must, and the last of the known ends. Smaller is
sooner."""

FREE: Emptying = (0, 0)

STARTING_MS = 60_000
"""What a start may take: who is to end in time must have that much to spare, or one after another could be late."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A run or a start of this cycle on a node. `end_ms` None: it has no maxDuration."""

    job: JobId
    placement: Placement
    charge: WorkerRequest
    end_ms: Instant | None

    def on(self, node: NodeName) -> GpuMilli:
        """Its GPUs on one node."""
        return self.charge.gpu_milli * sum(worker.node == node for worker in self.placement.workers)


@dataclass(frozen=True, slots=True, eq=False)
class HeadReservation:
    """A place kept for a job. `until_ms`: when all that is in it has ended, if that is known."""

    waiting: PendingJob
    seat: Assignment
    until_ms: Instant | None

    @property
    def pool(self) -> PoolName:
        """Where it is."""
        return self.seat.option.pool.name


def may_never_end(job: Job | None) -> bool:
    """A service, or work without a maxDuration that can't be paused, or what is no longer ours to decide about."""
    return job is None or (job.max_duration_ms is None and (not job.preemptible or job.type is JobType.INFERENCE))


def is_guarded(waiting: PendingJob) -> bool:
    """The last cycle kept a place for it as it empties."""
    return waiting.run is not None and waiting.run.reason is not None and waiting.run.reason.code == reasons.GUARDED


class HeadReservations:
    """The places kept in one cycle. They are taken in the snapshot' ledgers, though not in its accounts."""

    __slots__ = ("_by_pool", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_pool: dict[PoolName, HeadReservation] = {}

    def __iter__(self) -> Iterator[HeadReservation]:
        return iter(self._by_pool.values())

    def keep(self, queue: Iterable[PendingJob]) -> None:
        """Hold the places of the last cycle, of each pool the one of who has waited longest."""
        for waiting in sorted(filter(is_guarded, queue), key=_age):
            seat = promised(waiting, self._snapshot)
            if seat is None or seat.option.pool.name in self._by_pool or not self._is_due(waiting, seat.option):
                continue
            if not any(may_never_end(allocation.job) for allocation in in_place(self._snapshot, seat)):
                self._add(waiting, seat)

    def __bool__(self) -> bool:
        return bool(self._by_pool)

    def in_pool(self, pool: PoolName) -> HeadReservation | None:
        """The place that is kept in a pool."""
        return self._by_pool.get(pool)

    def lifted(self) -> AbstractContextManager[None]:
        """As it would be now if no place were kept."""
        return self._snapshot.as_if_free([guard.seat for guard in self])

    def of(self, waiting: PendingJob) -> HeadReservation | None:
        """The place that is kept for a job."""
        return next((guard for guard in self if guard.waiting is waiting), None)

    def free_milli(self, guard: HeadReservation) -> GpuMilli:
        """What of its place would be free, or come free, if it were not kept."""
        total = 0
        for worker in guard.seat.placement.workers:
            part, gpu_milli = (
                guard.seat.charge.on_device(worker),
                self._snapshot.future_idle.rooms[worker.node].gpu_milli,
            )
            total += sum(max(0, gpu_milli[index] + part) - max(0, gpu_milli[index]) for index in worker.gpus)
        return total

    def lift(self, guard: HeadReservation) -> None:
        """Let its place be used for a while."""
        self._snapshot.put_back(guard.seat)

    def hold(self, guard: HeadReservation) -> None:
        """The opposite of `lift`."""
        self._snapshot.set_aside(guard.seat)

    def drop(self, guard: HeadReservation) -> None:
        """Its place, lifted, is not kept any longer."""
        self._snapshot.give_up(guard.seat)
        del self._by_pool[guard.pool]

    def in_the_way(self, waiting: PendingJob) -> Iterator[tuple[HeadReservation, PoolOption]]:
        """Places of others in the pools that a job may use."""
        for option in waiting.options if self._by_pool else ():
            guard = self._by_pool.get(option.pool.name)
            if guard is not None and guard.waiting is not waiting:
                yield guard, option

    def yields(self, guard: HeadReservation, waiting: PendingJob, option: PoolOption) -> bool:
        """Whether a job may start in a place that is kept for another: it can't delay it, or would have it anyway."""
        end_ms = latest_end_ms(waiting.job, waiting.run, self._snapshot.now_ms)
        if end_ms is not None and guard.until_ms is not None and end_ms + STARTING_MS <= guard.until_ms:
            return True
        return guard.waiting.job.preemptible and self._would_lose(guard, waiting.job, option)

    def _would_lose(self, guard: HeadReservation, job: Job, option: PoolOption) -> bool:
        """Whether the guarded job, running in its place, could be paused for a job."""
        snapshot, domain = self._snapshot, self._snapshot.capacity.domain_of[guard.pool]
        theirs = guard.waiting.job
        if job.id.project == theirs.id.project:
            return Preemption(snapshot, job, domain, option.request.total_milli).ranks_below(theirs)
        there = self._as_if_running(guard, domain)
        if there is None:
            return False
        own = gpu_milli_of(h for h in in_place(snapshot, guard.seat) if h.project == theirs.id.project)
        claims = (Reclaim(snapshot, job.id, domain, option.request.total_milli, claim) for claim in ReclaimStrategy)
        return any(self._loses(there, rule, own) for rule in claims)

    def _loses(self, there: Allocation, rule: Reclaim, own: GpuMilli) -> bool:
        """Whether a rule could take it. What it holds already of its place goes towards its share; but what is owed to
        another now does not wait for the guarantee that it has only once that has left."""
        accounts, milli = self._snapshot.accounts, there.total_milli
        gained = milli if rule.claim is ReclaimStrategy.GUARANTEE else milli - own
        with accounts.supposing(there.project, rule.domain, gained):
            return rule.entitled() and rule.may_take(there)

    @staticmethod
    def _as_if_running(guard: HeadReservation, domain: DomainName) -> Allocation | None:
        run, request = guard.waiting.run, guard.seat.option.request
        if run is None:
            return None
        return Allocation(
            run=run, job=guard.waiting.job, domain=domain, total_milli=request.total_milli,
            placement=guard.seat.placement, charge=request.charge, leaving=False, preemptible=True,
        )  # fmt: skip

    def choose(
        self, passed: Iterable[PendingJob], patience_ms: int, starts: Iterable[tuple[PendingJob, Assignment]]
    ) -> None:
        """Keep a place in each pool that has none for who has waited longest of those passed over; and better ones.

        `passed`: of each kind the first.
        Cost: O(kinds log kinds), where a pool has none; and O(runs of a pool) where one is chosen.
        """
        snapshot = self._snapshot
        occupants = Occupants(snapshot, starts)
        for guard in [g for g in self if g.until_ms is None and _has_room_elsewhere(snapshot, g.seat)]:
            self.lift(guard)
            better = _better(snapshot, guard.seat, occupants)
            self.drop(guard)
            self._add(guard.waiting, better or guard.seat)
        if len(self._by_pool) == len(snapshot.capacity.domain_of):
            return
        since_ms = snapshot.now_ms - patience_ms
        due = [each for each in passed if each.queued_at_ms <= since_ms and each.run is not None]
        nowhere: set[tuple[PoolName, Request]] = set()
        for waiting in sorted(due, key=_age):
            if len(self._by_pool) == len(snapshot.capacity.domain_of):
                break
            open_options = [o for o in waiting.options if o.pool.name not in self._by_pool and self._is_due(waiting, o)]
            if self.of(waiting) is not None:
                continue
            found = []
            for option in open_options:
                key = option.pool.name, option.request
                if key in nowhere:
                    continue
                soonest = soonest_seat(snapshot, option, occupants)
                if soonest is None:
                    nowhere.add(key)
                else:
                    found.append(soonest)
            if found:
                self._add(waiting, min(found, key=itemgetter(0))[1])

    def _is_due(self, waiting: PendingJob, option: PoolOption) -> bool:
        """It breaks no ceiling, and could run while every other project has what it is guaranteed and wants."""
        accounts, domain = self._snapshot.accounts, self._snapshot.capacity.domain_of[option.pool.name]
        milli, project = option.request.total_milli, waiting.job.id.project
        if not milli or accounts.ceiling_hit(domain, project, milli) is not None:
            return False
        fixed = 0 if waiting.job.preemptible else accounts.fixed(domain, project) + milli
        return fixed <= accounts.quota(domain, project) and milli <= accounts.within_reach(domain, project)

    def _add(self, waiting: PendingJob, seat: Assignment) -> None:
        ends = [
            latest_end_ms(allocation.job, allocation.run, self._snapshot.now_ms)
            for allocation in in_place(self._snapshot, seat)
        ]
        known = [end_ms for end_ms in ends if end_ms is not None]
        until_ms = max(known) if known and len(known) == len(ends) else None
        guard = self._by_pool[seat.option.pool.name] = HeadReservation(waiting, seat, until_ms)
        self.hold(guard)


def _age(waiting: PendingJob) -> tuple[Instant, JobId]:
    return waiting.queued_at_ms, waiting.job.id


def in_place(snapshot: Snapshot, seat: Assignment) -> list[Allocation]:
    """The runs on the devices of a seat that stay so far."""
    wanted = {(worker.node, gpu) for worker in seat.placement.workers for gpu in worker.gpus}
    allocations = {id(h): h for node in seat.placement.nodes for h in snapshot.on_node(node)}
    return [
        allocation
        for allocation in allocations.values()
        if any((worker.node, gpu) in wanted for worker in allocation.placement.workers for gpu in worker.gpus)
    ]


class Occupants:
    """All that stays or starts on each node, but for what may never end; found for those that are looked at."""

    __slots__ = ("_found", "_snapshot", "_starts")

    def __init__(self, snapshot: Snapshot, starts: Iterable[tuple[PendingJob, Assignment]]) -> None:
        self._snapshot = snapshot
        self._found: dict[NodeName, list[Occupant]] = {}
        self._starts: dict[NodeName, list[Occupant]] = {}
        for waiting, seat in starts:
            if may_never_end(waiting.job):
                continue
            end_ms = latest_end_ms(waiting.job, waiting.run, snapshot.now_ms)
            start = Occupant(waiting.job.id, seat.placement, seat.option.request.charge, end_ms)
            for node in seat.placement.nodes:
                self._starts.setdefault(node, []).append(start)

    def on(self, node: NodeName) -> list[Occupant]:
        """Those on a node."""
        found = self._found.get(node)
        if found is None:
            now_ms = self._snapshot.now_ms
            found = self._found[node] = [
                Occupant(h.run.job, h.placement, h.charge, latest_end_ms(h.job, h.run, now_ms))
                for h in self._snapshot.on_node(node)
                if not may_never_end(h.job)
            ] + self._starts.get(node, [])
        return found

    def may_end(self, node: NodeName) -> bool:
        """Whether it may be known of one of them when it ends."""
        there = (allocation.job for allocation in self._snapshot.on_node(node))
        return node in self._starts or any(job is not None and job.max_duration_ms is not None for job in there)


def soonest_seat(
    snapshot: Snapshot, option: PoolOption, occupants: Occupants, only: Iterable[NodeName] | None = None
) -> tuple[Emptying, Assignment] | None:
    """Where all workers can be soonest in a pool, or on some nodes of it, and what that takes.

    Nodes from which the least must leave are emptied first in thought, and others only as long as they may be sooner.
    """
    nodes = [space.name for space in snapshot.capacity.usable.get(option.pool.name, ())] if only is None else only
    request, wanted = option.request, option.request.workers
    seats: list[tuple[Emptying, NodeName]] = []
    for short_milli, name in sorted([
        (_short_milli(snapshot.future_idle.rooms[name], request), name) for name in nodes
    ]):
        if len(seats) == wanted and seats[-1] <= ((short_milli, 0), name) and not occupants.may_end(name):
            continue
        there = 0
        for when, _, slots in _emptied(snapshot, name, occupants.on(name), request):
            if len(seats) == wanted and seats[-1] <= (when, name):
                break  # All that comes is later still.
            for _ in range(slots - there):
                insort(seats, (when, name))
            del seats[wanted:]
            there = max(there, slots)
            if there >= wanted:
                break
    if len(seats) < wanted:
        return None
    counts: dict[NodeName, int] = {}
    for _, name in seats:
        counts[name] = counts.get(name, 0) + 1
    workers: list[WorkerPlacement] = []
    for name, count in sorted(counts.items()):
        workers.extend(_devices_on(snapshot, name, occupants.on(name), request, count))
    last = {name: when for when, name in seats}
    emptying = sum(loose for loose, _ in last.values()), max(end_ms for _, end_ms in last.values())
    return emptying, Assignment(option, Placement(workers=tuple(workers)))


def _short_milli(room: NodeFree, request: Request) -> GpuMilli:
    """GPUs that must leave a node, at least, before a worker fits."""
    if request.profile:
        return 0
    return max(0, request.gpu_milli - sum(room.free[-request.devices or -1 :]))


def _leaving_order(occupant: Occupant) -> tuple[bool, Instant, GpuMilli, JobId]:
    """Known ends first, by time; then small ones; of equals by name, whether they run or start."""
    return occupant.end_ms is None, occupant.end_ms or 0, occupant.charge.gpu_milli, occupant.job


def _emptied(
    snapshot: Snapshot, node: NodeName, occupants: Iterable[Occupant], request: Request
) -> Iterator[tuple[Emptying, WhatIfNode, int]]:
    """The node as it is, and after each of its occupants has left, with the workers that fit."""
    floor, when = WhatIfNode(snapshot.future_idle.rooms[node]), FREE
    yield when, floor, floor.slots(request)
    for occupant in sorted(occupants, key=_leaving_order):
        loose, last = when
        when = (loose + occupant.on(node), last) if occupant.end_ms is None else (loose, max(last, occupant.end_ms))
        floor.vacate(occupant.placement, occupant.charge)
        yield when, floor, floor.slots(request)


def _devices_on(
    snapshot: Snapshot, node: NodeName, occupants: Iterable[Occupant], request: Request, count: int
) -> list[WorkerPlacement]:
    """Devices for so many workers, as soon as they are free; those that are free already come first."""
    room = snapshot.future_idle.rooms[node]
    floor = next(floor for _, floor, slots in _emptied(snapshot, node, occupants, request) if slots >= count)
    part = request.fraction_milli or WHOLE_GPU
    left = list(floor.gpu_milli)
    order = [i for i in range(len(left)) if room.profile_of(i) == request.profile]
    order.sort(key=lambda i: (-min(room.gpu_milli[i], part), left[i], i))
    places: list[tuple[int, ...]] = []
    for index in order if request.fraction_milli else ():
        while left[index] >= part and len(places) < count:
            left[index] -= part
            places.append((index,))
    if not request.fraction_milli:
        whole = [index for index in order if left[index] >= WHOLE_GPU]
        size = request.devices
        places = [tuple(sorted(whole[size * i : size * (i + 1)])) for i in range(count)]
    return [WorkerPlacement(node=node, gpus=gpus) for gpus in places]


def _has_room_elsewhere(snapshot: Snapshot, seat: Assignment) -> bool:
    """A node outside a place holds one of its workers right now: there may be a better place."""
    nodes = seat.placement.nodes
    found = place_in(snapshot.future_idle, seat.option.of(1))
    return found is not None and found.workers[0].node not in nodes


def _better(snapshot: Snapshot, seat: Assignment, occupants: Occupants) -> Assignment | None:
    """A place that can be free sooner than one that is lifted."""
    nodes = sorted(seat.placement.nodes)
    here, best = soonest_seat(snapshot, seat.option, occupants, nodes), soonest_seat(snapshot, seat.option, occupants)
    return best[1] if best is not None and (here is None or best[0] < here[0]) else None
