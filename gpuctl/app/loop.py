"""The unattended loop: follow the branch, enforce its declarations, stay up whatever happens outside.

Git is fetched every interval, in the background, so that it never delays the scheduling. In between, the cluster is
watched: a change there starts a cycle at once; expected progress and gpuctl's own writes, half a second later.

A system that can't be reached is retried after one second, then two, then four: Git up to every five minutes, while the
last good declarations are enforced; the cluster up to every interval. Nothing is decided by a clock that differs from
the API server's. A bug, wherever it is, is reported and does not end the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.app.cycle import at_rest, until_calm
from gpuctl.app.outside import Outside
from gpuctl.app.ports import Clock, Stop
from gpuctl.app.reconciler import Reconciler
from gpuctl.app.report import Journal
from gpuctl.app.timekeeping import LAST_RETRY_MS, retry_ms
from gpuctl.model.units import DurationMs

SHORTEST_WAIT_MS: DurationMs = 20
"""The shortest time between two turns: a delay of this length costs nothing."""

LONGEST_STANDBY_MS: DurationMs = 60_000
"""How long `once` waits to lead: several times as long as a dead leader still counts as alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """`interval_ms`: how often Git is fetched. `react_ms`: how often the cluster's watch is read in between."""

    interval_ms: DurationMs = 30_000
    react_ms: DurationMs = 250
    once: bool = False


def run(settings: LoopSettings, outside: Outside, journal: Journal, stop: Stop) -> int:
    """Reconcile until told to stop, or once. Returns the exit code.

    The code is 1 only for `once`: where an error stands, a stop came before it was done, or another process leads.
    """
    reconciler = Reconciler(outside, journal, stop)
    rhythm = _Rhythm(settings, reconciler, outside.clock)
    until_ms = outside.clock.now_ms() + LONGEST_STANDBY_MS
    while not stop.requested():
        wait_ms = rhythm.turn()
        if settings.once and (reconciler.has_followed or rhythm.has_stumbled):
            return 1 if journal.has_errors or rhythm.has_stumbled else 0
        if settings.once and not outside.leadership.held() and outside.clock.now_ms() >= until_ms:
            return 1
        stop.wait(wait_ms)
    return 1 if settings.once else 0


class _Rhythm:
    """Knows what is due when: a fetch, a cycle, reading the cluster's changes."""

    def __init__(self, settings: LoopSettings, reconciler: Reconciler, clock: Clock) -> None:
        self._settings = settings
        self._reconciler = reconciler
        self._clock = clock
        self._bugs = 0
        self._begin()

    def _begin(self) -> None:
        self._fetch_due = self._enforce_due = self._clock.now_ms()
        self._fetch_failures = self._enforce_failures = 0
        self._is_asked = False

    def turn(self) -> DurationMs:
        """Do what is due. Returns how long to wait for the next turn; never raises."""
        try:
            self._reconciler.beat()
            wait_ms = self._turn()
            self._reconciler.tell_status()
        except Exception as error:  # noqa: BLE001 - a bug outside of a cycle must not end months of service either
            self._bugs += 1
            self._reconciler.troubles.bug("loop", error)
            return min(retry_ms(self._bugs), self._settings.interval_ms)
        self._bugs = 0
        self._reconciler.troubles.bug("loop", None)
        return wait_ms

    @property
    def has_stumbled(self) -> bool:
        """Whether the last turn met a bug."""
        return self._bugs > 0

    def _turn(self) -> DurationMs:
        settings, reconciler, clock = self._settings, self._reconciler, self._clock
        self._believe_a_clock_put_back()
        if not reconciler.leads():
            reconciler.stand_by()
            self._begin()
            return settings.react_ms
        # A request during a fetch may be about a commit that this fetch no longer sees, so it is kept.
        self._is_asked |= reconciler.is_asked_for_git()
        if reconciler.is_following:
            self._follow()
        elif self._is_asked or not reconciler.has_followed or clock.now_ms() >= self._fetch_due:
            self._is_asked = False
            self._follow()
        if not reconciler.has_followed:
            reconciler.stand_by()
            return settings.react_ms
        if clock.now_ms() < self._enforce_due and not self._enforce_failures:
            self._enforce_due = min(self._enforce_due, clock.now_ms() + reconciler.patience_ms())
        if clock.now_ms() >= self._enforce_due:
            self._enforce()
        next_ms = self._enforce_due if reconciler.is_following else min(self._fetch_due, self._enforce_due)
        return min(settings.react_ms, max(SHORTEST_WAIT_MS, next_ms - clock.now_ms()))

    def _believe_a_clock_put_back(self) -> None:
        """Bound the due times by their longest delay: after a clock was days ahead and is put back, nothing waits for
        days."""
        now_ms, interval_ms = self._clock.now_ms(), self._settings.interval_ms
        self._fetch_due = min(self._fetch_due, now_ms + max(interval_ms, LAST_RETRY_MS))
        self._enforce_due = min(self._enforce_due, now_ms + interval_ms)

    def _follow(self) -> None:
        well = self._reconciler.follow()
        if well is None:
            return
        now_ms = self._clock.now_ms()
        self._fetch_failures = 0 if well else self._fetch_failures + 1
        self._fetch_due = now_ms + (
            retry_ms(self._fetch_failures) if self._fetch_failures else self._settings.interval_ms
        )
        self._enforce_due = self._enforce_due if self._enforce_failures else now_ms

    def _enforce(self) -> None:
        reconciler, interval_ms = self._reconciler, self._settings.interval_ms
        well = reconciler.enforce(at_rest if self._settings.once else until_calm)
        self._enforce_failures = 0 if well else self._enforce_failures + 1
        failures = self._enforce_failures or reconciler.unfinished
        delay_ms = retry_ms(failures) if failures else reconciler.rest_ms(interval_ms)
        self._enforce_due = self._clock.now_ms() + min(delay_ms, interval_ms)
