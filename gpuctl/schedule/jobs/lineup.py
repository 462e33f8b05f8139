"""Who waits: each project's jobs in their order, and those that are alike together; kept so while some come and go.

A project whose jobs all leave no choice (one quota domain, and work that can be paused) wants the sum of them; only
where there is a choice is it made anew, job by job. Cost: O(log jobs) for one that comes or goes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeAlias

from gpuctl.model.decision import Decision, Pending, Reason, RunRecord
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.schedule.jobs.demand import Demand, Prospects
from gpuctl.schedule.jobs.ordering import Kind, Prospect, Rank, Shape, Waiting, is_first_class, job_rank, kind_of
from gpuctl.schedule.jobs.runs import record_of
from gpuctl.schedule.news import News
from gpuctl.schedule.places.capacity import Capacity
from gpuctl.schedule.places.gang import Offer, Wish

LaneKey: TypeAlias = tuple[ProjectName, DomainName]
Entry: TypeAlias = tuple[Rank, Waiting]
"""One that waits, by its rank."""

_ENDLESS = 1 << 62

_FEW = 64
"""So many that come or go are put in a line's order one by one; after more it is sorted anew."""


class Group:
    """Jobs of one line and one kind, in their order. `reason`: what they were told last."""

    __slots__ = ("jobs", "kind", "line", "reason", "shape")

    def __init__(self, line: Line, kind: Kind, shape: Shape) -> None:
        self.line = line
        self.kind = kind
        self.shape = shape
        self.jobs: list[Entry] = []
        self.reason: Reason | None = None

    @property
    def first(self) -> Waiting:
        """The first of them; there is always one."""
        return self.jobs[0][1]

    def wishes(self) -> Iterator[tuple[Wish, Offer]]:
        """Each offer by what it asks."""
        return zip(self.shape, self.first.offers, strict=True)


class Needs(NamedTuple):
    """What the most modest of some jobs would need: the fewest GPUs with which one that has a run could start, the
    highest priority, and whether one is a person's or a service that can't be paused. All quota domains, and all that
    any of them asks for there."""

    gpu_milli: GpuMilli
    priority: int
    is_fixed: bool
    domains: frozenset[DomainName]
    asked: frozenset[tuple[DomainName, GpuMilli]]


class Terms(NamedTuple):
    """What a project's reasons depend on, by domain: how much of what counts to a ceiling is held, and how much more
    the project may hold by guarantee or share."""

    ceiled: Mapping[DomainName, tuple[GpuMilli, ...]]
    left_milli: Mapping[DomainName, GpuMilli]


