"""The differences of two revisions in settings that no object shows.

Settings with units and defaults are told in words, from the values. All others are compared as written, so that a newly
added field is in the plan without further work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from gpuctl.compile import Written
from gpuctl.diag.escapes import json_text
from gpuctl.diag.wording import duration, thousandths
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance, Declared, Department, NodePool
from gpuctl.model.ids import DomainName
from gpuctl.model.units import format_gpus
from gpuctl.views.plan_report import SettingChange


def _plain(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _time(value: Any) -> str:
    return "none" if value is None else duration(value)


def _min_runtime(value: Any) -> str:
    guarantee, fairness, moves = map(duration, value)
    same = guarantee == fairness == moves
    return guarantee if same else f"{{guarantee: {guarantee}, fairness: {fairness}, moves: {moves}}}"


def _gpus(value: Any) -> str:
    return "none" if value is None else format_gpus(value)


def _names(values: Any) -> str:
    return ", ".join(str(value) for value in values) or "none"


def _labels(values: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items())) or "none"


def _dependencies(values: Any) -> str:
    return ", ".join(each.job.name if each.needs_success else f"{each.job.name} (any end)" for each in values) or "none"


def _scaling(value: Any) -> str:
    if value is None:
        return "none"
    series = f"{{{_labels(value.labels)}}}" if value.labels else ""
    none = ", none without load" if value.to_zero else ""
    return f"{value.metric}{series} of {value.source.value}, {thousandths(value.target_milli)} each{none}"


def _inventory(nodes: Any) -> str:
    return f"{len(nodes)} with {sum(node.gpus for node in nodes)} GPUs"


Words = tuple[str, Callable[[Any], str]]
_JOB: Mapping[str, Words] = {
    "priority": ("priority", _plain),
    "preemptible": ("preemptible", _plain),
    "max_duration_ms": ("maxDuration", _time),
    "idle_timeout_ms": ("idleTimeout", _time),
    "pause_grace_ms": ("pauseGrace", _time),
    "pools": ("nodePools", _names),
    "pools_in_order": ("nodePools in order", _plain),
    "suspend": ("suspend", _plain),
    "after": ("after", _dependencies),
    "ttl_ms": ("ttlAfterFinished", _time),
    "checkpoint_ms": ("checkpointEvery", _time),
    "parallelism": ("sweep.parallelism", _plain),
    "scaling": ("scaling", _scaling),
}
_PROJECT: Mapping[str, Words] = {"department": ("department", _plain), "priority": ("priority", _plain)}
_POOL: Mapping[str, Words] = {
    "nodes": ("nodes", _inventory),
    "placement": ("placement", _plain),
    "match_labels": ("selector", _labels),
}
_POLICY: Mapping[str, Words] = {
    "min_runtime": ("minRuntime", _min_runtime),
    "starvation_guard_ms": ("starvationGuard", _time),
    "start_timeout_ms": ("startTimeout", _time),
    "pause_grace_ms": ("pauseGrace", _time),
    "consolidation": ("consolidation", _plain),
    "quota_shrink": ("quotaShrink", _plain),
    "fairness_half_life_ms": ("fairness.halfLife", _time),
    "overcommit_quota": ("overcommitQuota", _plain),
    "stop_guard_percent": ("stopGuard", _plain),
    "delete_guard_jobs": ("deleteGuard", _plain),
}
_SECURITY: Mapping[str, Words] = {
    "host_paths": ("hostPaths", _names),
    "nfs": ("nfs", _names),
}
"""The other security settings show in objects: in labels of namespaces, and in quotas."""
_SAID = {
    "Cluster": ("scheduling", "security"),
    "Department": ("quota", "limit", "overQuotaWeight"),
    "Project": ("quota", "limit", "overQuotaWeight", "department", "priority", "access"),
}
"""Fields of declarations that the plan reports elsewhere: in words, among the quotas, or by objects."""
_SAID_OF_POOLS = ("name", "nodes", "gpusPerNode", "placement", "selector")
_ABSENT = "default"
_SAME_NODES = "the same, with other resources or labels"
_MOST_FIELDS = 20
_LONGEST = 80
_NOTHING = Allowance(quota_milli=0)
_ALLOWANCE: Mapping[str, Words] = {
    "quota_milli": ("quota", _gpus),
    "limit_milli": ("limit", _gpus),
    "weight": ("overQuotaWeight", _gpus),
}


def setting_changes(base: Declared | None, head: Declared | None) -> Iterator[SettingChange]:
    """The settings that differ, by owner, for what both revisions declare; for jobs, if the run is the same."""
    if base is None or head is None:
        return
    yield from _of("scheduling", base.cluster.scheduling, head.cluster.scheduling, _POLICY)
    yield from _of("security", base.cluster.security, head.cluster.security, _SECURITY)
    before_pools = {pool.name: pool for pool in base.cluster.pools}
    for pool in head.cluster.pools:
        yield from _of(f"pool {pool.name}", before_pools.get(pool.name), pool, _POOL)
    yield from _order_of_pools(base.cluster.pools, head.cluster.pools)
    yield from _of_departments(base, head)
    before_projects = {project.name: project for project in base.projects}
    for project in head.projects:
        yield from _of(project.name, before_projects.get(project.name), project, _PROJECT)
    yield from _of_jobs(base, head)


def _of_jobs(base: Declared, head: Declared) -> Iterator[SettingChange]:
    """The settings of jobs that differ. A difference that all jobs of a sweep share is told once."""
    before = {(job.id, job.digest): job for job in base.jobs}
    told: set[SettingChange] = set()
    for job in head.jobs:
        changes = [*_of(str(job.declared_as), before.get((job.id, job.digest)), job, _JOB)]
        yield from (change for change in changes if change not in told)
        if job.sweep is not None:
            told.update(changes)


def _of(owner: str, before: object | None, after: object, words: Mapping[str, Words]) -> Iterator[SettingChange]:
    if before is None or before is after:
        return
    for name, (setting, say) in words.items():
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            change = (say(was), say(now))
            if name == "nodes" and [node.name for node in was] == [node.name for node in now]:
                change = change[0], _SAME_NODES if change[0] == change[1] else change[1]
            yield SettingChange(of=owner, setting=setting, change=change if change[0] != change[1] else _other(change))


def _other(change: tuple[str, str]) -> tuple[str, str]:
    """Values that differ though they read alike, such as other nodes of the same number."""
    return change[0], f"{change[1]}, others"


def _of_departments(base: Declared, head: Declared) -> Iterator[SettingChange]:
    before, after = ({each.name: each for each in side.departments} for side in (base, head))
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            change = ("no", "yes") if old is None else ("yes", "no")
            yield SettingChange(of=f"department {name}", setting="declared", change=change)
        was, now = (_allowances(side) for side in (old, new))
        for domain in sorted(was.keys() | now.keys()):
            owner = f"department {name}{'' if domain == WHOLE_CLUSTER else f' on {domain}'}"
            yield from _of(owner, was.get(domain, _NOTHING), now.get(domain, _NOTHING), _ALLOWANCE)


def _allowances(department: Department | None) -> Mapping[DomainName, Allowance]:
    return {} if department is None else department.allowances


def written_changes(base: Iterable[Written], head: Iterable[Written]) -> Iterator[SettingChange]:
    """The differences of declarations as written, in fields that are reported nowhere else.

    A project that only one of the two declares is reported among the objects.
    """
    before, after = ({(each.kind, each.name): each.spec for each in side} for side in (base, head))
    for kind, name in sorted(before.keys() | after.keys()):
        was, now = before.get((kind, name)), after.get((kind, name))
        owner = name if kind == "Project" else f"{kind.lower()} {name}"
        if was is not None and now is not None:
            yield from _fields(owner, _unsaid(kind, was), _unsaid(kind, now))
        elif kind == "Policy":
            yield SettingChange(of=owner, setting="declared", change=("no", "yes") if was is None else ("yes", "no"))


def _unsaid(kind: str, spec: Mapping[str, Any]) -> Mapping[str, str]:
    return {path: value for path, value in _flat(spec, "") if not _is_said(kind, path)}


def _fields(owner: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[SettingChange]:
    changed = [path for path in sorted(was.keys() | now.keys()) if was.get(path) != now.get(path)]
    for path in changed[:_MOST_FIELDS]:
        pair = tuple(_shortened(side.get(path, _ABSENT)) for side in (was, now))
        change = (pair[0], pair[1])
        yield SettingChange(of=owner, setting=path, change=change if change[0] != change[1] else _other(change))
    if len(changed) > _MOST_FIELDS:
        more = str(len(changed) - _MOST_FIELDS)
        yield SettingChange(of=owner, setting="more fields that differ", change=("0", more))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The leaves of a declaration, by path. Entries of a list are identified by their name, if all have one."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _flat(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and all(isinstance(each, dict) and "name" in each for each in value):
        for each in value:
            for key, below in each.items():
                yield from _flat(below, f"{path}[{each['name']}].{key}")
    else:
        yield path, str(value).lower() if isinstance(value, bool) else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(_plain_numbers(value))


def _plain_numbers(value: Any) -> Any:
    """The value with decimals as text, as JSON has no decimals."""
    if isinstance(value, dict):
        return {str(key): _plain_numbers(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(below) for below in value]
    return str(value) if isinstance(value, Decimal) else value


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_said(kind: str, path: str) -> bool:
    first = path.partition(".")[0].partition("[")[0]
    if kind == "Cluster" and first == "nodePools":
        return path.rpartition("]")[2].removeprefix(".").partition(".")[0] in _SAID_OF_POOLS or ".nodes[" in path
    return first in _SAID.get(kind, ())


def _order_of_pools(before: tuple[NodePool, ...], after: tuple[NodePool, ...]) -> Iterator[SettingChange]:
    names = tuple(_names(pool.name for pool in pools) for pools in (before, after))
    if names[0] != names[1]:
        yield SettingChange(of="cluster", setting="nodePools", change=(names[0], names[1]))
