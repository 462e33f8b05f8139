"""Who waits: each project's jobs in their order, and those that are alike together; kept so while some come and go.

A project whose jobs all leave no choice (one quota domain, and work that can be paused) wants the sum of them; only
where there is a choice is it made anew, job by job. Cost: O(log jobs) for one that comes or goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from gpuctl.model.columns import of_columns
from gpuctl.model.decision import Decision, Pending, Reason, RunRecord
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.schedule.jobs.demand import Demand, Prospects
from gpuctl.schedule.jobs.ordering import Kind, Prospect, Shape, Waiting, is_first_class, kind_of, rank_of, records_of
from gpuctl.schedule.jobs.runs import record_of
from gpuctl.schedule.news import News
from gpuctl.schedule.places.capacity import Capacity
from gpuctl.schedule.places.gang import Offer, Wish

LaneKey: TypeAlias = tuple[ProjectName, DomainName]

_ENDLESS = 1 << 62

_id_of: Callable[[Waiting], JobId] = attrgetter("job.id")

_FEW = 64
"""So many that come or go are put in a line's order one by one; after more it is sorted anew."""


class Group:
    """Jobs of one line and one kind, in their order. `reason`: what they were told last."""

    __slots__ = ("jobs", "kind", "line", "reason", "shape")

    def __init__(self, line: Line, kind: Kind, shape: Shape) -> None:
        self.line = line
        self.kind = kind
        self.shape = shape
        self.jobs: list[Waiting] = []
        self.reason: Reason | None = None

    @property
    def first(self) -> Waiting:
        """The first of them; there is always one."""
        return self.jobs[0]

    def wishes(self) -> Iterator[tuple[Wish, Offer]]:
        """Each offer by what it asks."""
        return zip(self.shape, self.first.offers, strict=True)


def pending(groups: Iterable[Group]) -> dict[JobId, Decision]:
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


class Needs(NamedTuple):
    """What the most modest of some jobs would need: the fewest GPUs with which one that has a run could start, the
    highest priority, and whether one is a person's or a service that can't be paused. All quota domains, and all that
    any of them asks for at the least there."""

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

    __slots__ = ("_in_order", "_jobs", "_needs", "_order", "_unread", "domain", "groups", "project", "terms")

    def __init__(self, project: ProjectName, domain: DomainName) -> None:
        self.project = project
        self.domain = domain
        self.groups: dict[Kind, Group] = {}
        self.terms: Terms | None = None
        self._order: tuple[JobId, ...] | None = None
        self._in_order: list[Waiting] = []
        self._jobs: list[JobId] = []
        self._unread = 0
        self._needs: Needs | None = None

    def join(self, kind: Kind, some: list[Waiting]) -> Group:
        """More of one kind; the group they are in now. Cost: O(log jobs) for one."""
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = Group(self, kind, some[0].prospect.shape)
            self._needs = self.terms = None
        if len(some) > 1 or (group.jobs and rank_of(group.jobs[-1]) > rank_of(some[0])):
            group.jobs.extend(some)
            group.jobs.sort(key=rank_of)
        else:
            group.jobs += some  # Who comes waits last, mostly.
        if self._is_in_order(len(some)):
            for waiting in some:
                at = bisect_left(self._in_order, rank_of(waiting), key=rank_of)
                self._in_order.insert(at, waiting)
                self._jobs.insert(at, waiting.job.id)
        return group

    def leave(self, waiting: Waiting, group: Group) -> None:
        """One less, of the group it is in."""
        rank = rank_of(waiting)
        del group.jobs[bisect_left(group.jobs, rank, key=rank_of)]
        if not group.jobs:
            del self.groups[group.kind]
            self._needs = None
        if self._is_in_order(1):
            at = bisect_left(self._in_order, rank, key=rank_of)
            del self._in_order[at], self._jobs[at]

    @property
    def order(self) -> tuple[JobId, ...]:
        """All of them in order. Cost: a copy where few came or went, else O(jobs log jobs)."""
        if self._order is None:
            if self._unread > _FEW:
                self._in_order = sorted(chain.from_iterable([g.jobs for g in self.groups.values()]), key=rank_of)
                self._jobs = [waiting.job.id for waiting in self._in_order]
            self._unread = 0
            self._order = tuple(self._jobs)
        return self._order

    def _is_in_order(self, more: int) -> bool:
        """Whether the order is kept while so many come or go; not, once too many did."""
        self._order = None
        self._unread += more
        return self._unread <= _FEW

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
            asked = frozenset(
                (capacity.domain_of[pool], request.gpu_milli * (fewest or request.workers))
                for pool, request, fewest in wishes
            )
            self._needs = Needs(least, priority, is_fixed, frozenset(domain for domain, _ in asked), asked)
        return self._needs


