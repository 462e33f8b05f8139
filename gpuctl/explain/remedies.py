"""Find single changes that would start a waiting job, each by a what-if schedule.

The changes are those that people make: raise a quota or a limit, end a running job, repair or add a node. The answer is
what the engine then decides; nothing is concluded from the job's reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from gpuctl.engine import EngineCache
from gpuctl.engine.reasons import GUARDED
from gpuctl.explain.progress import come_to_rest
from gpuctl.model.decision import Admit, Pending, Preempt, Reclaim, Schedule
from gpuctl.model.declared import Allowance, Declared, Department, Project, QuotaDomain
from gpuctl.model.explanation import Raise, Remedy, RemedyKind
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Node, Run, RunPhase
from gpuctl.model.units import GpuMilli

Owner: TypeAlias = Project | Department
"""The owner of a quota and a limit."""

MAX_ENDS = 12
"""The most running jobs whose end is tried."""
MAX_NODES = 4
"""The most unusable nodes whose return is tried."""
_NOTHING = Allowance(quota_milli=0)


def remedies_for(declared: Declared, state: ClusterState, decided: Schedule, job_id: JobId) -> tuple[Remedy, ...]:
    """Find the single changes that start the job at once: at most one of each kind, the smallest found.

    Cost: a schedule for each change tried, at most some twenty, and a few more for those that help.
    """
    job = next((job for job in declared.jobs if job.id == job_id), None)
    if job is None or all(project.name != job_id.project for project in declared.projects):
        return ()
    by_limit, by_quota = _by_limit(declared, state, decided, job), _by_quota(declared, state, decided, job)
    if by_limit is not None and by_quota is not None and by_quota.also:
        by_quota = None  # raising the limit alone is enough
    found = by_limit, by_quota, _by_end(declared, state, decided, job), _by_node(declared, state, decided, job)
    return tuple(remedy for remedy in found if remedy is not None)


def _starts(declared: Declared, state: ClusterState, at: Schedule, job: Job) -> tuple[JobId, ...] | None:
    """The jobs that are paused so that the job starts, now or once they are gone; None if it does not start."""
    paused: list[JobId] = []
    for decided, _ in come_to_rest(declared, state, at.at_ms, EngineCache()):
        mine = next(decision for decision in decided.decisions if decision.job == job.id)
        paused += [d.job for d in decided.decisions if isinstance(d, Reclaim | Preempt) and d.beneficiary == job.id]
        if isinstance(mine, Admit):
            return tuple(sorted(set(paused)))
        if not isinstance(mine, Pending) or mine.reserved is None or mine.reason.code == GUARDED:
            return None
    return None


def _least(job: Job) -> GpuMilli:
    """The GPUs of the fewest workers that the job starts with."""
    return job.gpu_milli * job.min_workers


def _domains(declared: Declared, job: Job) -> Iterator[QuotaDomain]:
    """The quota domains in which the job may hold GPUs."""
    return (domain for domain in declared.domains if any(pool in domain.pools for pool in job.pools))


# A quota or a limit


def _chain(declared: Declared, job: Job) -> list[Owner]:
    """The owners whose quotas and limits apply to the job: its project and all departments above."""
    project = declared.project(job.id.project)
    above = {department.name: department for department in declared.departments}
    chain: list[Owner] = [project]
    department = above.pop(project.department or "", None)
    while department is not None:
        chain.append(department)
        department = above.pop(department.parent or "", None)
    return chain


def _members(declared: Declared, owner: Owner) -> set[ProjectName]:
    """The project itself, or all projects below a department."""
    if isinstance(owner, Project):
        return {owner.name}
    below = (each for each in declared.departments if each.parent == owner.name and each.name != owner.name)
    own = {project.name for project in declared.projects if project.department == owner.name}
    return own.union(*(_members(declared, department) for department in below))


def _held_by(declared: Declared, decided: Schedule, domain: DomainName, owner: Owner) -> GpuMilli:
    """The GPUs that a project holds, or all projects of a department."""
    names = _members(declared, owner)
    return sum(row.allocated_milli for row in decided.shares if row.domain == domain and row.project in names)


def _short_limits(
    declared: Declared, decided: Schedule, domain: DomainName, job: Job
) -> Iterator[tuple[Owner, GpuMilli]]:
    """The owners whose limit the job would exceed now, and the limit that it needs."""
    for owner in _chain(declared, job):
        allowance = owner.allowances.get(domain)
        needed = _held_by(declared, decided, domain, owner) + _least(job)
        if allowance is not None and allowance.limit_milli is not None and allowance.limit_milli < needed:
            yield owner, needed


def _by_limit(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """Raise one limit, the project's or a department's, as far as needed."""
    for domain in _domains(declared, job):
        for owner, needed in _short_limits(declared, decided, domain.name, job):
            allowance = replace(owner.allowances[domain.name], limit_milli=needed)
            higher = _with_allowance(declared, owner, domain.name, allowance)
            paused = _starts(higher, state, decided, job)
            if paused is not None:
                return Remedy(
                    kind=RemedyKind.LIMIT, subject=owner.name, milli=needed, domain=domain.name, paused=paused
                )
    return None


def _with_allowance(declared: Declared, owner: Owner, domain: DomainName, allowance: Allowance) -> Declared:
    """The declarations with another quota and limit of an owner in a domain."""
    other = replace(owner, allowances={**owner.allowances, domain: allowance})
    if isinstance(other, Project):
        projects = tuple(other if each.name == other.name else each for each in declared.projects)
        return replace(declared, projects=projects)
    departments = tuple(other if each.name == other.name else each for each in declared.departments)
    return replace(declared, departments=departments)


def _by_quota(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """Raise the project's quota until the job is within it, and whatever else that needs to be valid."""
    for domain in _domains(declared, job):
        project = declared.project(job.id.project)
        held = _held_by(declared, decided, domain.name, project)
        needed = held + _least(job)
        if project.allowances.get(domain.name, _NOTHING).quota_milli >= needed:
            continue
        changed, raised = _raised(declared, decided, domain.name, job, needed)
        if _guaranteed(changed, domain) > max(_capacity(declared, domain), _guaranteed(declared, domain)):
            continue
        paused = _starts(changed, state, decided, job)
        if paused is not None:
            return Remedy(
                kind=RemedyKind.QUOTA,
                subject=project.name,
                milli=needed,
                domain=domain.name,
                paused=paused,
                also=raised,
            )
    return None


