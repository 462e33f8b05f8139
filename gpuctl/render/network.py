"""Which pods may reach a project's pods: all of the cluster, or its own and those of namespaces that the Cluster lists.

Security: servers in jobs often have no authentication: Ray's dashboard runs whatever it is sent, and so does a notebook
without a token, or a gang's rendezvous. The cluster's network must enforce policies. A node always reaches the pods on
it, for probes and for `port-forward`.
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
    """The project's policy; none if the Cluster leaves the network open."""
    listed = owner.cluster.cluster.security.reachable_from
    if listed is None:
        return
    peers: list[Mapping[str, Any]] = [{"podSelector": {}}]
    if listed:
        wanted = {"key": _NAME_OF_NAMESPACE, "operator": "In", "values": list(listed)}
        peers.append({"namespaceSelector": {"matchExpressions": [wanted]}})
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}
    yield owner.manifest(kinds.NETWORK_POLICY, NAME, {"spec": spec})
