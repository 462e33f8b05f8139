"""Who waits: each project's jobs in their order, and those that are alike together; kept so while some come and go.

A project whose jobs all leave no choice (one quota domain, and work that can be paused) wants the sum of them; only
where there is a choice is it made anew, job by job. Cost: O(log jobs) for one that comes or goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import TypeAlias

from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.demand import Demand, StaticFit
from gpuctl.engine.jobs.job_class import JobOptions, Kind, PendingJob, kind_of, rank_of, records_of
from gpuctl.engine.jobs.project_queue import JobClass, ProjectQueue
from gpuctl.engine.jobs.runs import record_of
from gpuctl.model.columns import of_columns
from gpuctl.model.decision import Decision, Pending, Reason, RunRecord
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant

LaneKey: TypeAlias = tuple[ProjectName, DomainName]

_id_of: Callable[[PendingJob], JobId] = attrgetter("job.id")


def pending(groups: Iterable[JobClass]) -> dict[JobId, Decision]:
    """What is decided about all of some groups, if none has a place. They were told why."""
    kinds = list(groups)
    jobs = [waiting.job.id for group in kinds for waiting in group.jobs]
    made = of_columns(
        Pending,
        len(jobs),
        job=jobs,
        reason=chain.from_iterable([repeat(group.reason, len(group.jobs)) for group in kinds]),
        record=records_of(chain.from_iterable([group.jobs for group in kinds])),
        reserved=repeat(None),
    )
    return dict(zip(jobs, made, strict=True))


class _ProjectSum:
    """What those of a project's jobs add up to that leave no choice, how many leave one, and how many there are."""

    __slots__ = ("choosy", "jobs", "plain_milli")

    def __init__(self) -> None:
        self.plain_milli: dict[DomainName, GpuMilli] = {}
        self.choosy = 0
        self.jobs = 0

    def enter(self, prospect: JobOptions, more: int) -> None:
        """So many more that could have that; or less."""
        self.jobs += more
        if prospect.is_plain:
            self.plain_milli[prospect.domain] = self.plain_milli.get(prospect.domain, 0) + more * prospect.milli
        else:
            self.choosy += more


