"""What each owner holds of each domain, kept up to date through the cycle.

An owner is a project or a department; a prefix of the name tells which. The accounts know owners, amounts and ceilings,
but no nodes and no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.shares.fairshare import NOTHING, Portion
from gpuctl.model.declared import Allowance, Declared
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.units import GpuMilli

NO_ALLOWANCE = Allowance(quota_milli=0)
"""The allowance of an owner in a domain where it declares none: no quota, no limit, weight 0."""


_PROJECT = "project "


def project_owner(name: str) -> str:
    """The owner name of a project."""
    return _PROJECT + name


def is_project(owner: str) -> bool:
    """Whether an owner is a project."""
    return owner.startswith(_PROJECT)


def department_owner(name: str) -> str:
    """The owner name of a department."""
    return f"department {name}"


class OwnerTree:
    """Projects under departments. A parent that is not declared, or that would close a circle, is ignored.

    `parents`: that of each department with projects below it; "" is the top. `below`: the projects under each owner.
    """

    def __init__(self, declared: Declared) -> None:
        departments = {d.name: d for d in declared.departments}
        self.allowances: dict[str, Mapping[DomainName, Allowance]] = {
            department_owner(d.name): d.allowances for d in declared.departments
        }
        self._chains: dict[ProjectName, tuple[str, ...]] = {}
        self.parents: dict[str, str] = {}
        self.below: dict[str, list[ProjectName]] = {}
        for project in declared.projects:
            chain = [project_owner(project.name)]
            self.allowances[chain[0]] = project.allowances
            above = departments.get(project.department or "")
            while above is not None and department_owner(above.name) not in chain:
                chain.append(department_owner(above.name))
                above = departments.get(above.parent or "")
            self._chains[project.name] = tuple(chain)
            for owner in chain:
                self.below.setdefault(owner, []).append(project.name)
            self.parents.update(pairwise((*chain[1:], "")))

    def chain(self, project: ProjectName) -> tuple[str, ...]:
        """The project and all departments above it, bottom-up; () for a project that is not declared."""
        return self._chains.get(project, ())

    def above(self, project: ProjectName) -> str:
        """The department of a project; "" for none."""
        chain = self._chains.get(project, ())
        return chain[1] if len(chain) > 1 else ""

    def quota(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """A project's declared quota."""
        return self.allowance(project_owner(project), domain).quota_milli

    def quotas(self, domain: DomainName, project: ProjectName) -> Iterator[tuple[str, GpuMilli]]:
        """The project's quota, and those that departments above it state, bottom-up."""
        for owner in self.chain(project):
            if is_project(owner) or domain in self.allowances.get(owner, {}):
                yield owner, self.allowance(owner, domain).quota_milli

    def limits(self, domain: DomainName, project: ProjectName) -> Iterator[tuple[str, GpuMilli]]:
        """Each owner of the project's chain that has a limit in a domain, with the limit."""
        for owner in self.chain(project):
            limit = self.allowance(owner, domain).limit_milli
            if limit is not None:
                yield owner, limit

    def allowance(self, owner: str, domain: DomainName) -> Allowance:
        """What an owner declares for a domain."""
        return self.allowances.get(owner, {}).get(domain, NO_ALLOWANCE)


