"""How the projects' lanes compare, and who waits in which order when all turns are over."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection
from typing import TypeAlias

from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import ProjectQueue
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import GpuMilli, Instant

Place: TypeAlias = tuple[bool, bool, int, Instant, ProjectName, DomainName]
"""What lanes are compared by, the least is next: what is owed first; a share of 0 last; the part of its share that the
project holds, as a binary fraction; then who waits longest."""

_PLACES = 128
"""Binary places of such a fraction: so many that no two of amounts below 2 ** 64 look alike."""


def place_of(line: ProjectQueue, accounts: Accounts, gpu_milli: GpuMilli, queued_at_ms: Instant) -> Place:
    """The place of a line whose next job asks for so much and waits since then, by what its project holds now."""
    owner = project_owner(line.project)
    held = accounts.held(line.domain, owner)
    guarantee, share = accounts.portion(line.domain, owner)
    level = (held << _PLACES) // share if share > 0 else held
    return held + gpu_milli > guarantee, share <= 0, level, queued_at_ms, line.project, line.domain


class QueueOrder:
    """The lanes in order, kept from cycle to cycle. Cost: O(log lanes) for each that there is news about."""

    __slots__ = ("_accounts", "_lanes", "_lineup", "_ranked", "_reader", "_told")

    def __init__(self, accounts: Accounts, lineup: PendingJobs, news: DirtyProjects) -> None:
        self._accounts = accounts
        self._lineup = lineup
        self._reader = news.reader()
        self._lanes: dict[ProjectName, list[tuple[Place, tuple[JobId, ...]]]] = {}
        self._ranked: list[tuple[Place, tuple[JobId, ...]]] = []
        self._told: tuple[tuple[JobId, ...], ...] = ()

    def without(self, settled: Collection[JobId]) -> tuple[tuple[JobId, ...], ...]:
        """Those that wait still, lane by lane, in the order in which they would be asked.

        `settled` have a place by now: there is news about their projects, and will be when that is taken back.
        """
        touched = {job.project for job in settled}
        stale = self._reader.take()
        for project in stale:
            for before in self._lanes.pop(project, ()):
                del self._ranked[bisect_left(self._ranked, before)]
            gone = settled if project in touched else ()
            found = [lane for line in self._lineup.lines_of(project) if (lane := self._lane(line, gone)) is not None]
            if found:
                self._lanes[project] = found
                for lane in found:
                    insort(self._ranked, lane)
        if stale:
            self._told = tuple([jobs for _, jobs in self._ranked])
        return self._told

    def _lane(self, line: ProjectQueue, gone: Collection[JobId]) -> tuple[Place, tuple[JobId, ...]] | None:
        jobs = tuple([job for job in line.order if job not in gone]) if gone else line.order
        if not jobs:
            return None
        first = self._lineup.find(jobs[0])[0]
        return place_of(line, self._accounts, first.gpu_milli, first.queued_at_ms), jobs
