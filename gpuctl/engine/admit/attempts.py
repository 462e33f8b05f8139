"""The order of attempts: first the queue that holds the lowest part of its fair share, and in it the first job in
order.

Each project has a queue for each quota domain. A queue whose head is within the project's guarantee goes before the
others: otherwise GPUs that the guarantee covers would have to be reclaimed later from a project that got them first. A
job that may use several domains goes after those of its project that outrank it and are within the guarantee of one of
these. Of the jobs of a class only the first is attempted: if it fails, the others would fail too. After a pause all
classes may be attempted again.
Example: vision holds 2 GPUs of a fair share of 8, speech 6 of 8, and neither head is within its guarantee. Vision's
queue comes first, because it holds the smaller part of its share.
Cost: a check for each class of jobs up to the head, again after each pause, and O(log queues) for each attempt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import TypeAlias

from gpuctl.engine.admit.schedulability import Schedulability
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass, PendingJob, ProjectQueue, Rank, rank_of
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.units import GpuMilli, Instant

_EVER: Instant = -(1 << 62)

Place: TypeAlias = tuple[bool, bool, int, Instant, ProjectName, DomainName]
"""The key by which queues are compared; the lowest is next: a head within the guarantee first; projects without a share
last; the part of its share that the project holds, as a binary fraction; then the head that waits longest."""

_PLACES = 128
"""Binary places of this fraction: enough to distinguish any two fractions of amounts below 2 ** 64."""


def attempt_all(
    queues: Iterable[ProjectQueue],
    check: Schedulability,
    snapshot: Snapshot,
    decided: Collection[JobId],
    attempt: Callable[[PendingJob], bool],
) -> bool:
    """Attempt jobs until none is schedulable. Returns whether any attempt succeeded.

    `attempt`: returns whether the job has a place now. `decided`: jobs that need no attempt; it grows as jobs gain
    places.
    """
    accounts = snapshot.accounts
    by_key = {(queue.project, queue.domain): queue for queue in queues}
    pauses, has_succeeded = -1, False
    left: dict[ProjectQueue, ClassQueue] = {}
    order: list[tuple[Place, ProjectQueue]] = []  # a lower bound of the place until the head is known

    def head_of(queue: ProjectQueue) -> PendingJob | None:
        if queue not in left:
            left[queue] = ClassQueue(check.classes(queue))
        return _head(left[queue], check, decided)

    while True:
        if pauses != snapshot.pauses:
            pauses = snapshot.pauses
            left.clear()
            order = [(_place_of(queue, accounts, 0, _EVER), queue) for queue in by_key.values()]
            heapify(order)
        if not order:
            return has_succeeded
        _, queue = order[0]
        pending = head_of(queue)
        if pending is None:
            heappop(order)
            continue
        place = _place_of(queue, accounts, pending.gpu_milli, pending.queued_at_ms)
        if len(order) > 1 and min(order[1:3])[0] < place:
            heapreplace(order, (place, queue))
            continue
        for domain in dict.fromkeys(option.domain for option in pending.options):
            mates = by_key.get((queue.project, domain), queue)
            head = pending if mates is queue else head_of(mates)
            if head is not None and _goes_before(head, pending, mates, accounts):
                queue, pending = mates, head
        if attempt(pending):
            has_succeeded = True
        else:
            left[queue].pop()


class ClassQueue:
    """The classes of a queue by the rank of the next job of each; all jobs before that one have a place.

    They are read only when they are reached. If all were checked after each pause, a cycle with 80 pauses and 8,000
    jobs whose maxDurations all differ would take 10x.
    """

    def __init__(self, classes: Iterator[tuple[Rank, JobClass]]) -> None:
        """`classes`: in the order of the ranks of their first jobs."""
        self._classes = classes
        self._next = next(classes, None)
        self._again: list[tuple[Rank, JobClass]] = []  # a heap of classes whose first job has a place

    @property
    def first(self) -> tuple[Rank, JobClass] | None:
        """The next class, and its rank."""
        again = self._again[:1]
        return min((each for each in (self._next, *again) if each is not None), default=None)

    def pop(self) -> None:
        """Remove the next class."""
        if self._next is not None and self.first is self._next:
            self._next = next(self._classes, None)
        else:
            heappop(self._again)

    def push(self, rank: Rank, job_class: JobClass) -> None:
        """Put back a class, by the rank of a later job."""
        heappush(self._again, (rank, job_class))


def _head(classes: ClassQueue, check: Schedulability, decided: Collection[JobId]) -> PendingJob | None:
    """The first job of a queue for which an attempt could succeed. Removes those before it."""
    while (found := classes.first) is not None:
        rank, job_class = found
        at = bisect_left(job_class.jobs, rank, key=rank_of)
        pending = job_class.jobs[at]
        if pending.job.id in decided:
            classes.pop()
            following = (each for each in islice(job_class.jobs, at + 1, None) if each.job.id not in decided)
            for each in islice(following, 1):
                classes.push(rank_of(each), job_class)
        elif check.of(pending, job_class):
            return pending
        else:
            classes.pop()
    return None


def _goes_before(head: PendingJob, pending: PendingJob, mates: ProjectQueue, accounts: Accounts) -> bool:
    """Whether the head of another queue of the project, in a domain of the job's, outranks it by its guarantee."""
    if head.job_options.precedence >= pending.job_options.precedence:
        return False
    is_beyond, *_ = _place_of(mates, accounts, head.gpu_milli, head.queued_at_ms)
    return not is_beyond


def _place_of(queue: ProjectQueue, accounts: Accounts, gpu_milli: GpuMilli, queued_at_ms: Instant) -> Place:
    """The place of a queue whose head asks for `gpu_milli` and waits since `queued_at_ms`."""
    owner = project_owner(queue.project)
    held = accounts.held(queue.domain, owner)
    guarantee = accounts.entitled(queue.domain, owner).guarantee_milli
    share = accounts.portion(queue.domain, owner).share_milli
    level = (held << _PLACES) // share if share > 0 else held
    return held + gpu_milli > guarantee, share <= 0, level, queued_at_ms, queue.project, queue.domain


def still_pending(
    pending_jobs: PendingJobs, accounts: Accounts, decided: Collection[JobId]
) -> tuple[tuple[JobId, ...], ...]:
    """The jobs of each queue that are not decided, in the order of attempts. Cost: O(queues log queues)."""
    with_decided = {job.project for job in decided}
    found: list[tuple[Place, tuple[JobId, ...]]] = []
    for queue in pending_jobs.queues.values():
        jobs = queue.order
        if queue.project in with_decided:
            jobs = tuple([job for job in jobs if job not in decided])
        if jobs:
            first = pending_jobs.find(jobs[0])
            found.append((_place_of(queue, accounts, first.gpu_milli, first.queued_at_ms), jobs))
    return tuple([jobs for _, jobs in sorted(found)])