class Accounts:
    """What each owner holds, what of it can't be paused, its portion of each domain, and what that entitles it to."""

    def __init__(self, tree: OwnerTree, dirty: DirtyProjects) -> None:
        self.tree = tree
        self._dirty = dirty
        self._portions: dict[tuple[DomainName, str], Portion] = {}
        self._entitled: dict[tuple[DomainName, str], Portion] = {}
        self._borrowed: dict[DomainName, GpuMilli] = {}
        self._held: dict[tuple[DomainName, str], GpuMilli] = {}
        self._fixed: dict[tuple[DomainName, str], GpuMilli] = {}
        self._assigned: dict[tuple[DomainName, str], GpuMilli] = {}

    def add(self, project: ProjectName, domain: DomainName, milli: GpuMilli, *, preemptible: bool) -> None:
        """Add GPUs that a project's run holds from now on; a negative amount removes them."""
        chain = self.tree.chain(project)
        if chain:
            self._dirty.of(project)
        for owner in chain:
            self._held[domain, owner] = self._held.get((domain, owner), 0) + milli
            if not preemptible:
                self._fixed[domain, owner] = self._fixed.get((domain, owner), 0) + milli

    def assign(self, project: ProjectName, domain: DomainName, milli: GpuMilli, *, preemptible: bool) -> None:
        """Like `add`, for a place that a job gains in this cycle: its project holds it, but nothing runs there yet."""
        self.add(project, domain, milli, preemptible=preemptible)
        for owner in self.tree.chain(project):
            self._assigned[domain, owner] = self._assigned.get((domain, owner), 0) + milli

    @contextmanager
    def supposing(self, project: ProjectName, domain: DomainName, milli: GpuMilli) -> Iterator[None]:
        """What if a project held this many more GPUs: true inside the `with`."""
        for sign in (1, -1):
            for owner in self.tree.chain(project):
                self._held[domain, owner] = self._held.get((domain, owner), 0) + sign * milli
            if sign > 0:
                yield

    def held(self, domain: DomainName, owner: str) -> GpuMilli:
        """GPUs an owner holds in a domain."""
        return self._held.get((domain, owner), 0)

    def in_use(self, domain: DomainName, owner: str) -> GpuMilli:
        """GPUs of an owner's runs in place, which alone can be lost: without places gained in this cycle, or claims."""
        return self._held.get((domain, owner), 0) - self._assigned.get((domain, owner), 0)

    def fixed(self, domain: DomainName, owner: str) -> GpuMilli:
        """GPUs of an owner's work that can't be paused."""
        return self._fixed.get((domain, owner), 0)

    def quota_hit(self, domain: DomainName, project: ProjectName, milli: GpuMilli) -> tuple[str, GpuMilli] | None:
        """The first owner, bottom-up, whose quota this many more GPUs of work that can't be paused would break, and the
        quota.

        Where quotas exceed the capacity, the guarantee counts instead, except for a job that is an owner's only such
        work: otherwise a job no larger than its quota might never start.
        """
        for owner, quota in self.tree.quotas(domain, project):
            fixed = self.fixed(domain, owner)
            most = min(quota, self.entitled(domain, owner).guarantee_milli) if fixed else quota
            if fixed + milli > most:
                return owner, most
        return None

    def portion(self, domain: DomainName, owner: str) -> Portion:
        """An owner's exact guarantee and fair share: the values that are shown, and by which projects are compared."""
        return self._portions.get((domain, owner), NOTHING)

    def entitled(self, domain: DomainName, owner: str) -> Portion:
        """The same in whole GPUs, if the owner's jobs ask for those: what it may reach and what it keeps."""
        return self._entitled.get((domain, owner), NOTHING)

    def apportion(self, domain: DomainName, portions: Mapping[str, Portion], entitled: Mapping[str, Portion]) -> bool:
        """Set the portions of a domain. Returns whether any has changed. Cost: O(owners)."""
        moved = False
        for owner, portion in portions.items():
            key = domain, owner
            if portion == self._portions.get(key) and entitled[owner] == self._entitled.get(key):
                continue
            moved = True
            if is_project(owner):
                self._dirty.of_share(ProjectName(owner.removeprefix(_PROJECT)))
            self._portions[key], self._entitled[key] = portion, entitled[owner]
        self._borrowed[domain] = sum(_beyond_guarantee(each) for owner, each in entitled.items() if is_project(owner))
        return moved

    def within_reach(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """What a project could hold while every other project keeps its guarantee."""
        own = self.entitled(domain, project_owner(project))
        return own.share_milli + self._borrowed.get(domain, 0) - _beyond_guarantee(own)

    def over_share(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """How far a project is above its fair share; negative if it is below."""
        key = domain, project_owner(project)
        return self._held.get(key, 0) - self._portions.get(key, NOTHING).share_milli

    def ceiling_hit(self, domain: DomainName, project: ProjectName, milli: GpuMilli) -> tuple[str, GpuMilli] | None:
        """The first owner, bottom-up, whose limit this many more GPUs would break, and that limit."""
        for owner, limit in self.tree.limits(domain, project) if milli else ():
            if self.held(domain, owner) + milli > limit:
                return owner, limit
        return None


def _beyond_guarantee(portion: Portion) -> GpuMilli:
    return max(0, portion.share_milli - portion.guarantee_milli)
