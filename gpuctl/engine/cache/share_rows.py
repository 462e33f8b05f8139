"""The rows of fair shares in a schedule: quota, demand, share and allocated GPUs of each project and domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.decision import FairShare
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.units import GpuMilli


def share_rows(
    keys: Iterable[tuple[DomainName, ProjectName]],
    accounts: Accounts,
    demand: Demand,
    reserved: Mapping[tuple[DomainName, ProjectName], GpuMilli],
) -> tuple[FairShare, ...]:
    """A row for each key that has a quota, demand or allocation.

    `reserved` GPUs are in the accounts, but not allocated yet. Cost: O(keys).
    """
    found: list[FairShare] = []
    for domain, project in keys:
        owner = project_owner(project)
        held = accounts.held(domain, owner) - reserved.get((domain, project), 0)
        wanted = demand.wanted(domain, project)
        if held or wanted or domain in accounts.tree.allowances[owner]:
            entitled = accounts.entitled(domain, owner)
            row = FairShare(
                domain=domain,
                project=project,
                quota_milli=accounts.tree.quota(domain, project),
                demand_milli=wanted,
                share_milli=accounts.portion(domain, owner).share_milli,
                allocated_milli=held,
                guarantee_milli=entitled.guarantee_milli,
                entitled_milli=entitled.share_milli,
            )
            found.append(row)
    return tuple(found)
