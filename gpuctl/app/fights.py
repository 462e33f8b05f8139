"""Objects that somebody else keeps changing back, or that gpuctl itself can't make up its mind about.

Neither may cost the API server an endless stream of writes. An object written too often within a minute is left alone
until a minute has passed since its first write in it, and people are told who else writes it.
"""

from __future__ import annotations

from collections import deque

from gpuctl.app.cycle import CycleReport
from gpuctl.k8s import names
from gpuctl.k8s.objects import items, text
from gpuctl.model.change import OutcomeStatus
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

WINDOW_MS: DurationMs = 60_000
WRITES_IN_A_WINDOW = 12
"""More than the life of a job takes in a minute: made, admitted, paused, admitted again, changed, pruned."""


class Fights:
    """When each object was written of late; ledgers, which are written with everything, don't count."""

    def __init__(self) -> None:
        self._writes: dict[ObjectRef, deque[Instant]] = {}

    def note(self, report: CycleReport) -> None:
        """Remember the writes of a cycle."""
        for outcome in report.result.outcomes:
            ref = outcome.change.ref
            if outcome.status is OutcomeStatus.APPLIED and ref.namespace != names.SYSTEM_NAMESPACE:
                self._writes.setdefault(ref, deque()).append(report.at_ms)

    def fought_over(self, now_ms: Instant) -> frozenset[ObjectRef]:
        """What is to be left alone now. Cost: linear in the objects written within the last minute."""
        for ref, times in [*self._writes.items()]:
            while times and times[0] <= now_ms - WINDOW_MS:
                times.popleft()
            if not times:
                del self._writes[ref]
        return frozenset(ref for ref, times in self._writes.items() if len(times) >= WRITES_IN_A_WINDOW)


def rival(live: Body | None) -> str:
    """Who else wrote an object last, by its managed fields; "" when nobody has."""
    entries = [entry for entry in items(live or {}, "metadata", "managedFields") if not entry.get("subresource")]
    others = [entry for entry in entries if entry.get("manager") != names.FIELD_MANAGER]
    return text(max(others, key=lambda entry: text(entry, "time")), "manager") if others else ""
