"""Replay a trace in virtual time with one scheduling mode, on values alone, without an embedded cluster.

At each instant jobs are submitted, jobs end, and paused jobs release their GPUs; then the mode decides. The replay
itself decides nothing. An admitted job starts at once; a paused job holds its GPUs for `stop_ms` more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

from gpuctl.engine.reasons import FOR_START, GUARDED
from gpuctl.model import transition
from gpuctl.model.checkpoint import work_since_checkpoint
from gpuctl.model.decision import Admit, Move, Pending, Preempt, Reclaim
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.simulate.meter import Meter
from gpuctl.simulate.workload import Workload

ROUNDS = 16
"""The most rounds at one instant. Another round follows if a pause takes no time, or if a start waits for another
one."""

YOUNG_MS: DurationMs = 60_000
"""A run that has run for less is young: it had hardly begun to work when it was stopped."""

Due: TypeAlias = tuple[Instant, JobId, int, RunPhase]
"""When a run ends, leaves or may be decided differently. Void once its number of starts or its phase has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseCost:
    """What a pause costs. `stop_ms`: time from the pause until the GPUs are free. `checkpoint_ms`: interval of
    checkpoints since the start; a paused job resumes from the last one. 0: no work is lost; None: all of it."""

    stop_ms: DurationMs = 30_000
    checkpoint_ms: DurationMs | None = 0

    def lost_ms(self, job: Job, ran_ms: DurationMs) -> DurationMs:
        """Work since the last start that a paused job has to repeat. A job's own declaration takes precedence."""
        declared = work_since_checkpoint(job.checkpoint_ms, 0, ran_ms)
        if declared is not None:
            return declared
        if self.checkpoint_ms is None:
            return ran_ms
        return ran_ms % self.checkpoint_ms if self.checkpoint_ms else 0


RunTransition: TypeAlias = Admit | Reclaim | Preempt | Move | Pending
"""A decision that changes a run. Pending is one if it makes or cancels a reservation."""


class Mode(Protocol):
    """A scheduling mode: `put` and `drop` report the present runs, then `decide` returns its decisions."""

    def put(self, job: Job, run: Run) -> None:
        """Take over the job's present run."""
        ...

    def drop(self, job: JobId) -> None:
        """Forget a job that has ended."""
        ...

    def decide(self, now_ms: Instant) -> Sequence[RunTransition]:
        """The decisions that change a run, at most one for each job."""
        ...

    def look_again_ms(self, run: Run) -> tuple[Instant, ...]:
        """The instants from now on at which the mode may decide differently about a run without an event."""
        ...


@dataclass(slots=True)
class TrackedJob:
    """A submitted job that has not ended. `left_ms`: the run time that was left at its last start."""

    job: Job
    run: Run
    submitted_ms: Instant
    duration_ms: DurationMs
    left_ms: DurationMs
    total_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEvent:
    """A start or a pause, and when it happened."""

    at_ms: Instant
    decision: RunTransition


@dataclass(slots=True)
class ReplayResult:
    """The results of all jobs together.

    `displaced`: work that paused jobs had done since their last start; `lost`: the part of it that was repeated;
    `leaving`: GPU time that they held while stopping. `waits_ms`: for each ended job, the time since its submission in
    which it did not run.

    `reclaims`: pauses for a job of another project; `young_victims`: pauses of a run that had run for less than
    YOUNG_MS; `most_starts`: the starts of the job that started most often. These show thrash: jobs that take GPUs from
    each other and get no work done.
    """

    waits_ms: list[DurationMs]
    events: list[ReplayEvent]
    pauses: int = 0
    reclaims: int = 0
    young_victims: int = 0
    most_starts: int = 0
    displaced: int = 0
    lost: int = 0
    leaving: int = 0
    instants: int = 0
    end_ms: Instant = 0


