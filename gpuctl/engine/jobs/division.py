"""Divides each domain by the demand of all projects, and gives the rows of fair shares. A domain is divided again only
when a project, the capacity or past use has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from operator import attrgetter

from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.engine.shares.fairshare import ShareClaim, divide, in_whole_gpus
from gpuctl.model.decision import FairShare
from gpuctl.model.declared import Declared
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.units import GpuMilli


class Division:
    """Sets the portions in the accounts, from share claims that it makes of demand and allowances."""

    def __init__(self, declared: Declared, accounts: Accounts, demand: Demand, dirty: DirtyProjects) -> None:
        self._accounts = accounts
        self._demand = demand
        self._dirty = dirty
        self._projects = declared.projects
        names = sorted(project.name for project in declared.projects)
        self._keys = [(domain.name, name) for domain in declared.domains for name in names]
        self._terms: dict[DomainName, tuple[object, ...]] = {}

    def renew(self, domain: DomainName, milli: GpuMilli, full: int, used: Mapping[ProjectName, int]) -> bool:
        """Divide this much of a domain, unless nothing has changed. Returns whether any portion has.

        `used`: past use of each project; `full`: the most use that was possible; both in milli-GPU-hours.
        """
        in_parts, milli = self._demand.in_parts, max(0, milli)
        # A project that was marked while demand was counted is counted again in the next cycle, without a new mark.
        terms = milli, full, used, in_parts, self._demand.counted
        if self._terms.get(domain) == (*terms, self._dirty.count):
            return False
        claims, held = self._claims(domain, used, in_parts), partial(self._accounts.held, domain)
        portions = divide(milli, claims, full)
        entitled = in_whole_gpus(milli, claims, portions, held, counts_use=bool(full))
        has_moved = self._accounts.apportion(domain, portions, entitled)
        self._terms[domain] = *terms, self._dirty.count
        return has_moved

    def rows(self, reserved: Mapping[tuple[DomainName, ProjectName], GpuMilli]) -> Iterator[FairShare]:
        """The row of each project and domain where it has a quota, demand or allocation.

        `reserved` GPUs are in the accounts, but not allocated yet. Cost: O(projects x domains).
        """
        accounts = self._accounts
        for domain, project in self._keys:
            owner = project_owner(project)
            held = accounts.held(domain, owner) - reserved.get((domain, project), 0)
            wanted = self._demand.wanted(domain, project)
            if held or wanted or domain in accounts.tree.allowances[owner]:
                entitled = accounts.entitled(domain, owner)
                yield FairShare(
                    domain=domain,
                    project=project,
                    quota_milli=accounts.tree.quota(domain, project),
                    demand_milli=wanted,
                    share_milli=accounts.portion(domain, owner).share_milli,
                    allocated_milli=held,
                    guarantee_milli=entitled.guarantee_milli,
                    entitled_milli=entitled.share_milli,
                )

    def _claims(
        self, domain: DomainName, used: Mapping[ProjectName, int], in_parts: Collection[ProjectName]
    ) -> list[ShareClaim]:
        """The tree of share claims: projects below their departments, demand summed bottom-up within limits."""
        tree, below = self._accounts.tree, defaultdict[str, list[ShareClaim]](list)
        for project in self._projects:
            owner = project_owner(project.name)
            allowance = tree.allowance(owner, domain)
            below[tree.above(project.name)].append(
                ShareClaim(
                    owner=owner,
                    quota_milli=allowance.quota_milli,
                    demand_milli=self._demand.wanted(domain, project.name),
                    limit_milli=allowance.limit_milli,
                    weight=allowance.weight,
                    priority=project.priority,
                    used_milli_hours=used.get(project.name, 0),
                    in_parts=project.name in in_parts,
                )
            )
        return self._branch("", below, domain)

    def _branch(self, parent: str, below: Mapping[str, list[ShareClaim]], domain: DomainName) -> list[ShareClaim]:
        """The claims below an owner. A department that declares nothing for the domain is the sum of its children."""
        tree, branch = self._accounts.tree, [*below.get(parent, ())]
        for department in [owner for owner, above in tree.parents.items() if above == parent]:
            children = self._branch(department, below, domain)
            allowance = tree.allowances.get(department, {}).get(domain)
            branch.append(
                ShareClaim(
                    owner=department,
                    quota_milli=allowance.quota_milli if allowance else sum(c.quota_milli for c in children),
                    demand_milli=sum(c.wanted_milli for c in children),
                    limit_milli=allowance.limit_milli if allowance else None,
                    weight=allowance.weight if allowance else sum(c.weight for c in children),
                    used_milli_hours=sum(c.used_milli_hours for c in children),
                    in_parts=any(c.in_parts for c in children),
                    children=tuple(children),
                )
            )
        return sorted(branch, key=attrgetter("owner"))
