"""The report's story on a real API server: the same states, every pod and every fraction where the engine put it.

It is told by the installed account, under the guard; only the two nodes are made by somebody who may.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import warm
from controlplane.server import ControlPlane, node
from unattended import account_kubeconfig, at_last, install

from gpuctl.adapters.files import read_tree
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.machines import KwokMachines
from gpuctl.compile import compile_tree
from gpuctl.k8s.names import DRA_DRIVER
from gpuctl.wiring import EXAMPLE, blueprint

STATES = {
    "4.8": {"a": (4, []), "b": (4, []), "c": (4, []), "d": (4, [])},
    "4.9": {"a": (4, []), "b": (2, ["b-4-gg"]), "c": (2, ["c-4-gg"]), "d": (8, [])},
    "4.10": {"a": (8, []), "b": (4, ["b-5-gg"]), "c": (4, ["c-6-gg"]), "d": (0, [])},
}


def gpuctl(*args: str) -> subprocess.CompletedProcess[str]:
    return warm.run(*args)


@pytest.fixture(scope="module")
def stage(new_control_plane: Callable[[], ControlPlane]) -> ControlPlane:
    """A control plane without nodes."""
    return new_control_plane()


def make_machines(stage: ControlPlane) -> None:
    """What the demonstration makes itself for an administrator: gpuctl's account has no right to make nodes."""
    source = read_tree(str(Path(__file__).parents[2] / EXAMPLE))
    declared = compile_tree(source).declared
    assert declared is not None
    connection = connect(str(stage.kubeconfig))
    with closing(connection), closing(KubernetesCluster(connection)) as cluster:
        KwokMachines(cluster, blueprint).provide(declared.cluster.pools)


@pytest.fixture(scope="module")
def told(stage: ControlPlane) -> Mapping[str, Any]:
    install(stage)
    make_machines(stage)
    done = gpuctl("demo", "--kubeconfig", account_kubeconfig(stage), "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def items(stage: ControlPlane, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.call("GET", path)["items"]
    return found


def test_it_reaches_the_states_of_the_report(told: Mapping[str, Any]) -> None:
    for label, wanted in STATES.items():
        (checkpoint,) = [c for c in told["checkpoints"] if c["label"] == label]
        got = {p["name"][-1]: (p["allocatedGpuMilli"] // 1000, p["pending"]) for p in checkpoint["projects"]}
        assert got == wanted, label
    assert all(expectation["ok"] for expectation in told["expectations"])


def test_only_the_two_that_were_paused_started_twice(told: Mapping[str, Any]) -> None:
    starts = {job["name"]: job["starts"] for job in told["checkpoints"][-1]["jobs"] if job["state"] == "Running"}
    assert {name for name, count in starts.items() if count > 1} == {"b-4-gg", "c-4-gg"}
    assert set(starts.values()) == {1, 2}


def test_each_step_says_how_long_it_took(
    told: Mapping[str, Any], record_property: Callable[[str, object], None]
) -> None:
    took_ms = {c["label"]: c["atMs"] - c["begunMs"] for c in told["checkpoints"]}
    record_property("step_ms", took_ms)
    assert all(ms >= 0 for ms in took_ms.values())


def test_pods_are_where_they_were_placed_and_fractions_on_their_devices(
    told: Mapping[str, Any], stage: ControlPlane
) -> None:
    placed = {
        job["name"]: [(worker["node"], gpu) for worker in job["placement"] for gpu in worker["gpus"]]
        for job in told["checkpoints"][-1]["jobs"]
        if job["state"] == "Running"
    }
    pods = {
        pod["metadata"]["name"]: pod
        for pod in items(stage, "/api/v1/pods")
        if pod["status"]["phase"] == "Running" and "gpuctl.dev/job" in pod["metadata"].get("labels", {})
    }
    found: dict[str, list[tuple[str, int]]] = {}
    shares: dict[tuple[str, int], int] = {}

    def claims() -> list[dict[str, Any]]:
        """None while there is one of a pod that is gone."""
        listed = items(stage, "/apis/resource.k8s.io/v1/resourceclaims")
        return listed if {each["metadata"]["ownerReferences"][0]["name"] for each in listed} <= pods.keys() else []

    for claim in at_last(claims):
        pod = pods[claim["metadata"]["ownerReferences"][0]["name"]]
        for result in claim["status"]["allocation"]["devices"]["results"]:
            assert (result["driver"], result["pool"]) == (DRA_DRIVER, pod["spec"]["nodeName"])
            device = (result["pool"], int(re.sub(r"\D", "", result["device"])))
            found.setdefault(pod["metadata"]["labels"]["gpuctl.dev/job"], []).append(device)
            shares[device] = shares.get(device, 0) + int(result["consumedCapacity"]["cores"])
    assert {name: sorted(devices) for name, devices in found.items()} == placed
    assert len(shares) == 16
    assert set(shares.values()) == {100}


def test_a_cluster_with_other_nodes_is_refused(control_plane: ControlPlane) -> None:
    control_plane.call("POST", "/api/v1/nodes", node("a-stranger", gpus=0))
    done = gpuctl("demo", "--kubeconfig", str(control_plane.kubeconfig))
    control_plane.call("DELETE", "/api/v1/nodes/a-stranger")
    assert done.returncode == 2
    assert "GPU7095" in done.stderr
    assert "a-stranger" in done.stderr
    assert "Traceback" not in done.stderr
