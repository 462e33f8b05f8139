"""Lowers declarations without mistakes to the values of `model`: all defaults filled in, every amount an integer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain

from gpuctl.compile import pool_v1, quota, scaling_v1, spec_v1
from gpuctl.compile.choices_v1 import Freeze, MinRuntime, Security
from gpuctl.compile.digest import run_digest
from gpuctl.compile.lower_kinds import workload_kind
from gpuctl.compile.lower_pod import container_of
from gpuctl.compile.resolve import Resolved, ResolvedJob
from gpuctl.compile.sweeps import index_name, indices_of
from gpuctl.compile.worker import worker_of
from gpuctl.diag.span import SourceSpan
from gpuctl.model import declared as model
from gpuctl.model import job as job_model
from gpuctl.model.freeze import Forbidden, FreezeWindow
from gpuctl.model.ids import DomainName, JobId, NodeName, PoolName, ProjectName, Revision, RunDigest
from gpuctl.model.memo import Memo
from gpuctl.model.mig import profiles_of
from gpuctl.model.taints import Toleration
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli

POOL_LABEL = "gpuctl.dev/pool"
_NO_DIGEST = RunDigest("")


def lower(resolved: Resolved, lowered: Memo[ResolvedJob, tuple[job_model.Job, ...]]) -> model.Declared:
    """Everything declared, for a tree without errors."""
    lowered.turn()
    domains = resolved.domains
    jobs = chain.from_iterable(lowered.get(job, (), partial(_jobs, job)) for job in resolved.jobs)
    return model.Declared(
        cluster=_cluster(resolved),
        domains=domains,
        departments=tuple(_department(resolved, name, domains) for name in sorted(resolved.departments)),
        projects=tuple(_project(resolved, name, domains) for name in sorted(resolved.projects)),
        jobs=tuple(sorted(jobs, key=lambda job: job.id)),
        project_revisions=_revisions(resolved),
    )


def _revisions(resolved: Resolved) -> dict[ProjectName, Revision]:
    return {
        ProjectName(name): project.document.source.revision
        for name, project in sorted(resolved.projects.items())
        if project.document.source.revision
    }


def _cluster(resolved: Resolved) -> model.Cluster:
    declaration = resolved.cluster
    assert declaration is not None  # noqa: S101 - a tree without a Cluster has an error
    spec = declaration.model.spec
    choices = spec.scheduling
    return model.Cluster(
        name=declaration.model.metadata.name,
        namespace_prefix=spec.namespace_prefix,
        pools=tuple(
            node_pool(pool, declaration.document.span(("spec", "nodePools", position, "name")))
            for position, pool in enumerate(spec.node_pools)
        ),
        ingress=None if spec.ingress is None else _ingress(spec.ingress),
        scheduling=model.SchedulingPolicy(
            min_runtime=_min_runtime(choices.min_runtime),
            starvation_guard_ms=choices.starvation_guard,
            start_timeout_ms=choices.start_timeout,
            pause_grace_ms=choices.pause_grace,
            consolidation=choices.consolidation,
            quota_shrink=model.QuotaShrink(choices.quota_shrink),
            fairness_half_life_ms=choices.fairness.half_life,
            overcommit_quota=choices.overcommit_quota,
            stop_guard_percent=choices.stop_guard,
            delete_guard_jobs=choices.delete_guard,
        ),
        security=_security(spec.security),
        freeze=tuple(map(_freeze, spec.freeze)),
        git_sync="" if spec.git_sync is None else spec.git_sync.image,
        workload_kinds=tuple(map(workload_kind, spec.workload_kinds)),
        span=declaration.document.name,
    )


def _min_runtime(spec: int | MinRuntime) -> model.MinRuntime:
    """The minimal runtime: one duration for all, or one for each reason to stop a run."""
    if isinstance(spec, int):
        return model.MinRuntime.of_all(spec)
    return model.MinRuntime(spec.guarantee, spec.fairness, spec.moves)


def _freeze(spec: Freeze) -> FreezeWindow:
    forbids = tuple(Forbidden) if spec.forbids == "all" else map(Forbidden, spec.forbids)
    return FreezeWindow(
        cron=spec.cron,
        duration_ms=spec.duration,
        time_zone=spec.time_zone,
        forbids=frozenset(forbids),
        reason=spec.reason,
    )


def _security(spec: Security) -> model.Security:
    return model.Security(
        pod_security=model.PodSecurity(spec.pod_security),
        exceptions={ProjectName(name): model.PodSecurity(level) for name, level in sorted(spec.exceptions.items())},
        host_paths=tuple(spec.host_paths),
        nfs=tuple(f"{export.server}:{export.path}" for export in spec.nfs),
        csi_drivers=tuple(sorted(spec.csi_drivers)),
        priority_classes=tuple(sorted(spec.priority_classes)),
        reachable_from=None if spec.reachable_from is None else tuple(sorted(spec.reachable_from)),
    )


def _ingress(spec: spec_v1.Ingress) -> model.IngressSettings:
    return model.IngressSettings(host=spec.host, host_per_project=spec.host_per_project, class_name=spec.class_name)


def node_pool(spec: pool_v1.NodePool, span: SourceSpan) -> model.NodePool:
    """A pool as it is declared. Its profiles: those of a GPU with its memory that at least one of its nodes is cut
    into."""
    nodes = tuple(declared_nodes(spec))
    cut = {*spec.mig, *(profile for node in nodes for profile in node.mig)}
    return model.NodePool(
        name=PoolName(spec.name),
        match_labels=spec.selector.match_labels if spec.selector else {POOL_LABEL: spec.name},
        nodes=nodes,
        gpu_mem_bytes=spec.gpu_memory or 0,
        gpu_product=spec.gpu_product,
        placement=model.PlacementStrategy(spec.placement),
        sharing=model.Sharing(spec.sharing),
        span=span,
        driver=model.Driver(spec.driver or model.Driver.HAMI),
        profiles=tuple(profile for profile in profiles_of(spec.gpu_memory or 0) if profile.name in cut),
        gpu_slots=spec.gpu_slots or model.DEFAULT_GPU_SLOTS,
        topology=tuple(spec.topology),
        tolerations=tuple(
            Toleration(key=each.key, value=each.taint_value, effect=each.effect) for each in spec.tolerations
        ),
    )


def declared_nodes(pool: pool_v1.NodePool) -> list[model.DeclaredNode]:
    """A pool's inventory; the pool's amounts apply to nodes that give none."""
    usual = pool.resources_per_node
    nodes = []
    for entry in pool.nodes:
        node = pool_v1.DeclaredNode(name=entry) if isinstance(entry, str) else entry
        cpu, memory = node.resources.cpu, node.resources.memory
        nodes.append(
            model.DeclaredNode(
                name=NodeName(node.name),
                gpus=pool.gpus_per_node if node.gpus is None else node.gpus,
                cpu_milli=usual.cpu if cpu is None else cpu,
                mem_bytes=usual.memory if memory is None else memory,
                mig=pool.mig if node.mig is None else node.mig,
                labels=node.labels,
            )
        )
    return nodes


def _allowances(
    spec: spec_v1.DepartmentSpec | spec_v1.ProjectSpec,
    quotas: dict[DomainName, GpuMilli],
) -> dict[DomainName, model.Allowance]:
    weight = spec.over_quota_weight
    return {
        domain: model.Allowance(
            quota_milli=amount,
            limit_milli=quota.limit_in(spec.limit, domain),
            weight=amount if weight is None else weight,
            own_weight=weight is not None,
        )
        for domain, amount in quotas.items()
    }


def _department(resolved: Resolved, name: str, domains: tuple[model.QuotaDomain, ...]) -> model.Department:
    declaration = resolved.departments[name]
    quotas = {domain.name: quota.department_quota(resolved, name, domain.name) for domain in domains}
    spec = declaration.model.spec
    return model.Department(
        name=name,
        allowances=_allowances(spec, quotas),
        parent=spec.department,
        has_own_quota=spec.quota is not None,
        span=declaration.document.name,
    )


def _project(resolved: Resolved, name: str, domains: tuple[model.QuotaDomain, ...]) -> model.Project:
    """A project. It has allowances only for the domains it can reach; in others it has no claim."""
    declaration, cluster = resolved.projects[name], resolved.cluster
    assert cluster is not None  # noqa: S101 - a tree without a Cluster has an error
    spec = declaration.model.spec
    reach = set(quota.reachable(resolved, spec))
    quotas = {domain.name: quota.in_domain(spec.quota, domain.name) for domain in domains if reach & set(domain.pools)}
    return model.Project(
        name=ProjectName(name),
        namespace=cluster.model.spec.namespace_prefix + name,
        allowances=_allowances(spec, quotas),
        department=spec.department,
        priority=spec.priority,
        owners=tuple(spec.owners),
        adopt=spec.adopt,
        access=tuple(
            model.RoleGrant(
                subject_kind="User" if grant.user is not None else "Group",
                subject=grant.user or grant.group or "",
                role=grant.role,
            )
            for grant in spec.access
        ),
        span=declaration.document.name,
    )


def _jobs(resolved: ResolvedJob) -> tuple[job_model.Job, ...]:
    """The job, or all jobs of a sweep. Cost: linear in the indices, and in the variables of each."""
    job, sweep = _job(resolved), resolved.spec.sweep
    if sweep is None:
        return (replace(job, digest=run_digest(job)),)
    made: list[job_model.Job] = []
    for position, index in enumerate(indices_of(job.id.name, sweep)):
        env = dict(sorted({**job.container.env, **index.values}.items()))
        one = replace(
            job,
            id=JobId(job.id.project, index_name(job.id.name, index.key)),
            container=replace(job.container, env=env),
            sweep=index,
            position=position,
            parallelism=sweep.parallelism,
        )
        made.append(replace(one, digest=run_digest(one)))
    return tuple(made)


def _job(resolved: ResolvedJob) -> job_model.Job:
    declaration, limits = resolved.declaration, resolved.project.model.spec
    metadata, spec = declaration.model.metadata, resolved.spec
    kind, worker = job_model.JobType(spec.type), worker_of(spec)
    interactive = kind is job_model.JobType.INTERACTIVE
    return job_model.Job(
        id=JobId(ProjectName(metadata.project), metadata.name),
        digest=_NO_DIGEST,
        type=kind,
        container=container_of(spec, resolved.kinds.rows),
        gpu_milli=worker.gpu_milli if spec.gpu_memory is None else _largest_charge(spec.gpu_memory, resolved),
        gpu_mem_bytes=spec.gpu_memory,
        workers=spec.workers,
        min_workers=spec.workers if spec.min_workers is None else max(1, spec.min_workers),
        cpu_milli=worker.cpu_milli,
        mem_bytes=worker.mem_bytes,
        priority=spec.priority,
        preemptible=is_preemptible(spec),
        max_duration_ms=_tightest(spec.max_duration, project_max_duration(spec, limits)),
        idle_timeout_ms=limits.interactive.idle_timeout if interactive else None,
        pause_grace_ms=_pause_grace(spec, resolved),
        ttl_ms=spec.ttl_after_finished,
        checkpoint_ms=spec.checkpoint_every,
        pools=tuple(PoolName(pool.name) for pool in resolved.pools),
        pools_in_order=resolved.in_order,
        suspend=spec.suspend,
        run_index=spec.run_index,
        after=tuple(_dependency(metadata.project, entry) for entry in spec.after),
        scaling=None if spec.scaling is None else _scaling(spec.scaling, spec),
        span=declaration.document.name,
    )


def _scaling(spec: scaling_v1.Scaling, job: spec_v1.JobSpec) -> job_model.Scaling:
    return job_model.Scaling(
        metric=spec.metric,
        source=job_model.MetricSource(spec.of),
        target_milli=spec.target,
        labels=dict(sorted(spec.labels.items())),
        most=job.workers,
        to_zero=job.min_workers == 0,
    )


def _dependency(project: str, entry: str | spec_v1.Dependency) -> job_model.Dependency:
    if isinstance(entry, str):
        return job_model.Dependency(job=JobId(ProjectName(project), entry))
    return job_model.Dependency(job=JobId(ProjectName(project), entry.job), needs_success=entry.result == "success")


def _pause_grace(spec: spec_v1.JobSpec, resolved: ResolvedJob) -> DurationMs:
    """The job's own grace, else its project's, else Kubernetes' default."""
    return spec.pause_grace or resolved.project.model.spec.pause_grace or job_model.USUAL_GRACE_MS


def is_preemptible(spec: spec_v1.JobSpec) -> bool:
    """The job's `preemptible`; by default, training jobs are preemptible."""
    return spec.type == "training" if spec.preemptible is None else spec.preemptible


def project_max_duration(spec: spec_v1.JobSpec, project: spec_v1.ProjectSpec) -> DurationMs | None:
    """The project's limit for jobs of this type; inference has none."""
    if spec.type == "inference":
        return None
    return project.interactive.max_duration if spec.type == "interactive" else project.training.max_duration


def _tightest(*limits: DurationMs | None) -> DurationMs | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _largest_charge(mem_bytes: int, resolved: ResolvedJob) -> GpuMilli:
    """The share of a GPU that a request for GPU memory costs on the smallest device it may get."""
    return max(-(-mem_bytes * WHOLE_GPU // pool.gpu_memory) for pool in resolved.pools if pool.gpu_memory)
