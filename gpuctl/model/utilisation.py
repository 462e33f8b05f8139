"""What GPUs did, as an exporter of GPU metrics measured it, and what that comes to for a run. Integers alone.

A run is idle once every sample of each of its GPUs has been quiet for IDLE_AFTER_MS. One sample above IDLE_BELOW_MILLI
ends that at once. Time without samples is no idle time: after a gap of more than MOST_GAP_MS counting begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gpuctl.model.ids import ProjectName, RunKey
from gpuctl.model.units import DurationMs, GpuMilli, Instant, MemBytes

IDLE_BELOW_MILLI = 10
"""A GPU is quiet in a sample that has less than this: under one percent."""
IDLE_AFTER_MS: DurationMs = 300_000
"""For so long a run's GPUs must have been quiet before it is called idle; it is idle since the beginning of that."""
MOST_GAP_MS: DurationMs = 180_000
"""Longer than this without a sample, nothing is known: exporters measure every 30 seconds."""
MOST_DELAY_MS: DurationMs = 120_000
"""A run that was last seen longer ago is not ended for being idle, though it stays so if it is seen idle again."""

MOST_AHEAD_MS: DurationMs = 60_000
"""How far the clock of a source may be ahead. What was seen later than that was seen before a clock was put back: how
long ago is not known."""


def was_seen(at_ms: Instant, now_ms: Instant, within_ms: DurationMs) -> bool:
    """Whether that is surely no longer ago than so long."""
    return -MOST_AHEAD_MS <= now_ms - at_ms <= within_ms


class Gauge(Enum):
    """What a sample is of. BUSY and ACTIVE are parts of a GPU in thousandths, USED and FREE are bytes of its memory.

    BUSY is the part of the time in which any kernel ran, ACTIVE the part in which the engines worked. A GPU that is cut
    into MIG slices has ACTIVE alone.
    """

    BUSY = "busy"
    ACTIVE = "active"
    USED = "used"
    FREE = "free"


class Sample(NamedTuple):
    """One measurement of a GPU, or of a slice of one, that is given to a pod."""

    gauge: Gauge
    namespace: str
    pod: str
    device: str
    at_ms: Instant
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """The samples of one device of a pod taken together. `busy_milli` is their mean.

    `first_ms` and `last_ms`: the first and the last sample that says whether it worked. `quiet_since_ms`: the first one
    after the last that was not quiet; None if the last one was not.
    """

    namespace: str
    pod: str
    device: str
    first_ms: Instant
    last_ms: Instant
    quiet_since_ms: Instant | None
    busy_milli: GpuMilli
    used_bytes: MemBytes = 0
    total_bytes: MemBytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUse:
    """What the GPUs of a run did. Known only where all of them are measured.

    `held_milli` is what the run holds, `busy_milli` how much of it worked. Memory is that of whole devices, also where
    jobs share one. `seen_ms` is the last instant at which all its GPUs were seen, `quiet_since_ms` since when all are
    quiet.
    """

    held_milli: GpuMilli
    busy_milli: GpuMilli
    used_bytes: MemBytes = 0
    total_bytes: MemBytes = 0
    quiet_since_ms: Instant | None = None
    seen_ms: Instant = 0

    @property
    def idle_since_ms(self) -> Instant | None:
        """Since when it is idle; None while it is not, or not for long enough."""
        since_ms = self.quiet_since_ms
        return since_ms if since_ms is not None and self.seen_ms - since_ms >= IDLE_AFTER_MS else None

    @property
    def percent(self) -> int:
        """How much of what it holds worked, rounded to the nearest."""
        return percent_of(self.busy_milli, self.held_milli)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectUse:
    """What the GPUs of a project's measured runs did. `idle_milli` is what its idle runs hold."""

    held_milli: GpuMilli = 0
    busy_milli: GpuMilli = 0
    used_bytes: MemBytes = 0
    total_bytes: MemBytes = 0
    idle_milli: GpuMilli = 0

    @property
    def percent(self) -> int:
        """How much of what is held worked, rounded to the nearest."""
        return percent_of(self.busy_milli, self.held_milli)


def together(uses: Iterable[ProjectUse]) -> ProjectUse:
    """The sum."""
    found = tuple(uses)
    return ProjectUse(
        held_milli=sum(use.held_milli for use in found),
        busy_milli=sum(use.busy_milli for use in found),
        used_bytes=sum(use.used_bytes for use in found),
        total_bytes=sum(use.total_bytes for use in found),
        idle_milli=sum(use.idle_milli for use in found),
    )


def _of_one(use: RunUse) -> ProjectUse:
    return ProjectUse(
        held_milli=use.held_milli,
        busy_milli=use.busy_milli,
        used_bytes=use.used_bytes,
        total_bytes=use.total_bytes,
        idle_milli=0 if use.idle_since_ms is None else use.held_milli,
    )


def percent_of(part: int, whole: int) -> int:
    """Rounded to the nearest; 0 of nothing."""
    return (200 * part + whole) // (2 * whole) if whole else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """What is known of all runs. `at_ms`: when it was last measured well; None: never yet."""

    at_ms: Instant | None = None
    runs: Mapping[RunKey, RunUse] = field(default_factory=dict)

    @property
    def projects(self) -> Mapping[ProjectName, ProjectUse]:
        """The sums by project."""
        found: dict[ProjectName, list[ProjectUse]] = {}
        for (job, _), use in self.runs.items():
            found.setdefault(job.project, []).append(_of_one(use))
        return {project: together(uses) for project, uses in found.items()}

    def idle(self, now_ms: Instant) -> Mapping[RunKey, Instant]:
        """Since when each idle run is idle, of those that were seen just now: only these may be ended for it."""
        found = ((k, use.idle_since_ms) for k, use in self.runs.items() if was_seen(use.seen_ms, now_ms, MOST_DELAY_MS))
        return {key: since_ms for key, since_ms in found if since_ms is not None}
