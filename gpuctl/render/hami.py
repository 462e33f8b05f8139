"""A pod for HAMi's scheduler: amounts of a GPU that are no resource of the node, and the GPUs it may have, by uuid.

A pod's request is the same in all pools of its job, so that one pod template serves wherever it is placed.
Source: Project-HAMi/HAMi, docs/config.md and docs/use-exclusive-card.md of release 2.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.k8s import names
from gpuctl.k8s.quantity import MEBIBYTE
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU
from gpuctl.render.owner import Spec

_MILLI_PER_PERCENT = 10


def device_limits(job: Job, count: int) -> Spec:
    """Whole GPUs are not shared. For a part, memory and cores are bounded, rounded down so that two halves always
    fit."""
    limits = {names.GPU_RESOURCE: str(count)}
    if job.gpu_mem_bytes is not None:
        limits[names.HAMI_MEMORY_RESOURCE] = str(job.gpu_mem_bytes // MEBIBYTE)
    percent = min(WHOLE_GPU, job.gpu_milli) // _MILLI_PER_PERCENT
    if job.gpu_mem_bytes is None:
        limits[names.HAMI_MEMORY_PERCENT_RESOURCE] = str(max(1, percent))
    return {**limits, names.HAMI_CORES_RESOURCE: str(max(1, percent))}


def device_env(job: Job) -> tuple[Spec, ...]:
    """Switches HAMi's hook off for whole GPUs: they need no bounds, and libraries that share memory between GPUs fail
    with it."""
    return () if _shares(job) else ({"name": "CUDA_DISABLE_CONTROL", "value": "true"},)


def device_choice(job: Job, uuids: Sequence[str]) -> Spec:
    """The GPUs that the pods may have: those of all workers; each node has only its own."""
    mode = {names.HAMI_MODE_ANNOTATION: names.HAMI_MODE} if _shares(job) else {}
    return {names.HAMI_USE_ANNOTATION: ",".join(uuids), **mode}


def _shares(job: Job) -> bool:
    return job.gpu_mem_bytes is not None or job.gpu_milli % WHOLE_GPU != 0
