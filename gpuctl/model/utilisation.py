"""The measured use of GPUs, from an exporter of GPU metrics, and what follows from it for a run. Integers only.

A run is idle once every sample of each of its GPUs has been quiet for IDLE_AFTER_MS. One sample above IDLE_BELOW_MILLI
ends that at once. Time without samples does not count as idle: after a gap of more than MOST_GAP_MS, counting begins
anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gpuctl.model.ids import ProjectName, RunKey
from gpuctl.model.units import DurationMs, GpuMilli, Instant, MemBytes

IDLE_BELOW_MILLI = 10
"""A sample below this is quiet: less than one percent."""
IDLE_AFTER_MS: DurationMs = 300_000
"""How long a run's GPUs must be quiet before it counts as idle; it is then idle since the beginning of that time."""
MOST_GAP_MS: DurationMs = 180_000
"""The longest gap between samples; exporters measure every 30 seconds. Nothing is known about a longer gap."""
MOST_DELAY_MS: DurationMs = 120_000
"""A run last seen longer ago than this is not ended for being idle. If it is seen idle again, it counts as idle."""

MOST_AHEAD_MS: DurationMs = 60_000
"""How far the clock of a source may be ahead. An instant further ahead is from before a clock was put back: how long
ago it was is not known."""


def was_seen(at_ms: Instant, now_ms: Instant, within_ms: DurationMs) -> bool:
    """Whether an instant is certain to be no longer ago than that."""
    return -MOST_AHEAD_MS <= now_ms - at_ms <= within_ms


class Gauge(Enum):
    """The kind of a sample. BUSY and ACTIVE: parts of a GPU in thousandths; USED and FREE: bytes of its memory.

    BUSY is the part of the time in which any kernel ran, ACTIVE the part in which the engines worked. A GPU that is cut
    into MIG slices has only ACTIVE.
    """

    BUSY = "busy"
    ACTIVE = "active"
    USED = "used"
    FREE = "free"


class Sample(NamedTuple):
    """One measurement of a GPU, or of a slice of one, that a pod holds."""

    gauge: Gauge
    namespace: str
    pod: str
    device: str
    at_ms: Instant
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """All samples of one device of a pod together. `busy_milli`: their mean.

    `first_ms` and `last_ms`: the first and last sample about work. `quiet_since_ms`: the first one after the last that
    was not quiet; None if the last sample was not quiet.
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
    """The use of a run's GPUs. Known only if all of them are measured.

    - `held_milli`: the GPUs that the run holds; `busy_milli`: the part of them that worked.
    - `used_bytes`, `total_bytes`: of whole devices, even if jobs share one.
    - `seen_ms`: the last instant at which all its GPUs were seen; `quiet_since_ms`: since when all are quiet.
    """

    held_milli: GpuMilli
    busy_milli: GpuMilli
    used_bytes: MemBytes = 0
    total_bytes: MemBytes = 0
    quiet_since_ms: Instant | None = None
    seen_ms: Instant = 0

    @property
    def idle_since_ms(self) -> Instant | None:
        """Since when the run is idle; None if it is not, or not for long enough."""
        since_ms = self.quiet_since_ms
        return since_ms if since_ms is not None and self.seen_ms - since_ms >= IDLE_AFTER_MS else None

    @property
    def percent(self) -> int:
        """The part of its GPUs that worked, in percent, rounded to the nearest."""
        return percent_of(self.busy_milli, self.held_milli)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectUse:
    """The use of the GPUs of a project's measured runs. `idle_milli`: the GPUs of its idle runs."""

    held_milli: GpuMilli = 0
    busy_milli: GpuMilli = 0
    used_bytes: MemBytes = 0
    total_bytes: MemBytes = 0
    idle_milli: GpuMilli = 0

    @property
    def percent(self) -> int:
        """The part of the held GPUs that worked, in percent, rounded to the nearest."""
        return percent_of(self.busy_milli, self.held_milli)


def together(uses: Iterable[ProjectUse]) -> ProjectUse:
    """The sum of several uses."""
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
    """A part in percent, rounded to the nearest; 0 of nothing."""
    return (200 * part + whole) // (2 * whole) if whole else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """The use of all runs. `at_ms`: the last successful measurement; None: none yet."""

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
        """Since when each idle run is idle, for runs that were seen just now: only these may be ended for being
        idle."""
        found = ((k, use.idle_since_ms) for k, use in self.runs.items() if was_seen(use.seen_ms, now_ms, MOST_DELAY_MS))
        return {key: since_ms for key, since_ms in found if since_ms is not None}
