"""A project's waiting jobs of one quota domain: in their order, those that are alike together, and what they need."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import chain
from typing import NamedTuple

from gpuctl.engine.capacity.gang import PoolOption, Sort
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.jobs.job_class import Kind, PendingJob, Rank, is_first_class, rank_of
from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import GpuMilli

_ENDLESS = 1 << 62

_FEW = 64
"""So many that come or go are put in a line's order one by one; after more it is sorted anew."""


class JobClass:
    """Jobs of one line and one kind, in their order. `reason`: what they were told last."""

    __slots__ = ("jobs", "kind", "line", "reason")

    def __init__(self, line: ProjectQueue, kind: Kind) -> None:
        self.line = line
        self.kind = kind
        self.jobs: list[PendingJob] = []
        self.reason: Reason | None = None

    @property
    def first(self) -> PendingJob:
        """The first of them; there is always one."""
        return self.jobs[0]


class LeastNeeds(NamedTuple):
    """What the most modest of some jobs would need: the fewest GPUs with which one that has a run could start, the
    highest priority, and whether one is a person's or a service that can't be paused. All quota domains, and of each
    sort of option the least that any of them asks for."""

    gpu_milli: GpuMilli
    priority: int
    is_fixed: bool
    domains: frozenset[DomainName]
    least: tuple[PoolOption, ...]


class ProjectQueue:
    """A project's waiting jobs of one quota domain, by kind, and what the most modest of them would need.

    `ranked`: the groups by the ranks of their first.
    """

    __slots__ = ("_in_order", "_jobs", "_needs", "_order", "_unread", "domain", "groups", "project", "ranked")

    def __init__(self, project: ProjectName, domain: DomainName) -> None:
        self.project = project
        self.domain = domain
        self.groups: dict[Kind, JobClass] = {}
        self.ranked: list[tuple[Rank, JobClass]] = []
        self._order: tuple[JobId, ...] | None = None
        self._in_order: list[PendingJob] = []
        self._jobs: list[JobId] = []
        self._unread = 0
        self._needs: LeastNeeds | None = None

    def join(self, kind: Kind, some: list[PendingJob]) -> JobClass:
        """More of one kind; the group they are in now. Cost: O(log jobs) for one."""
        group = self.groups.get(kind)
        before = None if group is None else rank_of(group.first)
        if group is None:
            group = self.groups[kind] = JobClass(self, kind)
            self._needs = None
        if len(some) > 1 or (group.jobs and rank_of(group.jobs[-1]) > rank_of(some[0])):
            group.jobs.extend(some)
            group.jobs.sort(key=rank_of)
        else:
            group.jobs += some  # Who comes waits last, mostly.
        if before is None or rank_of(group.first) < before:
            self._rank(group, before)
        if self._is_in_order(len(some)):
            for waiting in some:
                at = bisect_left(self._in_order, rank_of(waiting), key=rank_of)
                self._in_order.insert(at, waiting)
                self._jobs.insert(at, waiting.job.id)
        return group

    def leave(self, waiting: PendingJob, group: JobClass) -> None:
        """One less, of the group it is in."""
        rank, is_first = rank_of(waiting), waiting is group.first
        del group.jobs[bisect_left(group.jobs, rank, key=rank_of)]
        if is_first:
            self._rank(group, rank)
        if not group.jobs:
            del self.groups[group.kind]
            self._needs = None
        if self._is_in_order(1):
            at = bisect_left(self._in_order, rank, key=rank_of)
            del self._in_order[at], self._jobs[at]

    def _rank(self, group: JobClass, before: Rank | None) -> None:
        """Another job of a group is the first of it than the one of a rank, or none is."""
        if before is not None:
            del self.ranked[bisect_left(self.ranked, (before,))]
        if group.jobs:
            insort(self.ranked, (rank_of(group.first), group))

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

    def needs(self, capacity: Capacity) -> LeastNeeds:
        """What one of them needs at least. Cost: O(groups) where one came or went."""
        if self._needs is None:
            least_milli, priority, is_fixed = _ENDLESS, -_ENDLESS, False
            least: dict[Sort, PoolOption] = {}
            for group in self.groups.values():
                first = group.first
                if first.run is not None:
                    least_milli = min(least_milli, *(option.least_milli or _ENDLESS for option in first.options))
                priority = max(priority, first.job.priority)
                is_fixed = is_fixed or is_first_class(first.job)
                for sort, option in zip(first.prospect.sorts, first.options, strict=True):
                    known = least.get(sort)
                    least[sort] = option.fewest if known is None else known.no_more_than(option)
            domains = frozenset(capacity.domain_of[option.pool.name] for option in least.values())
            self._needs = LeastNeeds(least_milli, priority, is_fixed, domains, tuple(least.values()))
        return self._needs
