"""The unattended loop: follow the branch, enforce what it says, stay up whatever happens outside.

Git is asked every interval; between two of those the cluster is watched, and a change there is answered at once; one
that nobody waits for, and gpuctl's own writes, half a second later. What can't be reached is tried again after one
second, then two, then four: Git up to five minutes, and meanwhile what was last good is enforced; the cluster up to the
interval. A bug in a cycle is reported and does not end the loop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from gpuctl.app.cycle import CycleReport, Site, at_rest, cycles, until_calm
from gpuctl.app.fights import Fights
from gpuctl.app.metrics import Meters, Unmeasured, measure
from gpuctl.app.mirror import Mirror
from gpuctl.app.notes import Unrecorded, notes_of
from gpuctl.app.ports import (
    Clock,
    Cluster,
    Leadership,
    Machines,
    Recorder,
    Source,
    SourceUnavailable,
    Stop,
    WorldFault,
)
from gpuctl.app.report import (
    Entry,
    Journal,
    Level,
    of_cycle,
    of_damage,
    of_diagnostic,
    of_fault,
    of_fights,
    of_troubles,
)
from gpuctl.app.revisions import Desired, Revisions
from gpuctl.app.stir import Stir, stir
from gpuctl.diag.wording import message
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.state import ClusterState
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe import Records, read_ledgers

FIRST_RETRY_MS: DurationMs = 1_000
LAST_RETRY_MS: DurationMs = 300_000
SHORTEST_WAIT_MS: DurationMs = 20
"""Between two looks at what is due: to be late by that is no loss."""
LOOK_AGAIN_MS: DurationMs = 500
"""When to look at what came of one's own writes, if nothing else calls for a look before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """`interval_ms`: how often Git is asked; `react_ms`: how often the cluster's watch is emptied in between."""

    interval_ms: DurationMs = 30_000
    react_ms: DurationMs = 250
    once: bool = False


class Alone:
    """The leadership of a process that shares its cluster with no other."""

    def held(self) -> bool:
        """Always."""
        return True

    def holder(self) -> str:
        """Nobody needs to know."""
        return ""

    def term(self) -> int:
        """The only one."""
        return 0

    def fault(self) -> None:
        """Nothing can go wrong."""


ALONE = Alone()
UNMEASURED = Unmeasured()
UNRECORDED = Unrecorded()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The world the loop works on, through its ports."""

    source: Source
    cluster: Cluster
    machines: Machines
    clock: Clock
    leadership: Leadership = ALONE
    meters: Meters = UNMEASURED
    recorder: Recorder = UNRECORDED


def retry_ms(failures: int) -> DurationMs:
    """How long to wait after so many failures in a row: doubling, bounded."""
    return min(FIRST_RETRY_MS << min(failures - 1, 20), LAST_RETRY_MS)


def run(settings: LoopSettings, outside: Outside, journal: Journal, stop: Stop) -> int:
    """Reconcile until told to stop, or once. Returns the exit code: 1 only for once, when an error stands."""
    reconciler = Reconciler(outside, journal, stop)
    clock = outside.clock
    fetch_due = enforce_due = clock.now_ms()
    fetch_failures = enforce_failures = 0
    while not stop.requested():
        outside.meters.beat()
        if not reconciler.leads():
            reconciler.stand_by()
            fetch_due = enforce_due = clock.now_ms()
            fetch_failures = enforce_failures = 0
            stop.wait(settings.react_ms)
            continue
        if clock.now_ms() >= fetch_due:
            fetch_failures = 0 if reconciler.follow() else fetch_failures + 1
            fetch_due = clock.now_ms() + (retry_ms(fetch_failures) if fetch_failures else settings.interval_ms)
            enforce_due = enforce_due if enforce_failures else clock.now_ms()
        if clock.now_ms() < enforce_due and not enforce_failures:
            enforce_due = min(enforce_due, clock.now_ms() + _PATIENCE_MS[reconciler.stirred()])
        if clock.now_ms() >= enforce_due:
            well = reconciler.enforce(at_rest if settings.once else until_calm)
            enforce_failures = 0 if well else enforce_failures + 1
            failures = enforce_failures or reconciler.unfinished
            delay_ms = retry_ms(failures) if failures else reconciler.rest_ms(settings.interval_ms)
            enforce_due = clock.now_ms() + min(delay_ms, settings.interval_ms)
        if settings.once:
            return 1 if journal.has_errors else 0
        due_ms = min(fetch_due, enforce_due) - clock.now_ms()
        stop.wait(min(settings.react_ms, max(SHORTEST_WAIT_MS, due_ms)))
    return 0


