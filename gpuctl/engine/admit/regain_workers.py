"""Workers that an elastic run regains within its project's guarantee, before any other job is attempted.

Example: a project is guaranteed 8 GPUs, and its elastic run of 8 workers runs with 5. The project holds 5, and its
pending jobs ask for 1: the run is entitled to 2 more workers. They get what is idle on the nodes that its pods may use,
then what is coming free there, then what projects above their guarantee give up there.

This is worked out anew in each cycle, with nothing remembered: because it comes first, the GPUs that were freed for a
run are still free for it when its pods can use them. While a pending job of its project outranks the run, the run
regains nothing, because that job could take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from gpuctl.engine.admit.outcome import Outcome, Regained
from gpuctl.engine.admit.under_scaled import UnderScaled
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.engine.capacity.gang import Assignment, place_in, slots_by_node
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import forbidden
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import makes_way
from gpuctl.engine.victims.reclaim import ReclaimStrategy, over_allocated
from gpuctl.engine.victims.rules import VictimRule, by_strategy
from gpuctl.engine.victims.search import find_victims, place_without
from gpuctl.model.decision import Placement, TraceStep, WorkerPlacement
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import JobType
from gpuctl.model.state import RunPhase
from gpuctl.model.units import GpuMilli

Asked: TypeAlias = Mapping[tuple[DomainName, ProjectName], GpuMilli]
"""What projects hold when a cycle begins, and what their pending jobs ask for besides."""

MakeWay: TypeAlias = Callable[[Sequence[Allocation], VictimRule, JobId], None]
"""Pauses victims, by a rule, for a job."""

CLOSED: GpuMilli = 1 << 50
"""Taken of a device that a run's pods can't use: more than could ever become free."""


class WorkerRegain:
    """What elastic runs regain in one cycle."""

    __slots__ = ("_asked", "_make_way", "_outcome", "_pending_jobs", "_snapshot")

    def __init__(
        self, snapshot: Snapshot, pending_jobs: PendingJobs, asked: Asked, outcome: Outcome, make_way: MakeWay
    ) -> None:
        self._snapshot = snapshot
        self._pending_jobs = pending_jobs
        self._asked = dict(asked)
        self._outcome = outcome
        self._make_way = make_way

    def take(self, runs: Iterable[UnderScaled]) -> None:
        """Take places for workers within the guarantee, for runs of the project furthest below its share first.

        Cost: O(devices and runs on the nodes of entitled runs), and a victim search for each doubling of workers.
        """
        busy = self._outcome.pauses.keys() | self._outcome.given_up.keys() | self._outcome.shifts.keys()
        free = [run for run in runs if run.job.id not in busy]
        for run in sorted(free, key=lambda run: run.rank(self._snapshot)):
            domain = run.allocation.domain
            count = self._entitled_workers(run, domain) if domain is not None else 0
            if domain is None or count <= 0 or self._is_outranked(run, domain):
                continue
            self._asked[domain, run.allocation.project] += count * run.option.request.gpu_milli
            self._regain(run, domain, count)

    def _entitled_workers(self, run: UnderScaled, domain: DomainName) -> int:
        """The workers that its project's guarantee leaves for it, as far as nodes and ceilings allow.

        A service comes before the training that waits in its project.
        """
        snapshot, project, each = self._snapshot, run.allocation.project, run.option.request.gpu_milli
        guarantee = snapshot.accounts.entitled(domain, project_owner(project)).guarantee_milli
        missing = run.most(snapshot.capacity) - len(run.workers)
        asked = self._asked[domain, project]
        if run.job.type is JobType.INFERENCE:
            asked -= self._pending_jobs.training_milli(project, domain)
        count = min(missing, (guarantee - asked) // each) if each else 0
        while count > 0 and forbidden(snapshot.accounts, run.job, domain, count * each) is not None:
            count -= 1
        return count

    def _is_outranked(self, run: UnderScaled, domain: DomainName) -> bool:
        """Whether a pending job of its project could have it paused."""
        queues = (queue for queue in self._pending_jobs.queues.values() if queue.project == run.allocation.project)
        pending = (job_class.first for queue in queues for job_class in queue.job_classes.values())
        return any(makes_way(self._snapshot, run.job, w.job, domain, w.gpu_milli) for w in pending)

    def _regain(self, run: UnderScaled, domain: DomainName, count: int) -> None:
        """Take places that are idle, then places that are coming free, then places that victims leave."""
        snapshot = self._snapshot
        found: list[tuple[WorkerPlacement, ...]] = []
        for whole in (snapshot.idle, snapshot.future_idle):
            free = _usable_by(run, whole)
            most = min(count, sum(slots_by_node(free, run.option.of(count)).values())) if count else 0
            placement = place_in(free, run.option.of(most)) if most else None
            found.append(placement.workers if placement is not None else ())
            count -= len(found[-1])
            self._enter(run, found[-1])
        now, coming = found
        may_reclaim = over_allocated(snapshot, domain, ReclaimStrategy.GUARANTEE)
        if count and may_reclaim and run.allocation.run.phase is RunPhase.RUNNING:
            coming += self._reclaim(run, domain, count)
        if now or coming:
            self._outcome.regained[run.job.id] = Regained(now, coming, domain, run.option.request.gpu_milli)
            numbers = {"free": len(now), "coming": len(coming)}
            self._outcome.trace.append(TraceStep(job=run.job.id, rule="regain", numbers=numbers))

    def _reclaim(self, run: UnderScaled, domain: DomainName, count: int) -> tuple[WorkerPlacement, ...]:
        """Reclaim by guarantee as many workers as other projects can make room for, up to `count`."""
        snapshot = self._snapshot
        best: tuple[VictimRule, Sequence[Allocation], Placement] | None = None
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            option = run.option.of(middle)
            whole = by_strategy(snapshot, run.job, domain, option.request.total_milli, ReclaimStrategy.GUARANTEE)
            candidates = _candidates(snapshot, run, whole)
            rule = whole.among(candidates)
            surplus = [each for each in candidates if each.is_extra]
            with snapshot.searching(_usable_by(run, snapshot.future_idle, surplus)):
                victims = find_victims(option, rule) if rule.is_plain else None
                placement = place_without(snapshot, option, victims) if victims else None
            if victims and placement is not None:
                best, low = (rule, victims, placement), middle
            else:
                high = middle - 1
        if best is None:
            return ()
        by_rule, chosen, place = best
        self._make_way(chosen, by_rule, run.job.id)
        self._enter(run, place.workers)
        return place.workers

    def _enter(self, run: UnderScaled, workers: tuple[WorkerPlacement, ...]) -> None:
        if workers:
            self._snapshot.occupy(run.job, Assignment(run.option.of(len(workers)), Placement(workers=workers)))


def _candidates(snapshot: Snapshot, run: UnderScaled, rule: VictimRule) -> tuple[Allocation, ...]:
    """The runs on a run's nodes that may be paused for it, and the surplus workers that leave before those."""
    found: dict[Allocation, None] = {}
    for node in sorted(run.nodes):
        for allocation in snapshot.on_node(node):
            before = (other for other in allocation.leaves_with if allocation.is_extra and snapshot.stays(other))
            found.update(dict.fromkeys((*before, allocation)))
    able = (allocation for allocation in found if snapshot.is_pausable(allocation) and rule.takes(allocation))
    return tuple(sorted(able, key=snapshot.preference))


def _usable_by(run: UnderScaled, free: FreeCapacity, besides: Iterable[Allocation] = ()) -> FreeCapacity:
    """What is free where a run's pods can go; the nodes of `besides` are in it too, with nothing free."""
    rooms: dict[NodeName, NodeFree] = {}
    for name in {*run.nodes, *(node for allocation in besides for node in allocation.nodes())}:
        room = free.rooms.get(name)
        if room is None:
            continue
        is_open = name in run.nodes
        devices = run.devices_on(name) if is_open else frozenset()
        gpu_milli = [
            milli if devices is None or index in devices else milli - CLOSED
            for index, milli in enumerate(room.gpu_milli)
        ]
        cpu_milli = room.cpu_milli if is_open else room.cpu_milli - CLOSED
        rooms[name] = NodeFree(name, room.pool, gpu_milli, cpu_milli, room.mem_bytes, room.profiles, room.topology)
    return FreeCapacity(rooms, free.counters, free.mix)
