"""The amounts that one worker of a job asks for: all containers of its pod, as Kubernetes adds them up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuctl.compile.containers_v1 import InitContainer, requests_of_container
from gpuctl.compile.document import Path
from gpuctl.compile.spec_v1 import JobSpec
from gpuctl.k8s.requests import Requests, Starting, of_containers
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes


class Worker(NamedTuple):
    """The amounts that a worker's pod asks for. `gpu_milli`: 0 for a job that asks for GPU memory."""

    gpu_milli: GpuMilli
    cpu_milli: CpuMilli
    mem_bytes: MemBytes


def worker_of(spec: JobSpec) -> Worker:
    """The amounts that one worker asks for. If the job has a part of a GPU, no other container has GPUs."""
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
    """All containers besides the job's own, in the order in which they start: sidecars that start before the init
    containers, the init containers, the other sidecars."""
    sidecars = [
        (each.before_init, Started(each, stays=True, path=("spec", "sidecars", position)))
        for position, each in enumerate(spec.sidecars)
    ]
    yield from (one for is_first, one in sidecars if is_first)
    for position, each in enumerate(spec.init_containers):
        yield Started(each, stays=False, path=("spec", "initContainers", position))
    yield from (one for is_first, one in sidecars if not is_first)
