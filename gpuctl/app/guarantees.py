"""The GPUs that projects are guaranteed but do not have: those of waiting jobs that fit in their project's free
quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from gpuctl.engine.reasons import FOR_ROOM
from gpuctl.model.decision import Pending, Schedule
from gpuctl.model.declared import Declared, NodePool
from gpuctl.model.ids import DomainName, PoolName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli

Key: TypeAlias = tuple[ProjectName, DomainName]


def unmet_guarantees(declared: Declared, schedule: Schedule) -> Mapping[Key, GpuMilli]:
    """GPUs that waiting jobs could have within their project's quota, by project and domain; 0 where there are none.

    A job counts with the fewest workers that it starts with, in the first domain where they fit in the project's free
    quota. Example: of two jobs of 2 GPUs under a quota of 3, one waits and counts nowhere, as one more GPU would not
    start it. A job that waits for something other than room (other jobs, a limit, its own pods) does not count. Where
    quotas may exceed the capacity (`overcommitQuota`), the guarantee counts in place of the quota.

    Cost: linear in the decisions.
    """
    lent = declared.cluster.scheduling.overcommit_quota
    left = {
        (row.project, row.domain): (min(row.quota_milli, row.guarantee_milli) if lent else row.quota_milli)
        - row.allocated_milli
        for row in schedule.shares
    }
    found = dict.fromkeys(left, 0)
    waiting = {each.job for each in schedule.decisions if type(each) is Pending and each.reason.code in FOR_ROOM}
    pools = {pool.name: pool for pool in declared.cluster.pools}
    places = {name: (pools[name], domain.name) for domain in declared.domains for name in domain.pools}
    for job in declared.jobs if waiting else ():
        if job.id in waiting:
            fits = (each for each in _least(job, places) if 0 < each[1] <= left.get(each[0], 0))
            for key, milli in islice(fits, 1):
                left[key] -= milli
                found[key] += milli
    return found


def _least(job: Job, places: Mapping[PoolName, tuple[NodePool, DomainName]]) -> Iterator[tuple[Key, GpuMilli]]:
    """What the fewest workers of a job are charged in each pool, in the job's order of pools."""
    for pool, domain in (places[name] for name in job.pools if name in places):
        grant = pool.grant(job.gpu_milli_on(pool.gpu_mem_bytes))
        if grant is not None:
            yield (job.id.project, domain), grant.gpu_milli * job.min_workers
