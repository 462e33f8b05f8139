"""A small declared cluster, built by hand, and decisions about its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.diag.span import SourceSpan
from gpuctl.k8s import kinds
from gpuctl.model.decision import Admit, Decision, Pending, Placement, Reason, RunRecord, Schedule, WorkerPlacement
from gpuctl.model.declared import (
    WHOLE_CLUSTER,
    Allowance,
    Cluster,
    Declared,
    DeclaredNode,
    IngressSettings,
    NodePool,
    PlacementStrategy,
    Project,
    QuotaDomain,
    SchedulingPolicy,
    Security,
    Sharing,
)
from gpuctl.model.ids import JobId, NodeName, ObjectRef, PoolName, ProjectName, Revision, RunDigest
from gpuctl.model.job import Container, Job, JobType
from gpuctl.model.manifest import Manifests
from gpuctl.render import render

MIB = 1024**2
TEAM = ProjectName("team-a")
NOW = 1_596_000_000_000
RECORD = RunRecord(queued_at_ms=NOW)
COMMIT = Revision("c" * 40)


def pool(name: str = "dgx1", sharing: Sharing = Sharing.DRA, nodes: int = 2) -> NodePool:
    return NodePool(
        name=PoolName(name),
        match_labels={"gpuctl.dev/pool": name},
        nodes=tuple(
            DeclaredNode(name=NodeName(f"{name}-{i}"), gpus=8, cpu_milli=80_000, mem_bytes=512 * 1024 * MIB)
            for i in range(1, nodes + 1)
        ),
        gpu_mem_bytes=32_510 * MIB,
        gpu_product="Tesla-V100-SXM2-32GB",
        placement=PlacementStrategy.BINPACK,
        sharing=sharing,
        span=SourceSpan(file="cluster.yaml"),
    )


def job(name: str = "a-1-g", **fields: object) -> Job:
    whole: dict[str, Any] = {
        "id": JobId(TEAM, name),
        "digest": RunDigest("0badcafe"),
        "type": JobType.TRAINING,
        "container": Container(image="quickstart"),
        "gpu_milli": 1000,
        "pools": (PoolName("dgx1"),),
        "span": SourceSpan(file="projects/team-a/jobs/a-1-g.yaml", line=4),
    }
    return Job(**{**whole, **fields})


def declared(
    *jobs: Job, pools: tuple[NodePool, ...] = (), security: Security | None = None, **project: object
) -> Declared:
    pools = pools or (pool(),)
    fields: dict[str, Any] = {"allowances": {WHOLE_CLUSTER: Allowance(quota_milli=4000)}, **project}
    return Declared(
        cluster=Cluster(
            name="tr4858",
            namespace_prefix="gpu-",
            pools=pools,
            ingress=IngressSettings(host="10.61.218.134", class_name="nginx"),
            scheduling=SchedulingPolicy(),
            span=SourceSpan(file="cluster.yaml", line=2),
            security=security or Security(),
        ),
        domains=(QuotaDomain(name=WHOLE_CLUSTER, pools=tuple(p.name for p in pools)),),
        projects=(Project(name=TEAM, namespace="gpu-team-a", span=SourceSpan(file="project.yaml", line=1), **fields),),
        jobs=tuple(sorted(jobs, key=lambda j: j.id)),
        project_revisions={TEAM: COMMIT},
    )


def place(*workers: tuple[str, tuple[int, ...]]) -> Placement:
    return Placement(workers=tuple(WorkerPlacement(node=NodeName(node), gpus=gpus) for node, gpus in workers))


def admit(of: Job, *workers: tuple[str, tuple[int, ...]], record: RunRecord = RECORD) -> Admit:
    reason = Reason(code="GPU5000")
    return Admit(job=of.id, reason=reason, record=record._replace(starts=1), placement=place(*workers))


def pending(of: Job, reserved: Placement | None = None) -> Pending:
    return Pending(job=of.id, reason=Reason(code="GPU5003"), record=RECORD, reserved=reserved)


def rendered(cluster: Declared, *decisions: Decision) -> Manifests:
    return render(cluster, Schedule(at_ms=NOW, decisions=decisions))


def bodies(manifests: Manifests) -> dict[str, Mapping[str, Any]]:
    """By `Kind name`."""
    return {f"{m.ref.kind} {m.ref.name}": m.body for m in manifests.items}


def run_body(cluster: Declared, decision: Decision) -> Mapping[str, Any]:
    """The object of the only job's run."""
    workloads = (kinds.JOB, kinds.DEPLOYMENT, kinds.JOB_SET)
    found = [m.body for m in rendered(cluster, decision).items if (m.ref.api_version, m.ref.kind) in workloads]
    assert len(found) == 1
    return found[0]


def ref(kind: kinds.Kind, name: str) -> ObjectRef:
    return ObjectRef(*kind, "gpu-team-a", name)