class PendingJobs:
    """All waiting jobs: those that could start, by project, and those that can't, with why."""

    __slots__ = (
        "_capacity", "_domains", "_news", "_promised", "_prospects", "_sorts", "_sums", "_waiting", "lines", "unable",
    )  # fmt: skip

    def __init__(self, capacity: Capacity, prospects: StaticFit, news: DirtyProjects) -> None:
        self._capacity = capacity
        self._prospects = prospects
        self._news = news
        self._domains = tuple(dict.fromkeys(capacity.domain_of.values()))
        self._sums: dict[ProjectName, _ProjectSum] = {}
        self._waiting: dict[JobId, PendingJob] = {}
        self._promised: set[JobId] = set()
        self._sorts: tuple[PoolOption, ...] | None = None
        self.lines: dict[LaneKey, ProjectQueue] = {}
        self.unable: dict[JobId, tuple[Job, Run | None, Reason]] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting or self.unable)

    def __contains__(self, job: JobId) -> bool:
        """Whether it waits."""
        return job in self._waiting or job in self.unable

    def __iter__(self) -> Iterator[JobId]:
        """All that wait."""
        return chain(self._waiting, self.unable)

    def why(self, job: JobId, now_ms: Instant) -> tuple[RunRecord, Reason]:
        """What is remembered of a job that waits without a place, and what it was told. KeyError for another."""
        unable = self.unable.get(job)
        if unable is not None:
            return record_of(unable[1], now_ms), unable[2]
        waiting, group = self.find(job)
        if group.reason is None:
            raise KeyError(job)
        return waiting.record, group.reason

    def pending(self, now_ms: Instant) -> dict[JobId, Decision]:
        """What is decided about all that wait, if none has a place. Everybody was told why."""
        told = pending(self.groups())
        for job, (_, run, reason) in self.unable.items():
            told[job] = Pending(job=job, reason=reason, record=record_of(run, now_ms))
        return told

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> set[JobId]:
        """Some nodes are others now; the jobs that may have other prospects by that."""
        self._capacity = capacity
        others = set(self.unable)
        if self._prospects.refit(capacity, nodes):
            others.update(self._waiting)
        return others

    def are_like_others(self, some: Collection[JobId]) -> bool:
        """Whether some jobs wait, none with a promise, each behind one of its kind that is none of them."""
        return self._promised.isdisjoint(some) and all(
            job in self._waiting and self.find(job)[1].first.job.id not in some for job in some
        )

    def leaves_choice(self, project: ProjectName) -> bool:
        """Whether it is decided job by job in which domain a project's waiting jobs are wanted, or whether at all."""
        total = self._sums.get(project)
        return total is not None and total.choosy > 0

    def groups(self) -> Iterator[JobClass]:
        """Those that could start, alike by alike."""
        return (group for line in self.lines.values() for group in line.groups.values())

    def left(self, settled: Collection[JobId]) -> Iterator[PendingJob]:
        """Of those that are not settled, the first of each kind."""
        yield from (group.first for group in self.groups() if group.first.job.id not in settled)
        for group in dict.fromkeys(self.find(job)[1] for job in settled):
            if group.first.job.id in settled:
                yield from islice((waiting for waiting in group.jobs if waiting.job.id not in settled), 1)

    @property
    def sorts(self) -> tuple[PoolOption, ...]:
        """One option of each sort that is asked for. Cost: O(lines and their sorts) where a kind came or went."""
        if self._sorts is None:
            least = (option for line in self.lines.values() for option in line.needs(self._capacity).least)
            self._sorts = tuple({option.sort: option for option in least}.values())
        return self._sorts

    def lines_of(self, project: ProjectName) -> list[ProjectQueue]:
        """A project's lines; each domain has one at most."""
        found = (self.lines.get((project, domain)) for domain in self._domains)
        return [line for line in found if line is not None]

    def join(self, some: Iterable[tuple[Job, Run | None]], now_ms: Instant) -> None:
        """Jobs wait from now on, or as they did; one without a run since now. Cost: what those of a kind have in common
        is looked at once."""
        alike: defaultdict[Kind, list[PendingJob]] = defaultdict(list)
        for job, run in some:
            prospect = self._prospects.of(job)
            if isinstance(prospect, JobOptions):
                since = run.queued_at_ms if run else now_ms
                waiting = PendingJob(job, run, since, prospect, prospect.domain)
                alike[kind_of(waiting)].append(waiting)
                if run is not None and run.placement is not None:
                    self._promised.add(job.id)
            else:
                self.unable[job.id] = job, run, prospect
        for kind, them in alike.items():
            self._enter(kind, them)
            project = them[0].job.id.project
            total = self._sums.get(project)
            if total is None:
                total = self._sums[project] = _ProjectSum()
            total.enter(them[0].prospect, len(them))

    def find(self, job: JobId) -> tuple[PendingJob, JobClass]:
        """One of those that could start, and those that are like it. KeyError for another."""
        waiting = self._waiting[job]
        return waiting, self.lines[job.project, waiting.domain].groups[kind_of(waiting)]

    def leave(self, job: JobId) -> None:
        """A job waits no more, if it did."""
        self.unable.pop(job, None)
        waiting = self._waiting.get(job)
        if waiting is not None:
            self._promised.discard(job)
            self._exit(waiting)
            total = self._sums[job.project]
            total.enter(waiting.prospect, -1)
            if not total.jobs:
                del self._sums[job.project]

    def count(self, demand: Demand) -> None:
        """Count everybody as demand, each in the domain it is meant for. Cost: the projects there is news about."""
        for project in demand.renew():
            total = self._sums.get(project)
            if total is None:
                continue
            if not total.choosy:
                for domain, milli in total.plain_milli.items():
                    demand.more(domain, project, milli)
                continue
            for waiting in self._of_project(project):
                domain = demand.count(waiting.job, waiting.prospect, self._promised_in(waiting))
                if domain != waiting.domain:
                    self._exit(waiting)
                    self._enter(kind_of(waiting), [replace(waiting, domain=domain)])

    def _of_project(self, project: ProjectName) -> list[PendingJob]:
        """A project's jobs in order. Cost: O(jobs log groups)."""
        groups = (group for line in self.lines_of(project) for group in line.groups.values())
        return sorted(chain.from_iterable([group.jobs for group in groups]), key=rank_of)

    def _promised_in(self, waiting: PendingJob) -> DomainName | None:
        """The domain of the place a job was promised, if it was."""
        place = waiting.run.placement if waiting.run is not None else None
        pool = None if place is None else self._prospects.pool_of(place)
        return None if pool is None else self._capacity.domain_of.get(pool)

    def promised(self) -> list[PendingJob]:
        """Those that were promised a place, in order."""
        return sorted(map(self._waiting.__getitem__, self._promised), key=rank_of)

    def _enter(self, kind: Kind, alike: list[PendingJob]) -> None:
        """Some of one kind."""
        project, domain = alike[0].job.id.project, alike[0].domain
        self._news.of(project)
        line = self.lines.get((project, domain))
        if line is None:
            line = self.lines[project, domain] = ProjectQueue(project, domain)
        known = len(line.groups)
        line.join(kind, alike)
        if len(line.groups) != known:
            self._sorts = None
        self._waiting.update(zip(map(_id_of, alike), alike, strict=True))

    def _exit(self, waiting: PendingJob) -> None:
        job = waiting.job.id
        group = self.find(job)[1]
        line = group.line
        self._news.of(line.project)
        line.leave(waiting, group)
        del self._waiting[job]
        if not group.jobs:
            self._sorts = None
        if not line.groups:
            del self.lines[line.project, line.domain]
