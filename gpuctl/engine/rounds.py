"""Rounds: decide to a fixpoint, so that one cycle decides all that follows from a change.

Suppose that this round's starts and pauses have happened, and do another round, until nothing changes. The decisions
are the difference between the cluster as it is and the last supposed state. Example: run b is paused for job c. In the
second round b waits and gets a place on another node. Decided is: pause b with that place reserved, reserve b's old
place for c.

- A run that lost its place stops; if it has another place in the end, that is reserved for it.
- A job that gained a place starts if the place is idle and no start conflicts with it; else the place is reserved.
- A job that gained a place in one round and lost it in a later one waits, as before.

Cases that cannot be merged safely are left to the next cycle, see `Rounds.can_merge`. A job whose Job object is not
made yet claims nothing in any cycle, because the object may be refused.

Cost: a round costs what an event costs. A cycle that gives or takes no place has one round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.outcome import Outcome, Pause
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.runs import NOWHERE, paused_record
from gpuctl.engine.shares.entitlement import reason_to_run
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model import transition
from gpuctl.model.decision import (
    Admit,
    Decision,
    Keep,
    Move,
    Pending,
    Placement,
    Preempt,
    Reason,
    Reclaim,
    Resize,
    TraceStep,
)
from gpuctl.model.ids import JobId, NodeName, RunKey
from gpuctl.model.state import ACTIVE, Charge, ClusterState, Run, RunPhase, named
from gpuctl.model.units import Instant

PendingQueues: TypeAlias = tuple[tuple[JobId, ...], ...]
"""The pending jobs of each queue, in the order of attempts."""

MAX_ROUNDS = 8
"""Rounds of one cycle, at most. 15,000 random changes needed 5 at most."""

MOST = 100
"""With more starts or pauses in a round there is no other: nearly everything would have to be read again."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A place that a job has in the end, and why. `is_start`: it was idle in its round; `is_later`: not the first."""

    pending: PendingJob
    assignment: Assignment
    reason: Reason
    is_start: bool
    is_later: bool


