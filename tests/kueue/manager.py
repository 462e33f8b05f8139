"""Kueue's own manager beside a control plane, installed as its release is, with fair sharing on.

What a cluster does for it is done here: its webhooks' Service leads to this machine, and the Secret with the
certificate that it makes is put where it reads it.
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
from controlplane.known import DEFINITIONS, define
from controlplane.ports import free_port, listens
from controlplane.programs import begun
from controlplane.server import ControlPlane

_WITHIN_S = 180.0
_PATHS = ("-batch-v1-job", "-apps-v1-deployment", "--v1-pod", "-kueue-x-k8s-io-")
"""Of webhooks for kinds that this control plane has."""
_HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "CustomResourceDefinition": DEFINITIONS,
    "Secret": "/api/v1/namespaces/kueue-system/secrets",
    "Service": "/api/v1/namespaces/kueue-system/services",
    **{kind: f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s" for kind in _HOOKS},
}
"""What is installed of a release, in this order. The manager itself runs here, with an administrator's rights."""
_SECRET = f"{_COLLECTIONS['Secret']}/kueue-webhook-server-cert"


@contextmanager
def running(command: Path, kustomize: Path, module: Path, plane: ControlPlane) -> Iterator[None]:
    """Kueue at work, from its module's folder. RuntimeError, with the end of its log, when it does not come up."""
    port, folder = free_port(), plane.folder / "kueue"
    certificates = folder / "certs"
    certificates.mkdir(parents=True)
    _install(plane, kustomize, module, port)
    (folder / "config.yaml").write_text(json.dumps(_config(port, certificates)))
    arguments: list[str | Path] = [command, f"--config={folder / 'config.yaml'}", f"--kubeconfig={plane.kubeconfig}"]
    arguments.append("--feature-gates=VisibilityOnDemand=false")
    process = begun(arguments, folder / "log")
    try:
        until = time.monotonic() + _WITHIN_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Kueue did not come up:\n{(folder / 'log').read_text()[-2000:]}")
            _mount(plane, certificates)
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _config(port: int, certificates: Path) -> Mapping[str, Any]:
    """Its usual configuration without what listens on fixed ports, and with what the page about it asks for."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 300, "burst": 500},
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
        "integrations": {"frameworks": ["batch/job", "deployment"]},
    }


def _install(plane: ControlPlane, kustomize: Path, module: Path, port: int) -> None:
    built = subprocess.run([kustomize, "build", module / "config" / "default"], capture_output=True, check=True)
    bodies = list(yaml.load_all(built.stdout, yaml.CSafeLoader))
    for kind, collection in _COLLECTIONS.items():
        for body in bodies:
            if body["kind"] == kind == "CustomResourceDefinition":
                define(plane, _led_here(body, port))
            elif body["kind"] == kind:
                plane.call("POST", collection, _led_here(body, port))


def _led_here(body: Any, port: int) -> Any:
    if body["kind"] == "Service" and body["metadata"]["name"] == "kueue-webhook-service":
        return {**body, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    if body["kind"] == "CustomResourceDefinition" and "webhook" in body["spec"].get("conversion", {}):
        body["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port
    if body["kind"] in _HOOKS:
        kept = [hook for hook in body["webhooks"] if any(part in _path(hook) for part in _PATHS)]
        for hook in kept:
            hook["clientConfig"]["service"]["port"] = port
        return {**body, "webhooks": kept}
    return body


def _path(hook: Any) -> str:
    path: str = hook["clientConfig"]["service"]["path"]
    return path


def _mount(plane: ControlPlane, folder: Path) -> None:
    """Each file is whole once it is there; the certificate, for which Kueue waits, is the last."""
    data: Mapping[str, str] = plane.call("GET", _SECRET).get("data") or {}
    for name in sorted(data, key=lambda name: name == "tls.crt"):
        if not (folder / name).exists():
            part = folder.parent / name
            part.write_bytes(base64.b64decode(data[name]))
            part.rename(folder / name)
