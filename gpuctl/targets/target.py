"""Renders for another engine: the jobs that it can run, and a diagnostic for each one that it can't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuctl.diag.diagnostic import sorted_diagnostics
from gpuctl.model.declared import Declared
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifests
from gpuctl.model.units import WHOLE_GPU
from gpuctl.targets.kai import for_kai
from gpuctl.targets.kueue import for_kueue
from gpuctl.targets.unsaid import Engine, of_settings, unsaid
from gpuctl.targets.workloads import TargetObjects, by_count


def rendered_for(engine: Engine, declared: Declared, waiting: Callable[[Declared], Manifests]) -> TargetObjects:
    """All objects for the engine. `waiting` renders declarations with no job started. Cost: linear in jobs."""
    why = {job.id: reason for job in declared.jobs if (reason := _why_not(engine, job, declared))}
    told = [
        *of_settings(declared, engine),
        *(unsaid("GPU6151", job.span, engine, why=why[job.id]) for job in declared.jobs if job.id in why),
    ]
    kept = by_count(replace(declared, jobs=tuple(job for job in declared.jobs if job.id not in why)))
    found = (for_kueue if engine is Engine.KUEUE else for_kai)(kept, waiting(kept))
    return replace(found, unsaid=sorted_diagnostics([*told, *found.unsaid]))


def _why_not(engine: Engine, job: Job, declared: Declared) -> str:
    """Why the engine can't run a job; "" if it can."""
    is_part = job.gpu_mem_bytes is not None or job.gpu_milli % WHOLE_GPU != 0
    if is_part and engine is Engine.KUEUE:
        return "counts whole GPUs"
    if is_part and any(declared.cluster.pool(name).cuts for name in job.pools):
        return "asks for no slice of a GPU"
    return ""
