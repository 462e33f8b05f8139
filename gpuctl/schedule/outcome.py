"""What the turns of a cycle come to: who starts where, who makes way for whom, and who waits for what."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuctl.model.decision import Reason, TraceStep
from gpuctl.model.ids import JobId
from gpuctl.schedule.consolidation import Relocation
from gpuctl.schedule.gang import Seat
from gpuctl.schedule.runs import Holder


@dataclass(frozen=True, slots=True)
class Pause:
    """One victim, why, and for whom."""

    holder: Holder
    reason: Reason
    beneficiary: JobId


@dataclass(frozen=True, slots=True)
class Shift:
    """One run that is moved, why, where to, and for whom."""

    move: Relocation
    reason: Reason
    beneficiary: JobId


@dataclass(slots=True)
class Outcome:
    """What the turns came to. `reserved` jobs wait for their place, which is not free yet. Of those `passed` over,
    `kept` have a place that is kept for them as it empties. `given_up` are workers that elastic runs lose."""

    started: dict[JobId, tuple[Seat, Reason]] = field(default_factory=dict)
    reserved: dict[JobId, tuple[Seat, Reason]] = field(default_factory=dict)
    passed: dict[JobId, Reason] = field(default_factory=dict)
    kept: dict[JobId, Seat] = field(default_factory=dict)
    pauses: dict[JobId, Pause] = field(default_factory=dict)
    given_up: dict[JobId, list[Pause]] = field(default_factory=dict)
    shifts: dict[JobId, Shift] = field(default_factory=dict)
    trace: list[TraceStep] = field(default_factory=list)
