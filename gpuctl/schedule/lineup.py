"""Who waits, each project's jobs in their order, kept so while some come and go.

A project whose jobs all leave no choice (one quota domain, and work that can be paused) wants the sum of them; only
where there is a choice is it made anew, job by job. Cost: O(log jobs) for one that comes or goes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from typing import TypeAlias

from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.schedule.capacity import Capacity
from gpuctl.schedule.demand import Demand, Prospects
from gpuctl.schedule.gang import Offer
from gpuctl.schedule.ordering import Kind, Rank, Waiting, job_rank, likeness
from gpuctl.schedule.runs import record_of

LaneKey: TypeAlias = tuple[ProjectName, DomainName]


class _Line:
    """One project's waiting jobs in order; what those leave no choice about add up to, and how many leave one."""

    __slots__ = ("choosy", "jobs", "plain_milli")

    def __init__(self) -> None:
        self.jobs: list[tuple[Rank, Waiting]] = []
        self.plain_milli: dict[DomainName, GpuMilli] = {}
        self.choosy = 0


class Lineup:
    """All waiting jobs: those that could start, by project, and those that can't, with why."""

    __slots__ = ("_capacity", "_kinds", "_lines", "_of", "_promised", "_prospects", "unable")

    def __init__(self, capacity: Capacity, prospects: Prospects) -> None:
        self._capacity = capacity
        self._prospects = prospects
        self._kinds: dict[tuple[object, ...], int] = {}
        self._lines: dict[ProjectName, _Line] = {}
        self._of: dict[JobId, tuple[Rank, Waiting]] = {}
        self._promised: dict[JobId, tuple[Rank, Waiting]] = {}
        self.unable: dict[JobId, tuple[Job, Run | None, Reason]] = {}

    def __iter__(self) -> Iterator[Waiting]:
        """Those that could start, project by project."""
        return (waiting for line in self._lines.values() for _, waiting in line.jobs)

    def join(self, job: Job, run: Run | None, now_ms: Instant) -> None:
        """A job waits from now on, or as it did; one without a run since now."""
        offers = self._prospects.offers(job)
        if not isinstance(offers, tuple):
            self.unable[job.id] = job, run, offers
            return
        since = run.queued_at_ms if run else now_ms
        domain = self._capacity.domain_of[offers[0].pool.name]
        waiting = Waiting(job, run, since, offers, domain, record_of(run, now_ms), self._kind(job, run, offers))
        entry = job_rank(job, since), waiting
        line = self._lines.get(job.id.project)
        if line is None:
            line = self._lines[job.id.project] = _Line()
        insort(line.jobs, entry)
        self._of[job.id] = entry
        if run is not None and run.placement is not None:
            self._promised[job.id] = entry
        self._weigh(line, waiting, 1)

    def forget(self, job: JobId) -> None:
        """A job is declared no more."""
        self._prospects.forget(job)

    def find(self, job: JobId) -> Waiting:
        """One of those that could start. KeyError for another."""
        return self._of[job][1]

    def leave(self, job: JobId) -> None:
        """A job waits no more, if it did."""
        self.unable.pop(job, None)
        entry = self._of.pop(job, None)
        if entry is None:
            return
        self._promised.pop(job, None)
        line = self._lines[job.project]
        del line.jobs[bisect_left(line.jobs, entry[:1])]
        self._weigh(line, entry[1], -1)
        if not line.jobs:
            del self._lines[job.project]

    def count(self, demand: Demand) -> None:
        """Count everybody as demand, each in the domain it is meant for."""
        for project, line in self._lines.items():
            if not line.choosy:
                for domain, milli in line.plain_milli.items():
                    demand.more(domain, project, milli)
                continue
            for position, (rank, waiting) in enumerate(line.jobs):
                domain = demand.count(waiting.job, waiting.offers)
                if domain != waiting.domain:
                    entry = rank, waiting.in_domain(domain)
                    line.jobs[position] = self._of[waiting.job.id] = entry
                    if waiting.job.id in self._promised:
                        self._promised[waiting.job.id] = entry

    def promised(self) -> list[Waiting]:
        """Those that were promised a place, in order."""
        return [waiting for _, waiting in sorted(self._promised.values())]

    def lanes(
        self, without: Collection[JobId] = (), only: Collection[JobId] | None = None
    ) -> dict[LaneKey, list[Waiting]]:
        """Who takes turns, by project and domain, in order."""
        lanes: dict[LaneKey, list[Waiting]] = {}
        for project in sorted(self._lines):
            line = self._lines[project]
            for _, waiting in line.jobs:
                job = waiting.job.id
                if job not in without and (only is None or job in only):
                    lanes.setdefault((project, waiting.domain), []).append(waiting)
        return lanes

    def _kind(self, job: Job, run: Run | None, offers: tuple[Offer, ...]) -> Kind:
        if run is not None and run.starts:
            return job.id
        return self._kinds.setdefault(likeness(job, offers, known=run is not None), len(self._kinds))

    def _weigh(self, line: _Line, waiting: Waiting, sign: int) -> None:
        domains = {self._capacity.domain_of[offer.pool.name] for offer in waiting.offers}
        if len(domains) > 1 or not waiting.job.preemptible:
            line.choosy += sign
            return
        domain = waiting.domain
        line.plain_milli[domain] = line.plain_milli.get(domain, 0) + sign * waiting.gpu_milli
