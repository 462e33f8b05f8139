"""`quotaShrink: drain`: what was started within a quota that has been cut since is not reclaimed; it ends by itself.

That a quota was cut needs no memory. A run keeps the reason it was started with; one that says "within quota" was
started when all such runs of its project held no more than the quota together. If they hold more than it now, it was
cut. What had been started beyond the quota is reclaimed as ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.reasons import IN_QUOTA
from gpuctl.engine.shares.accounts import OwnerTree
from gpuctl.model.ids import DomainName, JobId
from gpuctl.model.units import GpuMilli


def draining(allocations: Iterable[Allocation], tree: OwnerTree) -> frozenset[JobId]:
    """Runs within a quota that was cut below what they hold: a project's own, or a department's above it."""
    granted: dict[tuple[DomainName, str], GpuMilli] = {}
    kept = [h for h in allocations if not h.leaving and _was_in_quota(h)]
    for allocation in kept:
        for owner in _owners(allocation, tree):
            granted[owner] = granted.get(owner, 0) + allocation.total_milli
    cut = {(domain, owner) for (domain, owner), milli in granted.items() if milli > _quota(tree, domain, owner)}
    return frozenset(allocation.run.job for allocation in kept if not cut.isdisjoint(_owners(allocation, tree)))


def _was_in_quota(allocation: Allocation) -> bool:
    return allocation.run.reason is not None and allocation.run.reason.code == IN_QUOTA


def _owners(allocation: Allocation, tree: OwnerTree) -> list[tuple[DomainName, str]]:
    """Whose quotas the run counts in. A department that states none there has none that could be cut."""
    if allocation.domain is None:
        return []
    chain = tree.chain(allocation.project)
    stated = (o for o in chain if o == chain[0] or allocation.domain in tree.allowances.get(o, {}))
    return [(allocation.domain, owner) for owner in stated]


def _quota(tree: OwnerTree, domain: DomainName, owner: str) -> GpuMilli:
    return tree.allowance(owner, domain).quota_milli