_PATIENCE_MS: Mapping[Stir, DurationMs] = {Stir.NOTHING: LAST_RETRY_MS, Stir.PROGRESS: LOOK_AGAIN_MS, Stir.NEWS: 0}
"""How long a cycle may wait for more of the kind."""


class Reconciler:
    """Follows the branch and enforces it, each when told to. What it remembers is only what it can read again, and is
    forgotten when another has led: what was good then is in the ledgers."""

    def __init__(self, outside: Outside, journal: Journal, stop: Stop) -> None:
        self._outside = outside
        self._journal = journal
        self._stop = stop
        self._mirror = Mirror(outside.cluster)
        self._term = outside.leadership.term()
        self._begin()

    def _begin(self) -> None:
        """As a process that has just begun, but for its copy of the cluster."""
        self._fights = Fights()
        self._site = Site(mirror=self._mirror, clock=self._outside.clock, stop=self._is_over)
        self._revisions = Revisions(self._outside.source)
        self._head: Revision = NO_REVISION
        self._desired = Desired()
        self._confirmations: frozenset[str] = frozenset()
        self._provided: Desired | None = None
        self._before: CycleReport | None = None
        self._left: ClusterState | None = None
        """What was observed last, with what the last cycle wrote since."""
        self.settled = True
        """Whether the last cycles came to where nothing was left to write."""
        self.calm = True
        """Whether they came to where nothing is left to write before something happens in the cluster."""
        self.unfinished = 0
        """How often in a row a write failed that may well go through soon."""

    def leads(self) -> bool:
        """Whether this process may act; says so when that changes."""
        leadership = self._outside.leadership
        held, term = leadership.held(), leadership.term()
        if term != self._term:
            self._term = term
            self._begin()
            self._journal.forget("git", "declarations", "cluster")
        waits = [] if held else [Entry(event="standby", fields={"leader": leadership.holder()})]
        fault = None if held else leadership.fault()
        self._journal.stand(self._now(), "leadership", [*waits, *([of_fault("unreachable", fault)] if fault else [])])
        return held

    def stand_by(self) -> None:
        """While another leads: keep the copy current, so that taking over takes no time."""
        if self._guarded("cluster", self._look):
            self._outside.meters.synced()

    def follow(self) -> bool:
        """Fetch the branch and work out what to enforce; False when something could not be read."""
        well = self._guarded("git", self._follow)
        self._outside.meters.fetched(well=well)
        return well

    def enforce(self, done: Callable[[CycleReport], bool] = until_calm) -> bool:
        """Run cycles until one is done; False when the cluster can't be read."""
        return self._guarded("cluster", lambda: self._enforce(done))

    def rest_ms(self, interval_ms: DurationMs) -> DurationMs:
        """How long to rest after the last cycles, if nothing happens."""
        return interval_ms if self.settled else LOOK_AGAIN_MS if self.calm else 0

    def stirred(self) -> Stir:
        """How much has changed since the last cycle was done; NEWS when that can't be seen."""
        try:
            changes = self._mirror.refresh()
        except WorldFault:
            return Stir.NEWS
        if not changes:
            return Stir.NOTHING
        declared = self._desired.declared
        if self._mirror.altered or declared is None or self._left is None:
            return Stir.NEWS
        return stir(self._left, self._site.recall.look(self._mirror.objects(), declared.cluster.name))

    def _look(self) -> list[Entry]:
        self._mirror.refresh()
        return []

    def _follow(self) -> list[Entry]:
        source = self._outside.source
        try:
            head = source.head()
        except SourceUnavailable as fault:
            return self._do_without("source", fault)
        if head == self._head:
            return []
        try:
            newest = source.tree(head)
            self._confirmations = source.confirmations(NO_REVISION, head)
            before, records = self._head, self._records()
            self._take(newest, records)
            self._note_rewriting(before, head, records)
        except SourceUnavailable as fault:
            return self._do_without("unreadable", fault)
        self._head = head
        return []

    def _do_without(self, event: str, fault: SourceUnavailable) -> list[Entry]:
        """Go on with what was good before, in this process or in one before it."""
        if self._stop.requested():
            return []
        if self._desired.declared is None:
            self._take(None, self._records())
        return [of_fault(event, fault)]

    def _take(self, newest: SourceTree | None, records: Records) -> None:
        self._desired = desired = self._revisions.compose(newest, records)
        if desired.revision:
            self._journal.tell(self._now(), Entry(event="following", fields={"revision": desired.revision}))
            self._outside.meters.following(desired.revision, self._now())
        entries = [of_diagnostic("invalid", found) for found in desired.diagnostics]
        self._journal.stand(self._now(), "declarations", entries)

    def _records(self) -> Records:
        """As last seen; read now when this process has seen nothing yet."""
        if self._desired.declared is None:
            self._mirror.refresh()
        return read_ledgers(self._mirror.objects().objects)

    def _note_rewriting(self, before: Revision, head: Revision, records: Records) -> None:
        """Say so when the branch no longer contains what was applied, by this process or by one before it."""
        declared = self._desired.declared
        ledgers = {} if declared is None else records.of(declared.cluster.name).ledgers
        applied = {before} if before else {ledger.revision for ledger in ledgers.values()}
        for old in sorted(applied - {NO_REVISION}):
            if not self._outside.source.follows(old, head):
                told = message("GPU8007", {"old": old[:12], "new": head[:12]})
                facts = {"code": "GPU8007", "old": old, "new": head, "message": told}
                self._journal.tell(self._now(), Entry(event="rewritten", level=Level.WARNING, fields=facts))

    def _enforce(self, done: Callable[[CycleReport], bool]) -> list[Entry]:
        declared = self._desired.declared
        if declared is None:
            why = "the newest commit has errors" if self._desired.diagnostics else "nothing could be read yet"
            told = message("GPU8012", {"why": why})
            return [Entry(event="idle", level=Level.ERROR, fields={"code": "GPU8012", "message": told})]
        if self._provided is not self._desired:
            self._outside.machines.provide(declared.cluster.pools)
            self._provided = self._desired
        spared = self._fights.fought_over(self._now())
        report = self._cycled(declared, replace(self._site, spared=spared), done)
        self._site = replace(self._site, rejected=report.rejected)
        self.settled, self.calm = report.settled, report.calm
        self._left = self._site.recall.look(self._mirror.objects(), declared.cluster.name)
        self.unfinished = self.unfinished + 1 if any(not outcome.refused for outcome in report.faults) else 0
        self._outside.meters.synced()
        fought = spared | self._fights.fought_over(self._now())
        return [*of_damage(report), *of_troubles(report), *of_fights(fought, report.state)]

    def _cycled(self, declared: Declared, site: Site, done: Callable[[CycleReport], bool]) -> CycleReport:
        """Run cycles until one is done, and tell of each as soon as it is over; the last report.

        A report holds the cluster as it was: those that are told of are let go, or a long row of cycles holds the
        cluster as often as there are cycles.
        """
        meters = self._outside.meters
        last: CycleReport | None = None
        for report in cycles(declared, site, self._confirmations, done):
            last = report
            meters.beat()
            self._fights.note(report)
            meters.cycle(measure(report, self._before, self._now() - report.at_ms))
            self._before = report
            for entry in of_cycle(report, self._desired.revision):
                self._journal.tell(report.at_ms, entry)
            self._outside.recorder.record(notes_of(report))
        assert last is not None  # noqa: S101 - there is always a first cycle
        return last

    def _is_over(self) -> bool:
        return self._stop.requested() or not self._outside.leadership.held()

    def _guarded(self, area: str, work: Callable[[], list[Entry]]) -> bool:
        """Do it; what goes wrong outside, or in gpuctl itself, becomes a line of the journal."""
        well = True
        try:
            problems = work()
            well = not any(problem.event == "source" for problem in problems)
        except WorldFault as fault:
            problems, well = [of_fault("unreachable", fault)], False
        except Exception as error:  # noqa: BLE001 - a bug of one cycle must not end months of service
            problems, well = [_of_bug(error)], False
        self._journal.stand(self._now(), area, problems)
        self._outside.meters.standing(self._journal.codes)
        return well

    def _now(self) -> Instant:
        return self._outside.clock.now_ms()


def _of_bug(error: Exception) -> Entry:
    """Our own mistake, with the line it was made in."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({PurePath(frame.filename).name}:{frame.lineno})"
    facts = {"code": "GPU9001", "message": message("GPU9001", {"what": what})}
    return Entry(event="bug", level=Level.ERROR, fields=facts)
