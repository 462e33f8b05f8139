"""What each project demands: what it holds, and what its pending jobs could use, within ceilings.

A job that could not run on an empty cluster, or that alone breaks a ceiling, is no demand and gets its reason at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from gpuctl.engine import reasons
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import PoolOption, has_place, options_of, slots_by_node
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.project_queue import JobOptions, Likeness, likeness
from gpuctl.engine.shares.accounts import Accounts, OwnerTree, project_owner
from gpuctl.model.decision import Placement, Reason
from gpuctl.model.declared import Declared
from gpuctl.model.ids import DomainName, JobId, NodeName, PoolName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MOST_ALIKE = 10_000
"""So many answers are kept before all are dropped; the jobs that are declared have few."""


class StaticFit:
    """Which pools could ever serve a job: the answer of empty nodes, independent of what runs.

    Cost: one placement for each distinct request, and one lookup for each further job. Were all asked again when nodes
    change, a cycle of 10,000 jobs in which a node comes back would take 2.2x.
    """

    __slots__ = ("_answers", "_capacity", "_empty", "_fits_of", "_tree")

    def __init__(self, capacity: Capacity, tree: OwnerTree) -> None:
        self._capacity = capacity
        self._tree = tree
        self._empty = FreeCapacity.of(capacity)
        self._fits_of: dict[tuple[PoolName, Request], tuple[PoolOption, bool]] = {}
        self._answers: dict[Likeness, JobOptions | Reason] = {}

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> bool:
        """Some nodes have changed. Returns whether jobs that could run may have other options. Cost: the distinct
        requests.
        """
        self._capacity = capacity
        self._empty.refit(capacity, nodes)
        before = self._fits_of
        self._fits_of = {key: (option, has_place(self._empty, option)) for key, (option, _) in before.items()}
        same = all(not option.least and self._fits_of[key][1] is fits for key, (option, fits) in before.items())
        if same:
            self._answers = {alike: answer for alike, answer in self._answers.items() if isinstance(answer, JobOptions)}
        else:
            self._answers.clear()
        return not same

    def of(self, job: Job) -> JobOptions | Reason:
        """What the job could have, or the reason why nothing: the same object for all jobs that are alike."""
        alike = likeness(job)
        answer = self._answers.get(alike)
        if answer is None:
            if len(self._answers) >= MOST_ALIKE:
                self._answers.clear()
            options = self._options(job)
            answer = options if isinstance(options, Reason) else JobOptions(job, options)
            self._answers[alike] = answer
        return answer

    def options(self, job: Job) -> tuple[PoolOption, ...]:
        """The pools that could serve the job, in its order; () when none can."""
        found = self.of(job)
        return found.options if isinstance(found, JobOptions) else ()

    def _options(self, job: Job) -> tuple[PoolOption, ...] | Reason:
        if not self._tree.chain(job.id.project):
            return reasons.unknown_project(job.id.project)
        fitting = tuple(filter(None, map(self._as_fits, options_of(job, self._capacity))))
        if not fitting:
            return self._why_none(job)
        legal = tuple(found for option in fitting if (found := self._as_allowed(job, option)) is not None)
        return legal or self.barrier(job, fitting[0]) or reasons.no_large_node(job)

    def _as_fits(self, option: PoolOption) -> PoolOption | None:
        """The option with as many workers as fit empty nodes."""
        if self._fits(option):
            return option
        if not option.least:
            return None
        fewer = option.sized(min(option.request.workers, sum(slots_by_node(self._empty, option).values())))
        return fewer if fewer is not None and self._fits(fewer) else None

    def _as_allowed(self, job: Job, option: PoolOption) -> PoolOption | None:
        """The option with as many workers as break no ceiling by themselves."""
        if self.barrier(job, option) is None:
            return option
        return next((fewer for fewer in option.smaller() if self.barrier(job, fewer) is None), None)

    def _why_none(self, job: Job) -> Reason:
        """Nodes share or cut their GPUs otherwise than declared; else the nodes are too small."""
        asked = [option for option in options_of(job, self._capacity) if option.request.gpu_milli]
        spaces = [space for option in asked for space in self._capacity.usable.get(option.pool.name, ())]
        if spaces and not any(space.served for space in spaces):
            return reasons.not_served(job, asked[0].pool)
        profiles = {option.request.profile for option in asked}
        if spaces and "" not in profiles and not any(profiles.intersection(space.profiles) for space in spaces):
            return reasons.no_slices(job, ", ".join(sorted(profiles)))
        return reasons.no_large_node(job)

    def pool_of(self, placement: Placement) -> PoolName | None:
        """The pool of the first worker."""
        spaces = (self._capacity.nodes.get(worker.node) for worker in placement.workers[:1])
        return next((space.pool for space in spaces if space is not None), None)

    def barrier(self, job: Job, option: PoolOption) -> Reason | None:
        """The ceiling that the job alone would break in an option's domain."""
        milli = option.request.total_milli
        for owner, limit in self._tree.limits(option.domain, job.id.project):
            if milli > limit:
                return reasons.over_limit(job, owner, limit)
        for owner, quota in () if job.preemptible else self._tree.quotas(option.domain, job.id.project):
            if milli > quota:
                return reasons.fixed_over_quota(job, owner, quota)
        return None

    def _fits(self, option: PoolOption) -> bool:
        key = (option.pool.name, option.request)
        found = self._fits_of.get(key)
        if found is None:
            found = self._fits_of[key] = option, has_place(self._empty, option)
        return found[1]


