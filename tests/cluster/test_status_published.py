"""The status on a real control plane: published with the installed rights, and read with those of a reader."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlplane.server import ControlPlane
from unattended import LEASE, Site, all_writes_of, job, project, within

HOME = "/api/v1/namespaces/gpuctl-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpuctl-system/rolebindings"


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "status")
    yield made
    made.leave()


@pytest.fixture
def reader(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> str:
    """The kubeconfig of an account that has Role gpuctl-operator in gpuctl-system, and nothing else."""
    plane = plane_with_gpuctl
    account = f"{HOME}/serviceaccounts"
    plane.call("PATCH", f"{account}/looker?fieldManager=test", {
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "looker"},
    })  # fmt: skip
    plane.call("PATCH", f"{RBAC}/looker?fieldManager=test", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "looker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gpuctl-operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "gpuctl-system"}],
    })  # fmt: skip
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.call("POST", f"{account}/looker/token", request)["status"]["token"]
    return str(plane.write_kubeconfig(tmp_path / "looker.kubeconfig", token))


def status(kubeconfig: str, *more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "gpuctl", "status", "--kubeconfig", kubeconfig, *more]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_a_reader_sees_what_the_leader_publishes(site: Site, reader: str) -> None:
    commit = site.commit(project("a", 4), job("j"))
    process = site.start()
    waited = status(reader, "--wait", "--timeout", "30s", "--commit", commit)
    assert waited.returncode == 0, (waited.stdout, waited.stderr, site.logs())
    form = json.loads(status(reader, "-o", "json").stdout)
    assert (form["cluster"], form["commit"]["applied"], form["commit"]["head"]) == ("status", commit, commit)
    leader = site.plane.call("GET", LEASE)["spec"]["holderIdentity"]
    assert (form["replica"]["identity"], form["replica"]["leader"]) == (leader, leader)
    told = [r for r in all_writes_of(process.audited()) if r["objectRef"].get("name") == "gpuctl-status"]
    assert 1 <= len(told) <= 4
    site.commit(job("j", more=", gpus: x"))
    within(30, lambda: status(reader).returncode == 1, site.logs)
    (held,) = json.loads(status(reader, "-o", "json").stdout)["held"]
    assert (held["project"], held["commit"]) == ("a", commit)


def test_it_is_not_ready_where_no_replica_leads(site: Site, reader: str) -> None:
    site.commit(project("a", 4))
    process = site.start()
    assert status(reader, "--wait", "--timeout", "30s").returncode == 0, site.logs()
    process.end()
    lease = site.plane.call("GET", LEASE)
    site.plane.call("PUT", LEASE, {**lease, "spec": {**lease["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}})
    result = status(reader)
    assert (result.returncode, result.stdout.splitlines()[1]) == (1, "  no replica leads")
