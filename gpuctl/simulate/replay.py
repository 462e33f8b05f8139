"""A trace against a mode of scheduling, in virtual time, on values alone: what came when, what became of it.

From instant to instant: jobs come, end, and have left the place from which they were paused; then the mode decides.
Nothing is decided here. A job starts at once where it is let go; a paused one needs `stop_ms` to leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

from gpuctl.model import transition
from gpuctl.model.decision import Admit, Move, Pending, Preempt, Reclaim
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.schedule.reasons import FOR_START, GUARDED
from gpuctl.simulate.meter import Meter
from gpuctl.simulate.workload import Workload

ROUNDS = 16
"""Times a mode is asked at one instant, at most, as long as jobs are gone at once, or in place."""


Due: TypeAlias = tuple[Instant, JobId, int, RunPhase]
"""When something is due of a run, as long as it has been started so often and is in that phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`stop_ms`: from a pause until the place is free. `checkpoint_ms`: a paused job goes on from its last checkpoint,
    one every so often since it started; 0: it loses nothing; None: it has none and begins anew.
    """

    stop_ms: DurationMs = 30_000
    checkpoint_ms: DurationMs | None = 0

    def lost_ms(self, ran_ms: DurationMs) -> DurationMs:
        """What a paused job has to do again of what it did since it last started."""
        if self.checkpoint_ms is None:
            return ran_ms
        return ran_ms % self.checkpoint_ms if self.checkpoint_ms else 0


Deed: TypeAlias = Admit | Reclaim | Preempt | Move | Pending
"""A decision that changes something: Pending is one when a place is promised or no longer promised by it."""


class Mode(Protocol):
    """A way to schedule. It is told of every run as it is from now on, and then asked."""

    def put(self, job: Job, run: Run) -> None:
        """The job's run is like this now."""
        ...

    def drop(self, job: JobId) -> None:
        """The job has ended."""
        ...

    def decide(self, now_ms: Instant) -> Sequence[Deed]:
        """What is to be done, one decision a job."""
        ...

    def look_again_ms(self, run: Run) -> Instant | None:
        """When the mode may decide differently about a run though nothing happens."""
        ...


