"""A whole Kubernetes control plane on this machine's loopback: etcd, API server, controllers, scheduler, and KWOK.

The servers are real; only the nodes are KWOK's: their pods run by the stages in stages.yaml. It starts in about 3 s.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import urllib3

from controlplane.audit import AuditLog
from controlplane.build import HERE, command
from controlplane.ports import free_ports
from controlplane.programs import begun
from gpuctl.adapters.kubernetes.decoding import decode

ADMIN = "admin-token"
COMPONENT = "component-token"
"""Tokens of two members of system:masters. The control plane's parts use the second: the audit log leaves it out."""

_CONFLICT = 409
_IDLE = (
    "node-ipam-controller", "node-route-controller", "cloud-node-lifecycle-controller", "ttl-controller",
    "endpoints-controller", "endpointslice-mirroring-controller", "service-cidr-controller",
    "persistentvolume-attach-detach-controller", "persistentvolume-expander-controller", "selinux-warning-controller",
    "certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller", "podcertificaterequest-cleaner-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller", "bootstrap-signer-controller",
    "token-cleaner-controller", "legacy-serviceaccount-token-cleaner-controller", "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller", "resourcepoolstatusrequest-controller",
)  # fmt: skip
"""Controllers that tests do not need: for clouds, networks, certificates, volumes that grow. Without them the control
plane takes a twentieth less processor time. Each controller that makes pods or acts on gpuctl's writes runs."""
_FIRST_PAUSE_S = 0.03
_LONGEST_PAUSE_S = 0.25
_WITHIN_S = 120.0
_GRACE_S = 5.0
_CONFLICTS_S = 30.0
_ANSWER_S = 60.0
_ERRORS = 400
_CERTIFICATE = (
    "openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
    "-subj", "/CN=apiserver", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
    "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
)  # fmt: skip
_ACCOUNT_KEY = ("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout")
"""Keys on an elliptic curve: the server itself would make RSA keys, whose signature on each connection costs more."""
_GONE_S = 180.0
"""How long deleting a namespace may take while its pods end."""


