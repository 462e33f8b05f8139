"""The unattended loop: follow the branch, enforce what it says, stay up whatever happens outside.

Git is asked every interval; between two of those the cluster is watched, and a change there is answered at once. What
can't be reached is tried again after one second, then two, then four: Git up to five minutes, and meanwhile what was
last good is enforced; the cluster up to the interval. A bug in a cycle is reported and does not end the loop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from gpuctl.app.cycle import CycleReport, Site, converge
from gpuctl.app.mirror import Mirror
from gpuctl.app.ports import Clock, Cluster, Machines, Source, SourceUnavailable, Stop, WorldFault
from gpuctl.app.report import Entry, Journal, Level, of_cycle, of_damage, of_diagnostic, of_fault, of_troubles
from gpuctl.app.revisions import Desired, Revisions
from gpuctl.diag.wording import message
from gpuctl.model.ids import NO_REVISION, ProjectName, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.state import Ledger
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe import observe

FIRST_RETRY_MS: DurationMs = 1_000
LAST_RETRY_MS: DurationMs = 300_000
TOLD_OF_A_FIGHT = 3
"""Cycles that are told of when they came to no rest; the others were alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """`interval_ms`: how often Git is asked; `react_ms`: how often the cluster's watch is emptied in between."""

    interval_ms: DurationMs = 30_000
    react_ms: DurationMs = 250
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The world the loop works on, through its ports."""

    source: Source
    cluster: Cluster
    machines: Machines
    clock: Clock


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
        if clock.now_ms() >= fetch_due:
            fetch_failures = 0 if reconciler.follow() else fetch_failures + 1
            fetch_due = clock.now_ms() + (retry_ms(fetch_failures) if fetch_failures else settings.interval_ms)
            enforce_due = enforce_due if enforce_failures else clock.now_ms()
        if clock.now_ms() >= enforce_due or (not enforce_failures and reconciler.stirred()):
            enforce_failures = 0 if reconciler.enforce() else enforce_failures + 1
            delay_ms = retry_ms(enforce_failures) if enforce_failures else settings.interval_ms
            enforce_due = clock.now_ms() + min(delay_ms, settings.interval_ms)
        if settings.once:
            return 1 if journal.has_errors else 0
        stop.wait(settings.react_ms)
    return 0


class Reconciler:
    """Follows the branch and enforces it, each when told to. What it remembers is only what it can read again."""

    def __init__(self, outside: Outside, journal: Journal, stop: Stop) -> None:
        self._outside = outside
        self._journal = journal
        self._stop = stop
        self._mirror = Mirror(outside.cluster)
        self._site = Site(mirror=self._mirror, clock=outside.clock, stop=stop.requested)
        self._revisions = Revisions(outside.source)
        self._head: Revision = NO_REVISION
        self._desired = Desired()
        self._confirmations: frozenset[str] = frozenset()
        self._provided: Desired | None = None

    def follow(self) -> bool:
        """Fetch the branch and work out what to enforce; False when something could not be read."""
        return self._guarded("git", self._follow)

    def enforce(self) -> bool:
        """Run cycles until nothing is left to write; False when the cluster can't be read or does not come to rest."""
        return self._guarded("cluster", self._enforce)

    def stirred(self) -> bool:
        """Whether the cluster changed since it was last looked at; True when that can't be seen."""
        try:
            return self._mirror.refresh() > 0
        except WorldFault:
            return True

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
            self._note_rewriting(head)
            self._confirmations = source.confirmations(NO_REVISION, head)
        except SourceUnavailable as fault:
            return self._do_without("unreadable", fault)
        self._take(newest)
        self._head = head
        return []

    def _do_without(self, event: str, fault: SourceUnavailable) -> list[Entry]:
        """Go on with what was good before, in this process or in one before it."""
        if self._stop.requested():
            return []
        if self._desired.declared is None:
            self._take(None)
        return [of_fault(event, fault)]

    def _take(self, newest: SourceTree | None) -> None:
        self._desired = desired = self._revisions.compose(newest, self._ledgers())
        if desired.revision:
            self._journal.tell(self._now(), Entry(event="following", fields={"revision": desired.revision}))
        entries = [of_diagnostic("invalid", found) for found in desired.diagnostics]
        self._journal.stand(self._now(), "declarations", entries)

    def _ledgers(self) -> Mapping[ProjectName, Ledger]:
        """As last seen; read now when this process has seen nothing yet."""
        if self._desired.declared is None:
            self._mirror.refresh()
        return observe(self._mirror.objects()).ledgers

    def _note_rewriting(self, head: Revision) -> None:
        """Say so when the branch no longer contains what was applied, by this process or by one before it."""
        applied = {self._head} if self._head else {ledger.revision for ledger in self._ledgers().values()}
        for old in sorted(applied - {NO_REVISION}):
            if not self._outside.source.follows(old, head):
                told = message("GPU8007", {"old": old[:12], "new": head[:12]})
                facts = {"code": "GPU8007", "old": old, "new": head, "message": told}
                self._journal.tell(self._now(), Entry(event="rewritten", level=Level.WARNING, fields=facts))

    def _enforce(self) -> list[Entry]:
        declared = self._desired.declared
        if declared is None:
            why = "the newest commit has errors" if self._desired.diagnostics else "nothing could be read yet"
            told = message("GPU8012", {"why": why})
            return [Entry(event="idle", level=Level.ERROR, fields={"code": "GPU8012", "message": told})]
        if self._provided is not self._desired:
            self._outside.machines.provide(declared.cluster.pools)
            self._provided = self._desired
        reports = converge(declared, self._site, self._confirmations)
        for report in reports if reports[-1].settled else reports[:TOLD_OF_A_FIGHT]:
            for entry in of_cycle(report, self._desired.revision):
                self._journal.tell(report.at_ms, entry)
        return [*of_damage(reports[-1]), *of_troubles(reports[-1]), *self._unrest(reports)]

    def _unrest(self, reports: tuple[CycleReport, ...]) -> list[Entry]:
        last = reports[-1]
        if last.settled or self._stop.requested():
            return []
        written = ", ".join(sorted({str(change.ref) for change in last.plan.changes})[:3])
        told = message("GPU7007", {"cycles": len(reports), "last": written})
        return [Entry(event="restless", level=Level.WARNING, fields={"code": "GPU7007", "message": told})]

    def _guarded(self, area: str, work: Callable[[], list[Entry]]) -> bool:
        """Do it; what goes wrong outside, or in gpuctl itself, becomes a line of the journal."""
        well = True
        try:
            problems = work()
            well = not any(problem.event in {"source", "restless"} for problem in problems)
        except WorldFault as fault:
            problems, well = [of_fault("unreachable", fault)], False
        except Exception as error:  # noqa: BLE001 - a bug of one cycle must not end months of service
            problems, well = [_of_bug(error)], False
        self._journal.stand(self._now(), area, problems)
        return well

    def _now(self) -> Instant:
        return self._outside.clock.now_ms()


def _of_bug(error: Exception) -> Entry:
    """Our own mistake, with the line it was made in."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({PurePath(frame.filename).name}:{frame.lineno})"
    facts = {"code": "GPU9001", "message": message("GPU9001", {"what": what})}
    return Entry(event="bug", level=Level.ERROR, fields=facts)