class Line:
    """A project's waiting jobs of one quota domain, by kind, and what the most modest of them would need.

    `terms`: what the project held and had a right to when they were told their reasons last.
    """

    __slots__ = ("_jobs", "_needs", "_order", "_ranks", "_unread", "domain", "groups", "project", "terms")

    def __init__(self, project: ProjectName, domain: DomainName) -> None:
        self.project = project
        self.domain = domain
        self.groups: dict[Kind, Group] = {}
        self.terms: Terms | None = None
        self._order: tuple[JobId, ...] | None = None
        self._ranks: list[Rank] = []
        self._jobs: list[JobId] = []
        self._unread = 0
        self._needs: Needs | None = None

    def join(self, entry: Entry) -> Group:
        """One more, by its rank; the group it is in now."""
        kind = kind_of(entry[1])
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = Group(self, kind, entry[1].prospect.shape)
            self._needs = self.terms = None
        jobs = group.jobs
        if not jobs or jobs[-1] < entry:
            jobs.append(entry)  # Who comes waits last, mostly.
        else:
            insort(jobs, entry)
        at = self._place_of(entry[0])
        if at is not None:
            self._ranks.insert(at, entry[0])
            self._jobs.insert(at, entry[0][3])
        return group

    def leave(self, entry: Entry, group: Group) -> None:
        """One less, of the group it is in."""
        del group.jobs[bisect_left(group.jobs, entry[:1])]
        if not group.jobs:
            del self.groups[group.kind]
            self._needs = None
        at = self._place_of(entry[0])
        if at is not None:
            del self._ranks[at], self._jobs[at]

    @property
    def order(self) -> tuple[JobId, ...]:
        """All of them in order. Cost: a copy where few came or went, else O(jobs log jobs)."""
        if self._order is None:
            if self._unread > _FEW:
                self._ranks = sorted([rank for group in self.groups.values() for rank, _ in group.jobs])
                self._jobs = [rank[3] for rank in self._ranks]
            self._unread = 0
            self._order = tuple(self._jobs)
        return self._order

    def _place_of(self, rank: Rank) -> int | None:
        """Where one that comes or goes is in the order; None once too many did."""
        self._order = None
        self._unread += 1
        return bisect_left(self._ranks, rank) if self._unread <= _FEW else None

    def needs(self, capacity: Capacity) -> Needs:
        """What one of them needs at least. Cost: O(groups) where one came or went."""
        if self._needs is None:
            least, priority, is_fixed = _ENDLESS, -_ENDLESS, False
            for group in self.groups.values():
                job = group.first.job
                if group.first.run is not None:
                    least = min(least, *(offer.least_milli or _ENDLESS for offer in group.first.offers))
                priority = max(priority, job.priority)
                is_fixed = is_fixed or is_first_class(job)
            wishes = {wish for group in self.groups.values() for wish in group.shape}
            asked = frozenset((capacity.domain_of[pool], request.total_milli) for pool, request, _ in wishes)
            self._needs = Needs(least, priority, is_fixed, frozenset(domain for domain, _ in asked), asked)
        return self._needs


class _Sum:
    """What those of a project's jobs add up to that leave no choice, how many leave one, and how many there are."""

    __slots__ = ("choosy", "jobs", "plain_milli")

    def __init__(self) -> None:
        self.plain_milli: dict[DomainName, GpuMilli] = {}
        self.choosy = 0
        self.jobs = 0

    def enter(self, prospect: Prospect, sign: int) -> None:
        """One more that could have that; with -1, one less."""
        self.jobs += sign
        if prospect.is_plain:
            self.plain_milli[prospect.domain] = self.plain_milli.get(prospect.domain, 0) + sign * prospect.milli
        else:
            self.choosy += sign


