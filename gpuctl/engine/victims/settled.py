"""Runs that are left alone although a rule would allow it: runs that drain after their quota was cut, and settled runs.

`quotaShrink: drain`: that a quota was cut needs no memory. A run keeps the reason of its start. If that is "within
quota", all such runs of its project together held no more than the quota at the start; if they hold more than the quota
now, it was cut. Runs that started beyond the quota are reclaimed as usual.
A run is settled against a project if runs that were paused for it still wait, or lack workers that they gave up for it,
and no job of that project has come since the run started. Jobs of that project take it only by guarantee: they waited
when the pause was made, so otherwise the pause was made for a job that does not run. Its surplus workers are taken as
usual.
Example: `small` is within its project's guarantee, and a run of another project is paused for it. `large`, of the same
project and of higher priority, waits too, and is beyond the guarantee. `large` could preempt `small` and so get GPUs to
which it has no right; therefore `small` is settled. A job of higher priority that comes later preempts it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.reasons import IN_QUOTA
from gpuctl.engine.shares.accounts import OwnerTree
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.units import GpuMilli, Instant

_EVER: Instant = -(1 << 62)


def draining(allocations: Iterable[Allocation], tree: OwnerTree) -> frozenset[JobId]:
    """Runs that started within a quota, of their project or of a department, that was cut below what they hold."""
    granted: Counter[tuple[DomainName, str]] = Counter()
    kept: list[tuple[Allocation, list[tuple[tuple[DomainName, str], GpuMilli]]]] = []
    for each in allocations:
        if each.leaving or each.domain is None or each.run.reason is None or each.run.reason.code != IN_QUOTA:
            continue
        quotas = [((each.domain, owner), milli) for owner, milli in tree.quotas(each.domain, each.project)]
        granted.update({owner: each.total_milli for owner, _ in quotas})
        kept.append((each, quotas))
    return frozenset(each.run.job for each, quotas in kept if any(granted[owner] > milli for owner, milli in quotas))


def settled(pending_jobs: PendingJobs, started_ms: Mapping[JobId, Instant]) -> dict[ProjectName, frozenset[JobId]]:
    """The settled runs against each project that has any. `started_ms`: when the running beneficiaries started.

    Cost: if a beneficiary runs, O(classes of pending jobs), and beneficiaries for each instant at which jobs came.
    """
    if not started_ms:
        return {}
    latest: dict[ProjectName, Instant] = {}
    for job_class in pending_jobs.job_classes():
        project = job_class.queue.project
        came = (each.queued_at_ms for each in reversed(job_class.jobs) if each.run is None or not each.run.paused_for)
        latest[project] = max(latest.get(project, _EVER), next(came, _EVER))
    in_order = sorted((at_ms, job) for job, at_ms in started_ms.items())
    first = {project: bisect_left(in_order, (at_ms,)) for project, at_ms in latest.items()}
    since = {at: frozenset(job for _, job in in_order[at:]) for at in set(first.values()) if at < len(in_order)}
    return {project: since[at] for project, at in first.items() if at in since}
