"""What a job asks of a pool, how many of its workers fit into given amounts, and which requests failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuctl.model.decision import WorkerPlacement
from gpuctl.model.declared import NodePool
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes

MOST_FAILED = 100
"""The most failed requests that are kept: the latest. 10,000 gangs that all differ leave 17. Without this bound 4,000
jobs take 23 s if each asks for a bit more CPU and a bit less memory than the one before."""


class WorkerRequest(NamedTuple):
    """What one worker is charged: GPUs over all its devices, CPU and memory."""

    gpu_milli: GpuMilli
    cpu_milli: CpuMilli
    mem_bytes: MemBytes

    def on_device(self, worker: WorkerPlacement) -> GpuMilli:
        """The charge on each of the worker's devices, rounded up."""
        return -(-self.gpu_milli // len(worker.gpus)) if worker.gpus else 0


class Request(NamedTuple):
    """One worker's needs in one pool, and the number of workers. Equal requests fit the same places.

    A request with a `profile` asks for slices of devices that are cut into that profile.
    """

    gpu_milli: GpuMilli
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    workers: int
    profile: str = ""

    @property
    def devices(self) -> int:
        """Whole devices of a worker; 0 for a fraction and for CPU work."""
        return self.gpu_milli // WHOLE_GPU

    @property
    def fraction_milli(self) -> GpuMilli:
        """The part of one device that a worker needs; 0 for whole devices and for CPU work."""
        return self.gpu_milli % WHOLE_GPU

    @property
    def total_milli(self) -> GpuMilli:
        """GPUs of all workers."""
        return self.gpu_milli * self.workers

    @property
    def per_worker(self) -> WorkerRequest:
        """What each worker is charged where it is placed."""
        return WorkerRequest(self.gpu_milli, self.cpu_milli, self.mem_bytes)

    def without_cpu(self) -> Request:
        """The same request for GPUs only."""
        return self._replace(cpu_milli=0, mem_bytes=0)

    def slots_in(self, devices: Sequence[GpuMilli], cpu_milli: CpuMilli, mem_bytes: MemBytes) -> int:
        """How many workers fit, up to all of them, into the given free devices, CPU and memory."""
        slots = self.slots_beside_gpus(cpu_milli, mem_bytes)
        if self.fraction_milli:
            slots = min(slots, sum(free // self.fraction_milli for free in devices if free > 0))
        elif self.devices:
            slots = min(slots, sum(free >= WHOLE_GPU for free in devices) // self.devices)
        return max(0, slots)

    def slots_beside_gpus(self, cpu_milli: CpuMilli, mem_bytes: MemBytes) -> int:
        """How many workers CPU and memory suffice for, up to all of them."""
        slots = self.workers
        if self.cpu_milli:
            slots = min(slots, cpu_milli // self.cpu_milli)
        if self.mem_bytes:
            slots = min(slots, mem_bytes // self.mem_bytes)
        return slots


def request_on(job: Job, pool: NodePool) -> Request | None:
    """What a job asks of a pool, for all its workers; None if the pool can't serve it at all."""
    grant = pool.grant(max(0, job.gpu_milli_on(pool.gpu_mem_bytes)))
    if grant is None or job.workers < 1:
        return None
    return Request(grant.gpu_milli, max(0, job.cpu_milli), max(0, job.mem_bytes), job.workers, grant.profile)


class UnschedulableRequests:
    """The smallest requests for which one kind of search failed since capacity was last released.

    The engine's one memory of failure, for idle capacity and for each way of making room. It changes no decision.
    Example: after a failed search for 1 GPU and 8 CPUs, one for 1 GPU and 16 CPUs must fail too. Single workers and
    gangs are kept apart: a gang is placed worker by worker, which proves nothing for one. All requests have one
    profile. Without it a cycle of 10,000 jobs in which a run ended takes 6x.
    """

    def __init__(self) -> None:
        self._singles: list[Request] = []
        self._gangs: list[Request] = []

    def cover(self, request: Request) -> bool:
        """Whether a request that asked for no more of anything has failed. Cost: O(MOST_FAILED)."""
        gpu, cpu, mem, workers, _ = request
        for failed in self._singles if workers == 1 else self._gangs:
            if failed[0] <= gpu and failed[1] <= cpu and failed[2] <= mem and failed[3] <= workers:
                return True
        return False

    def add(self, request: Request) -> None:
        """Add a failed request. Drop those that it covers, or else the oldest of too many."""
        kept = self._singles if request.workers == 1 else self._gangs
        kept[:] = [old for old in kept if any(mine > theirs for mine, theirs in zip(request[:4], old[:4], strict=True))]
        kept.append(request)
        del kept[:-MOST_FAILED]

    def forget(self) -> None:
        """Forget all failed requests: capacity was released, so any may succeed again."""
        self._singles.clear()
        self._gangs.clear()
