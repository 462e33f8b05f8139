"""The rows of fair shares in a schedule: quota, demand, share and allocated GPUs of each project and domain."""

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
    """A row for each domain and project with a quota, demand or allocation there; an unchanged row stays the same
    object.

    Cost: the dirty projects, and O(rows) if there are any.
    """

    __slots__ = ("_accounts", "_demand", "_domains", "_reader", "_rows", "_shares")

    def __init__(self, declared: Declared, accounts: Accounts, demand: Demand, dirty: DirtyProjects) -> None:
        self._accounts = accounts
        self._demand = demand
        self._domains = [domain.name for domain in declared.domains]
        self._reader = dirty.reader()
        projects = [project.name for project in sorted(declared.projects, key=attrgetter("name"))]
        self._rows: dict[tuple[DomainName, ProjectName], FairShare | None] = {
            (domain, project): None for domain in self._domains for project in projects
        }
        self._shares: tuple[FairShare, ...] = ()

    def tell(self, reserved: Mapping[tuple[DomainName, ProjectName], GpuMilli]) -> tuple[FairShare, ...]:
        """All rows, by domain and project. `reserved` GPUs are in the accounts, but not allocated yet."""
        dirty = self._reader.take()
        for project in dirty:
            for domain in self._domains:
                self._renew(domain, project, reserved.get((domain, project), 0))
        if dirty:
            self._shares = tuple(filter(None, self._rows.values()))
        return self._shares

    def _renew(self, domain: DomainName, project: ProjectName, reserved: GpuMilli) -> None:
        accounts, owner = self._accounts, project_owner(project)
        held = accounts.held(domain, owner) - reserved
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
