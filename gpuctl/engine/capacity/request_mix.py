"""The usual requests, learned from all declared jobs, in the form that placement uses.

They give a measure of fragmentation for each packed pool, and the worth of remainders, which is the same in all pools,
so that places in several pools can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

from gpuctl.engine.capacity.fit import request_on
from gpuctl.engine.capacity.fragmentation import Fragmentation, Mix, Want
from gpuctl.engine.capacity.prices import worth_of_rest
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.ids import PoolName
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MANY_FRACTIONS = 100
"""The number of fractions that must be known before the worth of remainders counts: from few it is a guess."""

EXACT_BITS = 7
"""Leading binary digits that a count keeps, so that one job among many does not change the mix."""

T = TypeVar("T", Want, GpuMilli)

_asked = attrgetter("workers", "min_workers", "gpu_milli", "cpu_milli", "gpu_mem_bytes", "pools")
"""The fields of a job that matter here."""


class RequestMix:
    """A mix for each packed pool, the fractions of all pools, and what follows from them.

    `worth`: that of 0 to 1000 free milli-GPU; () while too few fractions are known. It is taken over from `earlier` if
    the fractions are the same.
    """

    def __init__(
        self,
        mixes: Mapping[PoolName, Mix] = MappingProxyType({}),
        fractions: Mapping[GpuMilli, int] = MappingProxyType({}),
        earlier: RequestMix | None = None,
    ) -> None:
        self.measures = {name: Fragmentation(mix) for name, mix in mixes.items()}
        self.fractions = fractions
        self.worth: tuple[int, ...]
        if earlier is not None and earlier.fractions == fractions:
            self.worth = earlier.worth
        else:
            self.worth = worth_of_rest(fractions) if sum(fractions.values()) >= MANY_FRACTIONS else ()


class LearnedMix:
    """Counts of what all declared jobs ask for, whether they run, wait or have ended: the requests in each packed pool,
    and the fractions in all pools. `elastic`: the number of jobs that may run with fewer workers.

    The same declarations give the same mix. A gang counts once for each worker; in a pool that the job may not use, as
    a request without GPUs, because it can't use what is free there. A fraction counts once for each that its pools
    give.
    """

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._pools = {pool.name: pool for pool in pools}
        packed = (name for name, pool in self._pools.items() if pool.placement is PlacementStrategy.BINPACK)
        self._counts: dict[PoolName, dict[Want, int]] = {name: {} for name in packed}
        self._fractions: dict[GpuMilli, int] = {}
        self._mix = RequestMix()
        self._is_stale = True
        self.elastic = 0

    def take(self, jobs: Iterable[Job], sign: int = 1) -> None:
        """Add jobs; with a sign of -1, remove them. Cost: O(jobs), and O(pools) for each different request."""
        alike: dict[object, list[Job]] = {}
        for job in jobs:
            alike.setdefault(_asked(job), []).append(job)
        for same in alike.values():
            count, job = sign * len(same), same[0]
            asked = self._asked_of(job)
            for name, counts in self._counts.items():
                self._add(counts, (asked.get(name, 0), job.cpu_milli), count * max(1, job.workers))
            for milli in sorted({milli for milli in asked.values() if 0 < milli < WHOLE_GPU}):
                self._add(self._fractions, milli, count * max(1, job.workers))
            # Of jobs that ask alike, some may be elastic only by being scaled services.
            self.elastic += sign * sum(each.is_elastic for each in same)

    def mix(self) -> RequestMix:
        """The mix; the same object until it changes. Cost: O(different requests) where it does."""
        if self._is_stale:
            mixes = {name: tuple(sorted(_rounded_all(counts).items())) for name, counts in self._counts.items()}
            self._mix = RequestMix(mixes, _rounded_all(self._fractions), self._mix)
            self._is_stale = False
        return self._mix

    def _asked_of(self, job: Job) -> dict[PoolName, GpuMilli]:
        """GPUs of a worker in each pool that the job may use, except for slices."""
        requests = ((name, request_on(job, self._pools[name])) for name in job.pools if name in self._pools)
        return {name: request.gpu_milli for name, request in requests if request is not None and not request.profile}

    def _add(self, counts: dict[T, int], of: T, count: int) -> None:
        before = counts.get(of, 0)
        counts[of] = after = before + count
        self._is_stale |= _rounded(before) != _rounded(after)


def _rounded_all(counts: Mapping[T, int]) -> dict[T, int]:
    return {of: _rounded(count) for of, count in counts.items() if count}


def _rounded(count: int) -> int:
    rest = max(0, count.bit_length() - EXACT_BITS)
    return count >> rest << rest
