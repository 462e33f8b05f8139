"""What `gpuctl install` asks a cluster: a dozen small reads, each of which may be refused."""

from __future__ import annotations

from gpuctl.adapters.kubernetes.discovery import discover
from gpuctl.adapters.kubernetes.requests import Request, Requests
from gpuctl.app.ports import Forbidden
from gpuctl.install.host import KUBE_SYSTEM, Host
from gpuctl.k8s.kinds import RESOURCE_CLAIM, Kind
from gpuctl.k8s.objects import items, text
from gpuctl.model.state import Body

_SLICES: Kind = ("discovery.k8s.io/v1", "EndpointSlice")
_SERVERS = (
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    "?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes&limit=100"
)
_ACCOUNTS = f"/api/v1/namespaces/{KUBE_SYSTEM}/serviceaccounts?limit=500"


def host(requests: Requests) -> Host:
    """Read the facts of the cluster. Raises ClusterUnavailable."""
    server = discover(requests)
    slices = _listed(requests, _SLICES, _SERVERS, "read where API servers listen")
    accounts = _listed(requests, ("v1", "ServiceAccount"), _ACCOUNTS, f"list the accounts of {KUBE_SYSTEM}")
    return Host(
        version=server.version,
        serves_claims=RESOURCE_CLAIM not in server.absent,
        absent=tuple(kind[1] for kind in server.absent),
        api_ports=None if slices is None else frozenset(port for each in slices for port in _ports(each)),
        accounts=None if accounts is None else frozenset(text(each.get("metadata") or {}, "name") for each in accounts),
    )


def _ports(endpoints: Body) -> list[int]:
    """The TCP ports of a slice."""
    return [each["port"] for each in items(endpoints, "ports") if isinstance(each.get("port"), int)]


def _listed(requests: Requests, kind: Kind, path: str, what: str) -> list[Body] | None:
    try:
        return list(items(requests.send(Request(verb="list", kind=kind, path=path, what=what)), "items"))
    except Forbidden:
        return None
