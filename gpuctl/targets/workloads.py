"""Objects that are the same for every other engine: those that gpuctl renders, without its decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s import kinds, names
from gpuctl.k8s.workloads import is_of_manifest
from gpuctl.model.declared import Allowance, Cluster, Declared, Department, NodePool, Project, Sharing
from gpuctl.model.ids import DomainName, ObjectRef
from gpuctl.model.job import Job, JobType
from gpuctl.model.manifest import Manifest, Manifests

Body = Mapping[str, Any]

_LONGEST_CLUSTER = 30
_MOST_PRIORITY = 400_000_000
"""The largest priority of a job, in both directions: training is put below, other types above, within the values that
Kubernetes allows for a class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetObjects:
    """Objects for another engine, sorted by reference, and warnings about what they lack."""

    manifests: Manifests
    unsaid: tuple[Diagnostic, ...]


def by_count(declared: Declared) -> Declared:
    """The same declarations with all GPUs requested by number, as pods of other engines do, without GPUs that are
    cut."""
    pools = tuple(_counted(pool) for pool in declared.cluster.pools)
    return replace(declared, cluster=replace(declared.cluster, pools=pools))


def _counted(pool: NodePool) -> NodePool:
    nodes = tuple(replace(node, gpus=node.whole_gpus, mig={}) for node in pool.nodes)
    return replace(pool, sharing=Sharing.DEVICE_PLUGIN, profiles=(), nodes=nodes)


def suited(
    waiting: Manifests, jobs: Iterable[Job], cluster: Cluster, fit: Callable[[Job, Body], Body]
) -> list[Manifest]:
    """The objects that gpuctl renders for waiting jobs, each run's own object changed by `fit`. Left out are gpuctl's
    own namespace and objects of other controllers.

    A run's object has neither gpuctl's records nor its pause: the other engine decides whether it runs. Its pods are
    bound to the pools that the job may use.
    """
    by_place = {(job.id.project, job.id.name): job for job in jobs}
    found = []
    for manifest in waiting.items:
        kind = (manifest.ref.api_version, manifest.ref.kind)
        if manifest.ref == ObjectRef(*kinds.NAMESPACE, "", names.SYSTEM_NAMESPACE):
            continue
        if is_of_manifest(manifest.ref):
            continue
        if kind == kinds.RESOURCE_QUOTA:
            found.append(replace(manifest, body=_without_gpus(manifest.body)))
        elif kind in (kinds.JOB, kinds.DEPLOYMENT):
            labels = manifest.body["metadata"]["labels"]
            job = by_place[labels[names.PROJECT_LABEL], labels[names.JOB_LABEL]]
            found.append(replace(manifest, body=fit(job, _undecided(job, manifest.body, cluster))))
        else:
            found.append(manifest)
    return found


def _without_gpus(body: Body) -> Body:
    """A namespace's quota without the ceilings on GPUs: pods that wait for the other engine would count in them."""
    hard = {name: most for name, most in body["spec"]["hard"].items() if not name.startswith("requests.")}
    return {**body, "spec": {**body["spec"], "hard": hard}}


def _undecided(job: Job, body: Body, cluster: Cluster) -> Body:
    meta = body["metadata"]
    notes = {name: value for name, value in meta["annotations"].items() if name in names.PROVENANCE_ANNOTATIONS}
    spec = {**body["spec"], "template": _bound(job, body["spec"]["template"], cluster)}
    if "suspend" in spec and not job.suspend:
        del spec["suspend"]
    if "replicas" in spec and not job.suspend:
        spec["replicas"] = job.workers
    return {**body, "metadata": {**meta, "annotations": notes}, "spec": spec}


def _bound(job: Job, template: Body, cluster: Cluster) -> Body:
    """The template, bound to the job's pools; unchanged if the job may use all pools."""
    if len(job.pools) == len(cluster.pools):
        return template
    terms = [
        {"matchExpressions": [
            {"key": key, "operator": "In", "values": [value]}
            for key, value in sorted(cluster.pool(name).match_labels.items())
        ]}
        for name in job.pools
    ]  # fmt: skip
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**template, "spec": {**template["spec"], "affinity": {"nodeAffinity": required}}}


def labelled(body: Body, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> Body:
    """An object with further labels and annotations."""
    meta = body["metadata"]
    notes = {**meta.get("annotations", {}), **(annotations or {})}
    return {**body, "metadata": {**meta, "labels": {**meta["labels"], **labels}, "annotations": notes}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOwner:
    """The part of the declarations that an object of the other engine stands for, or the cluster as a whole."""

    cluster: Cluster
    of: Project | Department | NodePool | None = None

    def manifest(self, kind: kinds.Kind, name: str, fields: Body, namespace: str = "") -> Manifest:
        """An object; `fields`: those beside its metadata."""
        api_version, kind_name = kind
        project = self.of.name if isinstance(self.of, Project) else None
        meta = {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "labels": {
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
                names.CLUSTER_LABEL: self.cluster.name,
                **({names.PROJECT_LABEL: project} if project else {}),
            },
        }
        return Manifest(
            ref=ObjectRef(api_version, kind_name, namespace, name),
            body={"apiVersion": api_version, "kind": kind_name, "metadata": meta, **fields},
            project=project,
            span=(self.of or self.cluster).span,
        )


def together(allowances: Mapping[DomainName, Allowance]) -> Allowance:
    """The sum of the allowances of all domains. If a domain has no limit, the sum has none."""
    each = allowances.values()
    limits = [one.limit_milli for one in each if one.limit_milli is not None]
    return Allowance(
        quota_milli=sum(one.quota_milli for one in each),
        limit_milli=sum(limits) if limits and len(limits) == len(allowances) else None,
        weight=sum(one.weight for one in each),
    )


def name_above(cluster: Cluster, department: str | None) -> str:
    """The name of the cluster's own queue, or of a department's. A project's queue has the name of its namespace."""
    return cluster.name if department is None else f"{cluster.name}-department-{department}"


def priority_class(cluster: str, job: Job) -> str:
    """The name of the class of a job's priority, which is also a label's value. Each cluster on an API server has its
    own."""
    kind = "training" if job.type is JobType.TRAINING else "serving"
    return f"{cluster[:_LONGEST_CLUSTER]}-{kind}-{'minus-' if job.priority < 0 else ''}{abs(job.priority)}"


def priorities(cluster: str, jobs: Iterable[Job]) -> dict[str, int]:
    """The classes of the jobs with their values: inference and interactive before training, then by priority."""
    found = {priority_class(cluster, job): _priority(job) for job in jobs}
    return dict(sorted(found.items()))


def _priority(job: Job) -> int:
    own = max(-_MOST_PRIORITY, min(job.priority, _MOST_PRIORITY))
    return own - _MOST_PRIORITY if job.type is JobType.TRAINING else own + _MOST_PRIORITY