class Lineup:
    """All waiting jobs: those that could start, by project, and those that can't, with why."""

    __slots__ = (
        "_capacity", "_domains", "_entries", "_news", "_promised", "_prospects", "_sums", "lines", "shapes", "unable",
    )  # fmt: skip

    def __init__(self, capacity: Capacity, prospects: Prospects, news: News) -> None:
        self._capacity = capacity
        self._prospects = prospects
        self._news = news
        self._domains = tuple(dict.fromkeys(capacity.domain_of.values()))
        self._sums: dict[ProjectName, _Sum] = {}
        self._entries: dict[JobId, Entry] = {}
        self._promised: set[JobId] = set()
        self.lines: dict[LaneKey, Line] = {}
        self.shapes: dict[Shape, dict[Group, None]] = {}
        self.unable: dict[JobId, tuple[Job, Run | None, Reason]] = {}

    def __contains__(self, job: JobId) -> bool:
        """Whether it waits."""
        return job in self._entries or job in self.unable

    def __iter__(self) -> Iterator[JobId]:
        """All that wait."""
        return chain(self._entries, self.unable)

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
        told: dict[JobId, Decision] = {}
        for group in self.groups():
            if group.reason is not None:
                for (*_, job), waiting in group.jobs:
                    told[job] = Pending(job=job, reason=group.reason, record=waiting.record)
        for job, (_, run, reason) in self.unable.items():
            told[job] = Pending(job=job, reason=reason, record=record_of(run, now_ms))
        return told

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> set[JobId]:
        """Some nodes are others now; the jobs that may have other prospects by that."""
        self._capacity = capacity
        others = set(self.unable)
        if self._prospects.refit(capacity, nodes):
            others.update(self._entries)
        return others

    def are_like_others(self, some: Collection[JobId]) -> bool:
        """Whether some jobs wait, none with a promise, each behind one of its kind that is none of them."""
        return self._promised.isdisjoint(some) and all(
            job in self._entries and self.find(job)[1].first.job.id not in some for job in some
        )

    def groups(self) -> Iterator[Group]:
        """Those that could start, alike by alike."""
        return (group for line in self.lines.values() for group in line.groups.values())

    def lines_of(self, project: ProjectName) -> list[Line]:
        """A project's lines; each domain has one at most."""
        found = (self.lines.get((project, domain)) for domain in self._domains)
        return [line for line in found if line is not None]

    def wishes(self) -> dict[Wish, Offer]:
        """All that is asked for by those that could start, once each."""
        return {wish: offer for alike in self.shapes.values() for wish, offer in next(iter(alike)).wishes()}

    def join(self, job: Job, run: Run | None, now_ms: Instant) -> None:
        """A job waits from now on, or as it did; one without a run since now."""
        prospect = self._prospects.of(job)
        if not isinstance(prospect, Prospect):
            self.unable[job.id] = job, run, prospect
            return
        since = run.queued_at_ms if run else now_ms
        self._enter((job_rank(job, since), Waiting(job, run, since, prospect, prospect.domain, record_of(run, now_ms))))
        if run is not None and run.placement is not None:
            self._promised.add(job.id)
        total = self._sums.get(job.id.project)
        if total is None:
            total = self._sums[job.id.project] = _Sum()
        total.enter(prospect, 1)

    def find(self, job: JobId) -> tuple[Waiting, Group]:
        """One of those that could start, and those that are like it. KeyError for another."""
        _, waiting = self._entries[job]
        return waiting, self.lines[job.project, waiting.domain].groups[kind_of(waiting)]

    def leave(self, job: JobId) -> None:
        """A job waits no more, if it did."""
        self.unable.pop(job, None)
        entry = self._entries.get(job)
        if entry is not None:
            self._promised.discard(job)
            self._exit(entry)
            total = self._sums[job.project]
            total.enter(entry[1].prospect, -1)
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
            for rank, waiting in self._of_project(project):
                domain = demand.count(waiting.job, waiting.offers, self._promised_in(waiting))
                if domain != waiting.domain:
                    self._exit((rank, waiting))
                    self._enter((rank, replace(waiting, domain=domain)))

    def _of_project(self, project: ProjectName) -> list[Entry]:
        """A project's jobs in order. Cost: O(jobs log groups)."""
        groups = (group for line in self.lines_of(project) for group in line.groups.values())
        return sorted(chain.from_iterable([group.jobs for group in groups]))

    def _promised_in(self, waiting: Waiting) -> DomainName | None:
        """The domain of the place a job was promised, if it was."""
        place = waiting.run.placement if waiting.run is not None else None
        pool = None if place is None else self._prospects.pool_of(place)
        return None if pool is None else self._capacity.domain_of.get(pool)

    def promised(self) -> list[Waiting]:
        """Those that were promised a place, in order."""
        entries = (self._entries[job] for job in self._promised)
        return [waiting for _, waiting in sorted(entries, key=lambda entry: entry[0])]

    def _enter(self, entry: Entry) -> None:
        waiting = entry[1]
        job = waiting.job.id
        key = job.project, waiting.domain
        self._news.of(job.project)
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line(*key)
        group = line.join(entry)
        if len(group.jobs) == 1:
            self.shapes.setdefault(group.shape, {})[group] = None
        self._entries[job] = entry

    def _exit(self, entry: Entry) -> None:
        job = entry[1].job.id
        group = self.find(job)[1]
        line = group.line
        self._news.of(line.project)
        line.leave(entry, group)
        del self._entries[job]
        if not group.jobs:
            alike = self.shapes[group.shape]
            del alike[group]
            if not alike:
                del self.shapes[group.shape]
        if not line.groups:
            del self.lines[line.project, line.domain]
