"""Head reservations: one backfill reservation for each pool, so that small jobs can't starve a large one.

Source: EASY backfill, with a reservation for each pool, because pools fill up separately. The rules, with an example:
docs/concepts.md, "Backfill". The place is the one that is expected to be free first by the remaining maxDuration of the
runs there; if runs have none, the place with the fewest GPUs of such runs. The reservation is written on the job's
object. No place is reserved where a run may never end: GPUs would idle for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.reservations import in_place, reserved_for
from gpuctl.engine.capacity.fit import Request, WorkerRequest
from gpuctl.engine.capacity.free import NodeFree
from gpuctl.engine.capacity.gang import Assignment, PoolOption, deal, place_in
from gpuctl.engine.jobs.project_queue import PendingJob, age_of
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.timing import latest_end_ms
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import makes_way
from gpuctl.engine.victims.reclaim import ReclaimStrategy
from gpuctl.engine.victims.rules import VictimRule
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, PoolName
from gpuctl.model.job import Job, JobType
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant

FreeTime: TypeAlias = tuple[GpuMilli, Instant]
"""When a place is free: GPUs of runs without a known end that must leave first, and the last known end."""

Occupants: TypeAlias = Callable[[NodeName], list["Occupant"]]
"""Gives the occupants of a node in the order in which they leave: by known ends, then the smallest first."""

STARTING_MS = 60_000
"""The most that a start may take: a job that must end in time needs this much to spare."""


class Occupant(NamedTuple):
    """A run, or a start of this cycle, on a node. `end_ms` None: it has no maxDuration."""

    job: JobId
    placement: Placement
    per_worker: WorkerRequest
    end_ms: Instant | None


@dataclass(frozen=True, slots=True, eq=False)
class HeadReservation:
    """A place reserved for a job. `until_ms`: the last known end of the runs there, so it is not free before; None: no
    end is known."""

    pending: PendingJob
    assignment: Assignment
    until_ms: Instant | None


def may_never_end(job: Job | None) -> bool:
    """Whether a job may never end: undeclared, or without maxDuration a service or work that can't be paused."""
    return job is None or (job.max_duration_ms is None and (not job.preemptible or job.type is JobType.INFERENCE))


def is_head(pending: PendingJob) -> bool:
    """Whether the last cycle made a head reservation for the job."""
    return pending.last_code == reasons.GUARDED


