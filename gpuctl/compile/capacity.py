"""Checks the cluster's own declarations: whether its pools make sense, and whether the declared GPUs can serve the
quotas.

If a pool declares no nodes its capacity is not known, and nothing is checked against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpuctl.compile import quota
from gpuctl.compile.declarations import Declaration
from gpuctl.compile.document import Document, Path
from gpuctl.compile.quota import Member, Statement
from gpuctl.compile.resolve import Resolved, near_pool
from gpuctl.compile.sharing import check_sharing
from gpuctl.compile.spec_v1 import ClusterV1, DepartmentV1, ProjectV1
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import thousandths
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.ids import DomainName

_SHOWN_MEMBERS = 5


Named = tuple[str, str]
"""The kind and the name of a declaration or of a node pool. The empty name stands for the list of node pools."""
NODE_POOL = "NodePool"


def check_capacity(resolved: Resolved, touched: frozenset[Named] = frozenset()) -> Iterator[Diagnostic]:
    """What is wrong with pools and quotas. Cost: linear in projects and pools.

    `touched`: the quotas and node pools that a change has set, where one is known.
    """
    cluster = resolved.cluster
    if cluster is None:
        return
    yield from _pools(cluster)
    yield from _unknown_pools(resolved)
    mixed = list(_mixtures(resolved))
    yield from mixed
    yield from _limits_below_quota(resolved)
    if mixed or resolved.circular:
        return
    yield from _unserved(resolved)
    severity = Severity.WARNING if cluster.model.spec.scheduling.overcommit_quota else Severity.ERROR
    for found in _sums(resolved, touched):
        yield replace(found, severity=severity)


def _pools(cluster: Declaration[ClusterV1]) -> Iterator[Diagnostic]:
    document = cluster.document
    first: dict[str, Path] = {}
    for position, pool in enumerate(cluster.model.spec.node_pools):
        here = ("spec", "nodePools", position)
        yield from check_sharing(document, here, pool)
        for index, node in enumerate(pool.nodes):
            name = node if isinstance(node, str) else node.name
            path = (*here, "nodes", index) if isinstance(node, str) else (*here, "nodes", index, "name")
            before = first.setdefault(name, path)
            if before != path:
                found = document.diagnostic("GPU3024", document.span(path), {"node": name})
                yield replace(found, related=(("first declared here", document.span(before)),))


def _of(resolved: Resolved, stated: Statement | Member) -> Declaration[ProjectV1] | Declaration[DepartmentV1]:
    return resolved.projects[stated.name] if stated.kind == "Project" else resolved.departments[stated.name]


def _span(resolved: Resolved, stated: Statement) -> SourceSpan:
    return _of(resolved, stated).document.span(("spec", stated.field))


def _unknown_pools(resolved: Resolved) -> Iterator[Diagnostic]:
    for stated in quota.statements(resolved):
        document = _of(resolved, stated).document
        pools = () if isinstance(stated.amount, int) else tuple(stated.amount)
        for position, pool in enumerate(pools):
            if pool not in resolved.pools:
                fix = near_pool(pool, resolved.pools, position, pools)
                span = document.key_span(("spec", stated.field, pool))
                yield document.diagnostic("GPU3007", span, {"pool": pool}, fix)


def _mixtures(resolved: Resolved) -> Iterator[Diagnostic]:
    """Every quota and limit whose form (a number, or an amount for each pool) is not the most usual one."""
    forms = {False: "a plain number", True: "an amount for each pool"}
    stated = quota.statements(resolved)
    first = quota.usual(stated)
    for other in stated:
        if first is not None and other.by_pool != first.by_pool:
            document = _of(resolved, other).document
            params = {"form": forms[other.by_pool], "other": forms[first.by_pool]}
            found = document.diagnostic("GPU3011", document.key_span(("spec", other.field)), params)
            yield replace(found, related=(("the first quota is here", _span(resolved, first)),))


def _limits_below_quota(resolved: Resolved) -> Iterator[Diagnostic]:
    levels = (resolved.projects, resolved.departments)
    for spec, document in ((d.model.spec, d.document) for level in levels for d in level.values()):
        if isinstance(spec.limit, int) and isinstance(spec.quota, int) and spec.limit < spec.quota:
            params = {"limit": spec.limit, "quota": spec.quota}
            yield document.diagnostic("GPU3013", document.span(("spec", "limit")), params)
        if isinstance(spec.limit, dict) and isinstance(spec.quota, dict):
            for pool, limit in spec.limit.items():
                if limit < spec.quota.get(pool, 0):
                    params = {"limit": limit, "quota": spec.quota[pool]}
                    yield document.diagnostic("GPU3013", document.span(("spec", "limit", pool)), params)


def _unserved(resolved: Resolved) -> Iterator[Diagnostic]:
    """Quotas of projects that the pools allowed by their affinity can't serve."""
    for project in resolved.projects.values():
        spec, document = project.model.spec, project.document
        reach = quota.reachable(resolved, spec)
        if isinstance(spec.quota, int):
            capacity = quota.capacity(resolved, reach)
            everything = quota.capacity(resolved, tuple(resolved.pools))
            if capacity is not None and capacity != everything and spec.quota > capacity:
                params = {"quota": spec.quota, "capacity": capacity}
                yield document.diagnostic("GPU3012", document.span(("spec", "quota")), params)
            continue
        for pool, amount in spec.quota.items():
            if amount and pool in resolved.pools and pool not in reach:
                params = {"quota": amount, "capacity": 0}
                yield document.diagnostic("GPU3012", document.span(("spec", "quota", pool)), params)