class Demand:
    """GPUs demanded by domain and project. Carried from cycle to cycle; only dirty projects are counted again."""

    __slots__ = ("_accounts", "_dirty", "_domains", "_fixed", "_parts", "_read", "_wanted")

    def __init__(self, declared: Declared, accounts: Accounts, dirty: DirtyProjects) -> None:
        self._accounts = accounts
        self._dirty = dirty
        self._read = 0
        self._domains = [domain.name for domain in declared.domains]
        self._wanted: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
        self._fixed: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
        self._parts: dict[ProjectName, set[JobId]] = {}

    @property
    def in_parts(self) -> frozenset[ProjectName]:
        """The projects with a job for a part of a GPU, that runs or waits. Cost: O(projects)."""
        return frozenset(project for project, jobs in self._parts.items() if jobs)

    def see(self, job: Job, *, ends: bool) -> None:
        """Take notice of a job that is declared, and whether it has ended or is suspended."""
        if not ends and job.gpu_milli % WHOLE_GPU:
            self._parts.setdefault(job.id.project, set()).add(job.id)

    def forget(self, job: JobId) -> None:
        """The opposite of `see`."""
        self._parts.get(job.project, set()).discard(job)

    def renew(self) -> Iterable[ProjectName]:
        """Begin a cycle. Sets the demand of dirty projects to what they hold, and returns them: their pending jobs are
        to be counted.
        """
        projects, self._read = self._dirty.since(self._read, shares=False), self._dirty.count
        for project in projects:
            owner = project_owner(project)
            for domain in self._domains:
                self._wanted[domain, project] = self._accounts.held(domain, owner)
                self._fixed.pop((domain, project), None)
        return projects

    def wanted(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """What a project held when the cycle began, and could use besides."""
        return self._wanted.get((domain, project), 0)

    def count(self, job: Job, job_options: JobOptions, reserved: DomainName | None = None) -> DomainName:
        """Count a pending job, in its project's order: in the first domain with quota left for it, else in its first.

        A job with a place `reserved` in a domain counts there. Work that can't be paused is no demand beyond its
        project's quota: an elastic job is with as many workers as the quota leaves it.
        """
        project, able = job.id.project, job_options.wanted
        if not job.preemptible:
            left = ((domain, self._quota_left(domain, project)) for domain, _ in able)
            most = ((domain, job_options.most_milli(domain, milli)) for domain, milli in left)
            able = tuple([(domain, milli) for domain, milli in most if milli is not None])
            if not able:
                return job_options.domain
        domain, milli = able[0]
        if len(able) > 1:
            kept = ((d, more) for d, more in able if d == reserved)
            in_quota = ((d, m) for d, m in able if self.wanted(d, project) + m <= self._accounts.tree.quota(d, project))
            domain, milli = next(chain(kept, in_quota), able[0])
        self.more(domain, project, milli)
        if not job.preemptible:
            self._fixed[domain, project] = self._fixed.get((domain, project), 0) + milli
        return domain

    def more(self, domain: DomainName, project: ProjectName, milli: GpuMilli) -> None:
        """Add what a project could use besides."""
        self._wanted[domain, project] = self.wanted(domain, project) + milli

    def grow(self, domain: DomainName, project: ProjectName, milli: GpuMilli) -> None:
        """Add what a running job could use besides, in this cycle only: the next one counts it again."""
        self.more(domain, project, milli)
        self._dirty.of(project)

    def _quota_left(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """What a project's quota leaves for work that can't be paused, beside what it holds and what was counted."""
        fixed = self._accounts.fixed(domain, project_owner(project)) + self._fixed.get((domain, project), 0)
        return self._accounts.tree.quota(domain, project) - fixed
