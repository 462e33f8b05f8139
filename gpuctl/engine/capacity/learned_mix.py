"""Learns what is usually asked of each pool, from all jobs that are declared: those that run, wait, are suspended, and
those that have ended and are still in Git. Nothing else is remembered, so the same declarations give the same habits.

A gang counts once for each worker. A job that may use several pools counts in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from gpuctl.engine.capacity.fit import request_on
from gpuctl.engine.capacity.fragmentation import Want
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import PoolName
from gpuctl.model.job import Job

EXACT_BITS = 7
"""Leading binary places that a count keeps: what is usual does not change with every job among many."""

_asked = attrgetter("workers", "min_workers", "gpu_milli", "cpu_milli", "gpu_mem_bytes", "pools")
"""What jobs that are alike here have in common."""


class LearnedMix:
    """What has been asked of the pools, as jobs come and go; `elastic` counts those that may run with fewer workers."""

    __slots__ = ("_counts", "_habits", "_packed", "_stale", "_wants", "elastic")

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._packed = {pool.name: pool for pool in pools if pool.placement is PlacementStrategy.BINPACK}
        self._wants: dict[object, tuple[tuple[PoolName, Want], ...]] = {}
        self._counts: dict[PoolName, dict[Want, int]] = {name: {} for name in self._packed}
        self._stale = set(self._packed)
        self._habits: dict[PoolName, RequestMix] = {}
        self.elastic = 0

    def take(self, jobs: Iterable[Job], sign: int = 1) -> None:
        """Learn from jobs; with -1, forget them. Cost: O(jobs)."""
        alike: dict[object, list[Job]] = {}
        for job in jobs:
            alike.setdefault(_asked(job), []).append(job)
        for same in alike.values():
            count, job = sign * len(same), same[0]
            for name, want in self._wants_of(job):
                before = self._counts[name].get(want, 0)
                self._counts[name][want] = after = before + count * max(1, job.workers)
                if _rounded(before) != _rounded(after):
                    self._stale.add(name)
            self.elastic += count * job.is_elastic

    def habits(self) -> dict[PoolName, RequestMix]:
        """The habits of each packed pool, the same objects as long as they are as before.

        Cost: O(different jobs), where they are not.
        """
        for name in self._stale:
            mix = sorted((want, _rounded(count)) for want, count in self._counts[name].items() if count)
            self._habits[name] = RequestMix(tuple(mix))
        self._stale.clear()
        return dict(self._habits)

    def _wants_of(self, job: Job) -> tuple[tuple[PoolName, Want], ...]:
        asked = _asked(job)
        found = self._wants.get(asked)
        if found is None:
            requests = ((name, request_on(job, self._packed[name])) for name in job.pools if name in self._packed)
            found = self._wants[asked] = tuple(
                (name, (request.gpu_milli, request.cpu_milli))
                for name, request in requests
                if request is not None and not request.profile
            )
        return found


def _rounded(count: int) -> int:
    rest = max(0, count.bit_length() - EXACT_BITS)
    return count >> rest << rest
