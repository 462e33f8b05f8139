"""Attempts in the pods of a job: in containers beside its own, and in manifests of other kinds."""

from __future__ import annotations

from collections.abc import Mapping

from attempt import THEIRS, Attempt, job


def _set(pod: str = "", *, container: str = "", top: str = "", meta: str = "") -> Attempt:
    """A JobSet with one more field: in the spec of its pods, in their container, or above."""
    main = f"containers: [{{name: main, image: x{container}}}]"
    template = f"{{metadata: {{{meta}}}, spec: {{template: {{metadata: {{{meta}}}, spec: {{{main}{pod}}}}}}}}}"
    whole = f"metadata: {{{meta}}}, spec: {{replicatedJobs: [{{name: w, template: {template}}}]{top}}}"
    return _manifest(f"apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, {whole}")


def _of(version: str, kind: str, spec: str) -> Attempt:
    """An object of a kind with a field that its pods need not have."""
    return _manifest(f"apiVersion: {version}, kind: {kind}, spec: {{{spec}}}")


def _manifest(text: str) -> Attempt:
    return Attempt("spec.manifest", job("job").replace("image: x", f"manifest: {{{text}}}"))


_OF_A_CONTAINER = {
    "name": (f"name: {THEIRS}/x", "name: ../main", "name: main", "name: git-sync"),
    "": (
        "privileged: true",
        "volumeMounts: [{name: t, mountPath: /t}]",
        "volumeDevices: []",
        "restartPolicy: Never",
        "lifecycle: {}",
        "ports: [{containerPort: 80, hostPort: 80}]",
        f"namespace: {THEIRS}",
        "resizePolicy: []",
    ),
    "image": ('image: "x y"',),
    "workingDir": ("workingDir: /a/../../team-b",),
    "env": ("env: {T: {fieldRef: {fieldPath: spec.nodeName}}}", "env: {NVIDIA_VISIBLE_DEVICES: all}"),
    "env.secret": (f"env: {{T: {{secret: {THEIRS}/hub, key: token}}}}",),
    "env.key": ("env: {T: {secret: hub, key: ../token}}",),
    "envFrom": ("envFrom: [{secretRef: {name: hub}}]",),
    "envFrom.secret": (f"envFrom: [{{secret: {THEIRS}/hub, prefix: A_}}]",),
    "envFrom.configMap": ("envFrom: [{configMap: ../team-b/x, prefix: A_}]",),
    "envFrom.prefix": ("envFrom: [{secret: hub}]", "envFrom: [{secret: hub, prefix: NVIDIA_}]"),
    "gpus": ("gpus: -1", "gpus: 1", "gpus: 0.5"),
    "resources": ("resources: {limits: {nvidia.com/gpu: 4}}",),
    "mounts": ("mounts: [{volume: /m, subPath: ../../etc}]", "mounts: [{hostPath: /, mountPath: /m}]"),
    "mounts.volume": ("mounts: [{volume: /}]", "mounts: [{volume: /m/../../etc}]", "mounts: [{volume: shm}]"),
    "mounts.mountPath": ("mounts: [{volume: /m, mountPath: /m/../etc}]",),
    "security": ("security: {privileged: true}", "security: {procMount: Unmasked}", "security: {hostPaths: [/]}"),
    "security.seccomp": ("security: {seccomp: Unconfined}",),
    "security.capabilities.add": ("security: {capabilities: {add: [SYS_ADMIN]}}",),
}
"""Refused entries of a container beside the job's own, by field. The job mounts a claim at /m."""


def beside(kind: str, entry: str, name: str = "job") -> str:
    whole = ", ".join((*(f"{must}: x" for must in ("name", "image") if not entry.startswith(must)), entry))
    return job(name, f", volumes: [{{claim: data, mountPath: /m}}], {kind}: [{{{whole}}}]")


