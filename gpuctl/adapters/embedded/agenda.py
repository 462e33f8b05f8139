"""The tasks due now and later: a queue of objects, and a heap of instants with one entry for each object.

A task is a controller's name and a key. Controllers are level-triggered: a task says which object to look at, never
what to do.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpuctl.adapters.embedded.bodies import Key
from gpuctl.model.units import Instant


class Task(NamedTuple):
    """One object that one controller must look at."""

    controller: str
    key: Key


class Agenda:
    """The tasks in the order they were noted, and tasks with an instant. Cost: O(log n) a note."""

    def __init__(self) -> None:
        self._now: dict[Task, None] = {}
        self._later: list[tuple[Instant, int, Task]] = []
        self._due: dict[Task, Instant] = {}
        self._notes = 0

    def soon(self, task: Task) -> None:
        """Have the task done after the tasks noted before it."""
        self._now[task] = None

    def at(self, due_ms: Instant, task: Task) -> None:
        """Have the task done at an instant; an earlier instant that was noted for it stays."""
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
        """Drop the instant noted for the task, if there is one."""
        self._due.pop(task, None)

    def take(self) -> Task | None:
        """The next task due now, if there is one. Its instant is forgotten: the controller that looks notes the next
        one."""
        if not self._now:
            return None
        task = next(iter(self._now))
        del self._now[task]
        self.forget(task)
        return task

    def next_due(self) -> Instant | None:
        """The instant of the earliest later task."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heappop(self._later)
        return self._later[0][0] if self._later else None

    def ripen(self) -> None:
        """Make the tasks of the next instant due now."""
        due = self.next_due()
        while due is not None and self.next_due() == due:
            task = heappop(self._later)[2]
            self.forget(task)
            self.soon(task)
