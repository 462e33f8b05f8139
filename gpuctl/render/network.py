"""Which pods reach those of a project: all of the cluster, or its own and those of namespaces that the Cluster lists.

What jobs serve often asks nobody who they are: Ray's dashboard runs what it is sent, and so does a notebook without a
token, or the rendezvous of a gang. The cluster's network has to be one that enforces policies. A node reaches the pods
that run on it all the same, for probes and for `port-forward`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.k8s import kinds
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import ProjectOwner

NAME = "gpuctl-reachable-from"
_NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
"""A label that the API server writes on each namespace."""


def project_network(owner: ProjectOwner) -> Iterator[Manifest]:
    """The project's policy; none where the Cluster leaves the network open."""
    listed = owner.cluster.cluster.security.reachable_from
    if listed is None:
        return
    peers: list[Mapping[str, Any]] = [{"podSelector": {}}]
    if listed:
        wanted = {"key": _NAME_OF_NAMESPACE, "operator": "In", "values": list(listed)}
        peers.append({"namespaceSelector": {"matchExpressions": [wanted]}})
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}
    yield owner.manifest(kinds.NETWORK_POLICY, NAME, {"spec": spec})
