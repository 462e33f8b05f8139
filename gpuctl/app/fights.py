"""Limits the writes to objects that gpuctl writes again and again: another manager or an admission policy changes them
back, or gpuctl's decisions alternate.

Neither may cost the API server an endless stream of writes. A difference that returns after each write is corrected at
once a few times, and then after delays that double. The delay applies only to changes that matter to no other team. A
change that pauses, releases or removes a run, or sets which pods it has, is written without this delay, so that no
tenant keeps or gains GPUs by changing its own object back.

An object that is written too often within a minute, for whatever reason, is left alone until a minute after the first
of these writes. A change that may take GPUs back is still written, but not at once after the write before. The journal
names the fields and the other manager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuctl.app.cycle import CycleReport
from gpuctl.k8s import names
from gpuctl.k8s.objects import items, text
from gpuctl.model.change import Change, OutcomeStatus
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

WINDOW_MS: DurationMs = 60_000
WRITES_IN_A_WINDOW = 12
"""More writes than the life of a job takes in a minute: created, admitted, paused, admitted again, changed, pruned."""
RETURNS_AT_ONCE = 3
"""How often the same difference is corrected without a delay: a person may make a mistake twice."""
FIRST_DELAY_MS: DurationMs = 5_000
LONGEST_DELAY_MS: DurationMs = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fight:
    """How often an object was written lately, and what was changed the last time."""

    times: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Return:
    """A difference that returns: its words, how often in a row it was corrected, when it was last corrected, when last
    seen."""

    what: str
    times: int
    at_ms: Instant
    seen_ms: Instant

    @property
    def until_ms(self) -> Instant:
        """When the difference may be corrected again."""
        if self.times < RETURNS_AT_ONCE:
            return self.at_ms
        return self.at_ms + min(FIRST_DELAY_MS << min(self.times - RETURNS_AT_ONCE, 16), LONGEST_DELAY_MS)


class Fights:
    """The times of the recent writes to each object. Ledgers don't count: they are written together with everything
    else."""

    def __init__(self) -> None:
        self._writes: dict[ObjectRef, deque[Instant]] = {}
        self._returns: dict[ObjectRef, _Return] = {}
        self._last: dict[ObjectRef, str] = {}

    def note(self, report: CycleReport) -> None:
        """Remember the writes of a cycle."""
        for outcome in report.result.outcomes:
            ref = outcome.change.ref
            if outcome.status is OutcomeStatus.APPLIED and ref.namespace != names.SYSTEM_NAMESPACE:
                self._writes.setdefault(ref, deque()).append(report.at_ms)
                self._last[ref] = outcome.change.reason
                if outcome.change.may_rest:
                    self._note_return(outcome.change, report.at_ms)
        seen = {(change.ref, change.reason) for change in report.plan.changes} if self._returns else set()
        for ref, each in [*self._returns.items()]:
            if (ref, each.what) in seen:
                self._returns[ref] = replace(each, seen_ms=report.at_ms)
            elif report.at_ms - each.seen_ms >= WINDOW_MS:
                del self._returns[ref]

    def _note_return(self, change: Change, at_ms: Instant) -> None:
        before = self._returns.get(change.ref)
        times = before.times + 1 if before is not None and before.what == change.reason else 1
        self._returns[change.ref] = _Return(what=change.reason, times=times, at_ms=at_ms, seen_ms=at_ms)

    def rests(self, change: Change, now_ms: Instant) -> bool:
        """Whether a change is left for later: its difference returned each time, or its object was written too
        often."""
        back, times = self._returns.get(change.ref), self._writes.get(change.ref, deque())
        if change.may_rest and back is not None and now_ms < back.until_ms:
            return True
        if len(times) < WRITES_IN_A_WINDOW or times[-WRITES_IN_A_WINDOW] <= now_ms - WINDOW_MS:
            return False
        return not change.frees or now_ms < times[-1] + FIRST_DELAY_MS

    def fought_over(self, now_ms: Instant) -> frozenset[ObjectRef]:
        """The objects written too often. Cost: linear in the objects written within the last minute."""
        for ref, times in [*self._writes.items()]:
            while times and times[0] <= now_ms - WINDOW_MS:
                times.popleft()
            if not times:
                del self._writes[ref]
                del self._last[ref]
        return frozenset(ref for ref, times in self._writes.items() if len(times) >= WRITES_IN_A_WINDOW)

    def standing(self, now_ms: Instant) -> Mapping[ObjectRef, Fight]:
        """All objects in a fight, with what is known of each: those written too often, and those whose difference
        returned often."""
        of_all = {ref: Fight(times=len(self._writes[ref]), what=self._last[ref]) for ref in self.fought_over(now_ms)}
        back = {ref: each for ref, each in self._returns.items() if each.times > RETURNS_AT_ONCE}
        return {**of_all, **{ref: Fight(times=each.times, what=each.what) for ref, each in back.items()}}


def rival(live: Body | None) -> str:
    """The other field manager that wrote an object last, by its managed fields; "" if only gpuctl did."""
    entries = [entry for entry in items(live or {}, "metadata", "managedFields") if not entry.get("subresource")]
    others = [entry for entry in entries if entry.get("manager") != names.FIELD_MANAGER]
    return text(max(others, key=lambda entry: text(entry, "time")), "manager") if others else ""
