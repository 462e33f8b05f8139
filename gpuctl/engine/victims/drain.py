"""`quotaShrink: drain`: what was started within a quota that has been cut since is not reclaimed; it ends by itself.

That a quota was cut needs no memory. A run keeps the reason it was started with; one that says "within quota" was
started when all such runs of its project held no more than the quota together. If they hold more than it now, it was
cut. What had been started beyond the quota is reclaimed as ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.reasons import IN_QUOTA
from gpuctl.engine.shares.accounts import OwnerTree
from gpuctl.model.ids import DomainName, JobId
from gpuctl.model.units import GpuMilli


def draining(allocations: Iterable[Allocation], tree: OwnerTree) -> frozenset[JobId]:
    """Runs within a quota that was cut below what they hold: their project's, or one that a department states."""
    granted: Counter[tuple[DomainName, str]] = Counter()
    kept: list[tuple[Allocation, list[tuple[tuple[DomainName, str], GpuMilli]]]] = []
    for each in allocations:
        if each.leaving or each.domain is None or each.run.reason is None or each.run.reason.code != IN_QUOTA:
            continue
        quotas = [((each.domain, owner), milli) for owner, milli in tree.quotas(each.domain, each.project)]
        granted.update({owner: each.total_milli for owner, _ in quotas})
        kept.append((each, quotas))
    return frozenset(each.run.job for each, quotas in kept if any(granted[owner] > milli for owner, milli in quotas))
