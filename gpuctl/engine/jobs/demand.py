"""What each project demands: what it holds, plus what its pending jobs could use within ceilings.

A job that could not run on an empty cluster is no demand (`static_fit.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.project_queue import JobOptions
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.declared import Declared
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, GpuMilli


class Demand:
    """GPUs demanded by domain and project. Carried from cycle to cycle; only dirty projects are counted again.

    `counted`: how many dirty marks there were at the last count.
    """

    def __init__(self, declared: Declared, accounts: Accounts, dirty: DirtyProjects) -> None:
        self._accounts = accounts
        self._dirty = dirty
        self.counted = 0
        self._domains = [domain.name for domain in declared.domains]
        self._wanted: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
        self._fixed: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
        self._parts: dict[ProjectName, set[JobId]] = {}

    @property
    def in_parts(self) -> frozenset[ProjectName]:
        """The projects with a running or waiting job for a part of a GPU. Cost: O(projects)."""
        return frozenset(project for project, jobs in self._parts.items() if jobs)

    def see(self, job: Job, *, ends: bool) -> None:
        """Note a declared job for `in_parts`. `ends`: it has ended or is suspended, and does not count."""
        if not ends and job.gpu_milli % WHOLE_GPU:
            self._parts.setdefault(job.id.project, set()).add(job.id)

    def forget(self, job: JobId) -> None:
        """The opposite of `see`."""
        self._parts.get(job.project, set()).discard(job)

    def renew(self) -> Iterable[ProjectName]:
        """Begin a cycle: set the demand of dirty projects to what they hold. Returns these projects; the caller counts
        their pending jobs."""
        projects, self.counted = self._dirty.since(self.counted, shares=False), self._dirty.count
        for project in projects:
            owner = project_owner(project)
            for domain in self._domains:
                self._wanted[domain, project] = self._accounts.held(domain, owner)
                self._fixed.pop((domain, project), None)
        return projects

    def wanted(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """What a project held when the cycle began, plus what it could use besides."""
        return self._wanted.get((domain, project), 0)

    def count(self, job: Job, job_options: JobOptions, reserved: DomainName | None = None) -> DomainName:
        """Count a pending job, in its project's order, in the first domain with quota left, else in its first one.

        Returns the domain. A job with a place `reserved` in a domain counts there. Work that can't be paused is no
        demand beyond its project's quota: an elastic job counts with as many workers as that leaves.
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
        """Add GPUs that a project could use besides."""
        self._wanted[domain, project] = self.wanted(domain, project) + milli

    def grow(self, domain: DomainName, project: ProjectName, milli: GpuMilli) -> None:
        """Add GPUs that a running job could use besides, in this cycle only: the next one counts its project again."""
        self.more(domain, project, milli)
        self._dirty.of(project)

    def _quota_left(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """What a project's quota leaves for work that can't be paused, after what it holds and what was counted."""
        fixed = self._accounts.fixed(domain, project_owner(project)) + self._fixed.get((domain, project), 0)
        return self._accounts.tree.quota(domain, project) - fixed