class _Sum:
    """What those of a project's jobs add up to that leave no choice, how many leave one, and how many there are."""

    __slots__ = ("choosy", "jobs", "plain_milli")

    def __init__(self) -> None:
        self.plain_milli: dict[DomainName, GpuMilli] = {}
        self.choosy = 0
        self.jobs = 0

    def enter(self, prospect: Prospect, more: int) -> None:
        """So many more that could have that; or less."""
        self.jobs += more
        if prospect.is_plain:
            self.plain_milli[prospect.domain] = self.plain_milli.get(prospect.domain, 0) + more * prospect.milli
        else:
            self.choosy += more


class Lineup:
    """All waiting jobs: those that could start, by project, and those that can't, with why."""

    __slots__ = (
        "_capacity", "_domains", "_news", "_promised", "_prospects", "_sums", "_waiting", "lines", "shapes", "unable",
    )  # fmt: skip

    def __init__(self, capacity: Capacity, prospects: Prospects, news: News) -> None:
        self._capacity = capacity
        self._prospects = prospects
        self._news = news
        self._domains = tuple(dict.fromkeys(capacity.domain_of.values()))
        self._sums: dict[ProjectName, _Sum] = {}
        self._waiting: dict[JobId, Waiting] = {}
        self._promised: set[JobId] = set()
        self.lines: dict[LaneKey, Line] = {}
        self.shapes: dict[Shape, dict[Group, None]] = {}
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

    def join(self, some: Iterable[tuple[Job, Run | None]], now_ms: Instant) -> None:
        """Jobs wait from now on, or as they did; one without a run since now. Cost: what those of a kind have in common
        is looked at once."""
        alike: defaultdict[Kind, list[Waiting]] = defaultdict(list)
        for job, run in some:
            prospect = self._prospects.of(job)
            if isinstance(prospect, Prospect):
                since = run.queued_at_ms if run else now_ms
                waiting = Waiting(job, run, since, prospect, prospect.domain)
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
                total = self._sums[project] = _Sum()
            total.enter(them[0].prospect, len(them))

    def find(self, job: JobId) -> tuple[Waiting, Group]:
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

    def _of_project(self, project: ProjectName) -> list[Waiting]:
        """A project's jobs in order. Cost: O(jobs log groups)."""
        groups = (group for line in self.lines_of(project) for group in line.groups.values())
        return sorted(chain.from_iterable([group.jobs for group in groups]), key=rank_of)

    def _promised_in(self, waiting: Waiting) -> DomainName | None:
        """The domain of the place a job was promised, if it was."""
        place = waiting.run.placement if waiting.run is not None else None
        pool = None if place is None else self._prospects.pool_of(place)
        return None if pool is None else self._capacity.domain_of.get(pool)

    def promised(self) -> list[Waiting]:
        """Those that were promised a place, in order."""
        return sorted(map(self._waiting.__getitem__, self._promised), key=rank_of)

    def _enter(self, kind: Kind, alike: list[Waiting]) -> None:
        """Some of one kind."""
        project, domain = alike[0].job.id.project, alike[0].domain
        self._news.of(project)
        line = self.lines.get((project, domain))
        if line is None:
            line = self.lines[project, domain] = Line(project, domain)
        group = line.join(kind, alike)
        self.shapes.setdefault(group.shape, {})[group] = None
        self._waiting.update(zip(map(_id_of, alike), alike, strict=True))

    def _exit(self, waiting: Waiting) -> None:
        job = waiting.job.id
        group = self.find(job)[1]
        line = group.line
        self._news.of(line.project)
        line.leave(waiting, group)
        del self._waiting[job]
        if not group.jobs:
            alike = self.shapes[group.shape]
            del alike[group]
            if not alike:
                del self.shapes[group.shape]
        if not line.groups:
            del self.lines[line.project, line.domain]