class Rounds:
    """The merged outcome of the rounds of one cycle. `reserved`: gained places that no start uses yet."""

    __slots__ = (
        "_first", "_gains", "_losses", "_now_ms", "_runs", "_steps", "_stopping", "_without_run", "count", "reserved",
    )  # fmt: skip

    def __init__(self, state: ClusterState, now_ms: Instant) -> None:
        self._first = state
        self._now_ms = now_ms
        self._gains: dict[JobId, Gain] = {}
        self._losses: dict[JobId, Pause] = {}
        self._runs: dict[JobId, Run] = {}
        self._stopping: dict[JobId, Decision] = {}
        self._without_run: dict[JobId, Gain] = {}
        self._steps: list[TraceStep] = []
        self.count = 0
        self.reserved: dict[JobId, Assignment] = {}

    @property
    def is_over(self) -> bool:
        """Whether this was the last round, whatever its outcome."""
        return self.count == MAX_ROUNDS or max(len(self._losses), len(self._gains)) > MOST

    def can_merge(self, outcome: Outcome) -> bool:
        """Whether the outcome of a round can be carried out together with the rounds before.

        It cannot if it changes an elastic run or moves a run twice. Nor if it pauses a run that others were migrated or
        paused for: its own project does not, as that run is settled. Nor if it makes room for a run that returns to its
        place.
        """
        again = outcome.pauses.keys() & self._losses.keys()
        if is_elastic(outcome) or any(outcome.pauses[job].goes_on or self._losses[job].goes_on for job in again):
            return False
        lost = {job for job in outcome.pauses.keys() & self._gains.keys() if not outcome.pauses[job].goes_on}
        if any(each.beneficiary in lost for each in self._losses.values()):
            return False
        beneficiaries = {pause.beneficiary for pause in outcome.pauses.values()}
        return not any(job in beneficiaries and self._returns(job, assignment) for job, assignment in _places(outcome))

    def take(self, outcome: Outcome, carried: CarriedState) -> bool:
        """Merge the outcome of a round. Returns whether it supposes a change of any run."""
        if not self.count:
            self._take_stopping(carried)
        self._steps += outcome.trace
        for job, pause in outcome.pauses.items():
            self._take_pause(job, pause)
        changes = bool(outcome.pauses)
        self._without_run.clear()
        for job, assignment in _places(outcome):
            pending = carried.pending_jobs.find(job)
            is_start = job in outcome.started
            _, reason = (outcome.started if is_start else outcome.reserved)[job]
            gain = Gain(pending, assignment, reason, is_start, is_later=self.count > 0)
            if pending.run is None:
                self._without_run[job] = gain
                continue
            changes = True
            if self._returns(job, assignment):
                del self._losses[job]
            else:
                self._gains[job] = gain
                self._runs.setdefault(job, pending.run)
        self.count += 1
        return changes

    def _take_stopping(self, carried: CarriedState) -> None:
        """Runs that stop, or give up workers, for a reason of their own do so whatever follows."""
        for allocation in carried.snapshot.leaving_runs:
            decision = carried.decisions.get(allocation.run.job)
            if allocation.run.phase in ACTIVE and decision is not None and not isinstance(decision, Keep):
                self._stopping[allocation.run.job] = decision
                self._runs[allocation.run.job] = allocation.run

    def _take_pause(self, job: JobId, pause: Pause) -> None:
        if job not in self._gains:
            self._losses[job] = pause
            self._runs[job] = pause.allocation.run
        elif pause.goes_on is None:  # It only had its place in a supposed state.
            del self._gains[job]
        else:
            self._gains[job] = replace(self._gains[job], assignment=pause.goes_on, is_later=True)

    def _returns(self, job: JobId, assignment: Assignment) -> bool:
        """Whether an assignment is the very place that the job lost in an earlier round."""
        loss = self._losses.get(job)
        return loss is not None and _devices(loss.allocation.run.placement) == _devices(assignment.placement)

    def state(self) -> ClusterState:
        """The supposed cluster. Cost: a copy, and O(log runs) for each changed run if the runs are sorted."""
        runs = list(self._first.runs)
        for job, first in self._runs.items():
            at = bisect_left(runs, _key(first), key=_key)
            if at == len(runs) or _key(runs[at]) != _key(first):
                at = self._first.runs.index(first)
            runs[at] = self._after(job, first)
        return replace(self._first, runs=tuple(runs))

    def _after(self, job: JobId, first: Run) -> Run:
        """A run in the supposed cluster."""
        stopping = self._stopping.get(job)
        if isinstance(stopping, Resize):
            return transition.resized(first, stopping.placement)
        if stopping is not None:
            return replace(first, phase=RunPhase.STOPPING, reserved=None, reason=stopping.reason)
        gain, loss = self._gains.get(job), self._losses.get(job)
        if gain is not None and gain.pending.run is not None:
            return _running(gain.pending.run, gain.assignment, self._now_ms)
        if loss is None:
            return first
        if loss.goes_on is not None:
            return replace(first, placement=loss.goes_on.placement)
        record = paused_record(first, self._now_ms, loss.beneficiary)
        return transition.stopped(transition.paused(first, record, None))

    # The result

    @property
    def trace(self) -> tuple[TraceStep, ...]:
        """All steps of a single round; of several rounds the last gain and the last loss of each job, if they stand."""
        if self.count == 1:
            return tuple(self._steps)
        last: dict[tuple[JobId | None, bool], TraceStep] = {}
        for step in self._steps:
            last[step.job, "for" in step.numbers] = step
        return tuple([step for (job, is_loss), step in last.items() if self._stands(job, is_loss=is_loss)])

    def _stands(self, job: JobId | None, *, is_loss: bool) -> bool:
        loss = None if job is None else self._losses.get(job)
        return loss is not None if is_loss else loss is None or loss.goes_on is not None or job in self._gains

    def still_pending(self, pending_queues: PendingQueues) -> PendingQueues:
        """The pending queues of the last round without the jobs that run until now."""
        if self.count == 1 or not self._losses:
            return pending_queues
        losers = {job.project for job in self._losses}
        left = (
            jobs if jobs[0].project not in losers else tuple([job for job in jobs if job not in self._losses])
            for jobs in pending_queues
        )
        return tuple([jobs for jobs in left if jobs])

    def decisions(
        self, snapshot: Snapshot, uuids: Mapping[NodeName, tuple[str, ...]]
    ) -> Iterator[tuple[JobId, Decision]]:
        """The decisions about all jobs that lose or gain a place, by the snapshot of the last round."""
        yield from self._stopping.items()
        for victim, pause in self._losses.items():
            reason, beneficiary, goes_on = pause.reason, pause.beneficiary, pause.goes_on
            record = paused_record(pause.allocation.run, self._now_ms, beneficiary)
            if goes_on is not None:
                place = goes_on.placement
                yield victim, Move(job=victim, reason=reason, record=record, beneficiary=beneficiary, reserved=place)
                continue
            gain, kind = self._gains.get(victim), Preempt if beneficiary.project == victim.project else Reclaim
            again = None if gain is None else gain.assignment.placement
            yield victim, kind(job=victim, reason=reason, record=record, beneficiary=beneficiary, reserved=again)
        busy, gains_on = self._busy_nodes(snapshot), self._gains_by_node()
        for job, gain in chain(self._gains.items(), self._without_run.items()):
            if job in self._losses:
                continue
            if (gain.is_start and not gain.is_later) or (gain.is_later and self._can_start(gain, busy, gains_on)):
                yield job, started(gain.pending, gain.assignment, _reason_to_run(gain, snapshot), uuids)
            else:
                self.reserved[job] = gain.assignment
                reason, record = self._reason_to_wait(gain, busy, gains_on), gain.pending.record
                yield job, Pending(job=job, reason=reason, record=record, reserved=gain.assignment.placement)

    def _can_start(self, gain: Gain, busy: AbstractSet[NodeName], gains_on: Mapping[NodeName, list[Gain]]) -> bool:
        """Whether a place gained in a later round is idle, and no other gain is in conflict (see `start_conflicts`).

        A job whose run was made just now starts in the next cycle.
        """
        nodes = _nodes(gain.assignment.placement)
        others = _others_on(nodes, gain, gains_on)
        is_apart = gain.pending.run is None or not (others if _is_gang(gain) else any(map(_is_gang, others)))
        return is_apart and busy.isdisjoint(nodes)

    def _gains_by_node(self) -> Mapping[NodeName, list[Gain]]:
        """The places gained on each node, where there were several rounds."""
        found: dict[NodeName, list[Gain]] = {}
        for gain in self._gains.values() if self.count > 1 else ():
            for node in _nodes(gain.assignment.placement):
                found.setdefault(node, []).append(gain)
        return found

    def _busy_nodes(self, snapshot: Snapshot) -> set[NodeName]:
        """The nodes that a run leaves or moves to."""
        leaving = (allocation.placement for allocation in snapshot.leaving_runs)
        lost = (self._runs[job].placement or NOWHERE for job in self._losses)
        new = (pause.goes_on.placement for pause in self._losses.values() if pause.goes_on is not None)
        return set(_nodes(*leaving, *lost, *new))

    def _reason_to_wait(
        self, gain: Gain, busy: AbstractSet[NodeName], gains_on: Mapping[NodeName, list[Gain]]
    ) -> Reason:
        if self.count == 1:
            return gain.reason
        job, nodes = gain.pending.job.id, _nodes(gain.assignment.placement)
        victims = [victim for victim, loss in self._losses.items() if loss.beneficiary == job]
        if victims:
            return reasons.waits_for_paused(victims)
        if not gain.is_later:
            return gain.reason
        if not busy.isdisjoint(nodes):
            return reasons.waits_for_stopping()
        return reasons.waits_for_start(min(other.pending.job.id for other in _others_on(nodes, gain, gains_on)))


