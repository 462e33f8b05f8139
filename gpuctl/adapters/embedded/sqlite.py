"""The journal in one SQLite file. What `commit` returned for survives the death of the process at any later moment.

One process at a time: a second one that opens the file is told that it is in use. The write-ahead log is synchronised
at checkpoints only, so a crash of the machine itself may lose the last commits, never the file's consistency.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from gpuctl.adapters.embedded.bodies import Key
from gpuctl.adapters.embedded.faults import unavailable
from gpuctl.adapters.embedded.store import Restored
from gpuctl.model.state import Body

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  api_version TEXT, kind TEXT, namespace TEXT, name TEXT, body TEXT NOT NULL,
  PRIMARY KEY (api_version, kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteJournal:
    """A journal in the file at `path`, made if it is not there. Raises ClusterUnavailable for a file it can't use."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writes: list[tuple[str, tuple[object, ...]]] = []
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1, check_same_thread=False)
            self._open()
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def load(self) -> Restored:
        """All that was committed."""
        counters = dict(self._db.execute("SELECT name, value FROM counters"))
        return Restored(
            objects=tuple(json.loads(body) for (body,) in self._db.execute("SELECT body FROM objects")),
            facts={name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM facts")},
            counters=counters,
        )

    def put_object(self, key: Key, body: Body) -> None:
        """Keep an object as it is now."""
        text = json.dumps(body, separators=(",", ":"))
        self._writes.append(("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (*key, text)))

    def remove_object(self, key: Key) -> None:
        """Keep it no longer."""
        statement = "DELETE FROM objects WHERE (api_version, kind, namespace, name) = (?, ?, ?, ?)"
        self._writes.append((statement, tuple(key)))

    def put_fact(self, name: str, value: Any) -> None:
        """Keep a fact; None forgets it."""
        if value is None:
            self._writes.append(("DELETE FROM facts WHERE name = ?", (name,)))
        else:
            self._writes.append(("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value))))

    def commit(self, counters: Mapping[str, int]) -> None:
        """Make it durable, with the counters as they are. Raises ClusterUnavailable; the next commit tries again."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for statement, values in self._writes:
                self._db.execute(statement, values)
            self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", list(counters.items()))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._fault(error) from error
        self._writes.clear()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _open(self) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found not in {0, _FORMAT}:
            raise unavailable(f"{self._path} was written by another version of gpuctl (format {found})")
        self._db.execute(f"PRAGMA user_version = {_FORMAT}")
        # Taken now and kept until the file is closed: a second process must not get as far as reading.
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("COMMIT")

    def _fault(self, error: sqlite3.Error) -> Exception:
        if "locked" in str(error):
            return unavailable(f"{self._path} is in use by another process")
        return unavailable(f"{self._path} can't be used as a cluster's file: {error}")
