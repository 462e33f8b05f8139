"""Quotas by domain: what projects and departments claim, and how many GPUs there are to claim.

A cluster's quotas are either all plain numbers, and all its pools are one domain; or all by pool, a domain each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.compile.declarations import Declaration
from gpuctl.compile.pool_v1 import NodePool
from gpuctl.compile.resolve import Resolved
from gpuctl.compile.spec_v1 import DepartmentV1, ProjectSpec
from gpuctl.model.declared import WHOLE_CLUSTER, QuotaDomain
from gpuctl.model.ids import DomainName, PoolName
from gpuctl.model.units import WHOLE_GPU, GpuMilli

Amount = int | Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One declared quota or limit. `field`: quota or limit; `kind` and `name`: of the project or department.

    `is_own`: declared in the cluster's own files, not in a project's.
    """

    kind: str
    name: str
    field: str
    amount: Amount
    is_own: bool = False

    @property
    def by_pool(self) -> bool:
        """Whether it has the form {pool: number}."""
        return isinstance(self.amount, Mapping)


def statements(resolved: Resolved) -> list[Statement]:
    """Every declared quota and limit: projects before departments, by name."""
    found = []
    for kind, declared in (("Project", resolved.projects), ("Department", resolved.departments)):
        for name in sorted(declared):
            spec = declared[name].model.spec
            for field in ("quota", "limit"):
                amount = getattr(spec, field)
                if amount is not None and field in spec.model_fields_set:
                    is_own = resolved.is_own(declared[name].document)
                    found.append(Statement(kind=kind, name=name, field=field, amount=amount, is_own=is_own))
    return found


def usual(stated: Sequence[Statement]) -> Statement | None:
    """The first statement that has the most frequent form; the first of all if both forms are as frequent; None if
    there is none.

    If the cluster's own files have quotas or limits, only these count: a project can't make others' form a mistake.
    """
    deciding = [one for one in stated if one.is_own] or stated
    by_pool = sum(one.by_pool for one in deciding)
    plain = len(deciding) - by_pool
    return next((one for one in deciding if by_pool == plain or one.by_pool is (by_pool > plain)), None)


def quota_domains(resolved: Resolved) -> tuple[QuotaDomain, ...]:
    """The cluster's quota domains, in the order of its pools. The usual form of quotas decides which domains there
    are."""
    pools = [PoolName(name) for name in resolved.pools]
    form = usual(statements(resolved))
    if form is not None and form.by_pool:
        return tuple(QuotaDomain(name=DomainName(pool), pools=(pool,)) for pool in pools)
    return (QuotaDomain(name=WHOLE_CLUSTER, pools=tuple(pools)),)


def in_domain(amount: Amount, domain: DomainName) -> GpuMilli:
    """The part of an amount in a domain; 0 for a pool that is not mentioned. An amount by pools in the domain of the
    whole cluster is a mistake, reported elsewhere; here it counts as its sum."""
    if not isinstance(amount, Mapping):
        return amount
    return sum(amount.values()) if domain == WHOLE_CLUSTER else amount.get(domain, 0)


def limit_in(amount: Amount | None, domain: DomainName) -> GpuMilli | None:
    """The part of a limit in a domain; None, no limit, for a pool that is not mentioned."""
    if amount is None:
        return None
    return amount.get(domain) if isinstance(amount, Mapping) else amount


def departments_above(resolved: Resolved, spec: ProjectSpec) -> tuple[Declaration[DepartmentV1], ...]:
    """The departments that a project is in, the nearest first. Each is listed once, even if they form a circle."""
    found: list[Declaration[DepartmentV1]] = []
    above = resolved.departments.get(spec.department or "")
    while above is not None and above not in found:
        found.append(above)
        above = resolved.departments.get(above.model.spec.department or "")
    return tuple(found)


def department_quota(resolved: Resolved, name: str, domain: DomainName) -> GpuMilli:
    """A department's own quota in a domain; without one, the sum of its projects and departments."""
    quota = resolved.departments[name].model.spec.quota
    if quota is not None:
        return in_domain(quota, domain)
    return sum(member.quota for member in members(resolved, name, domain))


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A project or department that shares a quota, or the cluster's GPUs, with others."""

    name: str
    kind: str
    quota: GpuMilli


def members(resolved: Resolved, department: str | None, domain: DomainName) -> list[Member]:
    """The projects and departments that share a department's quota (None: the cluster's GPUs), by name.

    Departments must not form a circle.
    """
    projects = [
        Member(name, "Project", in_domain(project.model.spec.quota, domain))
        for name, project in resolved.projects.items()
        if project.model.spec.department == department
    ]
    departments = [
        Member(name, "Department", department_quota(resolved, name, domain))
        for name, below in resolved.departments.items()
        if below.model.spec.department == department
    ]
    return sorted(projects + departments)


def reachable(resolved: Resolved, spec: ProjectSpec) -> tuple[str, ...]:
    """The pools that at least one type of a project's jobs may use, in the cluster's order."""
    affinity = spec.node_affinity
    if affinity.training is None or affinity.interactive is None:
        return tuple(resolved.pools)
    return tuple(name for name in resolved.pools if name in {*affinity.training, *affinity.interactive})


def node_gpus(pool: NodePool) -> list[int]:
    """GPUs of each declared node of a pool."""
    counts = [pool.gpus_per_node if isinstance(node, str) else node.gpus for node in pool.nodes]
    return [pool.gpus_per_node if count is None else count for count in counts]


def capacity(resolved: Resolved, pools: tuple[str, ...]) -> GpuMilli | None:
    """The declared GPUs of some pools; None if one of them declares no nodes."""
    if any(not resolved.pools[name].nodes for name in pools):
        return None
    return WHOLE_GPU * sum(sum(node_gpus(resolved.pools[name])) for name in pools)
