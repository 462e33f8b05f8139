"""Objects and clusters for the embedded cluster's own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s import kinds, names
from gpuctl.model.declared import DeclaredNode, NodePool, PlacementStrategy, Sharing
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName
from gpuctl.model.state import Body

EPOCH_MS = 1_596_000_000_000
NAMESPACE = "gpu-a"


def pool(*nodes: str, gpus: int = 8, sharing: Sharing = Sharing.DEVICE_PLUGIN) -> NodePool:
    return NodePool(
        name=PoolName("pool"),
        match_labels={"gpuctl.dev/pool": "pool"},
        nodes=tuple(DeclaredNode(name=NodeName(n), gpus=gpus, cpu_milli=80_000, mem_bytes=512 << 30) for n in nodes),
        gpu_mem_bytes=32_510 << 20,
        gpu_product="Tesla-V100-SXM2-32GB",
        placement=PlacementStrategy.BINPACK,
        sharing=sharing,
        span=SourceSpan(file="cluster.yaml"),
    )


def opened(clock: VirtualClock, path: Path | None = None, *nodes: str, **options: Any) -> EmbeddedCluster:
    """A cluster with a namespace and nodes n1 and n2, or others."""
    cluster = EmbeddedCluster(clock, None if path is None else str(path), **options)
    cluster.provide([pool(*(nodes or ("n1", "n2")))])
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return cluster


def job(name: str, *, suspend: bool = False, gpus: int = 1, node: str | None = None, **spec: Any) -> dict[str, Any]:
    labels = {names.PROJECT_LABEL: "a", names.JOB_LABEL: name}
    container = {"name": "main", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if node is not None:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        required = {"nodeSelectorTerms": [{"matchFields": fields}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    template = {"metadata": {"labels": labels}, "spec": pod}
    fixed = {"suspend": suspend, "backoffLimit": 0, "podReplacementPolicy": "Failed", "template": template, **spec}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": fixed,
    }  # fmt: skip


def job_id(name: str) -> JobId:
    return JobId(ProjectName("a"), name)


def advance(clock: VirtualClock, cluster: EmbeddedCluster, ms: int) -> None:
    clock.advance_to(clock.now_ms() + ms)
    cluster.settle()


def phases(cluster: EmbeddedCluster) -> dict[str, str]:
    """Pod phases by the job's name."""
    pods = cluster.list(kinds.POD).items
    return {p["metadata"]["labels"][names.JOB_LABEL]: p["status"]["phase"] for p in pods}


def true_conditions(cluster: EmbeddedCluster, name: str) -> set[str]:
    """The types of a Job's conditions that are True."""
    (found,) = (o for o in cluster.list(kinds.JOB).items if o["metadata"]["name"] == name)
    return {c["type"] for c in found["status"].get("conditions", ()) if c["status"] == "True"}


def everything(cluster: EmbeddedCluster) -> dict[tuple[str, str], tuple[Body, ...]]:
    return {kind: cluster.list(kind).items for kind in (*kinds.OBSERVED, kinds.CORE_EVENT)}