class Replay:
    """One trace replayed with one mode. `events` are recorded only with `keep_events`."""

    def __init__(
        self, workload: Workload, mode: Mode, pause_cost: PauseCost, meter: Meter, *, keep_events: bool = False
    ) -> None:
        self._arrivals = workload.jobs
        self._next = 0
        self._mode = mode
        self._pause_cost = pause_cost
        self._meter = meter
        self._keep_events = keep_events
        self._due: list[Due] = []
        self._looks: list[Due] = []
        self._tracked: dict[JobId, TrackedJob] = {}
        self.result = ReplayResult(waits_ms=[], events=[])

    @property
    def unfinished(self) -> int:
        """Jobs that have not ended; after `run`, the jobs that the mode could not start."""
        return len(self._tracked)

    def run(self) -> ReplayResult:
        """Replay until no event is left."""
        now_ms = self._upcoming()
        while now_ms is not None:
            self._meter.advance(now_ms)
            self.result.instants += 1
            self.result.end_ms = now_ms
            self._happen(now_ms)
            for _ in range(ROUNDS):
                if not self._carry_out(self._mode.decide(now_ms), now_ms):
                    break
            now_ms = self._upcoming()
        return self.result

    def _upcoming(self) -> Instant | None:
        """The instant of the next event; None: there is none."""
        due = [self._arrivals[self._next][0].submitted_ms] if self._next < len(self._arrivals) else []
        for heap in (self._due, self._looks):
            while heap and self._is_stale(heap[0]):
                heappop(heap)
            due += [heap[0][0]] if heap else []
        return min(due, default=None)

    def _is_stale(self, due: Due) -> bool:
        """Whether the run has changed since this event was planned."""
        _, job, starts, phase = due
        tracked = self._tracked.get(job)
        return tracked is None or (tracked.run.starts, tracked.run.phase) != (starts, phase)

    def _happen(self, now_ms: Instant) -> None:
        while self._due and self._due[0][0] <= now_ms:
            due = heappop(self._due)
            if not self._is_stale(due):
                tracked = self._tracked[due[1]]
                if tracked.run.phase is RunPhase.STOPPING:
                    self._leave(tracked)
                else:
                    self._end(tracked, now_ms)
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
        tracked = TrackedJob(job, run, now_ms, traced.duration_ms, traced.duration_ms, job.total_gpu_milli)
        self._tracked[job.id] = tracked
        self._meter.come(job.id, tracked.total_milli, now_ms)
        self._put(tracked, run)

    def _put(self, tracked: TrackedJob, run: Run) -> None:
        tracked.run = run
        self._mode.put(tracked.job, run)
        for again_ms in self._mode.look_again_ms(run):
            heappush(self._looks, (again_ms, run.job, run.starts, run.phase))

    def _end(self, tracked: TrackedJob, now_ms: Instant) -> None:
        job = tracked.job.id
        del self._tracked[job]
        self._mode.drop(job)
        self._meter.end(job, tracked.total_milli)
        self.result.waits_ms.append(now_ms - tracked.submitted_ms - tracked.duration_ms)

    def _leave(self, tracked: TrackedJob) -> None:
        """A paused job has released its GPUs and is queued again."""
        run = tracked.run
        self._meter.wait(run.job, tracked.total_milli, run.queued_at_ms)
        self._put(tracked, transition.stopped(run))

    def _carry_out(self, decisions: Sequence[RunTransition], now_ms: Instant) -> bool:
        """Carry out the decisions. Returns whether another round follows at this instant: GPUs were released, or a
        start waits for another one."""
        more = False
        for decision in decisions:
            tracked = self._tracked[decision.job]
            match decision:
                case Admit():
                    self._start(tracked, decision, now_ms)
                case Pending():
                    self._reserve(tracked, decision, now_ms)
                    more = more or decision.reason.code == FOR_START
                case _:
                    self._pause(tracked, decision, now_ms)
                    more = more or not self._pause_cost.stop_ms
        return more

    def _start(self, tracked: TrackedJob, admit: Admit, now_ms: Instant) -> None:
        run = transition.started(_decided(tracked, admit, now_ms), now_ms)
        self.result.most_starts = max(self.result.most_starts, run.starts)
        self._meter.start(run.job, tracked.total_milli)
        heappush(self._due, (now_ms + tracked.left_ms, run.job, run.starts, run.phase))
        self._put(tracked, run)
        self._note(ReplayEvent(at_ms=now_ms, decision=admit))

    def _reserve(self, tracked: TrackedJob, pending: Pending, now_ms: Instant) -> None:
        """Make, change or cancel the reservation on a job's run: the place where it will start.

        The engine charges no project for a reservation whose GPUs others still use (GPU5080).
        """
        run, place = _decided(tracked, pending, now_ms), pending.reserved
        if place is None or pending.reason.code == GUARDED:
            self._meter.cancel_reservation(run.job, tracked.total_milli, run.queued_at_ms)
        elif run.phase is RunPhase.QUEUED:
            self._meter.reserve(run.job, tracked.total_milli, now_ms)
        tracked.run = run
        self._mode.put(tracked.job, run)

    def _pause(self, tracked: TrackedJob, pause: Reclaim | Preempt | Move, now_ms: Instant) -> None:
        run = tracked.run
        ran_ms = now_ms - (now_ms if run.started_at_ms is None else run.started_at_ms)
        lost_ms = self._pause_cost.lost_ms(tracked.job, ran_ms)
        tracked.left_ms -= ran_ms - lost_ms
        self.result.pauses += 1
        if isinstance(pause, Reclaim):
            self.result.reclaims += 1
            self.result.young_victims += ran_ms < YOUNG_MS
        self.result.displaced += tracked.total_milli * ran_ms
        self.result.lost += tracked.total_milli * lost_ms
        self.result.leaving += tracked.total_milli * self._pause_cost.stop_ms
        reserved = pause.reserved
        if reserved is None:
            self._meter.pause(run.job, tracked.total_milli)
        else:
            self._meter.move(run.job, tracked.total_milli, now_ms)
        tracked.run = _decided(tracked, pause, now_ms)
        self._note(ReplayEvent(at_ms=now_ms, decision=pause))
        if self._pause_cost.stop_ms:
            self._put(tracked, tracked.run)
            heappush(self._due, (now_ms + self._pause_cost.stop_ms, run.job, tracked.run.starts, RunPhase.STOPPING))
        else:
            self._leave(tracked)

    def _note(self, event: ReplayEvent) -> None:
        if self._keep_events:
            self.result.events.append(event)


def _decided(tracked: TrackedJob, decision: RunTransition, now_ms: Instant) -> Run:
    """The run once the decision is carried out."""
    return transition.decided(tracked.job, tracked.run, decision, now_ms) or tracked.run
