"""gpuctl's own namespace and priority class, and a namespace for each project.

Security: a project's namespace enforces a Pod Security level, the cluster's or the project's exception. The API server
refuses pods that would reach their node by host namespaces, host folders, privileged containers or most capabilities.
Tenants can't change labels of namespaces. The level is that of the server's latest version, so it covers fields that a
later Kubernetes adds to pods. The pods that gpuctl renders have so few fields that no later level refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_allowances
from gpuctl.model.declared import PodSecurity, Project
from gpuctl.model.ids import ObjectRef
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import ClusterOwner, ProjectOwner

_PRIORITY = 1000
"""Above pods without a class, so that they never preempt a job. It can't be changed once the class exists."""


def system_objects(owner: ClusterOwner) -> Iterator[Manifest]:
    """Objects that belong to no project. The priority class keeps kube-scheduler from preempting: only the engine does.

    All clusters that share the API server have the same two objects, and write them alike.
    """
    yield owner.shared_manifest(kinds.NAMESPACE, names.SYSTEM_NAMESPACE, {})
    yield owner.shared_manifest(
        kinds.PRIORITY_CLASS,
        names.PRIORITY_CLASS,
        {
            "value": _PRIORITY,
            "preemptionPolicy": "Never",
            "description": "Jobs of gpuctl, which alone decides which job is stopped for which.",
        },
    )


def project_namespace(owner: ProjectOwner) -> Manifest:
    """A project's namespace, marked for admission policies, with the annotations of the project's claims."""
    name = owner.project.namespace
    meta = {
        "name": name,
        "labels": {**owner.labels, names.MANAGED_LABEL: "true", **_pod_security(owner.pod_security)},
        "annotations": {**owner.annotations, **_claims(owner.project)},
    }
    api_version, kind = kinds.NAMESPACE
    return Manifest(
        ref=ObjectRef(api_version, kind, "", name),
        body={"apiVersion": api_version, "kind": kind, "metadata": meta},
        project=owner.project.name,
        span=owner.project.span,
    )


def _pod_security(level: PodSecurity) -> dict[str, str]:
    """The labels for a level: `enforce` refuses pods; `warn` warns a person who creates a Deployment or Job."""
    modes = {"enforce": level.value, "enforce-version": "latest", "warn": level.value}
    return {names.POD_SECURITY_LABEL + mode: value for mode, value in modes.items()}


def _claims(project: Project) -> dict[str, str]:
    """The project's claims as annotations, for people: nothing is decided by them."""
    claims = {names.QUOTA_ANNOTATION: encode_allowances(project.allowances)}
    return {**claims, names.DEPARTMENT_ANNOTATION: project.department} if project.department else claims
