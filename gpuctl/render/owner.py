"""The owner of an object: names, labels and provenance shared by all objects of a cluster, a project or a run.

An owner is made once and used for many objects, which share its label mappings: bodies are never changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuctl.diag.span import SourceSpan
from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_values
from gpuctl.k8s.workloads import kind_of
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Cluster, NodePool, PodSecurity, Project
from gpuctl.model.ids import NodeName, ObjectRef, ProjectName, Revision
from gpuctl.model.job import Job, JobType
from gpuctl.model.manifest import Manifest

Spec = Mapping[str, Any]
"""Part of a body: plain JSON values."""


@dataclass(frozen=True, kw_only=True)
class ClusterOwner:
    """The owner of the cluster's own objects. `pool_of_node`: of the declared inventory."""

    cluster: Cluster
    pool_of_node: Mapping[NodeName, NodePool]

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Labels on every object of this cluster."""
        return {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CLUSTER_LABEL: self.cluster.name}

    def shared_manifest(self, kind: kinds.Kind, name: str, body: Spec) -> Manifest:
        """An object that belongs to no project, and to all clusters on the API server alike: it names none of them."""
        meta = {"name": name, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}
        return _manifest(kind, meta, body, None, self.cluster.span)

    def pools_of(self, job: Job, placement: Placement | None) -> Sequence[NodePool]:
        """The pools that a job's workers are placed in; for a waiting job, or undeclared nodes, the job's first
        pool."""
        nodes = [worker.node for worker in placement.workers] if placement else []
        found = {pool.name: pool for node in nodes if (pool := self.pool_of_node.get(node)) is not None}
        return tuple(found.values()) or tuple(self.cluster.pool(name) for name in job.pools[:1])


@dataclass(frozen=True, kw_only=True)
class ProjectOwner:
    """The owner of a project's objects; all but the Namespace are in its namespace. `revision`: the commit of them."""

    cluster: ClusterOwner
    project: Project
    revision: Revision

    @property
    def pod_security(self) -> PodSecurity:
        """The level that the project's namespace enforces, and that its jobs' pods therefore meet."""
        return self.cluster.cluster.security.level_of(self.project.name)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Labels on every object of the project."""
        return {**self.cluster.labels, names.PROJECT_LABEL: self.project.name}

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """Where the project is declared."""
        return provenance(self.project.span, self.revision)

    def manifest(self, kind: kinds.Kind, name: str, body: Spec) -> Manifest:
        """An object of the project in its namespace."""
        meta = {
            "name": name,
            "namespace": self.project.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        }
        return _manifest(kind, meta, body, self.project.name, self.project.span)


@dataclass(frozen=True, kw_only=True)
class JobOwner:
    """The owner of a job's objects."""

    project: ProjectOwner
    job: Job

    @property
    def namespace(self) -> str:
        """The namespace of the job's objects."""
        return self.project.project.namespace

    @cached_property
    def run(self) -> str:
        """The name of this run's objects."""
        return names.run_name(self.job.id.name, self.job.digest)

    @property
    def is_gang(self) -> bool:
        """Whether the workers find each other and start and end together."""
        is_own = self.job.type is not JobType.INFERENCE and self.job.container.manifest is None
        return self.job.workers > 1 and is_own

    @property
    def run_ref(self) -> ObjectRef:
        """The object whose pods are the run's."""
        return ObjectRef(*kind_of(self.job), self.namespace, self.run)

    @property
    def type_overrides(self) -> Mapping[str, str]:
        """Annotations for differences from the default of the job's type: preemptible, may shrink, has values or
        ports."""
        facts = {names.MIN_WORKERS_ANNOTATION: str(self.job.min_workers)} if self.job.is_elastic else {}
        if self.job.preemptible is not (self.job.type is JobType.TRAINING):
            facts[names.PREEMPTIBLE_ANNOTATION] = "true" if self.job.preemptible else "false"
        if self.job.sweep is not None and names.INDEX_VARIABLE not in self.job.sweep.values:
            facts[names.VALUES_ANNOTATION] = encode_values(self.job.sweep.values)
        if self.job.container.expose:
            facts[names.PORTS_ANNOTATION] = ",".join(
                map(str, sorted({each.port for each in self.job.container.expose}))
            )
        return facts

    @cached_property
    def selector(self) -> Mapping[str, str]:
        """Selects the job's pods in all its runs."""
        return {names.PROJECT_LABEL: self.job.id.project, names.JOB_LABEL: self.job.id.name}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Labels on objects that last as long as the job: its claims, Service and Ingress."""
        index = self.job.sweep
        of_sweep = {} if index is None else {names.SWEEP_LABEL: index.sweep, names.INDEX_LABEL: index.key}
        own = {names.JOB_LABEL: self.job.id.name, names.TYPE_LABEL: self.job.type.value}
        return {**self.project.labels, **own, **of_sweep}

    @cached_property
    def run_labels(self) -> Mapping[str, str]:
        """Labels on the objects of this run, pods included."""
        return {**self.labels, names.RUN_LABEL: self.job.digest}

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """Where the job is declared."""
        return provenance(self.job.span, self.project.revision)

    def manifest(self, kind: kinds.Kind, name: str, body: Spec, facts: Mapping[str, str] | None = None) -> Manifest:
        """An object that lasts as long as the job; `facts` are further annotations."""
        return self._manifest(kind, name, self.labels, {**self.annotations, **(facts or {})}, body)

    def run_manifest(self, kind: kinds.Kind, body: Spec, facts: Mapping[str, str] | None = None) -> Manifest:
        """An object of this run; `facts` are further annotations."""
        return self._manifest(kind, self.run, self.run_labels, {**self.annotations, **(facts or {})}, body)

    def _manifest(
        self, kind: kinds.Kind, name: str, labels: Mapping[str, str], annotations: Mapping[str, str], body: Spec
    ) -> Manifest:
        meta = {"name": name, "namespace": self.namespace, "labels": labels, "annotations": annotations}
        return _manifest(kind, meta, body, self.job.id.project, self.job.span)


def provenance(span: SourceSpan, revision: Revision) -> dict[str, str]:
    """`file:line@commit`, and the commit by itself; without a commit for files that are not under version control."""
    commit = span.revision or revision
    source = f"{span.file}:{span.line}"
    if not commit:
        return {names.SOURCE_ANNOTATION: source}
    return {names.SOURCE_ANNOTATION: f"{source}@{commit}", names.REVISION_ANNOTATION: commit}


def _manifest(kind: kinds.Kind, meta: Spec, body: Spec, project: ProjectName | None, span: SourceSpan) -> Manifest:
    api_version, kind_name = kind
    ref = ObjectRef(api_version, kind_name, meta.get("namespace", ""), meta["name"])
    whole = {"apiVersion": api_version, "kind": kind_name, "metadata": meta, **body}
    return Manifest(ref=ref, body=whole, project=project, span=span)