def _sums(resolved: Resolved, touched: frozenset[Named]) -> Iterator[Diagnostic]:
    """Quotas of projects and departments whose sum is larger than what they are shares of."""
    for domain in resolved.domains:
        where = "the cluster" if domain.name == WHOLE_CLUSTER else f'pool "{domain.name}"'
        capacity = quota.capacity(resolved, domain.pools)
        if capacity is not None:
            yield from _over(resolved, _Sum(None, domain.name, capacity, where), touched)
        for name, department in sorted(resolved.departments.items()):
            if department.model.spec.quota is not None:
                own = quota.in_domain(department.model.spec.quota, domain.name)
                yield from _over(resolved, _Sum(name, domain.name, own, where), touched)


class _Sum(NamedTuple):
    """What the sum of quotas is compared with: a department's quota, or (None) the GPUs of a domain."""

    department: str | None
    domain: DomainName
    available: int
    where: str


def _over(resolved: Resolved, checked: _Sum, touched: frozenset[Named]) -> Iterator[Diagnostic]:
    """One diagnostic if the quotas exceed what is available, at the first that does; it names those before.

    Quotas that a change has touched are added last, so that one of them is marked. Of the others, those in the
    cluster's own files come first, then all by name: a change of one project then never marks a declaration that no
    project can change. If a change has touched what is divided, and the untouched quotas alone exceed it, what is
    divided is marked instead.
    """
    department, domain, available, where = checked
    members = [member for member in quota.members(resolved, department, domain) if member.quota]
    is_touched = {member: (member.kind, member.name) in touched for member in members}
    members.sort(key=lambda each: (is_touched[each], not resolved.is_own(_of(resolved, each).document)))
    everything, total = sum(member.quota for member in members), 0
    if everything <= available:
        return
    params: dict[str, str | int] = {"sum": everything}
    params |= {"capacity": available, "where": where} if department is None else {"quota": available}
    params |= {} if department is None else {"department": department}
    code = "GPU3009" if department is None else "GPU3010"
    others = sum(member.quota for member in members if not is_touched[member])
    divided = _divided(resolved, checked, touched) if others > available else None
    is_marked = is_touched if any(is_touched.values()) else dict.fromkeys(members, True)
    path: Path = ("spec", "quota") if domain == WHOLE_CLUSTER else ("spec", "quota", domain)
    before: list[tuple[str, SourceSpan]] = []
    for member in members:
        total += member.quota
        document = _of(resolved, member).document
        span = document.span(path)
        if total > available and divided is None and is_marked[member]:
            divided = document, span
            break
        before.append((f"{member.kind} {member.name} has {thousandths(member.quota)}", span))
    if divided is not None:
        document, span = divided
        yield replace(document.diagnostic(code, span, params), related=tuple(before[-_SHOWN_MEMBERS:]))


def _divided(resolved: Resolved, checked: _Sum, touched: frozenset[Named]) -> tuple[Document, SourceSpan] | None:
    """The place of what the quotas divide, if a change has touched it: a department's quota, else the nodes of
    pools."""
    if checked.department is not None:
        department = resolved.departments[checked.department].document
        is_touched = ("Department", checked.department) in touched
        return (department, department.span(("spec", "quota"))) if is_touched else None
    cluster = resolved.cluster
    if cluster is None:
        return None
    (domain,) = (each for each in resolved.domains if each.name == checked.domain)
    for position, pool in enumerate(cluster.model.spec.node_pools):
        if pool.name in domain.pools and (NODE_POOL, pool.name) in touched:
            return cluster.document, cluster.document.span(("spec", "nodePools", position, "nodes"))
    if (NODE_POOL, "") in touched:
        return cluster.document, cluster.document.span(("spec", "nodePools"))
    return None
