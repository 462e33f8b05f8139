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
from gpuctl.schedule.fragmentation import Mix, Want
from gpuctl.schedule.habits import Habits

EXACT_BITS = 4
"""Leading binary places that a count keeps: what is usual does not change with every job among many."""


class Lessons:
    """What has been asked of the pools, as jobs come and go; `elastic` counts those that may run with fewer workers."""

    __slots__ = ("_alike", "_habits", "_packed", "elastic")

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._packed = {pool.name: pool for pool in pools if pool.placement is PlacementStrategy.BINPACK}
        self._alike: dict[tuple[object, ...], tuple[Job, int]] = {}
        self._habits: dict[PoolName, tuple[Mix, Habits]] = {}
        self.elastic = 0

    def take(self, jobs: Iterable[Job], sign: int = 1) -> None:
        """Learn from jobs; with -1, forget them. Cost: O(jobs)."""
        for job in jobs:
            key = (job.gpu_milli, job.cpu_milli, job.gpu_mem_bytes, job.pools)
            first, workers = self._alike.get(key, (job, 0))
            workers += sign * max(1, job.workers)
            if workers:
                self._alike[key] = first, workers
            else:
                del self._alike[key]
            self.elastic += sign * job.is_elastic

    def habits(self) -> dict[PoolName, Habits]:
        """The habits of each packed pool, the same objects as long as they are as before.

        Cost: O(different jobs x pools).
        """
        counts: dict[PoolName, dict[Want, int]] = {name: {} for name in self._packed}
        for job, workers in self._alike.values():
            for name in job.pools:
                request = request_on(job, self._packed[name]) if name in self._packed else None
                if request is not None and not request.profile:
                    want = request.gpu_milli, request.cpu_milli
                    counts[name][want] = counts[name].get(want, 0) + workers
        for name, mix in counts.items():
            rounded = tuple(sorted((want, _rounded(count)) for want, count in mix.items()))
            if name not in self._habits or self._habits[name][0] != rounded:
                self._habits[name] = rounded, Habits(rounded)
        return {name: habits for name, (_, habits) in self._habits.items()}


def _rounded(count: int) -> int:
    rest = max(0, count.bit_length() - EXACT_BITS)
    return count >> rest << rest
