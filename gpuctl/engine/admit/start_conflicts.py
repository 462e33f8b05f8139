"""Starts that could end up in each other's places, and so don't begin together.

All workers of a job have one pod template. It names all its nodes and, where GPUs are asked for by name, all its GPUs:
by index, where that is their name, so those of every node. Who goes where of what it names is dealt by kube-scheduler.
On idle GPUs that is no harm; but one that somebody else starts on, or was promised, may be taken before he has it, and
then his start is lost. So of two such starts one waits, its place promised, until the pods of the other have nodes.

A job that can be dealt in one way only goes first, unless another has waited for that before: then who has waited
longest in the queue, so that nobody is passed by for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.head_reservation import STARTING_MS
from gpuctl.engine.admit.outcome import Outcome
from gpuctl.engine.capacity.fit import Request, slots_in
from gpuctl.engine.capacity.free import NodeFree, WorkerRequest
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Placement, Reason, TraceStep, WorkerPlacement
from gpuctl.model.declared import NAMEABLE_GPUS, NodePool, Way
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.units import WHOLE_GPU

_CLEARED = frozenset({reasons.FOR_PAUSED, reasons.FOR_STOPPING, reasons.MOVED})
"""A place was promised with these that others have left."""

Turn: TypeAlias = tuple[int, int, JobId]
"""Who begins first of those that can't begin together: the least."""


