"""The SQLite file of the history: its tables, how long each is kept, and how large it may become.

Levels are kept raw for two days, by minutes for 30 days and by hours for two years; events for 30 days. If that exceeds
`MOST_BYTES`, the oldest goes first.

Size: for 1,000 GPUs, 100 projects that are always busy and measured, and 5,000 runs a day, 550 MiB, and up to 128 MiB
of inputs.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from gpuctl.adapters.history import inputs
from gpuctl.adapters.history.reading import EVENT, LAST, OVER, SUMS, event_of
from gpuctl.k8s.annotations import reason_value
from gpuctl.model.decision import JobState
from gpuctl.model.history import Commit, Grain, Mark, Note, Period, RunEvent, TakenUp, Work
from gpuctl.model.ids import JobId, RunKey
from gpuctl.model.units import DurationMs, Instant

FORMAT = 4
MOST_BYTES = 1 << 30
_PAGE = 4096
_DAY_MS: DurationMs = 86_400_000
KEPT_MS: Mapping[Grain, DurationMs] = {Grain.RAW: 2 * _DAY_MS, Grain.MINUTE: 30 * _DAY_MS, Grain.HOUR: 730 * _DAY_MS}
"""How long levels of each grain are kept."""
EVENTS_KEPT_MS: DurationMs = 30 * _DAY_MS
_BUSY_S = 2.0
_SPARED = 8
"""When the file is full, one part in this many of each table goes."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS periods (
  grain INTEGER, at_ms INTEGER, project INTEGER, observed_ms INTEGER, held INTEGER, waiting_gpus INTEGER,
  share INTEGER, quota INTEGER, running INTEGER, waiting INTEGER, gpus INTEGER NOT NULL DEFAULT 0,
  idle INTEGER NOT NULL DEFAULT 0, measured INTEGER NOT NULL DEFAULT 0, busy INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (grain, at_ms, project)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
  at_ms INTEGER, project INTEGER, job INTEGER, digest TEXT, state TEXT, gpu_milli INTEGER, waited_ms INTEGER,
  nodes TEXT, reason TEXT, paused_for TEXT, revision INTEGER, measured INTEGER NOT NULL DEFAULT 0,
  busy INTEGER NOT NULL DEFAULT 0, sweep INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS events_in ON events (sweep) WHERE sweep;
