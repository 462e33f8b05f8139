"""What GPUs do, on a real control plane: KWOK's pods, an exporter on loopback, and the installed rights."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlplane.known import await_rights
from controlplane.server import ControlPlane
from exporters import Answers, answering, exposition
from unattended import Site, all_writes_of, at_last, job, project, typed

from gpuctl.app.utilisation import PUBLISH_MS
from gpuctl.k8s.names import UTILISATION_NAME

HOME = "/api/v1/namespaces/gpuctl-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
PERCENT = {"work": 80, "rest": 0}


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "gpuuse")
    yield made
    made.leave()


def said(site: Site) -> bytes:
    """An exporter's output for the pods that there are, and for one that another namespace has under such a name."""
    pods = site.plane.call("GET", f"/api/v1/namespaces/{site.namespace('a')}/pods")["items"]
    names = [(pod["metadata"]["name"], pod["metadata"]["labels"]["gpuctl.dev/job"]) for pod in pods]
    gpus = [(site.namespace("a"), name, f"GPU-{name}", PERCENT[of], 1024, 31_744) for name, of in names]
    return exposition(*gpus, *(("elsewhere", name, f"GPU-x-{name}", 100, 1, 1) for name, _ in names))


def member(site: Site, folder: Path) -> str:
    """The kubeconfig of a person of the team, who sees its namespace and what is published."""
    accounts = f"{HOME}/serviceaccounts"
    site.plane.call(
        "PATCH",
        f"{accounts}/ann?fieldManager=test",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ann"}},
    )
    subject = {"kind": "ServiceAccount", "name": "ann", "namespace": "gpuctl-system"}
    for namespace, kind in ((site.namespace("a"), "ClusterRole"), ("gpuctl-system", "Role")):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "gpuctl-reader"}
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "ann"},
            "roleRef": role, "subjects": [subject],
        }  # fmt: skip
        site.plane.call("PATCH", f"{RBAC}/{namespace}/rolebindings/ann?fieldManager=test", body)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = site.plane.call("POST", f"{accounts}/ann/token", request)["status"]["token"]
    await_rights(site.plane, token, site.namespace("a"))
    await_rights(site.plane, token, "gpuctl-system")
    return str(site.plane.write_kubeconfig(folder / "ann.kubeconfig", token))


def published(site: Site) -> int:
    """Of how many runs it is published what their GPUs do: asked until there are some, as a command asks much more."""
    made = site.plane.call("GET", f"{HOME}/configmaps?fieldSelector=metadata.name%3D{UTILISATION_NAME}")["items"]
    return sum(len(json.loads(body["data"]["utilisation.json"])["runs"]) for body in made)


def top(kubeconfig: str, what: str) -> list[Any]:
    done = typed(kubeconfig, "top", what, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)[f"{what}s"]
    return found


def test_what_kwoks_pods_do_is_published_and_seen_by_the_team_alone(site: Site, tmp_path: Path) -> None:
    began = time.monotonic()
    with answering(Answers()) as exporter:
        site.commit(project("a", 4), job("work"), job("rest", more=", type: interactive"))
        process = site.start("--utilisation-exporter", f"{exporter.url}/metrics")
        site.await_pods("rest", "work")
        exporter.pieces = lambda: iter([said(site)])
        at_last(lambda: process.total("gpuctl_measured_gpus") == 2, site.logs)
        at_last(lambda: process.total("gpuctl_busy_gpus", 'project="a"') == 0.8, site.logs)
        ann = member(site, tmp_path)
        at_last(lambda: published(site) == 2, site.logs)
        at_last(lambda: [each["name"] for each in top(ann, "job") if each["use"]] == ["rest", "work"], site.logs)
        busy = {each["name"]: each["use"]["busyGpuMilli"] for each in top(ann, "job")}
        assert busy == {"rest": 0, "work": 800}
        (team,) = [each for each in top(ann, "project") if each["name"] == "a"]
        assert team["use"]["memoryUsedBytes"] == 2 << 30
        body = site.plane.call("GET", f"{HOME}/configmaps/{UTILISATION_NAME}")
        assert "rest" not in body["data"]["utilisation.json"]
        written = [r for r in all_writes_of(process.audited()) if r["objectRef"].get("name") == UTILISATION_NAME]
        assert len(written) <= 1 + (time.monotonic() - began) * 1000 / PUBLISH_MS
        assert "GPU7110" not in process.codes()