class HeadReservations:
    """The head reservations of one cycle. Their places are taken in the snapshot, but held by no project."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_pool: dict[PoolName, HeadReservation] = {}

    def __iter__(self) -> Iterator[HeadReservation]:
        return iter(self._by_pool.values())

    def __bool__(self) -> bool:
        return bool(self._by_pool)

    def in_pool(self, pool: PoolName) -> HeadReservation | None:
        """The head reservation of a pool."""
        return self._by_pool.get(pool)

    def of(self, pending: PendingJob) -> HeadReservation | None:
        """The head reservation of a job."""
        return next((reservation for reservation in self if reservation.pending is pending), None)

    def in_the_way(self, pending: PendingJob) -> Iterator[tuple[HeadReservation, PoolOption]]:
        """The head reservations of other jobs in the pools that a job may use."""
        for option in pending.options if self._by_pool else ():
            reservation = self._by_pool.get(option.pool.name)
            if reservation is not None and reservation.pending is not pending:
                yield reservation, option

    # Changes

    def keep(self, queue: Iterable[PendingJob]) -> None:
        """Make the reservations of the last cycle again; of several in a pool, that of the longest-waiting job."""
        for pending in sorted(filter(is_head, queue), key=age_of):
            assignment = reserved_for(pending, self._snapshot)
            if assignment is None or assignment.option.pool.name in self._by_pool:
                continue
            runs = in_place(self._snapshot, assignment.placement)
            if self._is_due(pending, assignment.option) and not any(may_never_end(run.job) for run in runs):
                self._add(pending, assignment)

    def drop(self, reservation: HeadReservation) -> None:
        """End a reservation that is lifted."""
        self._snapshot.drop(reservation.assignment)
        del self._by_pool[reservation.assignment.option.pool.name]

    def lifted(self) -> AbstractContextManager[None]:
        """What if there were no head reservations: true inside the `with`, for questions to `idle` only."""
        return self._snapshot.idle.without([reservation.assignment for reservation in self])

    def choose(
        self, waiting: Iterable[PendingJob], patience_ms: int, starts: Iterable[tuple[PendingJob, Assignment]]
    ) -> None:
        """Make a reservation for the longest-waiting job of each pool without one; move reservations to better places.

        `waiting`: the first pending job of each class. `patience_ms`: a job that has waited for less gets none. Cost:
        O(classes log classes) if a pool has none; O(runs of a pool) for each job that is tried.
        """
        snapshot, since_ms = self._snapshot, self._snapshot.now_ms - patience_ms
        movable = [each for each in self if _may_be_better(snapshot, each)]
        is_full = len(self._by_pool) == len(snapshot.capacity.domain_of)
        candidates = () if is_full else waiting
        due = [each for each in candidates if each.queued_at_ms <= since_ms and each.run is not None]
        if not (movable or due):
            return
        occupants = occupants_by_node(snapshot, starts)
        for reservation in movable:
            snapshot.lift(reservation.assignment)
            better = _better_place(snapshot, reservation.assignment, occupants)
            self.drop(reservation)
            self._add(reservation.pending, better or reservation.assignment)
        failed: set[tuple[PoolName, Request]] = set()
        for pending in sorted(due, key=age_of):
            found = []
            for option in pending.options if self.of(pending) is None else ():
                pool = option.pool.name
                if pool in self._by_pool or (pool, option.request) in failed or not self._is_due(pending, option):
                    continue
                soonest = soonest_place(snapshot, option, occupants)
                if soonest is None:
                    failed.add((pool, option.request))
                else:
                    found.append(soonest)
            if found:
                self._add(pending, min(found, key=itemgetter(0))[1])

    def _is_due(self, pending: PendingJob, option: PoolOption) -> bool:
        """Whether a job breaks no ceiling, and could run if every other project had the guaranteed GPUs it asks for."""
        milli, snapshot = option.request.total_milli, self._snapshot
        if not milli or not snapshot.allows(pending.job, option):
            return False
        return milli <= snapshot.accounts.within_reach(option.domain, pending.job.id.project)

    def _add(self, pending: PendingJob, assignment: Assignment) -> None:
        runs = in_place(self._snapshot, assignment.placement)
        ends = [latest_end_ms(run.job, run.run, self._snapshot.now_ms) for run in runs]
        until_ms = max((end_ms for end_ms in ends if end_ms is not None), default=None)
        self._by_pool[assignment.option.pool.name] = HeadReservation(pending, assignment, until_ms)
        self._snapshot.hold(assignment)

    # Backfill

    def yields(self, reservation: HeadReservation, pending: PendingJob, option: PoolOption) -> bool:
        """Whether a job may use a place reserved for another: it ends in time, or could take the place back anyway."""
        end_ms = latest_end_ms(pending.job, pending.run, self._snapshot.now_ms)
        if end_ms is not None and reservation.until_ms is not None and end_ms + STARTING_MS <= reservation.until_ms:
            return True
        return reservation.pending.job.preemptible and self._would_lose(reservation, pending.job, option)

    def _would_lose(self, reservation: HeadReservation, job: Job, option: PoolOption) -> bool:
        """Whether the job with the reservation, once it runs there, could be paused for another job."""
        snapshot, domain = self._snapshot, option.domain
        head, run, milli = reservation.pending.job, reservation.pending.run, option.request.total_milli
        if job.id.project == head.id.project:
            return makes_way(snapshot, head, job, domain, milli)
        if run is None:
            return False
        assignment = reservation.assignment
        running = Allocation(
            run=run, job=head, domain=domain, total_milli=assignment.option.request.total_milli,
            placement=assignment.placement, per_worker=assignment.per_worker, leaving=False, preemptible=True,
        )  # fmt: skip
        there = in_place(snapshot, assignment.placement)
        own_milli = gpu_milli_of(each for each in there if each.project == head.id.project)
        levels = len(snapshot.accounts.tree.chain(job.id.project))
        for strategy in ReclaimStrategy:
            # Towards the share, what the head's project holds there counts already. Towards the guarantee it does not:
            # a job that is entitled by guarantee now does not wait for a guarantee that the project has only once its
            # runs there have left.
            gained_milli = running.total_milli - (0 if strategy is ReclaimStrategy.GUARANTEE else own_milli)
            with snapshot.accounts.supposing(head.id.project, domain, gained_milli):
                if VictimRule(snapshot, job, option, (strategy,) * levels).cost((running,)) is not None:
                    return True
        return False


# The place that is free first


def occupants_by_node(snapshot: Snapshot, starts: Iterable[tuple[PendingJob, Assignment]]) -> Occupants:
    """The runs and starts on each node that are not leaving and will end."""
    started: dict[NodeName, list[Occupant]] = {}
    for pending, assignment in starts:
        if may_never_end(pending.job):
            continue
        end_ms = latest_end_ms(pending.job, pending.run, snapshot.now_ms)
        start = Occupant(pending.job.id, assignment.placement, assignment.per_worker, end_ms)
        for node in assignment.placement.nodes:
            started.setdefault(node, []).append(start)

    def on(node: NodeName) -> list[Occupant]:
        now_ms = snapshot.now_ms
        runs = [
            Occupant(each.run.job, each.placement, each.per_worker, latest_end_ms(each.job, each.run, now_ms))
            for each in snapshot.on_node(node)
            if not may_never_end(each.job)
        ]
        return sorted(runs + started.get(node, []), key=_leaving_order)

    return on


def _leaving_order(occupant: Occupant) -> tuple[bool, Instant, GpuMilli, JobId]:
    return occupant.end_ms is None, occupant.end_ms or 0, occupant.per_worker.gpu_milli, occupant.job


def soonest_place(
    snapshot: Snapshot, option: PoolOption, occupants: Occupants, only: Iterable[NodeName] | None = None
) -> tuple[FreeTime, Assignment] | None:
    """The place in a pool, or on `only` some nodes, that is free first for all workers, and when.

    What if each node lost its occupants one after another: so each worker has the time at which it fits there.
    """
    nodes = [space.name for space in snapshot.capacity.usable.get(option.pool.name, ())] if only is None else only
    request, workers = option.request, option.request.workers
    first: list[tuple[FreeTime, NodeName]] = []
    for name in nodes:
        found = 0
        for when, room in _emptied(snapshot, name, occupants(name)):
            if found >= workers or (len(first) == workers and (when, name) >= first[-1]):
                break  # later slots of a node are free no sooner
            fitting = room.slots(request)
            first = sorted(first + [(when, name)] * (fitting - found))[:workers]
            found = max(found, fitting)
    if len(first) < workers:
        return None
    chosen: list[WorkerPlacement] = []
    for name, count in sorted(Counter(name for _, name in first).items()):
        chosen.extend(_devices_on(snapshot, name, occupants(name), request, count))
    last = {name: when for when, name in first}.values()
    when = sum(unknown_milli for unknown_milli, _ in last), max(end_ms for _, end_ms in last)
    return when, Assignment(option, Placement(workers=tuple(chosen)))


def _emptied(snapshot: Snapshot, node: NodeName, occupants: Iterable[Occupant]) -> Iterator[tuple[FreeTime, NodeFree]]:
    """The node as it is, and as it would be after each of its occupants has left."""
    what_if, unknown_milli, end_ms = snapshot.future_idle.rooms[node], 0, 0
    yield (unknown_milli, end_ms), what_if
    for occupant in occupants:
        if occupant.end_ms is None:
            workers = sum(worker.node == node for worker in occupant.placement.workers)
            unknown_milli += occupant.per_worker.gpu_milli * workers
        else:
            end_ms = max(end_ms, occupant.end_ms)
        what_if = what_if.without((occupant,))
        yield (unknown_milli, end_ms), what_if


def _devices_on(
    snapshot: Snapshot, node: NodeName, occupants: Iterable[Occupant], request: Request, count: int
) -> list[WorkerPlacement]:
    """Devices of a node for some workers at the time when they fit; devices that are free already come first."""
    room = snapshot.future_idle.rooms[node]
    what_if = next(found for _, found in _emptied(snapshot, node, occupants) if found.slots(request) >= count)
    part, left = request.fraction_milli or WHOLE_GPU, what_if.gpu_milli
    order = sorted(room.devices_of(request.profile), key=lambda i: (-min(room.gpu_milli[i], part), left[i], i))
    return deal(what_if, request, count, order)


def _may_be_better(snapshot: Snapshot, reservation: HeadReservation) -> bool:
    """Whether a node outside the reserved place has room for a worker: then a better place is worth a search.

    With a search in each cycle, an unchanged cycle of 10,000 jobs takes 14x.
    """
    found = place_in(snapshot.future_idle, reservation.assignment.option.of(1))
    return found is not None and found.workers[0].node not in reservation.assignment.placement.nodes


def _better_place(snapshot: Snapshot, assignment: Assignment, occupants: Occupants) -> Assignment | None:
    """A place that can be free sooner than that of a lifted reservation; None if there is none."""
    here = soonest_place(snapshot, assignment.option, occupants, sorted(assignment.placement.nodes))
    best = soonest_place(snapshot, assignment.option, occupants)
    return best[1] if best is not None and (here is None or best[0] < here[0]) else None
