"""JobSet's own controller beside a control plane, under an account of its own, with the rights of its release.

Its webhooks are reached at this machine's address, with a certificate that is made here.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from controlplane.known import define
from controlplane.ports import free_port, listens
from controlplane.programs import begun
from controlplane.server import ControlPlane

ACCOUNT = "system:serviceaccount:jobset-system:jobset-controller-manager"
_NAMESPACE, _NAME = ACCOUNT.split(":")[2:]
_WITHIN_S = 180.0
_CERTIFICATE = (
    "openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
    "-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1",
)  # fmt: skip
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
_QUOTAS = "/api/v1/namespaces/default/resourcequotas"
_COUNT = "count/jobsets.jobset.x-k8s.io"
_EXAMPLE = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "example"},
    "spec": {
        "replicatedJobs": [
            {"name": "a", "template": {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "a"}]}}}}}
        ]
    },
}
_PODS = {"objectSelector": {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}}


@contextmanager
def running(command: Path, module: Path, plane: ControlPlane) -> Iterator[None]:
    """JobSet at work, from its module's folder. RuntimeError, with the end of its log, when it does not come up."""
    port, folder = free_port(), plane.folder / "jobset"
    folder.mkdir()
    pair = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    subprocess.run([*_CERTIFICATE, *pair], check=True, capture_output=True)
    _install(plane, module)
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    kubeconfig = plane.write_kubeconfig(folder / "kubeconfig", _token(plane))
    arguments: list[str | Path] = [command, f"--config={folder / 'config.yaml'}", f"--kubeconfig={kubeconfig}"]
    arguments.append("--metrics-bind-address=0")
    process = begun(arguments, folder / "log")
    try:
        until = time.monotonic() + _WITHIN_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"JobSet did not come up:\n{(folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)
        _hook(plane, module, port, (folder / "tls.crt").read_bytes())
        until = time.monotonic() + 2 * _WITHIN_S
        while not _is_counted(plane):
            assert time.monotonic() < until, "no quota counts JobSets"
        while (refused := plane.refused("POST", f"{_JOBSETS}?dryRun=All", _EXAMPLE)) is not None:
            assert time.monotonic() < until, refused  # its webhooks listen before they answer
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _install(plane: ControlPlane, module: Path) -> None:
    """Its definition, its account and the account's rights; the Service of its webhooks is this machine."""
    config = module / "config" / "components"
    definition = yaml.safe_load((config / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml").read_text())
    define(plane, definition)
    role = yaml.safe_load((config / "rbac" / "role.yaml").read_text())
    plane.call("POST", "/api/v1/namespaces", _object("v1", "Namespace", _NAMESPACE))
    plane.call(
        "POST", f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts", _object("v1", "ServiceAccount", _NAME, _NAMESPACE)
    )
    plane.call("POST", f"{_RBAC}/clusterroles", {**role, "metadata": {"name": "jobset"}})
    binding = {
        **_object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "jobset"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobset"},
        "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": _NAMESPACE}],
    }
    plane.call("POST", f"{_RBAC}/clusterrolebindings", binding)


def _is_counted(plane: ControlPlane) -> bool:
    """Whether a new quota counts JobSets: the server looks for new kinds each 30 seconds, and goes through quotas that
    were there before each 5 minutes."""
    body = {**_object("v1", "ResourceQuota", "jobsets", "default"), "spec": {"hard": {_COUNT: "1", "pods": "1"}}}
    plane.call("POST", _QUOTAS, body)
    used: dict[str, str] = {}
    until = time.monotonic() + _WITHIN_S
    while not used:
        assert time.monotonic() < until, "no quota is counted"
        time.sleep(1)
        used = plane.call("GET", f"{_QUOTAS}/jobsets").get("status", {}).get("used", {})
    plane.call("DELETE", f"{_QUOTAS}/jobsets")
    return _COUNT in used


def _token(plane: ControlPlane) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{_NAME}/token"
    token: str = plane.call("POST", path, request)["status"]["token"]
    return token


def _hook(plane: ControlPlane, module: Path, port: int, certificate: bytes) -> None:
    text = (module / "config" / "components" / "webhook" / "manifests.yaml").read_text()
    for body in yaml.safe_load_all(text):
        hooks = [_led_here(hook, port, certificate) for hook in body["webhooks"]]
        path = f"/apis/admissionregistration.k8s.io/v1/{body['kind'].lower()}s"
        plane.call("POST", path, {**body, "webhooks": hooks})


def _led_here(hook: Mapping[str, Any], port: int, certificate: bytes) -> Mapping[str, Any]:
    url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
    client = {"url": url, "caBundle": base64.b64encode(certificate).decode()}
    return {**hook, "clientConfig": client, **(_PODS if url.endswith("v1-pod") else {})}


def _object(version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta}
