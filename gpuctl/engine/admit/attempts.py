"""The order of attempts: the queue with the least of its fair share first, and in it the first job in order.

Each project has a queue for each quota domain. A queue whose head is within the project's guarantee goes before the
others: GPUs that the guarantee covers need not be reclaimed later from a project that got them first. Of alike jobs
only the first is attempted: if it fails, the others would fail too. After a pause all classes may be attempted again.

Cost: a check for each class of jobs that comes to the head, and O(log queues) for each attempt.
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

_Head: TypeAlias = tuple[Rank, int, JobClass]
"""A job's rank, its index in its class, and the class."""


class Cursor:
    """How far one queue was attempted. `place`: its place in the order of queues, at best, until the head is known.

    `decided`: jobs that need no attempt; it grows as jobs are given a place.
    """

    __slots__ = ("_at", "_classes", "_decided", "_followers", "_snapshot", "place", "queue")

    def __init__(
        self,
        queue: ProjectQueue,
        classes: Sequence[tuple[Rank, JobClass]],
        snapshot: Snapshot,
        decided: Collection[JobId],
    ) -> None:
        self.queue = queue
        self._classes = classes
        self._snapshot = snapshot
        self._decided = decided
        self._at = 0
        self._followers: list[_Head] = []
        self.place = place_of(queue, snapshot.accounts, 0, _EVER)

    def head(self, check: Schedulability) -> PendingJob | None:
        """Advance to the first job for which an attempt could succeed, and return it."""
        while (head := self._head()) is not None:
            _, at, job_class = head
            pending = job_class.jobs[at]
            if pending.job.id in self._decided:
                self._advance(head)
                self._follow(job_class, at + 1)
            elif check.of(pending, job_class):
                self.place = place_of(self.queue, self._snapshot.accounts, pending.gpu_milli, pending.queued_at_ms)
                return pending
            else:
                self._advance(head)
        return None

    def skip(self) -> None:
        """Advance past the head: its attempt failed."""
        head = self._head()
        if head is not None:
            self._advance(head)

    def _head(self) -> _Head | None:
        classes, followers = self._classes, self._followers
        first = followers[0] if followers else None
        if self._at < len(classes) and (first is None or classes[self._at][0] < first[0]):
            rank, job_class = classes[self._at]
            return rank, 0, job_class
        return first

    def _advance(self, head: _Head) -> None:
        if self._followers and self._followers[0] is head:
            heappop(self._followers)
        else:
            self._at += 1

    def _follow(self, job_class: JobClass, at: int) -> None:
        """Line up the next job of a class in which all before it have a place."""
        while at < len(job_class.jobs) and job_class.jobs[at].job.id in self._decided:
            at += 1
        if at < len(job_class.jobs):
            heappush(self._followers, (rank_of(job_class.jobs[at]), at, job_class))

    def __lt__(self, other: Cursor) -> bool:
        return self.place < other.place


def attempt_all(
    queues: Iterable[ProjectQueue],
    check: Schedulability,
    snapshot: Snapshot,
    decided: Collection[JobId],
    attempt: Callable[[PendingJob], bool],
) -> None:
    """Attempt jobs until none is schedulable. `attempt` says whether the job has a place now."""
    unfinished = list(queues)
    pauses = -1
    cursors: list[Cursor] = []
    while True:
        if pauses != snapshot.pauses:
            pauses = snapshot.pauses
            found = ((queue, check.classes(queue)) for queue in unfinished)
            cursors = [Cursor(queue, classes, snapshot, decided) for queue, classes in found if classes]
            heapify(cursors)
        if not cursors:
            return
        cursor = cursors[0]
        pending = cursor.head(check)
        if pending is None:
            heappop(cursors)
        elif len(cursors) > 1 and min(other.place for other in cursors[1:3]) < cursor.place:
            heapreplace(cursors, cursor)
        elif not attempt(pending):
            cursor.skip()
