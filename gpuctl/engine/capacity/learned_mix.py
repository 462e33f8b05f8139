"""Learns what is usually asked of each pool from all declared jobs: running, waiting, suspended or ended.

Nothing else is remembered, so the same declarations give the same mix. A gang counts once for each worker; a job that
may use several pools counts in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from gpuctl.engine.capacity.fit import request_on
from gpuctl.engine.capacity.fragmentation import Want
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import PoolName
from gpuctl.model.job import Job

EXACT_BITS = 7
"""Leading binary digits that a count keeps, so that one job among many does not change the mix."""

_asked = attrgetter("workers", "min_workers", "gpu_milli", "cpu_milli", "gpu_mem_bytes", "pools")
"""The fields of a job that matter here."""


class LearnedMix:
    """Counts of the requests in each packed pool. `elastic`: jobs that may run with fewer workers."""

    __slots__ = ("_counts", "_mixes", "_packed", "_stale", "elastic")

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._packed = {pool.name: pool for pool in pools if pool.placement is PlacementStrategy.BINPACK}
        self._counts: dict[PoolName, dict[Want, int]] = {name: {} for name in self._packed}
        self._stale = set(self._packed)
        self._mixes: dict[PoolName, RequestMix] = {}
        self.elastic = 0

    def take(self, jobs: Iterable[Job], sign: int = 1) -> None:
        """Add jobs; with a sign of -1, remove them. Cost: O(jobs)."""
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

    def mixes(self) -> dict[PoolName, RequestMix]:
        """The mix of each packed pool; the same object until it changes. Cost: O(different requests) where it does."""
        for name in self._stale:
            mix = sorted((want, _rounded(count)) for want, count in self._counts[name].items() if count)
            self._mixes[name] = RequestMix(tuple(mix))
        self._stale.clear()
        return dict(self._mixes)

    def _wants_of(self, job: Job) -> Iterator[tuple[PoolName, Want]]:
        for name in job.pools:
            request = request_on(job, self._packed[name]) if name in self._packed else None
            if request is not None and not request.profile:
                yield name, (request.gpu_milli, request.cpu_milli)


def _rounded(count: int) -> int:
    rest = max(0, count.bit_length() - EXACT_BITS)
    return count >> rest << rest
