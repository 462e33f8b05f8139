"""A project's waiting jobs of one quota domain: in their order, those that are alike together, and what they need."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import GpuMilli
from gpuctl.schedule.jobs.ordering import Kind, Rank, Shape, Waiting, is_first_class, rank_of
from gpuctl.schedule.places.capacity import Capacity
from gpuctl.schedule.places.gang import Offer, Wish
from gpuctl.schedule.places.sized import Sized

_ENDLESS = 1 << 62

_FEW = 64
"""So many that come or go are put in a line's order one by one; after more it is sorted anew."""


class Group:
    """Jobs of one line and one kind, in their order. `reason`: what they were told last."""

    __slots__ = ("cohort", "jobs", "kind", "line", "reason", "shape")

    def __init__(self, line: Line, kind: Kind, cohort: Cohort, shape: Shape) -> None:
        self.line = line
        self.kind = kind
        self.cohort = cohort
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


class Cohort:
    """The groups of a line whose jobs differ in nothing but CPU, memory, past, and how long they may take, by the ranks
    of their first: what they may do by right or rank is the same. `sizes`: by what they ask for of CPU and memory."""

    __slots__ = ("groups", "key", "sizes")

    def __init__(self, key: object) -> None:
        self.key = key
        self.groups: list[tuple[Rank, Group]] = []
        self.sizes: Sized[Group] = Sized()

    @property
    def first(self) -> Waiting:
        """The first of them all; there is always one."""
        return self.groups[0][1].first

    def enter(self, group: Group) -> None:
        """One more, which has jobs."""
        insort(self.groups, (rank_of(group.first), group))
        self.sizes.add(group, *group.first.offers[0].request.sizes[1:3])

    def leave(self, group: Group) -> None:
        """One less, before its first job is another."""
        del self.groups[bisect_left(self.groups, (rank_of(group.first),))]
        self.sizes.remove(group)

    def reorder(self, group: Group, before: Rank) -> None:
        """Another job of one of them is the first of it now."""
        del self.groups[bisect_left(self.groups, (before,))]
        insort(self.groups, (rank_of(group.first), group))


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

    `terms`: what the project held and had a right to when they were told their reasons last; `untold` were not.
    """

    __slots__ = (
        "_in_order", "_jobs", "_needs", "_order", "_unread", "cohorts", "domain", "groups", "project", "terms",
        "untold",
    )  # fmt: skip

    def __init__(self, project: ProjectName, domain: DomainName) -> None:
        self.project = project
        self.domain = domain
        self.groups: dict[Kind, Group] = {}
        self.cohorts: dict[object, Cohort] = {}
        self.untold: dict[Group, None] = {}
        self.terms: Terms | None = None
        self._order: tuple[JobId, ...] | None = None
        self._in_order: list[Waiting] = []
        self._jobs: list[JobId] = []
        self._unread = 0
        self._needs: Needs | None = None

    def join(self, kind: Kind, some: list[Waiting]) -> Group:
        """More of one kind; the group they are in now. Cost: O(log jobs) for one."""
        group = self.groups.get(kind)
        before = None if group is None else rank_of(group.first)
        if group is None:
            group = self.groups[kind] = Group(self, kind, self._cohort_of(some[0]), some[0].prospect.shape)
            self.untold[group] = None
        if len(some) > 1 or (group.jobs and rank_of(group.jobs[-1]) > rank_of(some[0])):
            group.jobs.extend(some)
            group.jobs.sort(key=rank_of)
        else:
            group.jobs += some  # Who comes waits last, mostly.
        if before is None:
            group.cohort.enter(group)
        elif rank_of(group.first) < before:
            group.cohort.reorder(group, before)
        if self._is_in_order(len(some)):
            for waiting in some:
                at = bisect_left(self._in_order, rank_of(waiting), key=rank_of)
                self._in_order.insert(at, waiting)
                self._jobs.insert(at, waiting.job.id)
        return group

    def leave(self, waiting: Waiting, group: Group) -> None:
        """One less, of the group it is in."""
        rank, cohort, is_first = rank_of(waiting), group.cohort, waiting is group.first
        if len(group.jobs) == 1:
            cohort.leave(group)
            del self.groups[group.kind]
            self.untold.pop(group, None)
            if not cohort.groups:
                del self.cohorts[cohort.key]
                self._needs = None
        del group.jobs[bisect_left(group.jobs, rank, key=rank_of)]
        if is_first and group.jobs:
            cohort.reorder(group, rank)
        if self._is_in_order(1):
            at = bisect_left(self._in_order, rank, key=rank_of)
            del self._in_order[at], self._jobs[at]

    def _cohort_of(self, waiting: Waiting) -> Cohort:
        key = waiting.run is not None, waiting.prospect.cohort
        cohort = self.cohorts.get(key)
        if cohort is None:
            cohort = self.cohorts[key] = Cohort(key)
            self._needs = None
        return cohort

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
        """What one of them needs at least. Cost: O(cohorts) where one came or went."""
        if self._needs is None:
            least, priority, is_fixed = _ENDLESS, -_ENDLESS, False
            offers: list[Offer] = []
            for cohort in self.cohorts.values():
                first = cohort.first
                if first.run is not None:
                    least = min(least, *(offer.least_milli or _ENDLESS for offer in first.offers))
                priority = max(priority, first.job.priority)
                is_fixed = is_fixed or is_first_class(first.job)
                offers += first.offers
            domain_of = capacity.domain_of
            asked = frozenset((domain_of[offer.pool.name], offer.least_milli) for offer in offers)
            self._needs = Needs(least, priority, is_fixed, frozenset(domain for domain, _ in asked), asked)
        return self._needs
