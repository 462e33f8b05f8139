"""The thread that writes the history. What it can't write is lost; nothing waits for it."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import TypeAlias

from gpuctl.adapters.history.inputs import MOST_BYTES, packed
from gpuctl.adapters.history.levels import Levels, Workings
from gpuctl.adapters.history.store import NotHistory, Store
from gpuctl.app.history import Facts, moment
from gpuctl.app.replaying import Inputs
from gpuctl.model.decision import Decision
from gpuctl.model.history import HOUR_MS, MINUTE_MS, Grain, Mark, Moment, Note, Work
from gpuctl.model.ids import JobId, RunKey
from gpuctl.model.units import DurationMs, Instant

OpenStore: TypeAlias = Callable[[Path], Store]
MOST_NOTES = 2_000
SHARE = 50
"""At most one part in this many of the time is spent on keeping inputs of cycles."""
_FORGET_MS: DurationMs = HOUR_MS
_WORK_MS: DurationMs = 10 * MINUTE_MS
"""How often the use by running runs is written; for a run that changes its state it is written at once."""
_LAST_WORDS_S = 2.0
"""How long `close` waits for the disk."""
_ASIDE = ".damaged"


class HistoryFile:
    """Implements the port HistoryKeeper in a file. `close` it; that does not wait for a disk that hangs.

    A damaged file, or one of another version, is renamed, and a new one is begun.
    """

    def __init__(self, path: Path, open_store: OpenStore = Store) -> None:
        self._path = path
        self._open = open_store
        self._ring = Condition()
        self._next: Facts | None = None
        self._notes: deque[Note] = deque(maxlen=MOST_NOTES)
        self._busy = self._closed = False
        self._fault = ""
        self._store: Store | None = None
        self._marks: dict[RunKey, Mark] = {}
        self._levels = Levels()
        self._workings = Workings()
        self._worked_ms: Instant | None = None
        self._inputs_due_s = 0.0
        self._decided: list[tuple[JobId, type[Decision]]] = []
        self._forgot_ms: Instant | None = None
        self._thread = Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def offer(self, facts: Facts) -> None:
        """Have a cycle kept; it replaces one that still waits."""
        with self._ring:
            self._next = facts
            self._ring.notify_all()

    def note(self, notes: Sequence[Note]) -> None:
        """Have notes kept with the next cycle. If more than MOST_NOTES wait, the oldest are lost."""
        with self._ring:
            self._notes.extend(notes)

    def fault(self) -> str:
        """The reason why nothing can be kept now."""
        return self._fault

    def settle(self) -> None:
        """Wait until everything offered is kept, or could not be."""
        with self._ring:
            self._ring.wait_for(lambda: self._next is None and not self._busy)

    def close(self) -> None:
        """Keep the cycle that was offered last, and end the thread."""
        with self._ring:
            self._closed = True
            self._ring.notify_all()
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        while True:
            with self._ring:
                self._busy = False
                self._ring.notify_all()
                self._ring.wait_for(lambda: self._next is not None or self._closed)
                facts, self._next, self._busy = self._next, None, True
                notes = tuple(self._notes)
                self._notes.clear()
            if facts is None:
                break
            try:
                self._keep(facts, notes)
                self._fault = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, the next cycle may be kept
                self._fault = str(error) or type(error).__name__
                self._drop()
                with self._ring:
                    self._notes.extendleft(reversed(notes[: MOST_NOTES - len(self._notes)]))
        self._drop()

    def _keep(self, facts: Facts, notes: Sequence[Note]) -> None:
        if self._store is None:
            self._store = self._opened()
            self._marks = self._store.marks()
        found = moment(facts, self._marks)
        rows = self._levels.add(found)
        work = self._work(facts, found)
        if found.events or rows or notes or work:
            self._store.write(found.events, rows, notes, work)
        if facts.inputs is not None:
            self._keep_inputs(self._store, facts.inputs)
        self._marks = dict(found.marks)
        for hour_ms in {row.at_ms - row.at_ms % HOUR_MS for grain, row in rows if grain is Grain.MINUTE}:
            self._store.roll_up(hour_ms, HOUR_MS)
        if self._forgot_ms is None or not 0 <= facts.at_ms - self._forgot_ms < _FORGET_MS:
            self._forgot_ms = facts.at_ms
            self._store.forget(facts.at_ms)

    def _work(self, facts: Facts, found: Moment) -> list[Work]:
        """The use by runs up to now that is to be written: it is added to their last events."""
        self._workings.add(facts.at_ms, facts.uses)
        if self._worked_ms is not None and 0 <= facts.at_ms - self._worked_ms < _WORK_MS:
            return self._workings.taken((event.job, event.digest) for event in found.events)
        self._worked_ms = facts.at_ms
        return self._workings.taken()

    def _keep_inputs(self, store: Store, inputs: Inputs) -> None:
        """Keep the inputs of a cycle whose decisions differ from those of the last one that was kept, or was too large.

        Cost: at most one part in SHARE of this process' time; cycles beyond it are left out.
        """
        began_s = time.monotonic()
        if began_s < self._inputs_due_s or inputs.schedule is None:
            return
        decided = [(decision.job, type(decision)) for decision in inputs.schedule.decisions]
        if decided == self._decided:
            return
        content = packed(inputs)
        if len(content) <= MOST_BYTES:
            store.keep_inputs(inputs.at_ms, content)
        self._decided = decided  # only now: where the file could not be written, the next cycle is kept
        self._inputs_due_s = began_s + SHARE * (time.monotonic() - began_s)

    def _opened(self) -> Store:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._open(self._path)
        except NotHistory:
            for end in ("-wal", "-shm"):
                self._path.with_name(self._path.name + end).unlink(missing_ok=True)
            self._path.replace(self._path.with_name(self._path.name + _ASIDE))
            return self._open(self._path)

    def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with suppress(sqlite3.Error):
                store.close()
