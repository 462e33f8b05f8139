"""Freeze windows of a cluster: when commits may not pause or delete jobs, or change anything.

Only this module knows cron expressions and time zones. The time is an argument; the zones are those of the system, or
of the package tzdata.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from gpuctl.model.ids import ProjectName
from gpuctl.model.units import DurationMs, Instant

_MOST_STEPS = 1_000
"""The most starts that are followed to find the end of overlapping windows."""
_FIELDS = 5
_SOME_DAY_MS: Instant = 1_704_067_200_000
"""A fixed time, 2024-01-01, for testing expressions."""


class Forbidden(StrEnum):
    """What a window forbids a commit to do. PAUSE: to pause, move or end a running job that stays declared. DELETE: to
    remove a job or a project. CHANGE: to change any declaration."""

    PAUSE = "pause"
    DELETE = "delete"
    CHANGE = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeWindow:
    """A window that begins at each time of a cron expression in a time zone, and lasts for a duration of real time."""

    cron: str
    duration_ms: DurationMs
    time_zone: str
    forbids: frozenset[Forbidden]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A project, or the whole cluster (`project` None), that a person froze, so that gpuctl writes nothing of it.

    `by`: the person's name as the API server gives it. The few who may write it could write any name.
    """

    project: ProjectName | None
    by: str
    reason: str
    since_ms: Instant | None


def is_zone(name: str) -> bool:
    """Whether there is a time zone of that name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def is_cron(text: str) -> bool:
    """Whether a text is a cron expression of five fields that is due at some time."""
    if len(text.split()) != _FIELDS:
        return False
    try:
        next(CronSim(text, _local(_SOME_DAY_MS, "UTC")))
    except (CronSimError, StopIteration):
        return False
    return True


def ends(window: FreezeWindow) -> bool:
    """Whether a window ever ends before it begins again. Cost: at most 1,000 starts."""
    first_ms = _ms(next(CronSim(window.cron, _local(_SOME_DAY_MS, window.time_zone))))
    _, steps = _end(window, first_ms)
    return steps < _MOST_STEPS


def open_until(windows: Iterable[FreezeWindow], forbidden: Forbidden, at_ms: Instant) -> tuple[Instant, str] | None:
    """Until when a window forbids this, and its reason, for the window that ends last. None: no such window is open."""
    found = [
        (until_ms, window.reason)
        for window in windows
        if forbidden in window.forbids and (until_ms := _open_until(window, at_ms)) is not None
    ]
    return max(found, default=None)


def _open_until(window: FreezeWindow, at_ms: Instant) -> Instant | None:
    start_ms = _last_start(window, at_ms)
    if start_ms is None or start_ms + window.duration_ms <= at_ms:
        return None
    return _end(window, start_ms)[0]


def _end(window: FreezeWindow, start_ms: Instant) -> tuple[Instant, int]:
    """The end of the window that begins then, with those that begin before its end; and the number of those starts."""
    end_ms = start_ms + window.duration_ms
    for step in range(_MOST_STEPS):
        last_ms = _last_start(window, end_ms)
        if last_ms is None or last_ms + window.duration_ms <= end_ms:
            return end_ms, step
        end_ms = last_ms + window.duration_ms
    return end_ms, _MOST_STEPS


def _last_start(window: FreezeWindow, at_ms: Instant) -> Instant | None:
    """The last start at that time or before."""
    after = _local(at_ms // 60_000 * 60_000 + 60_000, window.time_zone)
    try:
        return _ms(next(CronSim(window.cron, after, reverse=True)))
    except StopIteration:
        return None


def _local(at_ms: Instant, zone: str) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(ZoneInfo(zone))


def _ms(at: datetime) -> Instant:
    return int(at.timestamp()) * 1000
