"""What one worker of a job asks for: its own container and all others of its pod, as Kubernetes counts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuctl.compile.containers_v1 import InitContainer, requests_of_container
from gpuctl.compile.document import Path
from gpuctl.compile.spec_v1 import JobSpec
from gpuctl.k8s.requests import Requests, Starting, of_containers
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes


class Worker(NamedTuple):
    """What a worker's pod asks for. `gpu_milli`: of a job that asks by memory it is 0."""

    gpu_milli: GpuMilli
    cpu_milli: CpuMilli
    mem_bytes: MemBytes


def worker_of(spec: JobSpec) -> Worker:
    """What one worker asks for. A part of a GPU is the job's own container's: no other has GPUs then."""
    if not spec.init_containers and not spec.sidecars:
        return Worker(spec.gpus, spec.resources.cpu, spec.resources.memory)
    own = Requests(cpu_milli=spec.resources.cpu, mem_bytes=spec.resources.memory, gpus=spec.gpus // WHOLE_GPU)
    asked = of_containers([own], (Starting(requests_of_container(each), stays) for each, stays, _ in started(spec)))
    gpu_milli = spec.gpus + (asked.gpus - own.gpus) * WHOLE_GPU
    return Worker(gpu_milli, asked.cpu_milli, asked.mem_bytes)


class Started(NamedTuple):
    """A container besides the job's own. `stays`: it is a sidecar; `path`: where it is declared."""

    container: InitContainer
    stays: bool
    path: Path


def started(spec: JobSpec) -> Iterator[Started]:
    """All containers besides the job's own, in the order they start: sidecars that init containers can use, these, and
    the other sidecars."""
    sidecars = [
        (each.before_init, Started(each, stays=True, path=("spec", "sidecars", position)))
        for position, each in enumerate(spec.sidecars)
    ]
    yield from (one for is_first, one in sidecars if is_first)
    for position, each in enumerate(spec.init_containers):
        yield Started(each, stays=False, path=("spec", "initContainers", position))
    yield from (one for is_first, one in sidecars if not is_first)
