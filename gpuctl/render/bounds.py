"""Quotas of zero pods, each for one kind of pod that could act against other namespaces.

Security: kube-scheduler knows no projects. Two fields of a pod make it act against pods of other namespaces, and the
role `edit` in one namespace is enough to set them:

- `priorityClassName`: for a pod of high priority, kube-scheduler evicts pods of lower priority, jobs of other teams
  among them. Every class is refused except gpuctl's own, which never preempts, and those that the Cluster lists. The
  API server refuses a `priority` or `preemptionPolicy` that differs from the class's. It writes the cluster's
  globalDefault class into each pod without a class before it checks quotas, so that class must be listed too.
- `affinity` to pods of other namespaces: one small pod with anti-affinity to all pods of jobs keeps them off its node.

The API server's refusal gives only the quota's name, so the name says what is wrong. A quota applies once the quota
controller has seen it, a moment after the namespace was made; pods from before stay.

Source: Kubernetes documentation, "Resource Quotas", quota scopes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.k8s import kinds, names
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import ProjectOwner, Spec

CLASSES_NAME = "gpuctl-priority-class-is-not-allowed"
AFFINITY_NAME = "gpuctl-affinity-across-namespaces-is-not-allowed"
_CLASS = "PriorityClass"


def pod_bounds(owner: ProjectOwner) -> Iterator[Manifest]:
    """The two quotas of a project."""
    allowed = sorted({names.PRIORITY_CLASS, *owner.cluster.cluster.security.priority_classes})
    # NotIn alone also holds for pods without a class.
    named = {"scopeName": _CLASS, "operator": "Exists"}
    other = {"scopeName": _CLASS, "operator": "NotIn", "values": allowed}
    yield _none_of(owner, CLASSES_NAME, named, other)
    yield _none_of(owner, AFFINITY_NAME, {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"})


def _none_of(owner: ProjectOwner, name: str, *expressions: Spec) -> Manifest:
    """A quota that refuses pods for which all expressions hold."""
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": list(expressions)}}
    return owner.manifest(kinds.RESOURCE_QUOTA, name, {"spec": spec})
