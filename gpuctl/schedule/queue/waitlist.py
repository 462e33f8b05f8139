"""Those who wait, and what is kept about them from cycle to cycle."""

from __future__ import annotations

from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.lineup import Lineup
from gpuctl.schedule.news import News
from gpuctl.schedule.queue.lanes import Queue
from gpuctl.schedule.queue.shortage import Shortages


class Waitlist:
    """Who waits, what they want for, and in which order they would be attempted."""

    __slots__ = ("lineup", "queue", "shortages")

    def __init__(self, lineup: Lineup, books: Books, news: News) -> None:
        self.lineup = lineup
        self.shortages = Shortages(news)
        self.queue = Queue(books.accounts, lineup, news)
