"""What is to be looked at, now and later: a queue of objects and a heap of instants, one entry an object each.

A task is a controller's name and a key. Controllers are level-triggered: a task says where to look, never what to do.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpuctl.adapters.embedded.bodies import Key
from gpuctl.model.units import Instant


class Task(NamedTuple):
    """One object for one controller."""

    controller: str
    key: Key


class Agenda:
    """Tasks in the order they were noted, and tasks with an instant. Cost: O(log n) a note."""

    def __init__(self) -> None:
        self._now: dict[Task, None] = {}
        self._later: list[tuple[Instant, int, Task]] = []
        self._due: dict[Task, Instant] = {}
        self._notes = 0

    def soon(self, task: Task) -> None:
        """Look at it when what stands before it is done."""
        self._now[task] = None

    def at(self, due_ms: Instant, task: Task) -> None:
        """Look at it then; an earlier instant already noted stays."""
        known = self._due.get(task)
        if known is not None and known <= due_ms:
            return
        self._due[task] = due_ms
        self._notes += 1
        heappush(self._later, (due_ms, self._notes, task))
        if len(self._later) > 4 * len(self._due) + 64:
            self._later = [entry for entry in self._later if self._due.get(entry[2]) == entry[0]]
            heapify(self._later)

    def forget(self, task: Task) -> None:
        """Drop the instant noted for it, if there is one."""
        self._due.pop(task, None)

    def take(self) -> Task | None:
        """The next task of now, if there is one. Its instant is forgotten: looking at it notes the next one anew."""
        if not self._now:
            return None
        task = next(iter(self._now))
        del self._now[task]
        self.forget(task)
        return task

    def next_due(self) -> Instant | None:
        """The instant of the next task of later."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heappop(self._later)
        return self._later[0][0] if self._later else None

    def ripen(self) -> None:
        """Move the tasks of the next instant to now."""
        due = self.next_due()
        while due is not None and self.next_due() == due:
            task = heappop(self._later)[2]
            self.forget(task)
            self.soon(task)