REFUSED_IN_PODS: Mapping[str, Attempt] = {
    **{
        f"{kind}: {entry}": Attempt(f"spec.{kind}.{field}".removesuffix("."), beside(kind, entry))
        for kind in ("initContainers", "sidecars")
        for field, entries in _OF_A_CONTAINER.items()
        for entry in entries
    },
    "a host of a sidecar's probe": Attempt(
        "spec.sidecars.probes.liveness.http", beside("sidecars", "probes: {liveness: {http: {port: 80, host: x}}}")
    ),
    "a manifest in their namespace": _set(meta=f"namespace: {THEIRS}"),
    "a manifest with an owner": _set(meta="ownerReferences: [{kind: Namespace}]"),
    "a manifest with the labels of a run": _set(meta="labels: {gpuctl.dev/run: '00000000'}"),
    "a manifest that JobSet places": _set(meta="annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: a}"),
    "a manifest on a node": _set(", nodeName: n1"),
    "a manifest past the scheduler": _set(", schedulerName: other"),
    "a manifest with an account": _set(", serviceAccountName: gpuctl"),
    "a manifest with a token": _set(", volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"),
    "a manifest with a class of priority": _set(", priorityClassName: system-node-critical"),
    "a manifest in the network of the node": _set(", hostNetwork: true"),
    "a manifest among the processes of the node": _set(", hostPID: true"),
    "a manifest with the root of the node": _set(", volumes: [{name: r, hostPath: {path: /}}]"),
    "a manifest with a folder by a path": _set(", volumes: [{name: r, hostPath: {path: /mnt/data/../../etc}}]"),
    "a manifest with a claim of devices": _set(", resourceClaims: [{name: g, resourceClaimTemplateName: g}]"),
    "a manifest with a privileged container": _set(container=", securityContext: {privileged: true}"),
    "a manifest that reaches the node": _set(container=", securityContext: {capabilities: {add: [SYS_ADMIN]}}"),
    "a manifest that sees all GPUs": _set(container=", env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]"),
    "a manifest that may see all GPUs": _set(container=", envFrom: [{configMapRef: {name: hub}}]"),
    "a manifest that asks for less than it has": _set(
        container=", resources: {limits: {nvidia.com/gpu: 4}, requests: {nvidia.com/gpu: 0}}"
    ),
    "a manifest with a port of the node": _set(container=", ports: [{containerPort: 80, hostPort: 80}]"),
    "a manifest with claims of its own": _set(top=", volumeClaimPolicies: [{templates: []}]"),
    "a manifest that is let go": _set(top=", suspend: false"),
    "a manifest of another controller": _set(top=", managedBy: example.com/mine"),
    "a Ray cluster that takes more by itself": _of("ray.io/v1", "RayCluster", "enableInTreeAutoscaling: true"),
    "a Ray cluster with an Ingress of its own": _of("ray.io/v1", "RayCluster", "headGroupSpec: {enableIngress: true}"),
    "a Ray cluster with pods of Redis": _of("ray.io/v1", "RayCluster", "gcsFaultToleranceOptions: {redisAddress: a}"),
    "a Ray job on the cluster of others": _of("ray.io/v1", "RayJob", "clusterSelector: {ray.io/cluster: theirs}"),
    "a Ray job that keeps its cluster": _of("ray.io/v1", "RayJob", "shutdownAfterJobFinishes: false"),
    "a PyTorchJob that grows by itself": _of("kubeflow.org/v1", "PyTorchJob", "elasticPolicy: {maxReplicas: 9}"),
    "a PyTorchJob whose pods stay": _of("kubeflow.org/v1", "PyTorchJob", "runPolicy: {cleanPodPolicy: None}"),
    "a PyTorchJob in another queue": _of(
        "kubeflow.org/v1", "PyTorchJob", "runPolicy: {schedulingPolicy: {priorityClass: system-node-critical}}"
    ),
    "an MPIJob with a mount that gives GPUs": _of(
        "kubeflow.org/v2beta1", "MPIJob", "sshAuthMountPath: /var/run/nvidia-container-devices/all"
    ),
    "an MPIJob of another controller": _of("kubeflow.org/v2beta1", "MPIJob", "runPolicy: {managedBy: a.b/m}"),
    "a set of groups with claims": _of(
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderWorkerTemplate: {volumeClaimTemplates: [{}]}"
    ),
    "a set of groups with pods beyond its replicas": _of(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "rolloutStrategy: {rollingUpdateConfiguration: {maxSurge: 9}}",
    ),
    "a manifest of a kind of the cluster": _manifest("apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole"),
    "a manifest of a pod": _manifest("apiVersion: v1, kind: Pod, spec: {}"),
}
"""Attempts that gpuctl refuses: none is a valid declaration."""
