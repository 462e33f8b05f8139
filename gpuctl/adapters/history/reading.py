"""Reads a part of the past from the file, while another process writes it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from gpuctl.app.ports import WorldFault
from gpuctl.diag.wording import message
from gpuctl.k8s.annotations import reason_of
from gpuctl.model.decision import JobState
from gpuctl.model.history import HOUR_MS, Grain, History, Period, RunEvent, Subject
from gpuctl.model.ids import JobId, NodeName, ProjectName, Revision, RunDigest
from gpuctl.model.units import DurationMs, Instant

MOST_EVENTS = 10_000
"""The most events that are read at once; the newest count."""
MOST_PERIODS = 50_000

EVENT = (
    "e.at_ms, j.name, e.digest, e.state, e.gpu_milli, e.waited_ms, e.nodes, e.reason, e.paused_for, r.name "
    "FROM events e JOIN names j ON j.id = e.job JOIN names r ON r.id = e.revision"
)
"""Columns and tables of what `event_of` reads."""
LAST = "e.rowid IN (SELECT MAX(rowid) FROM events GROUP BY job, digest)"
"""Which events are the last of their runs."""
OVER = "('Succeeded', 'Failed', 'TimedOut', 'Deleted')"
_PERIOD = "at_ms, name, observed_ms, held, waiting_gpus, share, quota, running, waiting"
_RAW_UP_TO_MS: DurationMs = 2 * HOUR_MS
_MINUTES_UP_TO_MS: DurationMs = 48 * HOUR_MS
_BUSY_S = 5.0


def read_history(path: Path, subject: Subject, since_ms: Instant, until_ms: Instant) -> History:
    """The past of a subject. Levels are by minutes or hours where the time is long.

    Raises WorldFault GPU7087: the file can't be read.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S)) as db:
            return _read(db, subject, since_ms, until_ms)
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise WorldFault("GPU7087", message("GPU7087", {"file": str(path), "why": str(error)})) from error


def event_of(row: Sequence[object]) -> RunEvent:
    """The event of a row. ValueError or TypeError for what no version wrote."""
    at_ms, job, digest, state, gpu_milli, waited_ms, nodes, reason, paused_for, revision = row
    if not isinstance(at_ms, int) or not isinstance(gpu_milli, int):
        raise TypeError("an event without a time")
    return RunEvent(
        at_ms=at_ms,
        job=JobId.parse(str(job)),
        digest=RunDigest(str(digest)),
        state=JobState(str(state)),
        gpu_milli=gpu_milli,
        nodes=tuple(NodeName(str(node)) for node in json.loads(str(nodes))) if nodes else (),
        reason=reason_of(json.loads(str(reason))) if reason else None,
        paused_for=JobId.parse(str(paused_for)) if paused_for else None,
        waited_ms=waited_ms if isinstance(waited_ms, int) else None,
        revision=Revision(str(revision)),
    )


def _read(db: sqlite3.Connection, subject: Subject, since_ms: Instant, until_ms: Instant) -> History:
    which, named = _filter(subject)
    rows = db.execute(
        f"SELECT {EVENT} WHERE e.at_ms >= ? AND e.at_ms < ?{which} ORDER BY e.at_ms DESC, e.rowid DESC LIMIT ?",
        (since_ms, until_ms, *named, MOST_EVENTS),
    ).fetchall()
    (count,) = db.execute(
        f"SELECT COUNT(*) FROM events e WHERE e.at_ms >= ? AND e.at_ms < ?{which}",  # noqa: S608 - constants
        (since_ms, until_ms, *named),
    ).fetchone()
    before = db.execute(
        f"SELECT {EVENT} WHERE e.state NOT IN {OVER}{which} AND e.rowid IN "  # noqa: S608 - constants
        "(SELECT MAX(rowid) FROM events WHERE at_ms < ? GROUP BY job, digest) ORDER BY e.at_ms, e.rowid LIMIT ?",
        (*named, since_ms, MOST_EVENTS),
    ).fetchall()
    grain = _grain(until_ms - since_ms)
    return History(
        subject=subject,
        since_ms=since_ms,
        until_ms=until_ms,
        grain=grain,
        events=tuple(map(event_of, [*before, *reversed(rows)])),
        periods=() if subject.job is not None else tuple(_periods(db, subject, since_ms, until_ms, grain)),
        left_out=count - len(rows),
    )


def _filter(subject: Subject) -> tuple[str, tuple[str, ...]]:
    if subject.job is not None:
        return " AND e.job = (SELECT id FROM names WHERE name = ?)", (str(subject.job),)
    if subject.project is not None:
        return " AND e.project = (SELECT id FROM names WHERE name = ?)", (subject.project,)
    return "", ()


def _grain(length_ms: DurationMs) -> Grain:
    return Grain.RAW if length_ms <= _RAW_UP_TO_MS else Grain.MINUTE if length_ms <= _MINUTES_UP_TO_MS else Grain.HOUR


def _periods(
    db: sqlite3.Connection, subject: Subject, since_ms: Instant, until_ms: Instant, grain: Grain
) -> Iterable[Period]:
    """The newest periods that find room, oldest first."""
    which, named = ("", ()) if subject.project is None else (" AND name IN ('', ?)", (subject.project,))
    rows = db.execute(
        f"SELECT {_PERIOD} FROM periods JOIN names ON names.id = project "  # noqa: S608 - constants
        f"WHERE grain = ? AND at_ms >= ? AND at_ms < ?{which} ORDER BY at_ms DESC, name LIMIT ?",
        (grain, since_ms, until_ms, *named, MOST_PERIODS),
    ).fetchall()
    for at_ms, name, *sums in reversed(rows):
        yield Period(at_ms, ProjectName(name), *sums)
