"""`gpuctl install --context`: what it finds on a real API server, and what becomes of it in the manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from controlplane.server import ControlPlane

from gpuctl.cli.main import gpuctl

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
REPO = ("--repo", "https://git.example.com/gpus.git", "--path", "c", "--guard", "-o", "json")


@pytest.fixture
def served_at(control_plane: ControlPlane) -> Iterator[int]:
    """The port that Service kubernetes leads to; this control plane does not write it itself."""
    control_plane.call("POST", SLICES, {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}],
        "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
    })  # fmt: skip
    yield 8443
    control_plane.call("DELETE", f"{SLICES}/kubernetes")


def installed(kubeconfig: Path, *more: str) -> tuple[set[int], list[str]]:
    """The ports to which the NetworkPolicy lets out, and what was found."""
    done = CliRunner().invoke(gpuctl, ["install", *REPO, "--kubeconfig", str(kubeconfig), *more])
    assert done.exit_code == 0, done.output
    bodies: list[Any] = json.loads(done.stdout)["items"]
    (network,) = [body for body in bodies if body["kind"] == "NetworkPolicy"]
    ports = {port["port"] for rule in network["spec"]["egress"] for port in rule.get("ports", ())}
    return ports, [line.removeprefix("found: ") for line in done.stderr.splitlines() if line.startswith("found: ")]


def test_the_cluster_is_read_and_said(control_plane: ControlPlane, served_at: int) -> None:
    ports, (version, claims, listening, identities) = installed(control_plane.kubeconfig, "--context", "test")
    assert served_at in ports
    assert 6443 not in ports
    assert version.startswith("Kubernetes v1.")
    assert claims == "The API server serves dynamic resource allocation (resource.k8s.io/v1)."
    assert listening == "API servers listen on port 8443, to which the NetworkPolicy lets out."
    assert identities.startswith("The guard admits the controllers' accounts deployment-controller, job-controller")
    ports, found = installed(control_plane.kubeconfig, "--api-port", "7443")
    assert {7443} == ports & {7443, served_at}
    assert found[2] == "API servers listen on port 8443, and the NetworkPolicy lets out to 7443 alone: --api-port."


def test_a_reader_without_rights_is_told_what_is_not_known(
    control_plane: ControlPlane, served_at: int, tmp_path: Path
) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = control_plane.call("POST", account, request)["status"]["token"]
    ports, (_, _, listening, identities) = installed(control_plane.write_kubeconfig(tmp_path / "config", token))
    assert served_at not in ports
    assert listening.startswith("No right to read the EndpointSlices of default")
    assert identities.startswith("No right to read ServiceAccounts of kube-system")