@dataclass
class ControlPlane:
    """A running control plane in a folder of its own. Not a value: `stop` it."""

    binaries: Path
    folder: Path
    emulated: str = ""
    url: str = ""
    history_port: int = 0
    """The port of this machine, free at the start, to which KWOK forwards port 8081 of pods in gpuctl-system."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _etcd_urls: tuple[str, str] = ("", "")
    """The URLs for clients, and for other members, of which there are none."""
    _kubelet_port: int = 0
    _connections: urllib3.PoolManager | None = None
    """Kept for further requests: opening a connection costs four times as much as a request."""

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    @property
    def ca_file(self) -> Path:
        """The certificate that verifies the server's own."""
        return self.folder / "certs" / "apiserver.crt"

    @property
    def etcd(self) -> Path:
        """The data folder of etcd. If it exists before the start, etcd begins with its data."""
        return self.folder / "etcd"

    @property
    def pod_log(self) -> Path:
        """The output of every container, in the format of a container runtime. It exists once a test writes it."""
        return self.folder / "pod.log"

    @property
    def programs(self) -> Path:
        """The folder that comes first on PATH for commands that run in a container; empty unless a test fills it."""
        return self.folder / "programs"

    @cached_property
    def audit(self) -> AuditLog:
        """The requests of all clients except the control plane's own parts."""
        return AuditLog(self.folder / "audit.log")

    def pid(self, name: str) -> int:
        """The process id of one of its parts: server (etcd), kube-apiserver, kube-scheduler, …"""
        return self._processes[name].pid

    def start(self) -> None:
        """Start all parts and wait until they answer. Raises RuntimeError, with the end of a log, if one does not."""
        *ports, self._kubelet_port, self.history_port = free_ports(5)
        self._etcd_urls = (f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
        self.url = f"https://127.0.0.1:{ports[2]}"
        self._write_files()
        self._connections = urllib3.PoolManager(maxsize=8, ca_certs=str(self.ca_file), retries=False)
        self._start_server()
        self._start_others()

    def _start_others(self) -> None:
        component, kubelet = str(self.folder / "component.kubeconfig"), self._kubelet_port
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={component}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            "--use-service-account-credentials=true",
            f"--controllers=*,-{',-'.join(_IDLE)}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-job-syncs=20",
            "--horizontal-pod-autoscaler-downscale-stabilization=10s",
            "--horizontal-pod-autoscaler-sync-period=5s",
            *self._features(),
        )
        self._spawn(
            "kube-scheduler",
            f"--config={self._scheduler_config(component)}",
            "--secure-port=0",
            *self._older(),
        )
        self._spawn(
            "kwok",
            f"--kubeconfig={component}",
            f"--config={self._stages()}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            "--node-ip=127.0.0.1",
            f"--node-port={kubelet}",
            f"--server-address=127.0.0.1:{kubelet}",
            f"--tls-cert-file={self.folder / 'certs' / 'apiserver.crt'}",
            f"--tls-private-key-file={self.folder / 'certs' / 'apiserver.key'}",
        )
        self._await("kube-controller-manager", self._has_default_account)

    def _start_server(self) -> None:
        """Start etcd, if it is not running, and the API server."""
        if "server" not in self._processes:
            self._start_etcd(*self._etcd_urls)
        self._start_apiserver(self._etcd_urls[0], self.url.rpartition(":")[2])
        self._await("kube-apiserver", self._is_ready)

    def kill_server(self) -> None:
        """Kill only the API server, at once. `bring_back` starts it again."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def bring_back(self) -> None:
        """Start the API server at its old address, if it was killed."""
        if "kube-apiserver" not in self._processes:
            self._start_server()

    def snapshot(self, folder: Path) -> None:
        """Copy etcd's data. The API server is down meanwhile."""
        self.kill_server()
        self.end("server")
        copy(self.etcd, folder)
        self._start_server()

    def restore(self, folder: Path) -> None:
        """Set etcd back to a snapshot: resource versions go back too. All other parts are started again, as Kubernetes'
        instructions for restoring say: otherwise they would wait for versions that are still to come."""
        for name in [*reversed(self._processes)]:
            self.end(name)
        remove(self.etcd)
        copy(folder, self.etcd)
        self._start_server()
        self.call("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")  # of an earlier KWOK
        self._start_others()

    def stop(self) -> None:
        """End all parts, the API server before etcd: without etcd it does not exit."""
        for name in [*reversed(self._processes)]:
            self.end(name)
        if self._connections is not None:
            self._connections.clear()

    def end(self, name: str) -> None:
        """End one of its parts, by the names of `pid`."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def leave_connections(self) -> None:
        """Make a forked process open connections of its own."""
        if self._connections is not None:
            self._connections.clear()

    def refused(self, method: str, path: str, body: object = None, **how: str) -> tuple[int, str] | None:
        """The code and message with which the server refuses a request; None if it accepts it. `how`: as for `call`."""
        try:
            self.call(method, path, body, **how)
        except HTTPError as error:
            with error:
                return error.code, str(json.loads(error.read())["message"])
        return None

    def call(
        self, method: str, path: str, body: object = None, *, token: str = ADMIN, media: str = "", user: str = ""
    ) -> Any:
        """Make one request with a token. Returns the decoded JSON. Raises HTTPError if it is refused.

        `body`: sent as JSON; bytes are sent unchanged. `user`: the user that an administrator impersonates, with that
        user's rights alone. A DELETE is repeated while it conflicts with a controller's change, as happens with
        namespaces.
        """
        kinds = {"PATCH": "application/apply-patch+yaml"}
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Content-Type": media or kinds.get(method, "application/json"),
        }
        if user:
            headers["Impersonate-User"] = user
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        until = time.monotonic() + _CONFLICTS_S
        while True:
            try:
                content = self._answer(method, self.url + path, headers, data)
                return decode(content) if content.startswith(b"{") else content.decode()
            except HTTPError as error:
                if method != "DELETE" or error.code != _CONFLICT or time.monotonic() > until:
                    raise
                error.close()

    def _answer(self, method: str, url: str, headers: Mapping[str, str], data: bytes | None) -> bytes:
        assert self._connections is not None, "it is not started"
        try:
            answer = self._connections.request(method, url, body=data, headers=headers, timeout=_ANSWER_S)
        except urllib3.exceptions.HTTPError as fault:
            raise URLError(str(fault)) from fault
        if answer.status >= _ERRORS:
            raise HTTPError(url, answer.status, answer.reason or "", Message(), BytesIO(answer.data))
        return answer.data

    def _pods_after_deletion(self, namespace: str) -> list[Any]:
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.call("DELETE", f"{path}?gracePeriodSeconds=0")
        left: list[Any] = self.call("GET", path)["items"]
        return left

    def remove_namespaces(self, names: Sequence[str]) -> None:
        """Delete namespaces with all their objects, and wait until they are gone: another test uses the same names.

        Their pods are deleted first: if the namespace controller finds one, it looks again only after 5 to 15 s.
        """
        for name in names:
            for kind in ("apis/batch/v1/{}/jobs", "apis/apps/v1/{}/deployments"):
                self.call("DELETE", f"/{kind.format(f'namespaces/{name}')}?propagationPolicy=Background")
        until, waits = time.monotonic() + 10, pauses()
        while any(self._pods_after_deletion(name) for name in names) and time.monotonic() < until:
            time.sleep(next(waits))
        for name in names:
            self.call("DELETE", f"/api/v1/namespaces/{name}")
        until, waits = time.monotonic() + _GONE_S, pauses()
        while left := {body["metadata"]["name"] for body in self.call("GET", "/api/v1/namespaces")["items"]} & {*names}:
            if time.monotonic() > until:
                raise TimeoutError(f"namespaces are still there: {sorted(left)}")
            time.sleep(next(waits))

    def write_kubeconfig(self, path: Path, token: str, *, url: str = "") -> Path:
        """Write a kubeconfig for a token. `url`: another way to the server, whose host name is not verified."""
        cluster: dict[str, object] = {"server": url or self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config))
        return path

    def _write_files(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        users = [f"{ADMIN},admin,1,system:masters", f"{COMPONENT},component,2,system:masters"]
        (self.folder / "tokens.csv").write_text("\n".join(users) + "\n")
        self.ca_file.parent.mkdir(exist_ok=True)
        pair = ("-keyout", str(self.ca_file.with_suffix(".key")), "-out", str(self.ca_file))
        subprocess.run([*_CERTIFICATE, *pair], check=True, capture_output=True)
        subprocess.run([*_ACCOUNT_KEY, "-out", str(self.folder / "sa.key")], check=True, capture_output=True)
        self.write_kubeconfig(self.kubeconfig, ADMIN)
        self.write_kubeconfig(self.folder / "component.kubeconfig", COMPONENT)

    def _stages(self) -> Path:
        path = self.folder / "stages.yaml"
        path.write_text((HERE / "stages.yaml").read_text().replace("HISTORY_PORT", str(self.history_port)))
        return path

    def _scheduler_config(self, kubeconfig: str) -> str:
        path = self.folder / "scheduler.json"
        client = {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000}
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": client,
        }
        path.write_text(json.dumps(config))
        return str(path)

    def _start_etcd(self, client: str, peer: str) -> None:
        self._spawn(
            "server",
            f"--data-dir={self.etcd}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def _start_apiserver(self, etcd: str, port: str) -> None:
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self.folder / 'certs'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.key'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={HERE / 'audit.yaml'}",
            f"--audit-log-path={self.audit.path}",
            "--profiling=false",
            *self._features(),
        )

    def _features(self) -> list[str]:
        """Feature flags of the server and its controllers: an emulated older version has only its default features."""
        return self._older() or ["--feature-gates=HPAScaleToZero=true"]

    def _older(self) -> list[str]:
        return [f"--emulated-version={self.emulated}"] if self.emulated else []

    def _spawn(self, name: str, *arguments: str) -> None:
        path = command(self.binaries, name)
        assert path is not None, f"{name} is not in {self.binaries}"
        first = {"PATH": f"{self.programs}:{os.environ['PATH']}"}
        self._processes[name] = begun([path, *arguments], self.folder / f"{name}.log", first)

    def _await(self, name: str, holds: Any) -> None:
        until = time.monotonic() + _WITHIN_S
        while not holds():
            if self._processes[name].poll() is not None or time.monotonic() > until:
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"{name} did not come up:\n{log[-2000:]}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return self.ca_file.exists() and self.call("GET", "/readyz") == "ok"
        except (URLError, OSError):
            return False

    def _has_default_account(self) -> bool:
        """Whether the controllers are at work: they are once the first namespace has its account."""
        try:
            self.call("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        except (URLError, OSError):
            return False
        return True


def pauses() -> Iterator[float]:
    """Seconds to wait before each next look at a server. They grow: most results come soon, and each look is work for
    both sides, also in a test that waits long."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(pause * 1.4, _LONGEST_PAUSE_S)


