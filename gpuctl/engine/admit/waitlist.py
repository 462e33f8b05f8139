"""Those who wait, and what is kept about them from cycle to cycle."""

from __future__ import annotations

from gpuctl.engine.admit.pending_reasons import PendingReasons
from gpuctl.engine.admit.queue_order import QueueOrder
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.snapshot import Snapshot


class Waitlist:
    """Who waits, what they want for, and in which order they would be attempted."""

    __slots__ = ("lineup", "queue", "shortages")

    def __init__(self, lineup: PendingJobs, snapshot: Snapshot, news: DirtyProjects) -> None:
        self.lineup = lineup
        self.shortages = PendingReasons(news)
        self.queue = QueueOrder(snapshot.accounts, lineup, news)