@dataclass(slots=True)
class Ticket:
    """A job under way. `left_ms` is what it has to run still, as of its last start."""

    job: Job
    run: Run
    submitted_ms: Instant
    duration_ms: DurationMs
    left_ms: DurationMs
    total_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A job was started or paused."""

    at_ms: Instant
    deed: Deed


@dataclass(slots=True)
class Course:
    """What came of all jobs. `displaced`: work since the last start of those that were paused; `lost`: what of it had
    to be done again; `leaving`: what they held while they left, and did nothing with. `waits_ms`: of each job that
    ended, all the time it was there and did not run.
    """

    waits_ms: list[DurationMs]
    acts: list[Act]
    pauses: int = 0
    displaced: int = 0
    lost: int = 0
    leaving: int = 0
    instants: int = 0
    end_ms: Instant = 0


class Replay:
    """One trace, one mode. `acts` are written down only when asked for."""

    def __init__(self, workload: Workload, mode: Mode, pace: Pace, meter: Meter, *, keep_acts: bool = False) -> None:
        self._arrivals = workload.jobs
        self._next = 0
        self._mode = mode
        self._pace = pace
        self._meter = meter
        self._keep_acts = keep_acts
        self._due: list[Due] = []
        self._looks: list[Due] = []
        self._tickets: dict[JobId, Ticket] = {}
        self.course = Course(waits_ms=[], acts=[])

    @property
    def unfinished(self) -> int:
        """Jobs that never ended: no mode could start them."""
        return len(self._tickets)

    def run(self) -> Course:
        """Until nothing is due any more."""
        now_ms = self._upcoming()
        while now_ms is not None:
            self._meter.advance(now_ms)
            self.course.instants += 1
            self.course.end_ms = now_ms
            self._happen(now_ms)
            for _ in range(ROUNDS):
                if not self._carry_out(self._mode.decide(now_ms), now_ms):
                    break
            now_ms = self._upcoming()
        return self.course

    def _upcoming(self) -> Instant | None:
        """The next instant at which something happens."""
        due = [self._arrivals[self._next][0].submitted_ms] if self._next < len(self._arrivals) else []
        for heap in (self._due, self._looks):
            while heap and self._is_stale(heap[0]):
                heappop(heap)
            due += [heap[0][0]] if heap else []
        return min(due, default=None)

    def _is_stale(self, due: Due) -> bool:
        """The run is not as it was when this was expected of it."""
        _, job, starts, phase = due
        ticket = self._tickets.get(job)
        return ticket is None or (ticket.run.starts, ticket.run.phase) != (starts, phase)

    def _happen(self, now_ms: Instant) -> None:
        while self._due and self._due[0][0] <= now_ms:
            due = heappop(self._due)
            if not self._is_stale(due):
                ticket = self._tickets[due[1]]
                if ticket.run.phase is RunPhase.STOPPING:
                    self._leave(ticket)
                else:
                    self._end(ticket, now_ms)
        while self._looks and self._looks[0][0] <= now_ms:
            heappop(self._looks)
        while self._next < len(self._arrivals) and self._arrivals[self._next][0].submitted_ms <= now_ms:
            self._arrive(now_ms)

    def _arrive(self, now_ms: Instant) -> None:
        traced, job = self._arrivals[self._next]
        self._next += 1
        run = Run(
            job=job.id, digest=job.digest, phase=RunPhase.QUEUED, gpu_milli=job.gpu_milli, cpu_milli=job.cpu_milli,
            mem_bytes=job.mem_bytes, queued_at_ms=now_ms,
        )  # fmt: skip
        ticket = Ticket(job, run, now_ms, traced.duration_ms, traced.duration_ms, job.total_gpu_milli)
        self._tickets[job.id] = ticket
        self._meter.come(job.id, ticket.total_milli, now_ms)
        self._put(ticket, run)

    def _put(self, ticket: Ticket, run: Run) -> None:
        ticket.run = run
        self._mode.put(ticket.job, run)
        again_ms = self._mode.look_again_ms(run)
        if again_ms is not None:
            heappush(self._looks, (again_ms, run.job, run.starts, run.phase))

    def _end(self, ticket: Ticket, now_ms: Instant) -> None:
        job = ticket.job.id
        del self._tickets[job]
        self._mode.drop(job)
        self._meter.end(job, ticket.total_milli)
        self.course.waits_ms.append(now_ms - ticket.submitted_ms - ticket.duration_ms)

    def _leave(self, ticket: Ticket) -> None:
        """A paused job's place is free, and it waits."""
        run = ticket.run
        self._meter.wait(run.job, ticket.total_milli, run.queued_at_ms)
        self._put(ticket, transition.stopped(run))

    def _carry_out(self, deeds: Sequence[Deed], now_ms: Instant) -> bool:
        """Returns whether there is more to be done at once: somebody has left, or is in the place he started in."""
        more = False
        for deed in deeds:
            ticket = self._tickets[deed.job]
            match deed:
                case Admit():
                    self._start(ticket, deed, now_ms)
                case Pending():
                    self._promise(ticket, deed, now_ms)
                    more = more or deed.reason.code == FOR_START
                case _:
                    self._pause(ticket, deed, now_ms)
                    more = more or not self._pace.stop_ms
        return more

    def _start(self, ticket: Ticket, admit: Admit, now_ms: Instant) -> None:
        run = transition.started(_decided(ticket, admit, now_ms), now_ms)
        self._meter.start(run.job, ticket.total_milli)
        heappush(self._due, (now_ms + ticket.left_ms, run.job, run.starts, run.phase))
        self._put(ticket, run)
        self._note(Act(at_ms=now_ms, deed=admit))

    def _promise(self, ticket: Ticket, pending: Pending, now_ms: Instant) -> None:
        """A place kept for it stands on its run: where it goes, not where it still is.

        One that is kept as it empties counts as nobody's in the engine's accounts.
        """
        run, place = _decided(ticket, pending, now_ms), pending.reserved
        if place is None or pending.reason.code == GUARDED:
            self._meter.lapse(run.job, ticket.total_milli, run.queued_at_ms)
        elif run.phase is RunPhase.QUEUED:
            self._meter.promise(run.job, ticket.total_milli, now_ms)
        ticket.run = run
        self._mode.put(ticket.job, run)

    def _pause(self, ticket: Ticket, pause: Reclaim | Preempt | Move, now_ms: Instant) -> None:
        run = ticket.run
        ran_ms = now_ms - (now_ms if run.started_at_ms is None else run.started_at_ms)
        lost_ms = self._pace.lost_ms(ran_ms)
        ticket.left_ms -= ran_ms - lost_ms
        self.course.pauses += 1
        self.course.displaced += ticket.total_milli * ran_ms
        self.course.lost += ticket.total_milli * lost_ms
        self.course.leaving += ticket.total_milli * self._pace.stop_ms
        reserved = pause.reserved
        if reserved is None:
            self._meter.pause(run.job, ticket.total_milli)
        else:
            self._meter.move(run.job, ticket.total_milli, now_ms)
        ticket.run = _decided(ticket, pause, now_ms)
        self._note(Act(at_ms=now_ms, deed=pause))
        if self._pace.stop_ms:
            self._put(ticket, ticket.run)
            heappush(self._due, (now_ms + self._pace.stop_ms, run.job, ticket.run.starts, RunPhase.STOPPING))
        else:
            self._leave(ticket)

    def _note(self, act: Act) -> None:
        if self._keep_acts:
            self.course.acts.append(act)


def _decided(ticket: Ticket, deed: Deed, now_ms: Instant) -> Run:
    """The run as what is decided about it leaves it."""
    return transition.decided(ticket.job, ticket.run, deed, now_ms) or ticket.run
