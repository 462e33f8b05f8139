"""The inputs of cycles as compressed bytes: in the history's file each is a row, in a file of its own it is a
report."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from gpuctl.adapters.history.reading import opened
from gpuctl.app.replaying import Inputs, lines_of, read_inputs, unreadable
from gpuctl.model.units import DurationMs, Instant

MOST_BYTES = 32 << 20
"""The most bytes of one cycle, compressed."""
MOST_KEPT_BYTES = 128 << 20
"""The most bytes of all cycles that are kept."""
KEPT_MS: DurationMs = 48 * 3_600_000
MOST_READ_BYTES = 256 << 20
"""The most bytes of one report, no longer compressed. Security: so a small file can't fill the memory."""
_LEVEL = 1


def packed(inputs: Inputs) -> bytes:
    """The inputs, compressed. Cost: some 3 s for 10,000 jobs, in steps of milliseconds."""
    packer = zlib.compressobj(_LEVEL)
    return b"".join([*map(packer.compress, lines_of(inputs)), packer.flush()])


def unpacked(content: bytes, most_bytes: int = MOST_READ_BYTES) -> Inputs:
    """The inputs of compressed content, up to `most_bytes`. Raises WorldFault GPU7099."""
    try:
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(content, most_bytes)
    except zlib.error as error:
        raise unreadable(str(error)) from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise unreadable("it is cut off, or too large")
    return read_inputs(found.splitlines())


def keep(db: sqlite3.Connection, at_ms: Instant, content: bytes) -> None:
    """Keep the inputs of a cycle; drop the oldest until all kept ones are within the bound."""
    db.execute("INSERT INTO inputs VALUES (?, ?)", (at_ms, content))
    db.execute("DELETE FROM inputs WHERE at_ms < ?", (at_ms - KEPT_MS,))
    (size,) = db.execute("SELECT SUM(LENGTH(body)) FROM inputs").fetchone()
    for row, length in db.execute("SELECT rowid, LENGTH(body) FROM inputs ORDER BY at_ms, rowid").fetchall():
        if size <= MOST_KEPT_BYTES:
            break
        db.execute("DELETE FROM inputs WHERE rowid = ?", (row,))
        size -= length


def kept_before(path: Path, at_ms: Instant) -> bytes:
    """The compressed inputs of the newest cycle up to a time. Raises WorldFault GPU7087; GPU7099 if none are kept."""
    with opened(path) as db:
        row = next(_rows(db, at_ms), None)
    if row is None:
        raise unreadable("none up to that time are kept")
    return bytes(row)


def _rows(db: sqlite3.Connection, at_ms: Instant) -> Iterator[bytes]:
    rows = db.execute("SELECT body FROM inputs WHERE at_ms <= ? ORDER BY at_ms DESC, rowid DESC LIMIT 1", (at_ms,))
    return (row[0] for row in rows)
