"""Reads a part of the past from the file, while another process writes it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from gpuctl.app.ports import WorldFault
from gpuctl.diag.wording import message
from gpuctl.k8s.annotations import reason_of
from gpuctl.model.decision import JobState
from gpuctl.model.history import HOUR_MS, Change, Check, Grain, History, Period, RunEvent, Subject
from gpuctl.model.ids import NO_REVISION, JobId, NodeName, ProjectName, Revision, RunDigest
from gpuctl.model.units import DurationMs, Instant

MOST_EVENTS = 10_000
"""The most events that are read at once; the newest count."""
MOST_PERIODS = 50_000
MOST_CHANGES = 500
_CHANGE = "revision, author, subject, written_ms, taken_ms, checked_ms, took_ms, result, why, predicted, differences"

EVENT = (
    "e.at_ms, j.name, e.digest, e.state, e.gpu_milli, e.waited_ms, e.nodes, e.reason, e.paused_for, r.name, "
    "e.measured, e.busy, s.name "
    "FROM events e JOIN names j ON j.id = e.job JOIN names r ON r.id = e.revision LEFT JOIN names s ON s.id = e.sweep"
)
"""The columns and tables that `event_of` reads."""
LAST = "e.rowid IN (SELECT MAX(rowid) FROM events GROUP BY job, digest)"
"""Selects the last event of each run."""
OVER = "('Succeeded', 'Failed', 'TimedOut', 'Deleted')"
_LEVELS = (
    "observed_ms",
    "held",
    "waiting_gpus",
    "share",
    "quota",
    "running",
    "waiting",
    "gpus",
    "idle",
    "measured",
    "busy",
)
_PERIOD = ", ".join(("at_ms", "name", *_LEVELS))
SUMS = ", ".join(f"SUM({column})" for column in _LEVELS)
"""The columns of `Period` after its project, summed over rows."""
_RAW_UP_TO_MS: DurationMs = 2 * HOUR_MS
_MINUTES_UP_TO_MS: DurationMs = 48 * HOUR_MS
_BUSY_S = 5.0
LONGEST_S = 60.0
"""How long reading one part of the past may take."""
_LONGEST_BYTES = 64 << 20
"""The most bytes of one value: the inputs of a cycle have at most half as many."""
_STEPS = 100_000
"""The time is checked after this many steps of SQLite's machine, which take some milliseconds."""
_COMPUTED = (
    "SELECT s.name FROM sqlite_schema s LEFT JOIN pragma_table_xinfo(s.name) x ON s.type = 'table' AND x.hidden "
    "WHERE s.type NOT IN ('table', 'index') OR s.sql LIKE 'CREATE VIRTUAL%' OR x.hidden LIMIT 1"
)
"""Finds a view, trigger, virtual table or table with computed columns. Security: with one, a small file of a stranger
could compute for ever."""


def read_history(path: Path, subject: Subject, since_ms: Instant, until_ms: Instant) -> History:
    """The past of a subject. Levels are by minutes, or by hours for a long time.

    Raises WorldFault GPU7087 if the file can't be read.
    """
    with opened(path) as db:
        return _read(db, subject, since_ms, until_ms)


@contextmanager
def opened(path: Path, longest_s: float = LONGEST_S) -> Iterator[sqlite3.Connection]:
    """The file, open for reading, for at most `longest_s`. Raises WorldFault GPU7087 for whatever can't be read of
    it."""
    until_s = time.monotonic() + longest_s
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S)) as db:
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_BYTES)
            db.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
            _check_is_plain(db)
            yield db
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise WorldFault("GPU7087", message("GPU7087", {"file": str(path), "why": str(error)})) from error


def _check_is_plain(db: sqlite3.Connection) -> None:
    """Raises ValueError for a file that computes something when it is read."""
    computed = db.execute(_COMPUTED).fetchone()
    if computed is not None:
        raise ValueError(f"{computed[0]} is computed, and no history has that")


def event_of(row: Sequence[object]) -> RunEvent:
    """The event of a row. Raises ValueError or TypeError for a row that no version wrote."""
    at_ms, job, digest, state, gpu_milli, waited_ms, nodes, reason, paused_for, revision, measured, busy, sweep = row
    if not isinstance(at_ms, int) or not isinstance(gpu_milli, int):
        raise TypeError("an event without a time")
    if not isinstance(measured, int) or not isinstance(busy, int):
        raise TypeError("an event without sums")
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
        measured_milli_s=measured,
        busy_milli_s=busy,
        sweep=JobId.parse(str(sweep)).name if sweep else "",
    )


