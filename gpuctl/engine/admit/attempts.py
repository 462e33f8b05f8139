"""The order of attempts: of all projects the one with the least of its fair share, in it the first job in order.

Each project has a queue for each quota domain its jobs are meant for. A queue whose next job is within the project's
guarantee goes before the others: what the guarantee covers need not be taken back later from a project that got it
first. Jobs alike are attempted once: if the first fails, the others would fail too. When runs are paused, all are
attempted again. What an attempt comes to is `admission`'s.

Cost: a check for each class of alike jobs whose turn may come, and O(log queues) for each attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from gpuctl.engine.admit.queue_order import place_of
from gpuctl.engine.admit.schedulability import Schedulability
from gpuctl.engine.jobs.job_class import PendingJob, Rank, rank_of
from gpuctl.engine.jobs.project_queue import JobClass, ProjectQueue
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.ids import JobId
from gpuctl.model.units import Instant

_EVER: Instant = -(1 << 62)

_Next: TypeAlias = tuple[Rank, PendingJob, JobClass]


class Cursor:
    """How far one queue has been attempted. `place`: how it compares with others, at best, until its head is known.

    `decided`: jobs that need no attempt; it grows as jobs are given a place.
    """

    __slots__ = ("_at", "_classes", "_decided", "_followers", "_snapshot", "line", "place")

    def __init__(
        self,
        line: ProjectQueue,
        classes: Sequence[tuple[Rank, JobClass]],
        snapshot: Snapshot,
        decided: Collection[JobId],
    ) -> None:
        self.line = line
        self._classes = classes
        self._snapshot = snapshot
        self._decided = decided
        self._at = 0
        self._followers: list[_Next] = []
        self.place = place_of(line, snapshot.accounts, 0, _EVER)

    def head(self, check: Schedulability) -> PendingJob | None:
        """The first job in order, from here on, for which an attempt could succeed."""
        while (head := self._head()) is not None:
            _, waiting, group = head
            if waiting.job.id in self._decided:
                self._advance(head)
                self._follow(group)
            elif check.of(waiting, group):
                self.place = place_of(self.line, self._snapshot.accounts, waiting.gpu_milli, waiting.queued_at_ms)
                return waiting
            else:
                self._advance(head)
        return None

    def skip(self) -> None:
        """Advance past the head: it was attempted, and failed."""
        head = self._head()
        if head is not None:
            self._advance(head)

    def _head(self) -> _Next | None:
        classes, followers = self._classes, self._followers
        first = followers[0] if followers else None
        if self._at < len(classes) and (first is None or classes[self._at][0] < first[0]):
            rank, group = classes[self._at]
            return rank, group.first, group
        return first

    def _advance(self, head: _Next) -> None:
        if self._followers and self._followers[0] is head:
            heappop(self._followers)
        else:
            self._at += 1

    def _follow(self, group: JobClass) -> None:
        """The next of a class is attempted in its turn, where those before it have a place."""
        waiting = next((each for each in group.jobs if each.job.id not in self._decided), None)
        if waiting is not None:
            heappush(self._followers, (rank_of(waiting), waiting, group))

    def __lt__(self, other: Cursor) -> bool:
        return self.place < other.place


def attempt_all(
    lines: Iterable[ProjectQueue],
    check: Schedulability,
    snapshot: Snapshot,
    decided: Collection[JobId],
    attempt: Callable[[PendingJob], bool],
) -> None:
    """Attempt jobs until none is left for which that could succeed. `attempt` says whether the job has a place now."""
    queues = list(lines)
    version = -1
    cursors: list[Cursor] = []
    while True:
        if version != snapshot.version:
            version = snapshot.version
            cursors = [Cursor(line, found, snapshot, decided) for line in queues if (found := check.classes(line))]
            heapify(cursors)
        if not cursors:
            return
        cursor = cursors[0]
        waiting = cursor.head(check)
        if waiting is None:
            heappop(cursors)
        elif len(cursors) > 1 and min(other.place for other in cursors[1:3]) < cursor.place:
            heapreplace(cursors, cursor)
        elif not attempt(waiting):
            cursor.skip()
