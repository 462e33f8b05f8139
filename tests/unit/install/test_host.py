"""What `install --context` says of a cluster, for each that it may find."""

from __future__ import annotations

import pytest

from gpuctl.install.guard import CONTROLLERS
from gpuctl.install.host import Host, findings

ALL = frozenset(name.rpartition(":")[2] for name in CONTROLLERS)


def sentences(
    ports: frozenset[int] | None = frozenset({6443}),
    accounts: frozenset[str] | None = ALL,
    absent: tuple[str, ...] = (),
    *,
    claims: bool = True,
    given: int | None = None,
) -> list[str]:
    host = Host(version="v1.36.0", serves_claims=claims, absent=absent, api_ports=ports, accounts=accounts)
    return list(findings(host, given, 6443))


def test_the_version_and_what_is_not_served() -> None:
    assert sentences()[:2] == [
        "Kubernetes v1.36.0.",
        "The API server serves dynamic resource allocation (resource.k8s.io/v1).",
    ]
    assert sentences(absent=("ResourceClaim", "ResourceSlice"), claims=False)[:2] == [
        "Kubernetes v1.36.0; it has no ResourceClaim and ResourceSlice, which gpuctl uses.",
        "The API server does not serve dynamic resource allocation (resource.k8s.io/v1).",
    ]


@pytest.mark.parametrize(
    ("ports", "given", "told"),
    [
        ({8443}, None, "API servers listen on port 8443, to which the NetworkPolicy lets out."),
        ({8443}, 6443, "API servers listen on port 8443, and the NetworkPolicy lets out to 6443 alone: --api-port."),
        (
            {6443, 8443}, None,
            "API servers listen on port 6443 and 8443, and the NetworkPolicy lets out to 6443 alone: --api-port.",
        ),
        (set(), None, "Service kubernetes has no endpoints: the NetworkPolicy lets out to port 6443 unchecked."),
        (
            None, 8443,
            "No right to read the EndpointSlices of default: the NetworkPolicy lets out to port 8443 unchecked.",
        ),
    ],
)  # fmt: skip
def test_the_port(ports: set[int] | None, given: int | None, told: str) -> None:
    assert sentences(None if ports is None else frozenset(ports), given=given)[2] == told


@pytest.mark.parametrize(
    ("accounts", "told"),
    [
        (
            ALL,
            (
                "The guard admits the controllers' accounts deployment-controller, job-controller, "
                "replicaset-controller, resource-claim-controller and statefulset-controller of kube-system."
            ),
        ),
        (
            ALL - {"job-controller"},
            (
                "The guard admits the controllers' accounts deployment-controller, replicaset-controller, "
                "resource-claim-controller and statefulset-controller of kube-system; there is no job-controller: "
                "name what does its work with --controller."
            ),
        ),
        (
            frozenset({"default"}),
            (
                "The controllers have no accounts of their own in kube-system: they are "
                "system:kube-controller-manager, which the guard admits, or users that --controller names."
            ),
        ),
        (
            None,
            "No right to read ServiceAccounts of kube-system: which users the controllers are is not known.",
        ),
    ],
)
def test_the_controllers(accounts: frozenset[str] | None, told: str) -> None:
    assert sentences(accounts=accounts)[3] == told