def _read(db: sqlite3.Connection, subject: Subject, since_ms: Instant, until_ms: Instant) -> History:
    which, of = _filter(subject)
    rows = db.execute(
        f"SELECT {EVENT} WHERE e.at_ms >= ? AND e.at_ms < ?{which} ORDER BY e.at_ms DESC, e.rowid DESC LIMIT ?",
        (since_ms, until_ms, *of, MOST_EVENTS),
    ).fetchall()
    (count,) = db.execute(
        f"SELECT COUNT(*) FROM events e WHERE e.at_ms >= ? AND e.at_ms < ?{which}",  # noqa: S608 - constants
        (since_ms, until_ms, *of),
    ).fetchone()
    before = db.execute(
        f"SELECT {EVENT} WHERE e.state NOT IN {OVER}{which} AND e.rowid IN "  # noqa: S608 - constants
        "(SELECT MAX(rowid) FROM events WHERE at_ms < ? GROUP BY job, digest) ORDER BY e.at_ms, e.rowid LIMIT ?",
        (*of, since_ms, MOST_EVENTS),
    ).fetchall()
    grain = _grain(until_ms - since_ms)
    events = tuple(map(event_of, [*before, *reversed(rows)]))
    revisions = {event.revision for event in events} - {NO_REVISION}
    named = list(_changes(db, f"revision IN ({', '.join('?' * len(revisions))})", sorted(revisions)))
    return History(
        subject=subject,
        since_ms=since_ms,
        until_ms=until_ms,
        grain=grain,
        events=events,
        periods=() if subject.job is not None else tuple(_periods(db, subject, since_ms, until_ms, grain)),
        left_out=count - len(rows),
        changes=tuple(named if subject != Subject() else _merged(named, _taken_up(db, since_ms, until_ms))),
    )


def changes_in(path: Path, since_ms: Instant, until_ms: Instant) -> tuple[Change, ...]:
    """The commits that were taken up in a time, newest first. Raises WorldFault GPU7087."""
    with opened(path) as db:
        return tuple(_taken_up(db, since_ms, until_ms))


def _taken_up(db: sqlite3.Connection, since_ms: Instant, until_ms: Instant) -> Iterator[Change]:
    which = "taken_ms >= ? AND taken_ms < ? ORDER BY taken_ms DESC, revision LIMIT ?"
    return _changes(db, which, (since_ms, until_ms, MOST_CHANGES))


def _changes(db: sqlite3.Connection, which: str, values: Sequence[object]) -> Iterator[Change]:
    for row in db.execute(f"SELECT {_CHANGE} FROM commits WHERE {which}", values):  # noqa: S608 - constants
        revision, author, subject, written_ms, taken_ms, checked_ms, took_ms, result, why, predicted, differences = row
        check = None
        if result is not None:
            check = Check(
                revision=Revision(revision),
                at_ms=int(checked_ms),
                took_ms=int(took_ms),
                result=result,
                why=why,
                predicted=tuple(map(str, json.loads(predicted))),
                differences=tuple(map(str, json.loads(differences))),
            )
        yield Change(
            revision=Revision(revision),
            author=author,
            subject=subject,
            written_ms=written_ms,
            taken_ms=taken_ms,
            check=check,
        )


def _merged(some: Iterable[Change], more: Iterable[Change]) -> list[Change]:
    found = {change.revision: change for change in (*some, *more)}
    return sorted(found.values(), key=lambda change: (-(change.taken_ms or 0), change.revision))


def _filter(subject: Subject) -> tuple[str, tuple[str, ...]]:
    if subject.job is not None:
        named = "(SELECT id FROM names WHERE name = ?)"
        of_sweep = f"e.job IN (SELECT job FROM events WHERE sweep AND sweep = {named})"  # noqa: S608 - constants
        return f" AND (e.job = {named} OR {of_sweep})", (str(subject.job),) * 2
    if subject.project is not None:
        return " AND e.project = (SELECT id FROM names WHERE name = ?)", (subject.project,)
    return "", ()


def _grain(length_ms: DurationMs) -> Grain:
    return Grain.RAW if length_ms <= _RAW_UP_TO_MS else Grain.MINUTE if length_ms <= _MINUTES_UP_TO_MS else Grain.HOUR


def _periods(
    db: sqlite3.Connection, subject: Subject, since_ms: Instant, until_ms: Instant, grain: Grain
) -> Iterable[Period]:
    """The newest MOST_PERIODS periods, oldest first."""
    which, named = ("", ()) if subject.project is None else (" AND name IN ('', ?)", (subject.project,))
    rows = db.execute(
        f"SELECT {_PERIOD} FROM periods JOIN names ON names.id = project "  # noqa: S608 - constants
        f"WHERE grain = ? AND at_ms >= ? AND at_ms < ?{which} ORDER BY at_ms DESC, name LIMIT ?",
        (grain, since_ms, until_ms, *named, MOST_PERIODS),
    ).fetchall()
    for at_ms, name, *sums in reversed(rows):
        yield Period(at_ms, ProjectName(name), *sums)