def is_elastic(outcome: Outcome) -> bool:
    """Whether an elastic run starts, stops or changes: then demand and shares may change, and no round follows."""
    if outcome.given_up or outcome.regained:
        return True
    paused = [pause.allocation.job for pause in outcome.pauses.values()]
    return any(job is not None and job.is_elastic for job in paused) or any(
        assignment.option.least for _, assignment in _places(outcome)
    )


def started(
    pending: PendingJob, assignment: Assignment, reason: Reason, uuids: Mapping[NodeName, tuple[str, ...]]
) -> Admit:
    """The start of a job."""
    run, record = pending.run, pending.record
    was_moved = run is not None and run.reason is not None and run.reason.code == reasons.MOVED
    record = record._replace(starts=record.starts + 1, paused_for=record.paused_for if was_moved else None)
    return Admit(job=pending.job.id, reason=reason, record=record, placement=named(assignment.placement, uuids))


def _reason_to_run(gain: Gain, snapshot: Snapshot) -> Reason:
    if gain.is_start:
        return gain.reason
    option, project = gain.assignment.option, gain.pending.job.id.project
    return reason_to_run(snapshot.accounts, option.domain, project, option.request.total_milli)


def _is_gang(gain: Gain) -> bool:
    return gain.assignment.option.request.workers > 1


def _others_on(nodes: Iterable[NodeName], gain: Gain, gains_on: Mapping[NodeName, list[Gain]]) -> list[Gain]:
    return [other for node in nodes for other in gains_on.get(node, ()) if other is not gain]


def _places(outcome: Outcome) -> Iterator[tuple[JobId, Assignment]]:
    """The jobs that start or get a reservation, with their places."""
    for job, (assignment, _) in chain(outcome.started.items(), outcome.reserved.items()):
        yield job, assignment


def _running(run: Run, assignment: Assignment, now_ms: Instant) -> Run:
    """The run once it has its place."""
    record = run.record._replace(starts=run.starts + 1)
    cost = assignment.per_worker
    per_worker = Charge(gpu_milli=cost.gpu_milli, cpu_milli=cost.cpu_milli, mem_bytes=cost.mem_bytes)
    return transition.started(transition.admitted(run, record, assignment.placement, per_worker, now_ms), now_ms)


def _nodes(*places: Placement) -> list[NodeName]:
    return [worker.node for place in places for worker in place.workers]


def _devices(placement: Placement | None) -> list[tuple[NodeName, tuple[int, ...]]]:
    return [(worker.node, worker.gpus) for worker in placement.workers] if placement is not None else []


def _key(run: Run) -> RunKey:
    return run.job, run.digest
