"""Start conflicts: starts that could take each other's GPUs, and so do not begin together.

Gangs share one pod template, so kube-scheduler may put worker 3 where worker 5 was meant to go. That may take GPUs that
are reserved for another start. Example: a gang of two workers on nodes a and b, and a job of one worker on node a. Both
pods of the gang may go to node a first, and the other job finds no GPU there. Of two starts in conflict one waits, with
its place reserved, until the pods of the other have nodes.
The template names all nodes of the gang and, if GPUs are asked for by name, all its GPUs. If the name is the index, it
holds on every node.
A start whose pods can go to one place only begins first. A job that has waited for another start begins before jobs
that have not, in the order of the queue, so every start begins at some time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from gpuctl.engine import reasons
from gpuctl.engine.admit.head_reservation import STARTING_MS
from gpuctl.engine.admit.outcome import Outcome, further_nodes
from gpuctl.engine.capacity.fit import Request, WorkerRequest
from gpuctl.engine.capacity.free import NodeFree
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import PendingJob
from gpuctl.engine.jobs.timing import running_ms
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Placement, Reason
from gpuctl.model.declared import NAMEABLE_GPUS, NodePool, Way
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.transition import sent_to
from gpuctl.model.units import WHOLE_GPU

_CLEARED = frozenset({reasons.FOR_PAUSED, reasons.FOR_STOPPING, reasons.MOVED})
"""Reasons of a reservation whose place other runs have left for the job."""


@dataclass(frozen=True, slots=True, eq=False)
class UnboundStart:
    """A start whose pods do not all have a node yet: its placement, and what its pod template names."""

    job: JobId
    pool: NodePool
    placement: Placement
    per_worker: WorkerRequest
    named: Placement

    @staticmethod
    def of(job: JobId, assignment: Assignment, further: Iterable[NodeName] = ()) -> UnboundStart:
        """A start of this cycle: its template will name its placement, and `further` nodes."""
        placement = assignment.placement
        named = sent_to(placement, further)
        return UnboundStart(job, assignment.option.pool, placement, assignment.per_worker, named)

    @property
    def is_ambiguous(self) -> bool:
        """Whether kube-scheduler may put its pods elsewhere than the placement says."""
        if len(self.named.nodes) > 1:
            return True
        is_part = self.per_worker.gpu_milli % WHOLE_GPU > 0
        is_named = len(self.named.workers) > 1 and self.pool.way is not Way.COUNT
        return is_part and is_named and len(self.named.devices) > 1

    def slots_on(self, room: NodeFree, absent: Iterable[UnboundStart]) -> list[int]:
        """How many of its workers fit on a node, and on each device it names there, if some starts were absent."""
        node = room.without((self, *absent))
        request = Request(*self.per_worker, len(self.placement.workers))
        devices = [max(0, node.gpu_milli[gpu]) for gpu in self._devices_on(room)]
        part_milli = min(WHOLE_GPU, request.gpu_milli) or WHOLE_GPU
        each = [] if self.pool.way is Way.COUNT else [min(request.workers, milli // part_milli) for milli in devices]
        return [request.slots_in(devices, node.cpu_milli, node.mem_bytes), *each]

    def _devices_on(self, room: NodeFree) -> list[int]:
        """The devices of a node that its pods can be given."""
        workers, devices = self.named.workers, range(len(room.gpu_milli))
        gpus = next((worker.gpus for worker in workers if worker.node == room.name), ())
        profile = next((room.profile_of(gpu) for gpu in gpus if gpu in devices), "")
        of_profile = list(room.devices_of(profile))
        way = self.pool.way
        if way is Way.COUNT or (way is Way.NVIDIA_CLAIM and len(self.named.devices) > NAMEABLE_GPUS):
            return of_profile
        by_index = way is Way.HAMI_CLAIM
        named = {gpu for worker in workers if by_index or worker.node == room.name for gpu in worker.gpus}
        return [gpu for gpu in of_profile if gpu in named]


def keep_apart(outcome: Outcome, pending_jobs: PendingJobs, snapshot: Snapshot) -> None:
    """Let one of the starts in conflict begin; the others wait with their places reserved.

    A job without a run starts in the next cycle, when its Job is made, so it is in no conflict now. Cost: O(starts, and
    the runs on their nodes); and for each node of an ambiguous start, O(starts there).
    """
    found = [(pending_jobs.find(job), assignment) for job, (assignment, _) in outcome.started.items()]
    beginning: list[tuple[PendingJob, UnboundStart]] = []
    for pending, assignment in found:
        if pending.run is not None:
            further = further_nodes(pending.job, assignment.placement, snapshot.capacity)
            beginning.append((pending, UnboundStart.of(pending.job.id, assignment, further)))
    begun = _begun(snapshot, {node for _, start in beginning for node in start.placement.nodes})
    all_starts = chain(begun, (start for _, start in beginning))
    shared = frozenset[NodeName]().union(*(start.named.nodes for start in all_starts if start.is_ambiguous))
    if not shared:
        return
    order = {start: _start_order(pending, start, at) for at, (pending, start) in enumerate(beginning)}
    beginning.sort(key=lambda each: order[each[1]])
    # An elastic run regains workers once all starts beside it are done, so no start waits for it.
    waiting = outcome.started.keys() | outcome.regained.keys()
    reserved = (UnboundStart.of(job, a) for job, a in snapshot.assigned() if job not in waiting)
    kept = (UnboundStart.of(job, assignment) for job, (assignment, _) in outcome.kept.items())
    on_node: defaultdict[NodeName, list[UnboundStart]] = defaultdict(list)
    for start in chain(begun, reserved, (start for _, start in beginning), kept):
        for node in start.named.nodes & shared:
            on_node[node].append(start)
    for pending, start in beginning:
        nodes = sorted(start.named.nodes & shared)
        conflicts = (_conflict(start, on_node[node], snapshot.idle.rooms[node]) for node in nodes)
        other = next(filter(None, conflicts), None)
        if other is not None:
            _hold_back(outcome, pending, other.job, snapshot)


def _conflict(start: UnboundStart, on_node: Sequence[UnboundStart], room: NodeFree) -> UnboundStart | None:
    """The start before this one on a node that it is in conflict with. Of the starts up to this one, the pods of one
    could use GPUs of the others: more of its pods fit if the others are not there."""
    at = on_node.index(start)
    first, later = on_node[: at + 1], on_node[at + 1 :]
    for taker in reversed(first) if at else ():
        others = (each for each in first if each is not taker)
        if taker.is_ambiguous and taker.slots_on(room, later) != taker.slots_on(room, (*later, *others)):
            return first[0] if taker is start else taker
    return None


def _begun(snapshot: Snapshot, nodes: Iterable[NodeName]) -> list[UnboundStart]:
    """Runs on some nodes that were started a moment ago, with pods that have no node yet.

    A start whose pods find no node for a minute is not waited for any longer: it is on record as one that takes long.
    """
    runs = {
        allocation.run.job: allocation.run
        for node in nodes
        for allocation in snapshot.on_node(node)
        if allocation.run.unbound
    }
    found: list[UnboundStart] = []
    for job, run in sorted(runs.items()):
        pool = None if run.placement is None else snapshot.capacity.pool_of(run.placement)
        is_new = not run.starting_ms and running_ms(run, snapshot.now_ms) < STARTING_MS
        if run.placement is not None and pool is not None and is_new:
            per_worker = WorkerRequest(run.gpu_milli, run.cpu_milli, run.mem_bytes)
            made_with = run.made_with or run.placement
            found.append(UnboundStart(job, snapshot.capacity.pools[pool], run.placement, per_worker, made_with))
    return found


def _start_order(pending: PendingJob, start: UnboundStart, at: int) -> tuple[int, int, JobId]:
    """The order in which starts in conflict begin: jobs with a place that others have left for them come first, then
    jobs that waited for a start, then the others."""
    reason = _reserved_with(pending)
    code = reason.code if reason is not None else ""
    if code in _CLEARED:
        return int(start.is_ambiguous), pending.queued_at_ms, start.job
    if code == reasons.FOR_START:
        return 2, pending.queued_at_ms, start.job
    return 3 + start.is_ambiguous, at, start.job


def _reserved_with(pending: PendingJob) -> Reason | None:
    run = pending.run
    return run.reason if run is not None and run.placement is not None else None


def _hold_back(outcome: Outcome, pending: PendingJob, other: JobId, snapshot: Snapshot) -> None:
    """Make a start wait for another with its place reserved; without a reservation if it is a retry. A reason
    that names runs which left the place is kept."""
    job, reason = pending.job.id, _reserved_with(pending)
    assignment = outcome.hold_back(job, other)
    if pending.idle_only:
        snapshot.vacate(pending.job, assignment)
        return
    keeps = reason is not None and reason.code in {reasons.FOR_PAUSED, reasons.MOVED}
    outcome.reserved[job] = assignment, reason if reason is not None and keeps else reasons.waits_for_start(other)
