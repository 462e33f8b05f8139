"""What people of a team try themselves to reach nodes, GPUs or jobs of others: pods, changes of pods, requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenancy import POLICIES, jobs, pod, pods

from gpuctl.k8s import names
from gpuctl.k8s.pod_keys import GPU_ANNOTATIONS
from gpuctl.render.bounds import CLASSES_NAME

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
EVERYWHERE = {"namespaceSelector": {}, "labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}


def volume(**source: Any) -> list[Any]:
    return [{"name": "v", **source}]


def secure(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


def averse(way: str = "podAntiAffinity", **term: Any) -> dict[str, Any]:
    return {way: {"requiredDuringSchedulingIgnoredDuringExecution": [{**EVERYWHERE, **term}]}}


TO_THE_NODE = {
    "the node's root": pod(volumes=volume(hostPath={"path": "/"})),
    "the node's devices": pod(volumes=volume(hostPath={"path": "/dev"})),
    "a folder that jobs may mount": pod(volumes=volume(hostPath={"path": "/mnt/data"})),
    "the node's processes": pod(hostPID=True),
    "the node's memory": pod(hostIPC=True),
    "the node's network": pod(hostNetwork=True),
    "all privileges": pod(secure(privileged=True)),
    "all capabilities": pod(secure(capabilities={"add": ["ALL"]})),
    "a capability of the node": pod(secure(capabilities={"add": ["CHOWN", "SYS_ADMIN"]})),
    "privileges of an init container": pod(initContainers=[{"name": "i", "image": "x", **secure(privileged=True)}]),
}

FIRST: Mapping[str, dict[str, Any]] = {
    "critical for nodes": {"priorityClassName": "system-node-critical"},
    "critical for the cluster": {"priorityClassName": "system-cluster-critical"},
    "high": {"priorityClassName": "high"},
    "high for a while": {"priorityClassName": "high", "activeDeadlineSeconds": 60},
    "high with resources": {"priorityClassName": "high", "containers": [
        {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
}  # fmt: skip

NUMBERS: Mapping[str, dict[str, Any]] = {
    "a priority": {"priority": 2_000_000_000},
    "a small priority": {"priority": 5},
    "a priority above gpuctl's class": {"priorityClassName": "gpuctl-no-preempt", "priority": 100_000},
    "gpuctl's class that preempts": {
        "priorityClassName": "gpuctl-no-preempt", "preemptionPolicy": "PreemptLowerPriority"},
}  # fmt: skip


def env(*entries: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in entries], **more}


def mount(path: str) -> Any:
    return pod({"volumeMounts": [{"name": "v", "mountPath": path}]}, volumes=volume(emptyDir={}))


VISIBLE, VOID = "NVIDIA_VISIBLE_DEVICES", ("NVIDIA_VISIBLE_DEVICES", "void")
OF_A_MAP = {"envFrom": [{"configMapRef": {"name": "m"}}]}
FIELD = {"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
UNCOUNTED = {
    "a GPU": (pod({"resources": {"limits": {"nvidia.com/gpu": "1"}}}), "GPUs are asked for in Git"),
    "a GPU by its class": (
        pod({"resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}), "GPUs are asked for in Git",
    ),
    "a claim": (pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]), "claimed in Git"),
    "all devices": (pod(env((VISIBLE, "all"))), VISIBLE),
    "a device": (pod(env((VISIBLE, "0"))), VISIBLE),
    "devices by a variable": (pod(env(("D", "all"), (VISIBLE, "$(D)"))), VISIBLE),
    "devices from a ConfigMap's key": (pod({"env": [FIELD]}), VISIBLE),
    "devices after none": (pod(env(VOID, (VISIBLE, "all"))), VISIBLE),
    "devices from a ConfigMap": (pod(OF_A_MAP), "envFrom"),
    "devices from a ConfigMap beside a variable": (pod(env(("OTHER", "void"), **OF_A_MAP)), "envFrom"),
    "devices by halves": (pod({"envFrom": [{"prefix": "NVIDIA_", "secretRef": {"name": "s"}}]}), "envFrom"),
    "an image of old": (pod(env(("CUDA_VERSION", "11.4"))), "CUDA_VERSION"),
    "a mounted device": (mount("/var/run/nvidia-container-devices/all"), "nvidia-container-devices"),
    "a mounted device by a detour": (mount("/var/run/x/../nvidia-container-devices/all"), "nvidia-container-devices"),
    "a runtime class": (pod(runtimeClassName="fast"), "runtime class"),
    **{f"an annotation {key}": (pod(meta={"annotations": {f"{key}x": "x"}}), "annotations") for key in GPU_ANNOTATIONS},
    "a toleration of GPU nodes": (pod(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), "taints"),
    "a toleration of gpuctl's nodes": (
        pod(tolerations=[{"key": "gpuctl.dev/managed", "operator": "Exists", "effect": "NoSchedule"}]), "taints",
    ),
    "a toleration of all taints": (pod(tolerations=[{"operator": "Exists"}]), "taints"),
    "a node": (pod(nodeName="n1"), "past the scheduler"),
    "gpuctl's labels": (pod(meta={"labels": {names.JOB_LABEL: "train"}}), "written by gpuctl only"),
    "gpuctl's annotations": (pod(meta={"annotations": {names.CHARGE_ANNOTATION: "{}"}}), "written by gpuctl only"),
    "an init container's GPU": (
        pod(initContainers=[{"name": "i", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]), "in Git",
    ),
}  # fmt: skip

PLAIN = {
    "nothing": pod(),
    "words of its own": pod(meta={"annotations": {names.PROGRESS_ANNOTATION: "1", names.CHECKPOINTED_ANNOTATION: "2"}}),
    "a ConfigMap and no devices": pod(env(VOID, **OF_A_MAP)),
    "an old image and no devices": pod(env(("CUDA_VERSION", "11.4"), VOID)),
    "CPUs": pod({"resources": {"limits": {"cpu": "1"}}}),
    "a harmless capability": pod(secure(capabilities={"add": ["CHOWN"], "drop": ["ALL"]})),
    "a toleration of lost nodes": pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]),
    "a toleration of other nodes": pod(tolerations=[{"key": "arm", "operator": "Exists"}]),
}

CHANGES: Mapping[str, tuple[object, str]] = {
    "HAMi's devices": ({"metadata": {"annotations": {"hami.io/vgpu-devices-allocated": "x"}}}, MERGE),
    "gpuctl's charge": ({"metadata": {"annotations": {names.CHARGE_ANNOTATION: "{}"}}}, MERGE),
    "another image": ({"spec": {"containers": [{"name": "main", "image": "mine"}]}}, STRATEGIC),
    "a toleration": ([{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}], JSON_PATCH),
}

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-a"
BEYOND = {
    "the level of the namespace": ("PATCH", "/api/v1/namespaces/gpu-a", {
        "metadata": {"labels": {f"{names.POD_SECURITY_LABEL}enforce": "privileged"}}}),
    "that it is a project's": (
        "PATCH", "/api/v1/namespaces/gpu-a", {"metadata": {"labels": {names.MANAGED_LABEL: None}}}),
    "a namespace": ("POST", "/api/v1/namespaces", {"metadata": {"name": "gpu-mine"}}),
    "a quota's end": ("DELETE", f"/api/v1/namespaces/gpu-a/resourcequotas/{CLASSES_NAME}", None),
    "a quota": ("PATCH", "/api/v1/namespaces/gpu-a/resourcequotas/gpuctl", {"spec": {"hard": {"pods": "9999"}}}),
    "what a quota counts": (
        "PATCH", f"/api/v1/namespaces/gpu-a/resourcequotas/{CLASSES_NAME}/status", {"status": {"hard": {"pods": "9"}}}),
    "a class": ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "mine"}, "value": 9999}),
    "a role with more": ("POST", f"{RBAC}/roles", {"metadata": {"name": "x"}, "rules": [
        {"apiGroups": [""], "resources": ["resourcequotas", "pods/binding"], "verbs": ["*"]}]}),
    "a binding to more": ("POST", f"{RBAC}/rolebindings", {
        "metadata": {"name": "x"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}),
    "gpuctl's own token": ("POST", "/api/v1/namespaces/gpuctl-system/serviceaccounts/gpuctl/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
    "gpuctl's ledgers": ("GET", "/api/v1/namespaces/gpuctl-system/configmaps", None),
    "a ledger": ("DELETE", "/api/v1/namespaces/gpuctl-system/configmaps/ledger.one.b", None),
    "the lease": ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/gpuctl-system/leases/gpuctl", None),
    "a policy's end": ("DELETE", f"{POLICIES}/gpuctl-stays-home", None),
    "a node": ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"pool": "mine"}}}),
    "a pod of another team": ("GET", pods("b"), None),
    "a job of another team": ("DELETE", jobs("b"), None),
    "a secret of another team": ("GET", "/api/v1/namespaces/gpu-b/secrets", None),
}  # fmt: skip
