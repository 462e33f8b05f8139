"""Workers that an elastic run lacks and its project is owed: places for them before anybody takes turns.

Owed is what a project's guarantee leaves beside all it holds and all that its waiting jobs ask. It is asked for anew in
each cycle: what is free on the run's nodes, what is coming free there, and what others leave who hold more than they
are guaranteed. As nobody is asked before, what was freed for it stays its own until its pods can go there. While a job
of its project waits that ranks above it nothing is regained, for that job could take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from gpuctl.engine.admit.outcome import Outcome, Regained
from gpuctl.engine.admit.under_scaled import UnderScaled
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.engine.capacity.gang import Assignment, place_in, seats
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import forbidden
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.elastic import victims_for
from gpuctl.engine.victims.preempt import Preemption
from gpuctl.engine.victims.reclaim import Reclaim, ReclaimStrategy, overdrawn
from gpuctl.engine.victims.rules import Among, Rule
from gpuctl.engine.victims.search import place_without
from gpuctl.model.decision import Placement, TraceStep, WorkerPlacement
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.state import RunPhase
from gpuctl.model.units import GpuMilli

Asked: TypeAlias = Mapping[tuple[DomainName, ProjectName], GpuMilli]
"""What projects hold when a cycle begins, and what their waiting jobs ask besides."""

MakeWay: TypeAlias = Callable[[Sequence[Allocation], Rule, JobId], None]
"""Has runs paused, by a rule, for a job."""

CLOSED: GpuMilli = 1 << 50
"""Taken of a device that a run's pods can't have: more than could ever become free."""


class WorkerRegain:
    """What is regained in one cycle."""

    __slots__ = ("_asked", "_lineup", "_make_way", "_outcome", "_snapshot")

    def __init__(
        self, snapshot: Snapshot, lineup: PendingJobs, asked: Asked, outcome: Outcome, make_way: MakeWay
    ) -> None:
        self._snapshot = snapshot
        self._lineup = lineup
        self._asked = dict(asked)
        self._outcome = outcome
        self._make_way = make_way

    def take(self, runs: Iterable[UnderScaled]) -> None:
        """Enter places for the workers that are owed, of runs of the project furthest below its share first.

        Cost: O(devices and runs on the nodes of those that are owed any), and a search for each doubling of workers.
        """
        stopped = self._outcome.pauses.keys() | self._outcome.given_up.keys() | self._outcome.shifts.keys()
        left = [run for run in runs if run.job.id not in stopped]
        for run in sorted(left, key=lambda run: run.rank(self._snapshot)):
            domain = run.allocation.domain
            count = self._owed(run, domain) if domain is not None else 0
            if domain is None or count <= 0 or self._is_outranked(run, domain):
                continue
            self._asked[domain, run.allocation.project] += count * run.option.request.gpu_milli
            self._regain(run, domain, count)

    def _owed(self, run: UnderScaled, domain: DomainName) -> int:
        """How many workers more its project is owed, as far as its nodes could hold them and no ceiling forbids."""
        snapshot, project, each = self._snapshot, run.allocation.project, run.option.request.gpu_milli
        guarantee = snapshot.accounts.portion(domain, project_owner(project)).guarantee_milli
        lacks = run.most(snapshot.capacity) - len(run.workers)
        count = min(lacks, (guarantee - self._asked[domain, project]) // each) if each else 0
        while count > 0 and forbidden(snapshot.accounts, run.job, domain, count * each) is not None:
            count -= 1
        return count

    def _is_outranked(self, run: UnderScaled, domain: DomainName) -> bool:
        """Whether somebody waits in its project who could have its workers."""
        lines = (line for line in self._lineup.lines.values() if line.project == run.allocation.project)
        waiting = (group.first for line in lines for group in line.groups.values())
        return any(Preemption(self._snapshot, w.job, domain, w.gpu_milli).ranks_below(run.job) for w in waiting)

    def _regain(self, run: UnderScaled, domain: DomainName, count: int) -> None:
        """Places that are free, then places that are coming free, then those that others leave."""
        snapshot = self._snapshot
        found: list[tuple[WorkerPlacement, ...]] = []
        for ledger in (snapshot.idle, snapshot.future_idle):
            there = _narrowed(ledger, run)
            most = min(count, sum(seats(there, run.option.of(count)).values())) if count else 0
            placement = place_in(there, run.option.of(most)) if most else None
            workers = placement.workers if placement is not None else ()
            found.append(workers)
            count -= len(workers)
            self._enter(run, workers)
        left: tuple[WorkerPlacement, ...] = ()
        if (
            count
            and run.allocation.run.phase is RunPhase.RUNNING
            and overdrawn(snapshot, domain, ReclaimStrategy.GUARANTEE)
        ):
            left = self._reclaim(run, domain, count)
        now, coming = found[0], found[1] + left
        if now or coming:
            self._outcome.regained[run.job.id] = Regained(now, coming, domain, run.option.request.gpu_milli)
            numbers = {"free": len(now), "coming": len(coming)}
            self._outcome.trace.append(TraceStep(job=run.job.id, rule="regain", numbers=numbers))

    def _reclaim(self, run: UnderScaled, domain: DomainName, count: int) -> tuple[WorkerPlacement, ...]:
        """The most workers that others can make way for, and who then does."""
        snapshot = self._snapshot
        best: tuple[Rule, Sequence[Allocation], Placement] | None = None
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            option = run.option.of(middle)
            claim = Reclaim(snapshot, run.job.id, domain, option.request.total_milli, ReclaimStrategy.GUARANTEE)
            allocations = _candidates(snapshot, run, claim)
            rule = Among(claim, allocations)
            with snapshot.looking_at(_narrowed(snapshot.future_idle, run, [h for h in allocations if h.surplus])):
                victims = victims_for(snapshot, option, rule) if claim.entitled() else None
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


def _candidates(snapshot: Snapshot, run: UnderScaled, claim: Reclaim) -> tuple[Allocation, ...]:
    """What may be paused on the run's nodes, and the surplus workers elsewhere that go before those there."""
    there: dict[int, Allocation] = {}
    for node in sorted(run.nodes):
        for allocation in snapshot.on_node(node):
            before = (other for other in allocation.bound if allocation.surplus and snapshot.stays(other))
            there.update((id(each), each) for each in (*before, allocation))
    able = (
        allocation for allocation in there.values() if snapshot.is_pausable(allocation) and claim.may_take(allocation)
    )
    return tuple(sorted(able, key=snapshot.preference))


def _narrowed(ledger: FreeCapacity, run: UnderScaled, besides: Iterable[Allocation] = ()) -> FreeCapacity:
    """What is free where the run's pods can go, and nothing on the nodes of some others."""
    open_ = {node: run.devices_on(node) for node in run.nodes}
    nodes = {*run.nodes, *(node for allocation in besides for node in allocation.nodes())}
    rooms: dict[NodeName, NodeFree] = {}
    for name in nodes:
        room = ledger.rooms.get(name)
        if room is None:
            continue
        devices = open_.get(name, frozenset())
        gpu_milli = [
            milli if devices is None or index in devices else milli - CLOSED
            for index, milli in enumerate(room.gpu_milli)
        ]
        cpu_milli = room.cpu_milli if name in open_ else room.cpu_milli - CLOSED
        rooms[name] = NodeFree(name, room.pool, gpu_milli, cpu_milli, room.mem_bytes, room.profiles, room.topology)
    return FreeCapacity(rooms, ledger.effort, ledger.habits)
