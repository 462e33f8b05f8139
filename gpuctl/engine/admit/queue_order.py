"""Queue order: how the projects' queues compare, and the pending jobs in the order of attempts.

Example: vision holds 2 GPUs of a fair share of 8, speech 6 of 8, and neither head is within its guarantee. Vision's
queue comes first, because it holds the smaller part of its share.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import ProjectQueue
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.units import GpuMilli, Instant

Place: TypeAlias = tuple[bool, bool, int, Instant, ProjectName, DomainName]
"""What queues are compared by, the least is next: a head within the guarantee first; projects without a share last; the
part of its share that the project holds, as a binary fraction; then the head that waits longest."""

_PLACES = 128
"""Binary places of such a fraction: enough to tell any two fractions of amounts below 2 ** 64 apart."""


def place_of(queue: ProjectQueue, accounts: Accounts, gpu_milli: GpuMilli, queued_at_ms: Instant) -> Place:
    """The place of a queue whose head asks for so many GPUs and waits since then."""
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
            found.append((place_of(queue, accounts, first.gpu_milli, first.queued_at_ms), jobs))
    return tuple([jobs for _, jobs in sorted(found)])