def _guaranteed(declared: Declared, domain: QuotaDomain) -> GpuMilli:
    """The sum of all projects' quotas in a domain."""
    allowances = (project.allowances.get(domain.name) for project in declared.projects)
    return sum(allowance.quota_milli for allowance in allowances if allowance is not None)


def _capacity(declared: Declared, domain: QuotaDomain) -> GpuMilli:
    """The declared GPUs of a domain: quotas can't add up to more."""
    return sum(pool.gpu_milli for pool in declared.cluster.pools if pool.name in domain.pools)


def _raised(
    declared: Declared, decided: Schedule, domain: DomainName, job: Job, needed: GpuMilli
) -> tuple[Declared, tuple[Raise, ...]]:
    """The declarations with the project's quota as large as needed, and what else was raised to keep them valid: limits
    below a quota or below what is then held, and department quotas below the sum of the quotas below them."""
    changed, raised = declared, list[Raise]()
    for owner in _chain(declared, job):
        allowance = owner.allowances.get(domain, _NOTHING)
        quota = needed if isinstance(owner, Project) else max(allowance.quota_milli, _divided(changed, domain, owner))
        held = _held_by(declared, decided, domain, owner) + _least(job)
        limit = None if allowance.limit_milli is None else max(allowance.limit_milli, quota, held)
        if quota > allowance.quota_milli and isinstance(owner, Department) and owner.has_own_quota:
            raised.append(Raise(kind=RemedyKind.QUOTA, subject=owner.name, milli=quota))
        if limit is not None and limit != allowance.limit_milli:
            raised.append(Raise(kind=RemedyKind.LIMIT, subject=owner.name, milli=limit))
        changed = _with_allowance(changed, owner, domain, allowance.with_quota(quota, limit))
    return changed, tuple(raised)


