"""Reads the data of charts, summed up in the file, so that a year costs no more than an hour."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gpuctl.adapters.history.reading import SUMS, opened
from gpuctl.model.history import ALL, HOUR_MS, MINUTE_MS, Grain, Period, Step, Tally, Trends
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import DurationMs, Instant

MOST_STEPS = 360
MOST_LINES = 20
"""Projects with their own line in a chart; the others are in the row of all, and in the totals."""
MOST_PROJECTS = 1_000
MOST_WAITS = 500_000
_MINUTES_UP_TO_MS: DurationMs = 7 * 24 * HOUR_MS


def read_trends(path: Path, since_ms: Instant, until_ms: Instant, project: ProjectName | None = None) -> Trends:
    """The trends of a time. Raises WorldFault GPU7087 if the file can't be read.

    Cost: linear in the minutes or hours of each project, and in the events, of that time.
    """
    grain, unit_ms = (Grain.MINUTE, MINUTE_MS) if until_ms - since_ms <= _MINUTES_UP_TO_MS else (Grain.HOUR, HOUR_MS)
    step_ms = unit_ms * max(1, -(-(until_ms - since_ms) // (MOST_STEPS * unit_ms)))
    since_ms -= since_ms % step_ms
    with opened(path) as db:
        totals = tuple(_totals(db, grain, since_ms, until_ms))
        return Trends(
            since_ms=since_ms,
            until_ms=until_ms,
            step_ms=step_ms,
            project=project,
            periods=tuple(_periods(db, grain, (since_ms, until_ms, step_ms), _shown(totals, project))),
            totals=totals,
            tallies=tuple(_tallies(db, since_ms, until_ms)),
            steps=tuple(_steps(db, (since_ms, until_ms, step_ms), project)),
        )


def _totals(db: sqlite3.Connection, grain: Grain, since_ms: Instant, until_ms: Instant) -> Iterator[Period]:
    """The totals by project. If there are too many projects, those that held most."""
    rows = db.execute(
        f"SELECT name, {SUMS} FROM periods JOIN names ON names.id = project "  # noqa: S608 - constants
        "WHERE grain = ? AND at_ms >= ? AND at_ms < ? GROUP BY project ORDER BY SUM(held) DESC, name LIMIT ?",
        (grain, since_ms, until_ms, MOST_PROJECTS),
    )
    for name, *sums in sorted(rows):
        yield Period(since_ms, ProjectName(name), *sums)


def _shown(totals: tuple[Period, ...], project: ProjectName | None) -> list[str]:
    most = sorted(totals, key=lambda row: (row.project != ALL, row.project != project, -row.held_milli_s, row.project))
    return [row.project for row in most[: MOST_LINES + 1]]


def _periods(
    db: sqlite3.Connection, grain: Grain, time: tuple[Instant, Instant, DurationMs], names: list[str]
) -> Iterator[Period]:
    since_ms, until_ms, step_ms = time
    rows = db.execute(
        f"SELECT at_ms / ? * ?, name, {SUMS} FROM periods JOIN names ON names.id = project "  # noqa: S608 - constants
        f"WHERE grain = ? AND at_ms >= ? AND at_ms < ? AND name IN ({', '.join('?' * len(names))}) "
        "GROUP BY 1, 2 ORDER BY 1, 2",
        (step_ms, step_ms, grain, since_ms, until_ms, *names),
    )
    for at_ms, name, *sums in rows:
        yield Period(at_ms, ProjectName(name), *sums)


def _tallies(db: sqlite3.Connection, since_ms: Instant, until_ms: Instant) -> Iterator[Tally]:
    pauses = dict(
        db.execute(
            "SELECT name, COUNT(*) FROM events JOIN names ON names.id = project WHERE at_ms >= ? AND at_ms < ? "
            "AND state = 'Preempted' AND paused_for != '' GROUP BY project",
            (since_ms, until_ms),
        ).fetchall()
    )
    waits: dict[str, list[int]] = {name: [] for name in pauses}
    rows = db.execute(
        "SELECT name, waited_ms FROM events JOIN names ON names.id = project WHERE at_ms >= ? AND at_ms < ? "
        "AND waited_ms IS NOT NULL ORDER BY at_ms DESC LIMIT ?",
        (since_ms, until_ms, MOST_WAITS),
    )
    for name, waited_ms in rows:
        waits.setdefault(name, []).append(waited_ms)
    waits[ALL] = [wait for each in waits.values() for wait in each]
    for name, found in sorted(waits.items()):
        found.sort()
        known = (found[len(found) // 2], found[len(found) * 9 // 10], found[-1]) if found else (None, None, None)
        count = sum(pauses.values()) if name == ALL else pauses.get(name, 0)
        yield Tally(ProjectName(name), len(found), count, *known)


def _steps(
    db: sqlite3.Connection, time: tuple[Instant, Instant, DurationMs], project: ProjectName | None
) -> Iterator[Step]:
    since_ms, until_ms, step_ms = time
    rows = db.execute(
        "SELECT at_ms / ? * ?, COUNT(waited_ms), COALESCE(SUM(waited_ms), 0), "
        "SUM(state = 'Preempted' AND paused_for != '') FROM events JOIN names ON names.id = project "
        "WHERE at_ms >= ? AND at_ms < ? AND (waited_ms IS NOT NULL OR state = 'Preempted') AND (? IS NULL OR name = ?) "
        "GROUP BY 1 ORDER BY 1",
        (step_ms, step_ms, since_ms, until_ms, project, project),
    )
    return (Step(*row) for row in rows.fetchall())
