"""Runs ordinary cycles in virtual time, and records checkpoints and transitions. `simulate` and `demo` are built on it.

Time jumps to the next due instant: an event in the cluster (a pod ends), or an instant from which the engine may decide
differently by itself. At each instant, cycles run until one writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.app.cycle import CycleContext, CycleReport, converge
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.observation import Caption, Observer, checkpoint, index_of
from gpuctl.app.ports import Cluster, Machines, Progress, VirtualTime, World
from gpuctl.model.decision import Pending
from gpuctl.model.declared import Declared
from gpuctl.model.state import RunPhase
from gpuctl.model.units import Instant
from gpuctl.simulate.report import Checkpoint
from gpuctl.simulate.wakeups import faded, retries, wakeups

INSTANTS = 100_000
"""A cluster that is not at rest after this many instants is reported as unstable."""

MOVING = frozenset({RunPhase.STARTING, RunPhase.STOPPING})


@dataclass(frozen=True, kw_only=True)
class Venue:
    """A cluster, with its machines, its clock, and `world`, which makes due events happen in it."""

    cluster: Cluster
    machines: Machines
    world: Progress
    time: VirtualTime


@dataclass(frozen=True, kw_only=True)
class Sandbox(Venue):
    """A cluster in virtual time that a scenario can change."""

    world: World


Sandboxes = Callable[[Instant], Sandbox]
"""Makes an empty cluster whose clock stands at an instant."""


class Play:
    """Plays a simulation. The instants that it records are relative to `zero_ms`."""

    def __init__(self, venue: Venue, declared: Declared, zero_ms: Instant) -> None:
        self.venue = venue
        self.zero_ms = zero_ms
        self.context = CycleContext(
            object_cache=ObjectCache(venue.cluster), clock=venue.time, settle=venue.world.settle
        )
        self.observer = Observer(zero_ms=zero_ms)
        self.checkpoints: list[Checkpoint] = []
        self.cycles = 0
        self._begun_ms = zero_ms
        self.stable = True
        self.confirmations: frozenset[str] = frozenset()
        self.revision = ""
        self.declare(declared)

    def declare(self, declared: Declared) -> None:
        """Replace the declarations from now on."""
        self.declared = declared
        self.venue.machines.provide(declared.cluster.pools)
        self.venue.machines.define(declared.cluster.workload_kinds)

    def pass_until(self, until_ms: Instant | None, label: str) -> Checkpoint | None:
        """Play what is due up to an instant (None: until nothing is due).

        With a label, it returns a checkpoint: of the first instant at which nothing starts or stops, else of the last
        instant.
        """
        self._begun_ms = self.venue.time.now_ms()
        report = self._come_to_rest()
        noted = self._note(report, label) if label and _at_rest(report) else None
        for _ in range(INSTANTS):
            due = self._next_due(report, until_ms)
            if due is None or (until_ms is not None and due > until_ms):
                break
            report = self._come_to_rest(due)
            if label and noted is None and _at_rest(report):
                noted = self._note(report, label)
        else:
            self.stable = False
        return noted or (self._note(report, label) if label else None)

    def move_to(self, at_ms: Instant) -> None:
        """Move the clock to an instant up to which everything has been played."""
        self.venue.time.advance_to(max(at_ms, self.venue.time.now_ms()))
        self.venue.world.settle()

    def note_at(self, at_ms: Instant, label: str) -> Checkpoint:
        """Record a checkpoint of an instant up to which everything has been played."""
        report = self._come_to_rest(at_ms)
        self._begun_ms = report.at_ms
        return self._note(report, label)

    def note_end(self) -> Checkpoint:
        """Record a checkpoint of the instant of the last change, or of the last checkpoint if that is later."""
        last = max(self._changed, self._noted, key=lambda report: report.at_ms)
        self._begun_ms = last.at_ms
        return self._note(last, "end")

    def _come_to_rest(self, at_ms: Instant | None = None) -> CycleReport:
        """Move to an instant, and run cycles there until one writes nothing."""
        if at_ms is not None:
            self.move_to(at_ms)
        changes = len(self.observer.transitions)
        reports = converge(self.declared, self.context, self.confirmations)
        for report in reports:
            self.observer.take(index_of(report))
        self.cycles += len(reports)
        self.stable = self.stable and reports[-1].settled
        if len(reports) > 1 or len(self.observer.transitions) > changes or not self.checkpoints:
            self._changed = reports[-1]
        return reports[-1]

    def _note(self, report: CycleReport, label: str) -> Checkpoint:
        caption = Caption(label=label, begun_ms=self._begun_ms, revision=self.revision)
        noted = checkpoint(index_of(report), caption, self.zero_ms)
        self.checkpoints.append(noted)
        self._noted = report
        return noted

    def _next_due(self, report: CycleReport, until_ms: Instant | None) -> Instant | None:
        """The next instant to play; None if nothing is due.

        The fading of past use, and retries of starts that have failed often, count only before another due instant.
        Otherwise jobs that share GPUs by turns, or never start, would keep a play from ending.
        """
        now_ms = self.venue.time.now_ms()
        due = [self.venue.world.next_event_ms(), *wakeups(self.declared, report.state, now_ms)]
        upcoming = min((at_ms for at_ms in due if at_ms is not None and at_ms > now_ms), default=None)
        if upcoming is not None or until_ms is not None:
            again = retries(self.declared, report.state, now_ms)
            upcoming = min((at_ms for at_ms in (upcoming, *again) if at_ms is not None), default=None)
        end_ms = min((at_ms for at_ms in (upcoming, until_ms) if at_ms is not None), default=now_ms)
        by_use = faded(self.declared, report.state, report.schedule, end_ms)
        return upcoming if by_use is None else by_use


class LivePlay(Play):
    """A play on a cluster in real time: an instant is over when the cluster is at rest."""

    def pass_until(self, until_ms: Instant | None, label: str) -> Checkpoint | None:
        """Run cycles until nothing starts or stops, or the instant has passed. Returns a checkpoint."""
        self._begun_ms = self.venue.time.now_ms()
        report = self._come_to_rest()
        while not _at_rest(report):
            self.venue.world.settle()
            if until_ms is not None and self.venue.time.now_ms() > until_ms:
                self.stable = False
                break
            report = self._come_to_rest()
        return self._note(report, label)


def _at_rest(report: CycleReport) -> bool:
    """Whether nothing starts or stops, and no job waits for reserved GPUs that are being freed."""
    if any(run.phase in MOVING for run in report.state.runs):
        return False
    return not any(isinstance(decision, Pending) and decision.reserved for decision in report.schedule.decisions)