class Coming:
    """Somebody whose pods have no nodes yet, or not all: where they are meant to be, and what their template names."""

    __slots__ = ("charge", "is_dealt", "job", "named", "placement", "pool")

    def __init__(
        self, job: JobId, pool: NodePool, placement: Placement, charge: WorkerRequest, named: Placement
    ) -> None:
        self.job = job
        self.pool = pool
        self.placement = placement
        self.charge = charge
        self.named = named
        self.is_dealt = _is_dealt(pool, named, charge)

    @property
    def nodes(self) -> set[NodeName]:
        """The nodes that its template names."""
        return self.named.nodes

    def may_rob(self, others: Sequence[Coming], absent: Sequence[Coming], room: NodeFree) -> bool:
        """Whether more of its workers could be on a node, or on a device of it, if the others were not there either."""
        if not self.is_dealt or not others:
            return False
        return self._most_on(room, absent) != self._most_on(room, (*absent, *others))

    def _most_on(self, room: NodeFree, absent: Iterable[Coming]) -> list[int]:
        """How many of its workers could be on a node, and on each device it names there, without some who are meant to
        be there."""
        free, cpu_milli, mem_bytes = list(room.gpu_milli), room.cpu_milli, room.mem_bytes
        for one in (self, *absent):
            for worker in one.on(room.name):
                cpu_milli, mem_bytes = cpu_milli + one.charge.cpu_milli, mem_bytes + one.charge.mem_bytes
                for gpu in worker.gpus:
                    if 0 <= gpu < len(free):
                        free[gpu] += one.charge.on_device(worker)
        request = Request(*self.charge.sizes, len(self.placement.workers))
        there = [max(0, free[gpu]) for gpu in self._devices_on(room)]
        part_milli = min(WHOLE_GPU, request.gpu_milli) or WHOLE_GPU
        each = [] if self.pool.way is Way.COUNT else [min(request.workers, milli // part_milli) for milli in there]
        return [slots_in(there, cpu_milli, mem_bytes, request), *each]

    def on(self, node: NodeName) -> list[WorkerPlacement]:
        """Its workers that are meant to be on a node."""
        return [worker for worker in self.placement.workers if worker.node == node]

    def _devices_on(self, room: NodeFree) -> list[int]:
        """The devices of a node that its workers may have."""
        workers = self.named.workers
        there = range(len(room.gpu_milli))
        gpus = next((worker.gpus for worker in workers if worker.node == room.name), ())
        profile = next((room.profile_of(gpu) for gpu in gpus if gpu in there), "")
        kind = [gpu for gpu in there if room.profile_of(gpu) == profile]
        if self.pool.way is Way.COUNT or (self.pool.way is Way.NVIDIA_CLAIM and _devices(workers) > NAMEABLE_GPUS):
            return kind
        by_index = self.pool.way is Way.HAMI_CLAIM
        named = {gpu for worker in workers if by_index or worker.node == room.name for gpu in worker.gpus}
        return [gpu for gpu in kind if gpu in named]


def _is_dealt(pool: NodePool, named: Placement, charge: WorkerRequest) -> bool:
    """Whether its workers could be where they are not meant to be."""
    workers = named.workers
    if len(workers) < 2:
        return False
    if any(worker.node != workers[0].node for worker in workers):
        return True
    return bool(charge.gpu_milli % WHOLE_GPU) and pool.way is not Way.COUNT and _devices(workers) > 1


def _devices(workers: Iterable[WorkerPlacement]) -> int:
    return len({(worker.node, gpu) for worker in workers for gpu in worker.gpus})


def keep_apart(outcome: Outcome, lineup: PendingJobs, snapshot: Snapshot) -> None:
    """Of those that would start, have those wait whose place might be taken meanwhile, or who might take another's.

    Their places are promised. Runs that are yet to be made don't start in this cycle anyway. Cost: O(starts, and the
    runs on their nodes); and for each on a node of a gang, O(those who begin there).
    """
    asking = [(lineup.find(job)[0], seat) for job, (seat, _) in outcome.started.items()]
    asking = [(waiting, seat) for waiting, seat in asking if waiting.run is not None]
    late = _unbound(snapshot, {worker.node for _, seat in asking for worker in seat.placement.workers})
    gangs = (_coming(waiting.job.id, seat) for waiting, seat in asking if len(seat.placement.workers) > 1)
    crowded = frozenset[NodeName]().union(*(each.nodes for each in chain(late, gangs) if each.is_dealt))
    if not crowded:
        return
    promised = (_coming(job, seat) for job, seat in snapshot.seated() if job not in outcome.started)
    turns = ((waiting, _coming(waiting.job.id, seat), at) for at, (waiting, seat) in enumerate(asking))
    starts = [(each[0], each[1]) for _, each in sorted((_turn(*each), each) for each in turns)]
    there: defaultdict[NodeName, list[Coming]] = defaultdict(list)
    kept = (_coming(job, seat) for job, (seat, _) in outcome.kept.items())
    for each in chain(late, promised, (start for _, start in starts), kept):
        for node in each.nodes & crowded:
            there[node].append(each)
    for waiting, start in starts:
        rivals = (_rival(start, there[node], snapshot.idle.rooms[node]) for node in sorted(start.nodes & crowded))
        rival = next((each for each in rivals if each is not None), None)
        if rival is not None:
            _hold_back(outcome, waiting, rival.job)


def _rival(start: Coming, there: Sequence[Coming], room: NodeFree) -> Coming | None:
    """Somebody before it on a node that one who starts there might rob, or be robbed by, whoever comes after it."""
    at = there.index(start)
    ahead, later = there[: at + 1], there[at + 1 :]
    robbers = (each for each in reversed(ahead) if each.may_rob([o for o in ahead if o is not each], later, room))
    robber = next(robbers, None)
    return ahead[0] if robber is start else robber


def _coming(job: JobId, seat: Assignment) -> Coming:
    return Coming(job, seat.option.pool, seat.placement, seat.charge, seat.placement)


def _unbound(snapshot: Snapshot, nodes: Iterable[NodeName]) -> list[Coming]:
    """Runs there that have begun a moment ago, and whose pods have not all a node."""
    runs = {
        allocation.run.job: allocation.run
        for node in nodes
        for allocation in snapshot.on_node(node)
        if allocation.run.unbound
    }
    found: list[Coming] = []
    for job, run in sorted(runs.items()):
        workers = run.placement.workers if run.placement is not None else ()
        space = snapshot.capacity.nodes.get(workers[0].node) if workers else None
        pool = snapshot.capacity.pools.get(space.pool) if space is not None and space.pool is not None else None
        if run.placement is not None and pool is not None and running_ms(run, snapshot.now_ms) < STARTING_MS:
            charge = WorkerRequest(run.gpu_milli, run.cpu_milli, run.mem_bytes)
            found.append(Coming(job, pool, run.placement, charge, run.made_with or run.placement))
    return found


def _turn(waiting: PendingJob, start: Coming, at: int) -> Turn:
    """See above. First of all is who is meant to have what others were paused for, or leave."""
    said = _said_to(waiting)
    code = said.code if said is not None else ""
    if code in _CLEARED or code == reasons.FOR_START:
        cleared = code in _CLEARED
        return (start.is_dealt if cleared else 2), waiting.queued_at_ms, start.job
    return 3 + start.is_dealt, at, start.job


def _said_to(waiting: PendingJob) -> Reason | None:
    """The reason with which it was promised the place it has."""
    run = waiting.run
    return run.reason if run is not None and run.placement is not None else None


def _hold_back(outcome: Outcome, waiting: PendingJob, other: JobId) -> None:
    """It waits, its place promised. What is written on it of others who made way for it stays."""
    job, said = waiting.job.id, _said_to(waiting)
    seat, _ = outcome.started.pop(job)
    cost = said is not None and said.code in {reasons.FOR_PAUSED, reasons.MOVED}
    outcome.reserved[job] = seat, said if said is not None and cost else reasons.waits_for_start(other)
    outcome.trace.append(TraceStep(job=job, rule="hold back", numbers={"beside": str(other)}))
