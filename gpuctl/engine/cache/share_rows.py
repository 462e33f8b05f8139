"""The rows of fair shares that a schedule tells: what each project has, wants, may hold and holds of each domain."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.decision import FairShare
from gpuctl.model.declared import Declared, DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli


class ShareRows:
    """A row a domain and project that has, wants or holds anything there, kept from cycle to cycle.

    A row that has not changed stays the same object. Cost: the projects there is news about, and O(rows) if there are.
    """

    __slots__ = ("_accounts", "_demand", "_domains", "_reader", "_rows", "_told")

    def __init__(self, declared: Declared, accounts: Accounts, demand: Demand, news: DirtyProjects) -> None:
        self._accounts = accounts
        self._demand = demand
        self._domains = [domain.name for domain in declared.domains]
        self._reader = news.reader()
        projects = [project.name for project in sorted(declared.projects, key=attrgetter("name"))]
        self._rows: dict[tuple[DomainName, ProjectName], FairShare | None] = {
            (domain, project): None for domain in self._domains for project in projects
        }
        self._told: tuple[FairShare, ...] = ()

    def tell(self, promised: Mapping[tuple[DomainName, ProjectName], GpuMilli]) -> tuple[FairShare, ...]:
        """All rows, by domain and project. What is only `promised` is not held: there is news about who it is for."""
        stale = self._reader.take()
        for project in stale:
            for domain in self._domains:
                self._renew(domain, project, promised.get((domain, project), 0))
        if stale:
            self._told = tuple(filter(None, self._rows.values()))
        return self._told

    def _renew(self, domain: DomainName, project: ProjectName, promised: GpuMilli) -> None:
        accounts, owner = self._accounts, project_owner(project)
        held = accounts.held(domain, owner) - promised
        wanted = self._demand.wanted(domain, project)
        if not held and not wanted and domain not in accounts.tree.allowances[owner]:
            self._rows[domain, project] = None
            return
        share, row = accounts.portion(domain, owner).share_milli, self._rows[domain, project]
        if row is None or (row.demand_milli, row.share_milli, row.allocated_milli) != (wanted, share, held):
            self._rows[domain, project] = FairShare(
                domain=domain,
                project=project,
                quota_milli=accounts.quota(domain, project),
                demand_milli=wanted,
                share_milli=share,
                allocated_milli=held,
            )
