"""Learns what is usually asked of each pool, from all jobs that are declared: those that run, wait, are suspended, and
those that have ended and are still in Git. Nothing else is remembered, so the same declarations give the same habits.

A gang counts once for each worker. A job that may use several pools counts in each.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import PoolName
from gpuctl.model.job import Job
from gpuctl.schedule.fit import request_on
from gpuctl.schedule.fragmentation import Want
from gpuctl.schedule.habits import Habits


def learn(pools: Iterable[NodePool], jobs: Iterable[Job]) -> dict[PoolName, Habits]:
    """The habits of each packed pool. Cost: O(jobs), and O(different jobs x pools)."""
    alike: dict[tuple[object, ...], tuple[Job, int]] = {}
    for job in jobs:
        key = (job.gpu_milli, job.cpu_milli, job.gpu_mem_bytes, job.pools)
        first, workers = alike.get(key, (job, 0))
        alike[key] = first, workers + max(1, job.workers)
    packed = {pool.name: pool for pool in pools if pool.placement is PlacementStrategy.BINPACK}
    counts: dict[PoolName, dict[Want, int]] = {name: {} for name in packed}
    for job, workers in alike.values():
        for name in job.pools:
            request = request_on(job, packed[name]) if name in packed else None
            if request is not None and not request.profile:
                want = request.gpu_milli, request.cpu_milli
                counts[name][want] = counts[name].get(want, 0) + workers
    return {name: Habits(tuple(sorted(mix.items()))) for name, mix in counts.items()}
