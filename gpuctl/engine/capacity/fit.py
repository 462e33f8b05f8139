"""What one worker needs in a pool, and how many workers fit a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuctl.engine.capacity.free import NodeFree, WorkerRequest
from gpuctl.model.declared import NodePool
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes


class Request(NamedTuple):
    """One worker's needs in one pool, and the number of workers. Equal requests fit the same places.

    With a `profile` it asks for slices of devices that are cut into that profile.
    """

    gpu_milli: GpuMilli
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    workers: int
    profile: str = ""

    @property
    def sizes(self) -> tuple[GpuMilli, CpuMilli, MemBytes, int]:
        """The amounts alone, without the profile."""
        return self[:4]

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
        return Request(self.gpu_milli, 0, 0, self.workers, self.profile)


def request_on(job: Job, pool: NodePool) -> Request | None:
    """What a job asks of a pool, for all its workers; None when the pool can't serve it at all."""
    grant = pool.grant(max(0, job.gpu_milli_on(pool.gpu_mem_bytes)))
    if grant is None or job.workers < 1:
        return None
    return Request(grant.gpu_milli, max(0, job.cpu_milli), max(0, job.mem_bytes), job.workers, grant.profile)


def slots_in(devices: Sequence[GpuMilli], cpu_milli: CpuMilli, mem_bytes: MemBytes, request: Request) -> int:
    """How many workers fit, up to all of them, with devices, CPU and memory free as given."""
    slots = _slots_beside_gpus(cpu_milli, mem_bytes, request)
    if request.fraction_milli:
        slots = min(slots, sum(free // request.fraction_milli for free in devices if free > 0))
    elif request.devices:
        slots = min(slots, sum(free >= WHOLE_GPU for free in devices) // request.devices)
    return max(0, slots)


def slots(room: NodeFree, request: Request) -> int:
    """How many workers fit a node, up to all of them. Whole devices are not counted again."""
    if request.devices and not request.fraction_milli and not request.profile:
        by_cpu = _slots_beside_gpus(room.cpu_milli, room.mem_bytes, request)
        return max(0, min(by_cpu, room.whole // request.devices))
    return slots_in(room.free_of(request.profile), room.cpu_milli, room.mem_bytes, request)


def _slots_beside_gpus(cpu_milli: CpuMilli, mem_bytes: MemBytes, request: Request) -> int:
    """How many workers CPU and memory suffice for, up to all of them."""
    slots = request.workers
    if request.cpu_milli:
        slots = min(slots, cpu_milli // request.cpu_milli)
    if request.mem_bytes:
        slots = min(slots, mem_bytes // request.mem_bytes)
    return slots


def holds(room: NodeFree, request: Request) -> bool:
    """Whether one worker's CPU and memory fit the node."""
    return room.cpu_milli >= request.cpu_milli and room.mem_bytes >= request.mem_bytes
