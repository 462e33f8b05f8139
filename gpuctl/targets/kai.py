"""The declarations as KAI's objects: a Queue for the cluster, each department and each project; jobs for its scheduler.

KAI's pod grouper creates the PodGroups itself, from the labels and annotations of a Job. Without `batch-min-member` it
would start a gang worker by worker. A part of a GPU is an annotation of the pod; KAI does not enforce it on processes.
Source: KAI's API types and pod grouper, v0.17 and d5bc503a.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic, sorted_diagnostics
from gpuctl.diag.wording import thousandths
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import text
from gpuctl.k8s.quantity import MEBIBYTE
from gpuctl.model.declared import Allowance, Cluster, Declared, Department, Project
from gpuctl.model.ids import DomainName
from gpuctl.model.job import Job, JobType
from gpuctl.model.manifest import Manifest, Manifests
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.targets.unsaid import Engine, unsaid
from gpuctl.targets.workloads import (
    Body,
    TargetObjects,
    TargetOwner,
    labelled,
    name_above,
    priorities,
    priority_class,
    suited,
    together,
)

QUEUE: kinds.Kind = ("scheduling.run.ai/v2", "Queue")

_QUEUE_LABEL = "kai.scheduler/queue"
_PRIORITY_LABEL = "priorityClassName"
_PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
_LEAST_ANNOTATION = "kai.scheduler/batch-min-member"
_FRACTION_ANNOTATION = "gpu-fraction"
_MEMORY_ANNOTATION = "gpu-memory"
_SCHEDULER = "kai-scheduler"
_UNBOUNDED: Body = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
"""-1 means no bound; a missing resource would mean none of it."""
_USUAL_PRIORITY = 100
"""The priority of a Queue that gives none."""


def for_kai(declared: Declared, waiting: Manifests) -> TargetObjects:
    """All objects for KAI, with those of jobs and projects. `declared`: its GPUs requested by count; `waiting`: the
    objects that gpuctl renders for it if no job is started. Cost: linear in jobs and projects."""
    cluster = declared.cluster
    items = suited(waiting, declared.jobs, cluster, _job)
    items += _queues(declared)
    for name, value in priorities(cluster.name, declared.jobs).items():
        fields: Body = {"value": value, "preemptionPolicy": "Never"}
        items.append(TargetOwner(cluster=cluster).manifest(kinds.PRIORITY_CLASS, name, fields))
    ordered = tuple(sorted(items, key=lambda item: item.ref))
    told = sorted_diagnostics(_told(declared))
    return TargetObjects(manifests=Manifests(items=ordered), unsaid=told)


def _told(declared: Declared) -> Iterator[Diagnostic]:
    if len(declared.domains) > 1:
        pools = ", ".join(domain.name for domain in declared.domains)
        yield unsaid("GPU6152", declared.cluster.span, Engine.KAI, name="the quotas of pools", given="their sum",
                     declared=f"one for each of {pools}")  # fmt: skip
    for job in declared.jobs:
        if job.max_duration_ms is not None:
            yield unsaid("GPU6150", job.span, Engine.KAI, setting="maxDuration", instead="it runs until it ends")


def _queues(declared: Declared) -> Iterator[Manifest]:
    """The Queues from the cluster's downwards. Only Queues without others below them have jobs."""
    cluster = declared.cluster
    whole = {"gpu": _UNBOUNDED, "cpu": _UNBOUNDED, "memory": _UNBOUNDED}
    top = {"spec": {"displayName": cluster.name, "resources": whole}}
    yield TargetOwner(cluster=cluster).manifest(QUEUE, name_above(cluster, None), top)
    for department in declared.departments:
        name, spec = name_above(cluster, department.name), _queue(cluster, department, department.parent)
        yield TargetOwner(cluster=cluster, of=department).manifest(QUEUE, name, {"spec": spec})
    for project in declared.projects:
        spec = {**_queue(cluster, project, project.department), "priority": _USUAL_PRIORITY + project.priority}
        yield TargetOwner(cluster=cluster, of=project).manifest(QUEUE, project.namespace, {"spec": spec})


def _queue(cluster: Cluster, one: Project | Department, above: str | None) -> dict[str, Any]:
    runs = cluster.scheduling.min_runtime
    return {
        "displayName": one.name,
        "parentQueue": name_above(cluster, above),
        "resources": {"gpu": _gpus(one.allowances), "cpu": _UNBOUNDED, "memory": _UNBOUNDED},
        "reclaimMinRuntime": f"{runs.fairness_ms}ms",
        "preemptMinRuntime": f"{runs.guarantee_ms}ms",
    }


def _gpus(allowances: Mapping[DomainName, Allowance]) -> Body:
    """The GPUs of all domains together: KAI divides all nodes of one scheduler as one."""
    whole = together(allowances)
    return {
        "quota": _number(whole.quota_milli),
        "limit": -1 if whole.limit_milli is None else _number(whole.limit_milli),
        "overQuotaWeight": _number(whole.weight),
    }


def _number(milli: GpuMilli) -> int | Decimal:
    return milli // WHOLE_GPU if milli % WHOLE_GPU == 0 else Decimal(thousandths(milli))


def _job(job: Job, body: Body) -> Body:
    """A run's object for KAI's scheduler. Its Queue is the project's, which has the name of the namespace."""
    spec = {**body["spec"], "template": _template(job, body["spec"]["template"])}
    labels = {
        _QUEUE_LABEL: body["metadata"]["namespace"],
        _PRIORITY_LABEL: priority_class(text(body, "metadata", "labels", names.CLUSTER_LABEL), job),
        _PREEMPTIBILITY_LABEL: "preemptible" if job.preemptible else "non-preemptible",
    }
    gang = job.workers > 1 and job.type is not JobType.INFERENCE
    return labelled({**body, "spec": spec}, labels, {_LEAST_ANNOTATION: str(job.min_workers)} if gang else None)


def _template(job: Job, template: Body) -> Body:
    """The pod template: with KAI's scheduler, and with a part of a GPU as KAI's annotation instead of a request."""
    spec = {**template["spec"], "schedulerName": _SCHEDULER}
    part = _part(job)
    if part:
        spec["containers"] = [_without_gpus(each) for each in spec["containers"]]
    meta = template["metadata"]
    notes = {**meta.get("annotations", {}), **part}
    return {"metadata": {**meta, "annotations": notes} if notes else meta, "spec": spec}


def _part(job: Job) -> dict[str, str]:
    if job.gpu_mem_bytes is not None:
        return {_MEMORY_ANNOTATION: str(-(-job.gpu_mem_bytes // MEBIBYTE))}
    if job.gpu_milli % WHOLE_GPU:
        return {_FRACTION_ANNOTATION: thousandths(job.gpu_milli)}
    return {}


def _without_gpus(container: Body) -> Body:
    amounts = {
        side: {name: amount for name, amount in given.items() if name != names.GPU_RESOURCE}
        for side, given in container["resources"].items()
    }
    return {**container, "resources": {side: given for side, given in amounts.items() if given}}
