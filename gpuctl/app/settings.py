"""The differences of two revisions in settings that only the engine or the compiler reads, and no object shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuctl.diag.wording import duration
from gpuctl.model.declared import WHOLE_CLUSTER, Declared, NodePool
from gpuctl.model.units import format_gpus
from gpuctl.views.plan_report import SettingChange


def _plain(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _time(value: Any) -> str:
    return "none" if value is None else duration(value)


def _gpus(value: Any) -> str:
    return "none" if value is None else format_gpus(value)


def _names(values: Any) -> str:
    return ", ".join(str(value) for value in values) or "none"


def _inventory(nodes: Any) -> str:
    return f"{len(nodes)} with {sum(node.gpus for node in nodes)} GPUs"


Words = tuple[str, Callable[[Any], str]]
_JOB: Mapping[str, Words] = {
    "priority": ("priority", _plain),
    "preemptible": ("preemptible", _plain),
    "max_duration_ms": ("maxDuration", _time),
    "idle_timeout_ms": ("idleTimeout", _time),
    "pools": ("nodePools", _names),
    "pools_in_order": ("nodePools in order", _plain),
    "suspend": ("suspend", _plain),
}
_PROJECT: Mapping[str, Words] = {"department": ("department", _plain), "priority": ("priority", _plain)}
_POOL: Mapping[str, Words] = {
    "nodes": ("nodes", _inventory),
    "placement": ("placement", _plain),
    "match_labels": ("selector", _plain),
}
_POLICY: Mapping[str, Words] = {
    "min_runtime_ms": ("minRuntime", _time),
    "starvation_guard_ms": ("starvationGuard", _time),
    "consolidation": ("consolidation", _plain),
    "quota_shrink": ("quotaShrink", _plain),
    "fairness_half_life_ms": ("fairness.halfLife", _time),
    "overcommit_quota": ("overcommitQuota", _plain),
    "stop_guard_percent": ("stopGuard", _plain),
}
_SECURITY: Mapping[str, Words] = {"host_paths": ("hostPaths", _names)}
"""The other security settings show in objects: in labels of namespaces, and in quotas."""
_ALLOWANCE: Mapping[str, Words] = {
    "quota_milli": ("quota", _gpus),
    "limit_milli": ("limit", _gpus),
    "weight": ("overQuotaWeight", _gpus),
}


def setting_changes(base: Declared | None, head: Declared | None) -> Iterator[SettingChange]:
    """The settings that differ, by owner: of what both revisions declare; of jobs, if the run is the same."""
    if base is None or head is None:
        return
    yield from _of("scheduling", base.cluster.scheduling, head.cluster.scheduling, _POLICY)
    yield from _of("security", base.cluster.security, head.cluster.security, _SECURITY)
    before_pools = {pool.name: pool for pool in base.cluster.pools}
    for pool in head.cluster.pools:
        yield from _of(f"pool {pool.name}", before_pools.get(pool.name), pool, _POOL)
    yield from _order_of_pools(base.cluster.pools, head.cluster.pools)
    before_departments = {department.name: department for department in base.departments}
    for department in head.departments:
        old = before_departments.get(department.name)
        for domain, allowance in department.allowances.items():
            was = old.allowances.get(domain) if old else None
            where = "" if domain == WHOLE_CLUSTER else f" on {domain}"
            yield from _of(f"department {department.name}{where}", was, allowance, _ALLOWANCE)
    before_projects = {project.name: project for project in base.projects}
    for project in head.projects:
        yield from _of(project.name, before_projects.get(project.name), project, _PROJECT)
    before_jobs = {(job.id, job.digest): job for job in base.jobs}
    for job in head.jobs:
        yield from _of(str(job.id), before_jobs.get((job.id, job.digest)), job, _JOB)


def _of(owner: str, before: object | None, after: object, words: Mapping[str, Words]) -> Iterator[SettingChange]:
    if before is None or before is after:
        return
    for name, (setting, say) in words.items():
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield SettingChange(of=owner, setting=setting, change=(say(was), say(now)))


def _order_of_pools(before: tuple[NodePool, ...], after: tuple[NodePool, ...]) -> Iterator[SettingChange]:
    names = tuple(_names(pool.name for pool in pools) for pools in (before, after))
    if names[0] != names[1]:
        yield SettingChange(of="cluster", setting="nodePools", change=(names[0], names[1]))
