"""Objects that gpuctl writes again and again: another manager changes them back, or gpuctl's decisions alternate.

Neither may cost the API server an endless stream of writes. An object written too often within a minute is protected
from writes until a minute after the first of them, and the journal names the other manager.
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
"""More than the life of a job takes in a minute: created, admitted, paused, admitted again, changed, pruned."""


class Fights:
    """The times at which each object was written of late. Ledgers don't count: they are written with everything."""

    def __init__(self) -> None:
        self._writes: dict[ObjectRef, deque[Instant]] = {}

    def note(self, report: CycleReport) -> None:
        """Remember the writes of a cycle."""
        for outcome in report.result.outcomes:
            ref = outcome.change.ref
            if outcome.status is OutcomeStatus.APPLIED and ref.namespace != names.SYSTEM_NAMESPACE:
                self._writes.setdefault(ref, deque()).append(report.at_ms)

    def fought_over(self, now_ms: Instant) -> frozenset[ObjectRef]:
        """The objects to protect now. Cost: linear in the objects written within the last minute."""
        for ref, times in [*self._writes.items()]:
            while times and times[0] <= now_ms - WINDOW_MS:
                times.popleft()
            if not times:
                del self._writes[ref]
        return frozenset(ref for ref, times in self._writes.items() if len(times) >= WRITES_IN_A_WINDOW)


def rival(live: Body | None) -> str:
    """The other field manager that wrote an object last, by its managed fields; "" if only gpuctl did."""
    entries = [entry for entry in items(live or {}, "metadata", "managedFields") if not entry.get("subresource")]
    others = [entry for entry in entries if entry.get("manager") != names.FIELD_MANAGER]
    return text(max(others, key=lambda entry: text(entry, "time")), "manager") if others else ""
