"""The facts of a cluster before gpuctl is installed there, and what follows from them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.diag.wording import all_of
from gpuctl.install.guard import CONTROLLERS, ONE_FOR_ALL

KUBE_SYSTEM = "kube-system"
_ACCOUNT = f"system:serviceaccount:{KUBE_SYSTEM}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The facts. `absent`: kinds that gpuctl uses and the server lacks. `api_ports`: where API servers listen.
    `accounts`: the names of kube-system's ServiceAccounts. Both are None if the reader has no right to them.
    """

    version: str
    serves_claims: bool
    absent: tuple[str, ...]
    api_ports: frozenset[int] | None
    accounts: frozenset[str] | None

    @property
    def api_port(self) -> int | None:
        """The one port of all API servers; None if it is not known, or if there are several."""
        return next(iter(self.api_ports)) if self.api_ports is not None and len(self.api_ports) == 1 else None


def findings(host: Host, given_port: int | None, default_port: int) -> Iterator[str]:
    """A sentence for each fact that was looked for, found or not."""
    lacks = f"; it has no {all_of(host.absent)}, which gpuctl uses" if host.absent else ""
    yield f"Kubernetes {host.version}{lacks}."
    claims = "serves" if host.serves_claims else "does not serve"
    yield f"The API server {claims} dynamic resource allocation (resource.k8s.io/v1)."
    yield _port(host, given_port, default_port)
    yield _identities(host)


def _port(host: Host, given: int | None, default: int) -> str:
    used = given or host.api_port or default
    if host.api_ports is None:
        return f"No right to read the EndpointSlices of default: the NetworkPolicy lets out to port {used} unchecked."
    if not host.api_ports:
        return f"Service kubernetes has no endpoints: the NetworkPolicy lets out to port {used} unchecked."
    there = all_of(str(port) for port in sorted(host.api_ports))
    if host.api_ports == {used}:
        return f"API servers listen on port {there}, to which the NetworkPolicy lets out."
    return f"API servers listen on port {there}, and the NetworkPolicy lets out to {used} alone: --api-port."


def _identities(host: Host) -> str:
    if host.accounts is None:
        return f"No right to read ServiceAccounts of {KUBE_SYSTEM}: which users the controllers are is not known."
    own = [name for name in CONTROLLERS if name.removeprefix(_ACCOUNT) in host.accounts]
    lacking = [name.removeprefix(_ACCOUNT) for name in CONTROLLERS if name not in own]
    if not own:
        return (
            f"The controllers have no accounts of their own in {KUBE_SYSTEM}: they are {ONE_FOR_ALL}, which the guard "
            "admits, or users that --controller names."
        )
    rest = f"; there is no {all_of(lacking)}: name what does its work with --controller" if lacking else ""
    admitted = all_of(name.removeprefix(_ACCOUNT) for name in own)
    return f"The guard admits the controllers' accounts {admitted} of {KUBE_SYSTEM}{rest}."
