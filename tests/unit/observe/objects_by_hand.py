"""Objects as an API server holds them, short to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.objects import ref_of
from gpuctl.model.decision import RunRecord
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import Body, ClusterState, Ledger, Node, RawObjects, Run, RunEntry
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe import observe

NAMESPACE = "gpu-team-a"
NOON = "2020-07-29T12:00:00Z"
NOON_MS = 1_596_024_000_000
JOB_ID = JobId(ProjectName("team-a"), "a-1")
DIGEST = RunDigest("0badcafe")
RUN_LABELS = {
    names.MANAGED_BY_LABEL: names.MANAGED_BY,
    names.PROJECT_LABEL: "team-a",
    names.JOB_LABEL: "a-1",
    names.RUN_LABEL: DIGEST,
}
PLACEMENT = '[{"node":"dgx1-1","gpus":[0,1]}]'
UID = "5f1c3a52-7c0e-4d6a-9d3f-0badcafe0001"
RUN_NAME = "a-1-0badcafe"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": RUN_NAME, "uid": UID, "controller": True}
TENANCY = Tenancy(cluster="tr4858", projects={NAMESPACE: JOB_ID.project})
CHARGE = '{"cpuMilli":0,"gpuMilli":2000,"memBytes":0}'


def seen(*bodies: Body) -> ClusterState:
    return observe(RawObjects(objects={ref_of(body): body for body in bodies}))


def decided_on(*bodies: Body) -> ClusterState:
    """What the controller sees: it believes its ledgers, and no labels."""
    return observe(RawObjects(objects={ref_of(body): body for body in bodies}), TENANCY)


def on_record(entry: RunEntry | None = None, *, uid: str = UID, **fields: Any) -> Body:
    """The ledger of the job's project, with its run's object and, unless there is none, an entry of the run."""
    known = {(JOB_ID, DIGEST): entry or RunEntry(uid=uid, record=RunRecord(queued_at_ms=NOON_MS), **fields)}
    refs = frozenset({
        ObjectRef(*kinds.NAMESPACE, "", NAMESPACE),
        ObjectRef(*kinds.JOB, NAMESPACE, RUN_NAME),
        ObjectRef(*kinds.DEPLOYMENT, NAMESPACE, RUN_NAME),
    })
    ledger = Ledger(project=JOB_ID.project, inventory=refs, runs=known, seen=frozenset(known))
    return encode_ledger(TENANCY.cluster, ledger).head


def only_run(*bodies: Body) -> Run:
    (run,) = seen(*bodies).runs
    return run


def only_node(*bodies: Body) -> Node:
    (node,) = seen(*bodies).nodes
    return node


def node(name: str = "dgx1-1", *, gpus: int = 8, healthy: int | None = None, **fields: Any) -> Body:
    allocatable = {"cpu": "80", "memory": "512Gi", names.GPU_RESOURCE: str(gpus if healthy is None else healthy)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"gpuctl.dev/pool": "dgx1"}, **fields.pop("metadata", {})},
        "spec": fields,
        "status": {
            "allocatable": allocatable,
            "capacity": {**allocatable, names.GPU_RESOURCE: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def job(*conditions: Mapping[str, str], suspend: bool = False, parallelism: int = 1, **fields: Any) -> Body:
    notes = {
        names.QUEUED_AT_ANNOTATION: NOON,
        names.STARTS_ANNOTATION: "1",
        names.PLACEMENT_ANNOTATION: PLACEMENT,
        names.CHARGE_ANNOTATION: CHARGE,
        **fields.pop("annotations", {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": RUN_NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "labels": RUN_LABELS,
            "annotations": {key: note for key, note in notes.items() if note is not None},
            "creationTimestamp": NOON,
            **fields.pop("metadata", {}),
        },
        "spec": {"suspend": suspend, "parallelism": parallelism},
        "status": {"conditions": list(conditions), **fields},
    }


def deployment(replicas: int) -> Body:
    body = job()
    return {**body, "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas}, "status": {}}


def pod(name: str = "a-1-x", *, on: str | None = "dgx1-1", phase: str = "Running", **fields: Any) -> Body:
    labels = fields.pop("labels", RUN_LABELS)
    owners = fields.pop("owners", [OWNER])
    spec = {"containers": [{"name": "main", "resources": fields.pop("resources", {})}], **fields.pop("spec", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": owners, **fields},
        "spec": {**spec, "nodeName": on} if on else spec,
        "status": {"phase": phase, "startTime": NOON},
    }


def condition(kind: str, reason: str = "") -> Mapping[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": NOON}


def resource_slice(name: str = "dgx1-1", *, minors: tuple[int, ...] = tuple(range(8)), **pool: Any) -> Body:
    devices = [{"name": f"hami-gpu-{minor}", "attributes": {"minor": {"int": minor}}} for minor in minors]
    whole_pool = {"name": name, "generation": 1, "resourceSliceCount": 1, **pool}
    return {
        "apiVersion": kinds.RESOURCE_SLICE[0],
        "kind": kinds.RESOURCE_SLICE[1],
        "metadata": {"name": f"{name}-{whole_pool['generation']}-{minors[0]}"},
        "spec": {"driver": names.DRA_DRIVER, "nodeName": name, "pool": whole_pool, "devices": devices},
    }


def claim(name: str, device: str, *, pod_name: str = "", cores: str = "100", pool: str = "dgx1-1") -> Body:
    result = {"driver": names.DRA_DRIVER, "pool": pool, "device": device, "consumedCapacity": {"cores": cores}}
    users = [{"resource": "pods", "name": pod_name}] if pod_name else []
    return {
        "apiVersion": kinds.RESOURCE_CLAIM[0],
        "kind": kinds.RESOURCE_CLAIM[1],
        "metadata": {"name": name, "namespace": NAMESPACE},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": users},
    }
