"""What follows from a cycle, decided in it: it is gone through again on the cluster as it will be when all has happened
that was decided so far, until nothing follows any more.

There who was paused waits and makes whatever claim it has; who starts or is promised a place is a run that others may
claim. What is to be done is said once, in the end, as the difference to the cluster as it is: who has lost a place
stops, and has its next one promised if it has one; who gained one starts, or has it promised while somebody is there
still. Who loses a place again that it only gained here never had it: it waits as it did.

What can't be put together so ends it, and is left to the next cycle: see `Rounds.may_have`. A job that is not made
yet claims nothing, as in any cycle: its object may be refused. What stops by itself claims nothing before it has
stopped.

Cost: another look is what an event costs; only a cycle that gives or takes a place has one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.outcome import Outcome, Pause, Shift
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.runs import NOWHERE, paused_record
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import standing as stands
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model import transition
from gpuctl.model.decision import Admit, Decision, Keep, Move, Pending, Placement, Preempt, Reason, Reclaim, TraceStep
from gpuctl.model.ids import JobId, NodeName, RunKey
from gpuctl.model.state import ACTIVE, Charge, ClusterState, Run, RunPhase, named
from gpuctl.model.units import Instant

Lanes: TypeAlias = tuple[tuple[JobId, ...], ...]
"""Who waits without a place, lane by lane."""

MAX_LOOKS = 8
"""So often is one cycle gone through. Five were the most in 15,000 random changes."""

MOST = 100
"""With more runs that make way or start at once nothing is foreseen: all would have to be read again, and asked."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A place that a job has in the end, and why. `is_start`: nobody had to leave it when it was found. `foreseen`: not
    in the first look."""

    waiting: PendingJob
    seat: Assignment
    reason: Reason
    is_start: bool
    foreseen: bool


class Rounds:
    """What the looks of one cycle came to."""

    __slots__ = (
        "_first", "_gains", "_losses", "_moves", "_now_ms", "_promised", "_runs", "_steps", "_stopped", "_unmade",
        "looks",
    )  # fmt: skip

    def __init__(self, state: ClusterState, now_ms: Instant) -> None:
        self._first = state
        self._now_ms = now_ms
        self._gains: dict[JobId, Gain] = {}
        self._losses: dict[JobId, Pause] = {}
        self._moves: dict[JobId, Shift] = {}
        self._promised: dict[JobId, Assignment] = {}
        self._runs: dict[JobId, Run] = {}
        self._stopped: dict[JobId, Decision] = {}
        self._unmade: dict[JobId, Gain] = {}
        self._steps: list[TraceStep] = []
        self.looks = 0

    @property
    def is_over(self) -> bool:
        """Whether there is no other look, whatever this one came to."""
        return self.looks == MAX_LOOKS or max(len(self._losses), len(self._gains)) > MOST

    def may_have(self, outcome: Outcome) -> bool:
        """Whether what a look came to can be had together with what those before came to.

        Not, if an elastic run changes by it, or a run goes elsewhere twice. Nor if who made way for one made it for
        another project's then, or was moved for it; nor if somebody makes way for one that stays where it was.
        """
        if is_elastic(outcome) or not outcome.shifts.keys().isdisjoint(self._losses.keys()):
            return False
        if not self._moves.keys().isdisjoint(outcome.pauses.keys() | outcome.shifts.keys()):
            return False
        gone = {job: pause.beneficiary for job, pause in outcome.pauses.items() if job in self._gains}
        if any(shift.beneficiary in gone for shift in self._moves.values()):
            return False
        if any(gainer.project != job.project and self._who_makes_way_for(job) for job, gainer in gone.items()):
            return False
        gainers = {pause.beneficiary for pause in outcome.pauses.values()}
        gainers.update(shift.beneficiary for shift in outcome.shifts.values())
        return not any(self._is_back(job, seat) and job in gainers for job, seat in _places(outcome))

    def take(self, outcome: Outcome, standing: CarriedState) -> bool:
        """Enter what a look came to; whether that was anything at all."""
        if not self.looks:
            self._stop(standing)
        self._steps += outcome.trace
        for job, pause in outcome.pauses.items():
            self._pause(job, pause)
        for job, shift in outcome.shifts.items():
            self._move(job, shift)
        is_any = bool(outcome.pauses or outcome.shifts)
        self._unmade.clear()
        for job, seat in _places(outcome):
            waiting, _ = standing.lineup.find(job)
            if waiting.run is None:
                self._unmade[job] = self._gain(waiting, seat, outcome)
            else:
                is_any = True
                self._place(waiting, waiting.run, seat, outcome)
        self.looks += 1
        return is_any

    def _stop(self, standing: CarriedState) -> None:
        """What stops by itself does so whatever follows."""
        for allocation in standing.snapshot.going:
            decision = standing.decisions.get(allocation.run.job)
            if allocation.run.phase in ACTIVE and decision is not None and not isinstance(decision, Keep):
                self._stopped[allocation.run.job] = decision
                self._runs[allocation.run.job] = allocation.run

    def _pause(self, job: JobId, pause: Pause) -> None:
        if self._gains.pop(job, None) is None:
            self._losses[job] = pause
            self._runs[job] = pause.allocation.run
            return
        for victim in self._who_makes_way_for(job):
            self._losses[victim] = _for_another(self._losses[victim], job, pause.beneficiary)

    def _move(self, job: JobId, shift: Shift) -> None:
        if job in self._gains:
            self._gains[job] = replace(self._gains[job], seat=shift.move.seat, foreseen=True)
        else:
            self._moves[job] = shift
            self._runs[job] = shift.move.allocation.run

    def _place(self, waiting: PendingJob, run: Run, seat: Assignment, outcome: Outcome) -> None:
        job = waiting.job.id
        if self._is_back(job, seat):
            del self._losses[job]
        else:
            self._gains[job] = self._gain(waiting, seat, outcome)
            self._runs.setdefault(job, run)

    def _gain(self, waiting: PendingJob, seat: Assignment, outcome: Outcome) -> Gain:
        job = waiting.job.id
        is_start = job in outcome.started
        _, reason = (outcome.started if is_start else outcome.reserved)[job]
        return Gain(waiting, seat, reason, is_start, foreseen=self.looks > 0)

    def _is_back(self, job: JobId, seat: Assignment) -> bool:
        """Whether it lost this very place."""
        loss = self._losses.get(job)
        return loss is not None and _devices(loss.allocation.run.placement) == _devices(seat.placement)

    def _who_makes_way_for(self, job: JobId) -> list[JobId]:
        return [victim for victim, loss in self._losses.items() if loss.beneficiary == job]

    def state(self) -> ClusterState:
        """The cluster as it will be. Cost: O(log runs) for each that is another then, where they are in order."""
        runs = list(self._first.runs)
        for job, first in self._runs.items():
            at = bisect_left(runs, _key(first), key=_key)
            if at == len(runs) or _key(runs[at]) != _key(first):
                at = self._first.runs.index(first)
            runs[at] = self._after(job, first)
        return replace(self._first, runs=tuple(runs))

    def _after(self, job: JobId, first: Run) -> Run:
        """A run as it will be."""
        if job in self._stopped:
            return replace(first, phase=RunPhase.STOPPING, reserved=None)
        gain, loss, shift = self._gains.get(job), self._losses.get(job), self._moves.get(job)
        if gain is not None and gain.waiting.run is not None:
            return _running(gain.waiting.run, gain.seat, self._now_ms)
        if shift is not None:
            return replace(first, placement=shift.move.seat.placement)
        if loss is None:
            return first
        record = paused_record(first, self._now_ms, loss.beneficiary)
        return transition.stopped(transition.paused(first, record, None))

    # What is to be done now

    @property
    def promised(self) -> Mapping[JobId, Assignment]:
        """Who has a place in the end that does not start now. Known when all is decided."""
        return self._promised

    @property
    def trace(self) -> tuple[TraceStep, ...]:
        """All steps of one look; of several, the last of what each job gained and of what it lost, if it did."""
        if self.looks == 1:
            return tuple(self._steps)
        last: dict[tuple[JobId | None, bool], TraceStep] = {}
        for step in self._steps:
            last[step.job, "for" in step.numbers] = step
        return tuple([step for (job, is_loss), step in last.items() if self._stands(job, is_loss=is_loss)])

    def _stands(self, job: JobId | None, *, is_loss: bool) -> bool:
        """Whether a job loses a place in the end; or anything else that was said of it holds."""
        return job in self._losses or job in self._moves if is_loss else job not in self._losses or job in self._gains

    def without_place(self, lanes: Lanes) -> Lanes:
        """Those of the last look's lanes that wait now, too."""
        if self.looks == 1 or not self._losses:
            return lanes
        losers = {job.project for job in self._losses}
        left = (
            lane if lane[0].project not in losers else tuple([job for job in lane if job not in self._losses])
            for lane in lanes
        )
        return tuple([lane for lane in left if lane])

    def decisions(
        self, snapshot: Snapshot, uuids: Mapping[NodeName, tuple[str, ...]]
    ) -> Iterator[tuple[JobId, Decision]]:
        """What is decided about all that lose or gain a place, by the snapshot of the last look."""
        yield from self._stopped.items()
        for victim, pause in self._losses.items():
            gain = self._gains.get(victim)
            kind = Preempt if pause.beneficiary.project == victim.project else Reclaim
            record = paused_record(pause.allocation.run, self._now_ms, pause.beneficiary)
            place = None if gain is None else gain.seat.placement
            yield victim, kind(
                job=victim, reason=pause.reason, record=record, beneficiary=pause.beneficiary, reserved=place
            )  # fmt: skip
        for mover, shift in self._moves.items():
            record = paused_record(shift.move.allocation.run, self._now_ms, shift.beneficiary)
            place = shift.move.seat.placement
            yield mover, Move(
                job=mover, reason=shift.reason, record=record, beneficiary=shift.beneficiary, reserved=place
            )  # fmt: skip
        left, there = self._left(snapshot), self._there()
        for job, gain in chain(self._gains.items(), self._unmade.items()):
            if job in self._losses:
                continue
            if self._starts(gain) or (gain.foreseen and self._is_apart(gain, left, there)):
                reason = gain.reason if gain.is_start else self._why_it_runs(gain, snapshot)
                yield job, started(gain.waiting, gain.seat, reason, uuids)
            else:
                self._promised[job] = gain.seat
                reason, record = self._why_it_waits(gain, left, there), gain.waiting.record
                yield job, Pending(job=job, reason=reason, record=record, reserved=gain.seat.placement)

    @staticmethod
    def _starts(gain: Gain) -> bool:
        """Whether it starts whatever follows."""
        return gain.is_start and not gain.foreseen

    def _is_apart(self, gain: Gain, left: AbstractSet[NodeName], there: Mapping[NodeName, list[Gain]]) -> bool:
        """Whether nobody leaves its nodes, and nobody is to be there who could get its GPUs, or whose GPUs it could get
        (see `collisions`). What is only made now does not start now."""
        nodes = _nodes(gain.seat.placement)
        others = [other for node in nodes for other in there.get(node, ()) if other is not gain]
        alone = gain.waiting.run is None or not (others if _is_gang(gain) else any(map(_is_gang, others)))
        return alone and left.isdisjoint(nodes)

    def _there(self) -> Mapping[NodeName, list[Gain]]:
        """Who has a place on each node in the end, and is not there yet."""
        there: dict[NodeName, list[Gain]] = {}
        for gain in self._gains.values() if self.looks > 1 else ():
            for node in _nodes(gain.seat.placement):
                there.setdefault(node, []).append(gain)
        return there

    def _left(self, snapshot: Snapshot) -> set[NodeName]:
        """Nodes that somebody leaves, or moves to."""
        going = (allocation.placement for allocation in snapshot.going)
        lost = (self._runs[job].placement or NOWHERE for job in chain(self._losses, self._moves))
        new = (shift.move.seat.placement for shift in self._moves.values())
        return set(_nodes(*going, *lost, *new))

    def _why_it_runs(self, gain: Gain, snapshot: Snapshot) -> Reason:
        if gain.is_start:
            return gain.reason
        domain, project = snapshot.capacity.domain_of[gain.seat.option.pool.name], gain.waiting.job.id.project
        return stands(snapshot.accounts, domain, project, snapshot.accounts.held(domain, project_owner(project)))

    def _why_it_waits(self, gain: Gain, left: AbstractSet[NodeName], there: Mapping[NodeName, list[Gain]]) -> Reason:
        job, nodes = gain.waiting.job.id, _nodes(gain.seat.placement)
        if self.looks == 1:
            return gain.reason
        victims = [*self._who_makes_way_for(job), *(m for m, shift in self._moves.items() if shift.beneficiary == job)]
        if victims:
            return reasons.waits_for_paused(victims)
        if not gain.foreseen:
            return gain.reason
        others = [other.waiting.job.id for node in nodes for other in there.get(node, ()) if other is not gain]
        return reasons.waits_for_stopping() if not left.isdisjoint(nodes) else reasons.waits_for_start(min(others))


