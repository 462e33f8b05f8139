"""Raises a project's ceiling of claims by what runs hold that are no longer declared.

A ResourceQuota is rendered from the declarations. A removed run holds its claims until it is gone: while it ends, while
its node is lost, or while its removal waits for a confirmation. Without this addition, the server would refuse the
claim of a job that the engine has placed, and that job would hold its GPUs and never start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from gpuctl.k8s import kinds, names
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.objects import mapping
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ProjectName
from gpuctl.model.manifest import Manifest
from gpuctl.model.state import ClusterState
from gpuctl.plan.cache import PlanCache


def devices_of_old_runs(declared: Declared, state: ClusterState, cache: PlanCache) -> Mapping[ProjectName, int]:
    """The devices held by runs that are no longer declared, by project. Cost: linear in runs."""
    found: Counter[ProjectName] = Counter()
    for run in cache.old_runs(declared.jobs, state.runs):
        if not run.phase.final:
            places = (place for place in (run.placement, run.leaving) if place is not None)
            found[run.job.project] += sum(len(worker.gpus) for place in places for worker in place.workers)
    return +found


def with_old_runs(items: tuple[Manifest, ...], devices: Mapping[ProjectName, int]) -> tuple[Manifest, ...]:
    """The objects, with the ceilings of claims raised by what old runs of some projects hold."""
    if not devices:
        return items
    quota = kinds.RESOURCE_QUOTA[1], names.QUOTA_NAME
    return tuple([
        _raised(item, devices[item.project])
        if item.project is not None and item.project in devices and (item.ref.kind, item.ref.name) == quota
        else item
        for item in items
    ])


def _raised(quota: Manifest, devices: int) -> Manifest:
    hard = dict(mapping(quota.body, "spec", "hard"))
    of_claims = [name for name in hard if name.endswith(names.CLAIMED_DEVICES)]
    if f"{names.NVIDIA_GPU_CLASS}{names.CLAIMED_DEVICES}" in of_claims:
        # this resource counts both kinds of request, as the class does
        of_claims.append(f"requests.{names.GPU_RESOURCE}")
    for name in of_claims:
        hard[name] = str((whole_number(hard[name]) or 0) + devices)
    return replace(quota, body={**quota.body, "spec": {**mapping(quota.body, "spec"), "hard": hard}})
