"""Does a worker fit a node: what one worker needs in a pool, and how often a room holds that.

It knows one request and one room; which of several rooms is best is `placement`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuctl.model.declared import NodePool, Sharing
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes
from gpuctl.schedule.ledger import Charge, Room


class Request(NamedTuple):
    """One worker's needs in one pool, and how many workers there are. Equal requests have equal chances."""

    gpu_milli: GpuMilli
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    workers: int

    @property
    def devices(self) -> int:
        """Whole devices a worker needs; 0 for a fraction and for CPU work."""
        return self.gpu_milli // WHOLE_GPU

    @property
    def fraction_milli(self) -> GpuMilli:
        """The part of one device a worker needs; 0 for whole devices and for CPU work."""
        return self.gpu_milli % WHOLE_GPU

    @property
    def total_milli(self) -> GpuMilli:
        """GPUs of all workers."""
        return self.gpu_milli * self.workers

    @property
    def charge(self) -> Charge:
        """What each worker is charged where it is placed."""
        return Charge(self.gpu_milli, self.cpu_milli, self.mem_bytes)

    def without_cpu(self) -> Request:
        """The GPUs alone."""
        return Request(self.gpu_milli, 0, 0, self.workers)


def request_on(job: Job, pool: NodePool) -> Request | None:
    """What the job asks of a pool; None when the pool can't serve it at all.

    All `workers` start together. A fraction needs a pool that shares devices, and is never above one device.
    """
    milli = job.gpu_milli_on(pool.gpu_mem_bytes)
    shared = milli % WHOLE_GPU != 0
    if milli < 0 or job.workers < 1 or (shared and (milli > WHOLE_GPU or pool.sharing is Sharing.DEVICE_PLUGIN)):
        return None
    return Request(milli, max(0, job.cpu_milli), max(0, job.mem_bytes), job.workers)


def slots_in(devices: Sequence[GpuMilli], cpu_milli: CpuMilli, mem_bytes: MemBytes, request: Request) -> int:
    """How many workers fit at once, up to all of them, with devices, CPU and memory free as given."""
    slots = request.workers
    if request.cpu_milli:
        slots = min(slots, cpu_milli // request.cpu_milli)
    if request.mem_bytes:
        slots = min(slots, mem_bytes // request.mem_bytes)
    if request.fraction_milli:
        slots = min(slots, sum(free // request.fraction_milli for free in devices if free > 0))
    elif request.devices:
        slots = min(slots, sum(free >= WHOLE_GPU for free in devices) // request.devices)
    return max(0, slots)


def slots(room: Room, request: Request) -> int:
    """How many workers fit a node at once, up to all of them."""
    return slots_in(room.gpu_milli, room.cpu_milli, room.mem_bytes, request)


def holds(room: Room, request: Request) -> bool:
    """A worker's CPU and memory fit the node."""
    return room.cpu_milli >= request.cpu_milli and room.mem_bytes >= request.mem_bytes