def _is_gang(gain: Gain) -> bool:
    return gain.seat.option.request.workers > 1


def is_elastic(outcome: Outcome) -> bool:
    """Whether a run that may have fewer workers starts, stops or changes: then what is wanted may move, and shares."""
    if outcome.given_up or outcome.regained:
        return True
    pausing = (pause.allocation.job for pause in outcome.pauses.values())
    return any(job is not None and job.is_elastic for job in pausing) or any(
        seat.option.least for _, seat in _places(outcome)
    )


def _places(outcome: Outcome) -> Iterable[tuple[JobId, Assignment]]:
    """Who starts or is promised a place, and where."""
    for found in (outcome.started, outcome.reserved):
        for job, (seat, _) in found.items():
            yield job, seat


def _running(run: Run, seat: Assignment, now_ms: Instant) -> Run:
    """The run when it has its place."""
    record = run.record._replace(starts=run.starts + 1)
    cost = seat.charge
    charge = Charge(gpu_milli=cost.gpu_milli, cpu_milli=cost.cpu_milli, mem_bytes=cost.mem_bytes)
    return transition.started(transition.admitted(run, record, seat.placement, charge, now_ms), now_ms)


def _for_another(loss: Pause, job: JobId, gainer: JobId) -> Pause:
    """The loss for who has the place of the job that it was for, in the same project."""
    params = tuple([(name, str(gainer) if value == str(job) else value) for name, value in loss.reason.params])
    return Pause(loss.allocation, replace(loss.reason, params=params), gainer)


def started(waiting: PendingJob, seat: Assignment, reason: Reason, uuids: Mapping[NodeName, tuple[str, ...]]) -> Admit:
    """The start of a job."""
    run, record = waiting.run, waiting.record
    was_moved = run is not None and run.reason is not None and run.reason.code == reasons.MOVED
    record = record._replace(starts=record.starts + 1, paused_for=record.paused_for if was_moved else None)
    return Admit(job=waiting.job.id, reason=reason, record=record, placement=named(seat.placement, uuids))


def _nodes(*places: Placement) -> list[NodeName]:
    return [worker.node for place in places for worker in place.workers]


def _devices(placement: Placement | None) -> list[tuple[NodeName, tuple[int, ...]]]:
    return [(worker.node, worker.gpus) for worker in placement.workers] if placement is not None else []


def _key(run: Run) -> RunKey:
    return run.job, run.digest
