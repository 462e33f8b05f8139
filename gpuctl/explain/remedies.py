"""What would start a waiting job: one thing changed at a time, and the engine asked again.

Changes that people make are tried: a quota or a limit raised by what is missing, a node brought back or added, a
running job ended. What the engine then decides is the answer; nothing is concluded from the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuctl.explain.progress import ACTIVE
from gpuctl.model.decision import Admit, FairShare, Pending, Preempt, Reclaim, Schedule
from gpuctl.model.declared import Allowance, Declared, Department, DomainName, Project, QuotaDomain
from gpuctl.model.explanation import Remedy, RemedyKind
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Node, Run
from gpuctl.model.units import GpuMilli
from gpuctl.schedule import schedule
from gpuctl.schedule.reasons import GUARDED

MAX_ENDS = 12
"""Running jobs whose end is tried."""
MAX_NODES = 4
"""Nodes out of use whose return is tried."""


def remedies_for(declared: Declared, state: ClusterState, decided: Schedule, job_id: JobId) -> tuple[Remedy, ...]:
    """The single changes that start the job at once: at most one of each kind, the smallest found.

    Cost: a schedule for each change tried, at most some twenty.
    """
    job = next((job for job in declared.jobs if job.id == job_id), None)
    if job is None or all(project.name != job_id.project for project in declared.projects):
        return ()
    found = (
        _by_limit(declared, state, decided, job),
        _by_claim(declared, state, decided, job),
        _by_end(declared, state, decided, job),
        _by_node(declared, state, decided, job),
    )
    return tuple(remedy for remedy in found if remedy is not None)


def _starts(declared: Declared, state: ClusterState, at: Schedule, job: Job) -> tuple[JobId, ...] | None:
    """Who is paused for the job if it starts, now or as soon as they have left; None when it does not."""
    decided = schedule(declared, state, at.at_ms)
    mine = next(decision for decision in decided.decisions if decision.job == job.id)
    if isinstance(mine, Admit):
        return ()
    if not isinstance(mine, Pending) or mine.reserved is None or mine.reason.code == GUARDED:
        return None
    pauses = (d for d in decided.decisions if isinstance(d, Reclaim | Preempt))
    return tuple(pause.job for pause in pauses if pause.beneficiary == job.id)


# A quota or a limit


def _by_limit(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """Raise one limit that is in the way, the project's or its department's, as far as it must be."""
    project = declared.project(job.id.project)
    above = (each for each in declared.departments if each.name == project.department)
    owners: tuple[Project | Department, ...] = (project, *above)
    for domain in declared.domains:
        if not any(pool in domain.pools for pool in job.pools):
            continue
        for owner in owners:
            claim = owner.allowances.get(domain.name)
            needed = _held_by(declared, decided, domain.name, owner) + job.total_gpu_milli
            if claim is None or claim.limit_milli is None or claim.limit_milli >= needed:
                continue
            higher = replace(owner, allowances={**owner.allowances, domain.name: replace(claim, limit_milli=needed)})
            paused = _starts(_with_owner(declared, higher), state, decided, job)
            if paused is not None:
                return Remedy(kind=RemedyKind.LIMIT, subject=owner.name, milli=needed, paused=paused)
    return None


def _held_by(declared: Declared, decided: Schedule, domain: DomainName, owner: Project | Department) -> GpuMilli:
    """What a project holds, or all of a department."""
    names = {owner.name}
    if isinstance(owner, Department):
        names = {project.name for project in declared.projects if project.department == owner.name}
    return sum(row.allocated_milli for row in decided.shares if row.domain == domain and row.project in names)


def _with_owner(declared: Declared, owner: Project | Department) -> Declared:
    if isinstance(owner, Project):
        projects = tuple(owner if each.name == owner.name else each for each in declared.projects)
        return replace(declared, projects=projects)
    departments = tuple(owner if each.name == owner.name else each for each in declared.departments)
    return replace(declared, departments=departments)


def _by_claim(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """Raise the project's quota, and every limit in the way, until the job is within them, as far as there are GPUs."""
    for domain in declared.domains:
        if not any(pool in domain.pools for pool in job.pools):
            continue
        held = next((row.allocated_milli for row in decided.shares if _is(row, domain.name, job)), 0)
        needed = held + job.total_gpu_milli
        raised = _raised(declared, domain.name, job, needed)
        if raised is None:
            continue
        changed, remedy = raised
        if _promised(changed, domain) > max(_there(declared, domain), _promised(declared, domain)):
            continue
        paused = _starts(changed, state, decided, job)
        if paused is not None:
            return replace(remedy, paused=paused)
    return None


