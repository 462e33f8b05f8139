"""`gpuctl reconcile` where nothing was installed: it makes its namespace, or says how, and does not wait."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import warm
from controlplane.known import await_rights
from controlplane.server import ControlPlane
from unattended import typed

from gpuctl.adapters.git import WorkingCopy

FILES = {
    "c/cluster.yaml": "apiVersion: gpuctl.dev/v1\nkind: Cluster\nmetadata: {name: bare}\nspec:\n  nodePools:\n"
    "  - {name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}\n",
    "c/a.yaml": "apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: a}\nspec: {quota: 2}\n",
}
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def reconciled(folder: Path, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    line = ["reconcile", "--repo", str(folder / "repo"), "--path", "c", "--once"]
    return warm.run(*line, "--kubeconfig", kubeconfig, "--workdir", folder / "work", timeout=300)


def looker(plane: ControlPlane, folder: Path) -> Path:
    """The kubeconfig of an account that may look at namespaces, and nothing else."""
    plane.call("POST", ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "looker"}})
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "looker"}}
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}
    plane.call("POST", f"{RBAC}/clusterroles", {**head, "kind": "ClusterRole", "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"}
    subject = {"kind": "ServiceAccount", "name": "looker", "namespace": "default"}
    plane.call(
        "POST", f"{RBAC}/clusterrolebindings",
        {**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    )  # fmt: skip
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.call("POST", f"{ACCOUNTS}/looker/token", request)["status"]["token"]
    await_rights(plane, token)
    return plane.write_kubeconfig(folder / "looker.kubeconfig", token)


def config_maps(plane: ControlPlane) -> set[str]:
    """Without the one that a controller adds to each new namespace, in its own time."""
    items = plane.call("GET", "/api/v1/namespaces/gpuctl-system/configmaps")["items"]
    return {name for body in items if (name := body["metadata"]["name"]) != "kube-root-ca.crt"}


def test_it_says_the_command_and_ends_or_makes_its_namespace_and_goes_on(
    new_control_plane: Callable[[], ControlPlane], tmp_path: Path
) -> None:
    plane = new_control_plane()
    copy = WorkingCopy.create(tmp_path / "repo")
    for path, text in FILES.items():
        copy.write(path, text.encode())
    copy.commit("a cluster", 1_800_000_000_000)
    for line in (["freeze", "cluster", "--reason", "an incident"], ["sync"]):
        told = typed(plane.kubeconfig, *line)
        assert (told.exit_code, told.stdout) == (2, "")
        assert told.stderr.startswith("error GPU9003: gpuctl is not installed in this cluster: it has no namespace ")
    refused = reconciled(tmp_path, looker(plane, tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.startswith("error GPU7085: there is no namespace gpuctl-system")
    assert "kubectl create namespace gpuctl-system" in refused.stderr
    done = reconciled(tmp_path, Path(plane.kubeconfig))
    assert "there was no namespace gpuctl-system: it was made" in done.stderr
    names = {body["metadata"]["name"] for body in plane.call("GET", "/api/v1/namespaces")["items"]}
    assert {"gpuctl-system", "gpu-a"} <= names, done.stderr
    before = config_maps(plane)
    told = typed(plane.kubeconfig, "unfreeze", "cluster")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("error GPU9003: the cluster is not frozen")
    assert config_maps(plane) == before
