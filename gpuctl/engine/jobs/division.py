"""What each may have of the domains: divided among all by what they want, and anew where that has changed.

As long as there is enough for all, everybody may have what they want, whatever their weight or priority: so only the
shares of those change that want something else. Cost: those; O(projects) where there is not enough, or was not.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.engine.shares.fairshare import Claim, Portion, divide
from gpuctl.model.declared import Declared, DomainName, Project
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli


class Division:
    """The portions that stand in the accounts, and what they came of.

    `_left`: what nobody wants of a domain that has enough for all, where no project is in a department.
    """

    __slots__ = ("_accounts", "_claims", "_demand", "_left", "_projects", "_terms")

    def __init__(self, declared: Declared, accounts: Accounts, demand: Demand) -> None:
        self._accounts = accounts
        self._demand = demand
        self._projects = {project.name: project for project in declared.projects}
        self._claims: dict[tuple[DomainName, ProjectName], Claim] = {}
        self._left: dict[DomainName, GpuMilli] = {}
        self._terms: dict[DomainName, tuple[GpuMilli, int, Mapping[ProjectName, int]]] = {}

    def renew(self, domain: DomainName, milli: GpuMilli, full: int, used: Mapping[ProjectName, int]) -> bool:
        """Divide so much of a domain, unless all is as it was; whether anybody's portion is another.

        `used` by each project, `full` by all there could have been: milli-GPU-hours.
        """
        terms, changed = (max(0, milli), full, used), self._demand.changed(domain)
        before = self._terms.get(domain)
        if terms == before and not changed:
            return False
        self._terms[domain] = terms
        left = self._left.pop(domain, None)
        if left is not None and before is not None:
            there = [self._projects[name] for name in changed if name in self._projects]
            known = [self._claims[domain, project.name] for project in there]
            claims = [self._claim(domain, project, used) for project in there]
            left += terms[0] - before[0] + _wanted(known) - _wanted(claims)
            if left >= 0:
                self._left[domain] = left
                return self._accounts.apportion(
                    domain, {claim.owner: Portion(max(0, claim.quota_milli), claim.wanted_milli) for claim in claims}
                )
        claims = self._all_claims(domain, used)
        if not self._accounts.tree.parents and _wanted(claims) <= terms[0]:
            self._left[domain] = terms[0] - _wanted(claims)
        return self._accounts.apportion(domain, divide(milli, claims, full))

    def _all_claims(self, domain: DomainName, used: Mapping[ProjectName, int]) -> list[Claim]:
        """The tree of claims on a domain: projects below their departments, demand summed bottom-up within limits.

        A department without a claim of its own stands for the sum of what is below it.
        """
        below: dict[str, list[Claim]] = {}
        for project in self._projects.values():
            above = self._accounts.tree.above(project.name)
            below.setdefault(above, []).append(self._claim(domain, project, used))
        return _branch("", below, self._accounts.tree.parents, domain, self._accounts)

    def _claim(self, domain: DomainName, project: Project, used: Mapping[ProjectName, int]) -> Claim:
        """The same object as long as it is the same."""
        wanted, past = self._demand.wanted(domain, project.name), used.get(project.name, 0)
        claim = self._claims.get((domain, project.name))
        if claim is None or claim.demand_milli != wanted or claim.used_milli_hours != past:
            owner = project_owner(project.name)
            allowance = self._accounts.tree.allowance(owner, domain)
            claim = self._claims[domain, project.name] = Claim(
                owner=owner,
                quota_milli=allowance.quota_milli,
                demand_milli=wanted,
                limit_milli=allowance.limit_milli,
                weight=allowance.weight,
                priority=project.priority,
                used_milli_hours=past,
            )
        return claim


def _wanted(claims: list[Claim]) -> GpuMilli:
    return sum(claim.wanted_milli for claim in claims)


def _branch(
    parent: str,
    below: Mapping[str, list[Claim]],
    parents: Mapping[str, str],
    domain: DomainName,
    accounts: Accounts,
) -> list[Claim]:
    branch = list(below.get(parent, ()))
    for department in sorted(d for d, upper in parents.items() if upper == parent):
        children = _branch(department, below, parents, domain, accounts)
        allowance = accounts.tree.allowances.get(department, {}).get(domain)
        branch.append(
            Claim(
                owner=department,
                quota_milli=allowance.quota_milli if allowance else sum(c.quota_milli for c in children),
                demand_milli=sum(c.wanted_milli for c in children),
                limit_milli=allowance.limit_milli if allowance else None,
                weight=allowance.weight if allowance else sum(c.weight for c in children),
                used_milli_hours=sum(c.used_milli_hours for c in children),
                children=tuple(children),
            )
        )
    return sorted(branch, key=lambda c: c.owner)