CREATE INDEX IF NOT EXISTS events_at ON events (at_ms);
CREATE INDEX IF NOT EXISTS events_of ON events (job, at_ms);
CREATE TABLE IF NOT EXISTS commits (
  revision TEXT PRIMARY KEY, author TEXT NOT NULL DEFAULT '', subject TEXT NOT NULL DEFAULT '', written_ms INTEGER,
  taken_ms INTEGER, checked_ms INTEGER, took_ms INTEGER, result TEXT, why TEXT, predicted TEXT, differences TEXT)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inputs (at_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS inputs_at ON inputs (at_ms);
CREATE INDEX IF NOT EXISTS commits_at ON commits (taken_ms);
"""
_LACKING = {
    1: ("periods gpus", "periods idle"),
    2: ("periods measured", "periods busy", "events measured", "events busy"),
    3: ("events sweep",),
}
"""The columns of the tables above that were added after each format."""


class NotHistory(Exception):
    """The file is damaged, or is no history of this version."""


class Store:
    """The file, open for writing. Every method may raise sqlite3.Error or OSError; the file stays consistent."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        """Raises NotHistory too. Security: only its user can read a new file, since it has the declarations of all
        teams."""
        with suppress(OSError):  # it is there, or SQLite says what is wrong
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        self._names: dict[str, int] = {}
        try:
            version = _prepared(self._db, most_bytes)
        except sqlite3.Error as error:
            self._db.close()
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise NotHistory(str(error)) from error
        if version != FORMAT:
            self._db.close()
            raise NotHistory(f"it has format {version}, not {FORMAT}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def marks(self) -> dict[RunKey, Mark]:
        """The last marks of the runs that had not ended."""
        rows = self._db.execute(f"SELECT {EVENT} WHERE {LAST} AND e.state NOT IN {OVER}")
        return {
            (event.job, event.digest): Mark(state=event.state, gpu_milli=event.gpu_milli, code=_code(event))
            for event in map(event_of, rows)
        }

    def write(
        self,
        events: Iterable[RunEvent],
        periods: Iterable[tuple[Grain, Period]],
        notes: Iterable[Note] = (),
        work: Iterable[Work] = (),
    ) -> None:
        """Keep events, periods, notes on commits, and the use by runs before those events; all or none.

        A full file makes room first.
        """
        made = list(events), list(periods), list(notes), list(work)
        try:
            self._write(*made)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            self._make_room()
            self._write(*made)

    def roll_up(self, hour_ms: Instant, hour: DurationMs) -> None:
        """Make the row of an hour from the rows of its minutes."""
        self._db.execute(
            f"INSERT OR REPLACE INTO periods SELECT ?, ?, project, {SUMS} "  # noqa: S608 - constants
            "FROM periods WHERE grain = ? AND at_ms >= ? AND at_ms < ? GROUP BY project",
            (Grain.HOUR, hour_ms, Grain.MINUTE, hour_ms, hour_ms + hour),
        )

    def forget(self, now_ms: Instant) -> None:
        """Remove what is older than its time, but keep the last event of each run that is not over.

        Names that nothing uses any more stay: they are few.
        """
        for grain, kept_ms in KEPT_MS.items():
            self._db.execute("DELETE FROM periods WHERE grain = ? AND at_ms < ?", (grain, now_ms - kept_ms))
        self._forget_events(now_ms - EVENTS_KEPT_MS)
        self._db.execute(
            "DELETE FROM commits WHERE COALESCE(taken_ms, 0) < ? AND revision NOT IN "
            "(SELECT name FROM names WHERE id IN (SELECT DISTINCT revision FROM events))",
            (now_ms - EVENTS_KEPT_MS,),
        )

    def _forget_events(self, until_ms: Instant) -> None:
        self._db.execute(
            f"DELETE FROM events AS e WHERE e.at_ms < ? AND NOT (e.state NOT IN {OVER} AND {LAST})",  # noqa: S608
            (until_ms,),
        )

    def _write(
        self, events: list[RunEvent], periods: list[tuple[Grain, Period]], notes: list[Note], work: list[Work]
    ) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(
                "UPDATE events SET measured = measured + ?, busy = busy + ? "
                "WHERE rowid = (SELECT MAX(rowid) FROM events WHERE job = ? AND digest = ?)",
                ((each.measured_milli_s, each.busy_milli_s, self._id(str(each.job)), each.digest) for each in work),
            )
            self._db.executemany(
                f"INSERT INTO events VALUES ({_marks(14)})",  # noqa: S608 - question marks
                map(self._row_of_event, events),
            )
            self._db.executemany(
                f"INSERT OR REPLACE INTO periods VALUES ({_marks(14)})",  # noqa: S608
                (self._row_of_period(grain, period) for grain, period in periods),
            )
            for note in notes:
                self._note(note)
            self._db.execute("COMMIT")
        except BaseException:
            self._names.clear()
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _note(self, note: Note) -> None:
        values: dict[str, object]
        if isinstance(note, Commit):
            values = {"author": note.author, "subject": note.subject, "written_ms": note.written_ms}
        elif isinstance(note, TakenUp):
            values = {"taken_ms": note.at_ms}
        else:
            values = {
                "checked_ms": note.at_ms, "took_ms": note.took_ms, "result": note.result, "why": note.why,
                "predicted": json.dumps(note.predicted), "differences": json.dumps(note.differences),
            }  # fmt: skip
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        changed = ", ".join(f"{column} = excluded.{column}" for column in values)
        self._db.execute(
            f"INSERT INTO commits (revision, {columns}) VALUES (?, {marks}) "  # noqa: S608 - constants
            f"ON CONFLICT (revision) DO UPDATE SET {changed}",
            (note.revision, *values.values()),
        )

    def keep_inputs(self, at_ms: Instant, content: bytes) -> None:
        """Keep the inputs of a cycle."""
        inputs.keep(self._db, at_ms, content)

    def _make_room(self) -> None:
        """Remove the oldest part of each table, and all inputs of cycles."""
        self._db.execute("DELETE FROM inputs")
        (first_ms, last_ms) = self._db.execute("SELECT MIN(at_ms), MAX(at_ms) FROM events").fetchone()
        if first_ms is not None:
            self._forget_events(first_ms + (last_ms - first_ms) // _SPARED + 1)
        for grain in Grain:
            (first_ms, last_ms) = self._db.execute(
                "SELECT MIN(at_ms), MAX(at_ms) FROM periods WHERE grain = ?", (grain,)
            ).fetchone()
            if first_ms is not None:
                until_ms = first_ms + (last_ms - first_ms) // _SPARED + 1
                self._db.execute("DELETE FROM periods WHERE grain = ? AND at_ms < ?", (grain, until_ms))

    def _id(self, name: str) -> int:
        found = self._names.get(name)
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (name,))
            (found,) = self._db.execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone()
            self._names[name] = found
        return int(found)

    def _row_of_event(self, event: RunEvent) -> tuple[object, ...]:
        return (
            event.at_ms,
            self._id(event.job.project),
            self._id(str(event.job)),
            event.digest,
            event.state.value,
            event.gpu_milli,
            event.waited_ms,
            json.dumps(event.nodes, separators=(",", ":")) if event.nodes else "",
            "" if event.reason is None else json.dumps(reason_value(event.reason), separators=(",", ":")),
            "" if event.paused_for is None else str(event.paused_for),
            self._id(event.revision),
            event.measured_milli_s,
            event.busy_milli_s,
            self._id(str(JobId(event.job.project, event.sweep))) if event.sweep else 0,
        )

    def _row_of_period(self, grain: Grain, period: Period) -> tuple[object, ...]:
        return (
            grain,
            period.at_ms,
            self._id(period.project),
            period.observed_ms,
            period.held_milli_s,
            period.waiting_milli_s,
            period.share_milli_s,
            period.quota_milli_s,
            period.running_ms,
            period.waiting_ms,
            period.gpus_milli_s,
            period.idle_milli_s,
            period.measured_milli_s,
            period.busy_milli_s,
        )


def _marks(count: int) -> str:
    """Placeholders for values."""
    return ", ".join("?" * count)


def _prepared(db: sqlite3.Connection, most_bytes: int) -> int:
    """Set the file up, with its tables if it is new. Returns its format."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA max_page_count = {most_bytes // _PAGE}")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version < FORMAT:
        lacking = [column for known, columns in _LACKING.items() if 0 < version <= known for column in columns]
        added = " ".join(
            f"ALTER TABLE {each.replace(' ', ' ADD COLUMN ')} INTEGER NOT NULL DEFAULT 0;" for each in lacking
        )
        db.executescript(f"BEGIN; {added} {_SCHEMA} COMMIT;")
        db.execute(f"PRAGMA user_version = {FORMAT}")
        return FORMAT
    return int(version)


def _code(event: RunEvent) -> str:
    waits = event.state in {JobState.PENDING, JobState.PREEMPTED, JobState.SUSPENDED, JobState.SCALED_TO_ZERO}
    return event.reason.code if waits and event.reason is not None else ""