def _divided(declared: Declared, domain: DomainName, owner: Department) -> GpuMilli:
    """The sum of the quotas directly below a department."""
    below: list[Owner] = [project for project in declared.projects if project.department == owner.name]
    below += [department for department in declared.departments if department.parent == owner.name]
    return sum(each.allowances.get(domain, _NOTHING).quota_milli for each in below)


# A job's end


def _by_end(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """End one running job: jobs that free enough GPUs are tried first, the smallest of them first."""
    for run in sorted(_in_the_way(declared, state, decided, job), key=lambda r: _nearness(r, job))[:MAX_ENDS]:
        ended = replace(run, phase=RunPhase.SUCCEEDED, placement=None, leaving=None)
        runs = tuple(ended if other is run else other for other in state.runs)
        if _starts(declared, replace(state, runs=runs), decided, job) == ():
            return Remedy(kind=RemedyKind.JOB_END, subject=str(run.job))
    return None


def _in_the_way(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Iterator[Run]:
    """Runs under a limit that the job would exceed; if there is none, runs on nodes that it may use."""
    limited = {
        project for domain in _domains(declared, job) for project in _limited(declared, decided, domain.name, job)
    }
    pools = [declared.cluster.pool(name) for name in job.pools]
    nodes = {node.name for node in state.nodes if any(pool.selects(node.labels) for pool in pools)}
    for run in state.runs:
        workers = run.placement.workers if run.placement is not None else ()
        near = run.job.project in limited if limited else any(worker.node in nodes for worker in workers)
        if near and run.phase in ACTIVE:
            yield run


def _limited(declared: Declared, decided: Schedule, domain: DomainName, job: Job) -> set[ProjectName]:
    """The projects whose runs count against a limit that the job would exceed."""
    owners = [owner for owner, _ in _short_limits(declared, decided, domain, job)]
    return set().union(*(_members(declared, owner) for owner in owners))


def _nearness(run: Run, job: Job) -> tuple[bool, GpuMilli, JobId]:
    workers = len(run.placement.workers) if run.placement is not None else 0
    milli = run.gpu_milli * workers
    return milli < _least(job), abs(milli - _least(job)), run.job


# A node


def _by_node(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """Bring back one unusable node; else add a node like the largest one."""
    pools = [declared.cluster.pool(name) for name in job.pools]
    mine = [node for node in state.nodes if any(pool.selects(node.labels) for pool in pools)]
    for node in [node for node in mine if not (node.ready and node.usable)][:MAX_NODES]:
        back = _with_node(state, replace(node, ready=True, usable=True))
        if _starts(declared, back, decided, job) == ():
            return Remedy(kind=RemedyKind.NODE, subject=node.name)
    for like in sorted(mine, key=lambda node: (-node.gpus, node.name))[:1]:
        empty = replace(
            like, name=NodeName(f"{like.name}+"), ready=True, usable=True, lost_gpus=frozenset(),
            foreign_cpu_milli=0, foreign_mem_bytes=0, foreign_gpu_milli=(), uuids=tuple(f"+{u}" for u in like.uuids),
        )  # fmt: skip
        if _starts(declared, _with_node(state, empty), decided, job) == ():
            return Remedy(kind=RemedyKind.ANOTHER_NODE, subject=like.name)
    return None


def _with_node(state: ClusterState, node: Node) -> ClusterState:
    others = (other for other in state.nodes if other.name != node.name)
    return replace(state, nodes=tuple(sorted((*others, node), key=lambda n: n.name)))