def _promised(declared: Declared, domain: QuotaDomain) -> GpuMilli:
    """What all projects are guaranteed of a domain."""
    claims = (project.allowances.get(domain.name) for project in declared.projects)
    return sum(claim.quota_milli for claim in claims if claim is not None)


def _there(declared: Declared, domain: QuotaDomain) -> GpuMilli:
    """What is declared to be there: more can't be promised."""
    return sum(pool.gpu_milli for pool in declared.cluster.pools if pool.name in domain.pools)


def _is(row: FairShare, domain: DomainName, job: Job) -> bool:
    return row.domain == domain and row.project == job.id.project


def _raised(declared: Declared, domain: DomainName, job: Job, needed: GpuMilli) -> tuple[Declared, Remedy] | None:
    """The declarations with the project's claim as large as is needed; None when it is that large."""
    project = declared.project(job.id.project)
    mine = project.allowances.get(domain, Allowance(quota_milli=0))
    if mine.quota_milli >= needed:
        return None
    allowances = {**project.allowances, domain: _up_to(mine, needed)}
    projects = tuple(replace(p, allowances=allowances) if p.name == project.name else p for p in declared.projects)
    departments = tuple(_with_room(d, domain, needed - mine.quota_milli) for d in declared.departments)
    changed = replace(declared, projects=projects, departments=departments)
    return changed, Remedy(kind=RemedyKind.QUOTA, subject=project.name, milli=needed)


def _up_to(claim: Allowance, milli: GpuMilli) -> Allowance:
    limit = None if claim.limit_milli is None else max(claim.limit_milli, milli)
    return replace(claim, quota_milli=max(claim.quota_milli, milli), limit_milli=limit)


def _with_room(department: Department, domain: DomainName, more: GpuMilli) -> Department:
    claim = department.allowances.get(domain)
    if claim is None or more <= 0:
        return department
    allowances: Mapping[DomainName, Allowance] = {
        **department.allowances, domain: replace(claim, quota_milli=claim.quota_milli + more)
    }  # fmt: skip
    return replace(department, allowances=allowances)


# A job's end


def _by_end(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """End one running job: those that free enough by themselves first, the smallest of them before the others."""
    for run in sorted(_in_the_way(declared, state, job), key=lambda r: _nearness(r, job))[:MAX_ENDS]:
        rest = tuple(other for other in state.runs if other is not run)
        jobs = tuple(other for other in declared.jobs if other.id != run.job)
        paused = _starts(replace(declared, jobs=jobs), replace(state, runs=rest), decided, job)
        if paused == ():
            return Remedy(kind=RemedyKind.JOB_END, subject=str(run.job))
    return None


def _in_the_way(declared: Declared, state: ClusterState, job: Job) -> Iterator[Run]:
    pools = [declared.cluster.pool(name) for name in job.pools]
    nodes = {node.name for node in state.nodes if any(pool.selects(node.labels) for pool in pools)}
    for run in state.runs:
        workers = run.placement.workers if run.placement is not None else ()
        if run.phase in ACTIVE and any(worker.node in nodes for worker in workers):
            yield run


def _nearness(run: Run, job: Job) -> tuple[bool, GpuMilli, JobId]:
    workers = len(run.placement.workers) if run.placement is not None else 0
    milli = run.gpu_milli * workers
    return milli < job.total_gpu_milli, abs(milli - job.total_gpu_milli), run.job


# A node


def _by_node(declared: Declared, state: ClusterState, decided: Schedule, job: Job) -> Remedy | None:
    """Bring back one node that is out of use; else add one like those there are."""
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
