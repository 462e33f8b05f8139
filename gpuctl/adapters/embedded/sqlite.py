"""The journal in one SQLite file. Once `commit` has returned, its writes survive the death of the process.

One process at a time writes: a second one gets a fault that the file is in use; others may read. The write-ahead log is
synchronised only at checkpoints: a crash of the machine itself may lose the last commits, never the file's consistency.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TextIO

from gpuctl.adapters.embedded.bodies import Key
from gpuctl.adapters.embedded.faults import unavailable
from gpuctl.adapters.embedded.store import Restored
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.model.state import Body

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  api_version TEXT, kind TEXT, namespace TEXT, name TEXT, body TEXT NOT NULL,
  PRIMARY KEY (api_version, kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (
  about TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (about, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteJournal:
    """A journal in the file at `path`; makes the file if there is none. Raises ClusterUnavailable if the file can't be
    used."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writes: list[tuple[str, tuple[object, ...]]] = []
        self._claim = _claimed(path)
        with ExitStack() as undo:
            undo.callback(self._claim.close)
            try:
                self._db = _connected(path)
                undo.callback(self._db.close)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                _check_format(self._db, path)
                self._db.executescript(_SCHEMA)
                self._db.execute(f"PRAGMA user_version = {_FORMAT}")
            except (sqlite3.Error, ClusterUnavailable) as error:
                raise _fault(path, error) from error
            undo.pop_all()

    def load(self) -> Restored:
        """Everything that was committed."""
        return _loaded(self._db)

    def put_object(self, key: Key, body: Body) -> None:
        """Keep an object as it is now."""
        text = json.dumps(body, separators=(",", ":"))
        self._writes.append(("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (*key, text)))

    def remove_object(self, key: Key) -> None:
        """Keep an object no longer."""
        statement = "DELETE FROM objects WHERE (api_version, kind, namespace, name) = (?, ?, ?, ?)"
        self._writes.append((statement, tuple(key)))

    def put_fact(self, about: str, name: str, value: Any) -> None:
        """Keep a fact; None forgets it."""
        if value is None:
            self._writes.append(("DELETE FROM facts WHERE (about, name) = (?, ?)", (about, name)))
        else:
            text = json.dumps(value)
            self._writes.append(("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (about, name, text)))

    def commit(self, counters: Mapping[str, int]) -> None:
        """Make the writes durable, with the counters as they are. Raises ClusterUnavailable; the next commit tries
        again."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for statement, values in self._writes:
                self._db.execute(statement, values)
            self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", list(counters.items()))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise _fault(self._path, error) from error
        self._writes.clear()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        self._claim.close()


def read(path: str) -> Restored:
    """The content of a file at this moment, also while a cluster uses it. Raises ClusterUnavailable."""
    try:
        if not Path(path).is_file():
            raise unavailable(f"{path} is not there")
        with closing(_connected(path)) as db:
            _check_format(db, path)
            return _loaded(db)
    except sqlite3.Error as error:
        raise _fault(path, error) from error


def _claimed(path: str) -> TextIO:
    """Hold the file for this process until it ends. The lock is a file beside it, so that SQLite's own locks are
    untouched."""
    try:
        claim = Path(f"{path}.lock").open("a", encoding="utf-8")  # noqa: SIM115 - held until close
    except OSError as error:
        raise _fault(path, error) from error
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        claim.close()
        raise unavailable(f"{path} is in use by another process") from error
    return claim


def _connected(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=1, check_same_thread=False)


def _check_format(db: sqlite3.Connection, path: str) -> None:
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found not in {0, _FORMAT}:
        raise unavailable(f"{path} was written by another version of gpuctl (format {found})")


def _loaded(db: sqlite3.Connection) -> Restored:
    db.execute("BEGIN")  # one transaction: all three tables as of one moment
    objects = tuple(json.loads(body) for (body,) in db.execute("SELECT body FROM objects"))
    facts = tuple((about, name, json.loads(value)) for about, name, value in db.execute("SELECT * FROM facts"))
    counters = dict(db.execute("SELECT name, value FROM counters"))
    db.execute("COMMIT")
    return Restored(objects=objects, facts=facts, counters=counters)


def _fault(path: str, error: Exception) -> ClusterUnavailable:
    return error if isinstance(error, ClusterUnavailable) else unavailable(f"{path} can't be used: {error}")