def start(binaries: Path, folder: Path, emulated: str = "", etcd: Path | None = None) -> ControlPlane:
    """Start a control plane in a folder and wait until it is ready. `emulated`: the older version that it emulates;
    `etcd`: a folder whose copy its etcd begins with."""
    plane = ControlPlane(binaries=binaries, folder=folder, emulated=emulated)
    if etcd is not None:
        copy(etcd, plane.etcd)
    try:
        plane.start()
    except BaseException:
        plane.stop()
        raise
    return plane


def node(name: str, *, gpus: int = 8, labels: Mapping[str, str] | None = None, **spec: object) -> Mapping[str, Any]:
    """A Node for KWOK, with `gpus` as the device plugin would report them; 0: it reports none."""
    room: dict[str, str] = {"cpu": "80", "memory": "512Gi", "pods": "110"}
    if gpus:
        room["nvidia.com/gpu"] = str(gpus)
    meta = {
        "name": name,
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/hostname": name, **(labels or {})},
    }
    status = {"capacity": room, "allocatable": room}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


def copy(folder: Path, to: Path) -> None:
    """Copy an etcd folder. Most of it is a log with space to grow, which takes no disk space in a sparse copy."""
    subprocess.run(["cp", "-R", "--sparse=always", folder, to], check=True)


def remove(folder: Path) -> None:
    """Remove the folder of a control plane that was stopped."""
    shutil.rmtree(folder, ignore_errors=True)
