"""Quotas by domain: what projects and departments claim, and how many GPUs there are to claim.

A cluster's quotas are either all plain numbers, with all its pools as one domain, or all by pool, with a domain each.
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
    """One declared quota or limit. `field` is quota or limit; `kind` and `name` say of what.

    `is_own`: it stands in the cluster's own files, not in those of a project.
    """

    kind: str
    name: str
    field: str
    amount: Amount
    is_own: bool = False

    @property
    def by_pool(self) -> bool:
        """True for {pool: number}."""
        return isinstance(self.amount, Mapping)


def statements(resolved: Resolved) -> list[Statement]:
    """Every quota and limit that is written down, projects before departments, by name."""
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
    """The first that has the form which most have; of two forms that are as frequent, the very first. None: of none.

    Where the cluster's own files state any, only these count: no project makes a mistake of what is not its own.
    """
    deciding = [one for one in stated if one.is_own] or stated
    by_pool = sum(one.by_pool for one in deciding)
    plain = len(deciding) - by_pool
    return next((one for one in deciding if by_pool == plain or one.by_pool is (by_pool > plain)), None)


def quota_domains(resolved: Resolved) -> tuple[QuotaDomain, ...]:
    """The cluster's quota domains, in the order of its pools: the usual form of quotas decides about theirs."""
    pools = [PoolName(name) for name in resolved.pools]
    form = usual(statements(resolved))
    if form is not None and form.by_pool:
        return tuple(QuotaDomain(name=DomainName(pool), pools=(pool,)) for pool in pools)
    return (QuotaDomain(name=WHOLE_CLUSTER, pools=tuple(pools)),)


def in_domain(amount: Amount, domain: DomainName) -> GpuMilli:
    """An amount's part in a domain; what is not mentioned is 0. By pools where GPUs are divided together, which is a
    mistake told elsewhere, it is their sum."""
    if not isinstance(amount, Mapping):
        return amount
    return sum(amount.values()) if domain == WHOLE_CLUSTER else amount.get(domain, 0)


def limit_in(amount: Amount | None, domain: DomainName) -> GpuMilli | None:
    """A limit's part in a domain; what is not mentioned has none."""
    if amount is None:
        return None
    return amount.get(domain) if isinstance(amount, Mapping) else amount


def departments_above(resolved: Resolved, spec: ProjectSpec) -> tuple[Declaration[DepartmentV1], ...]:
    """The departments that a project is in, the nearest first; of a circle each once."""
    found: list[Declaration[DepartmentV1]] = []
    above = resolved.departments.get(spec.department or "")
    while above is not None and above not in found:
        found.append(above)
        above = resolved.departments.get(above.model.spec.department or "")
    return tuple(found)


def department_quota(resolved: Resolved, name: str, domain: DomainName) -> GpuMilli:
    """A department's own quota in a domain or, where it states none, what its projects and departments have."""
    quota = resolved.departments[name].model.spec.quota
    if quota is not None:
        return in_domain(quota, domain)
    return sum(member.quota for member in members(resolved, name, domain))


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A project or department that divides something with others."""

    name: str
    kind: str
    quota: GpuMilli


def members(resolved: Resolved, department: str | None, domain: DomainName) -> list[Member]:
    """The projects and departments that divide a department's quota (None: the cluster's GPUs), by name.

    Departments must not be in a circle.
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
    """The pools that some job of a project may use, in preference order."""
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
