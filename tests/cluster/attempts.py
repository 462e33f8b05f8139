"""What a person of team-a may write in Git to get at what is team-b's: an attempt for every field of a job.

Each is the text of a file in team-a's folder. Team-b has a Secret `hub`, a claim `data`, a volume of the class
`isle-b`, and its job `train`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

THEIRS = "gpu-isle-team-b"


@dataclass(frozen=True)
class Attempt:
    """`field`: which one it uses, by its path in the form; "" for the file as a whole. `text`: the file."""

    field: str
    text: str


def _job(name: str, spec: str = "", *, project: str = "team-a", more: str = "", meta: str = "") -> str:
    head = f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: {project}{meta}}}\n"
    return f"{head}spec: {{image: x{spec}}}\n{more}"


def _volume(source: str, name: str = "job") -> str:
    return _job(name, f", volumes: [{{{source}, mountPath: /m}}]")


def _env(entry: str, name: str = "job") -> str:
    return _job(name, f", env: {{{entry}}}")


def _git(source: str, name: str = "job", *, path: str = "/code") -> str:
    return _job(name, f", git: {{{source}, path: {path}}}")


def _set(pod: str = "", *, container: str = "", top: str = "", meta: str = "") -> Attempt:
    """A JobSet with a field more, in the spec of its pods, in their container, or above."""
    main = f"containers: [{{name: main, image: x{container}}}]"
    template = f"{{metadata: {{{meta}}}, spec: {{template: {{metadata: {{{meta}}}, spec: {{{main}{pod}}}}}}}}}"
    whole = f"metadata: {{{meta}}}, spec: {{replicatedJobs: [{{name: w, template: {template}}}]{top}}}"
    return _manifest(f"apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, {whole}")


def _of(version: str, kind: str, spec: str) -> Attempt:
    """An object of that kind with a field that its pods need not have."""
    return _manifest(f"apiVersion: {version}, kind: {kind}, spec: {{{spec}}}")


def _manifest(text: str) -> Attempt:
    return Attempt("spec.manifest", _job("job").replace("image: x", f"manifest: {{{text}}}"))


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
"""Of a container besides the job's own, by its field: what it may not say. The job mounts a claim at /m."""


def _beside(kind: str, entry: str, name: str = "job") -> str:
    whole = ", ".join((*(f"{must}: x" for must in ("name", "image") if not entry.startswith(must)), entry))
    return _job(name, f", volumes: [{{claim: data, mountPath: /m}}], {kind}: [{{{whole}}}]")


REFUSED: Mapping[str, Attempt] = {
    **{
        f"{kind}: {entry}": Attempt(f"spec.{kind}.{field}".removesuffix("."), _beside(kind, entry))
        for kind in ("initContainers", "sidecars")
        for field, entries in _OF_A_CONTAINER.items()
        for entry in entries
    },
    "a host of a sidecar's probe": Attempt(
        "spec.sidecars.probes.liveness.http", _beside("sidecars", "probes: {liveness: {http: {port: 80, host: x}}}")
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
    "a job of team-b": Attempt("metadata.project", _job("train", project="team-b")),
    "a project spelt in capitals": Attempt("metadata.project", _job("job", project="Team-B")),
    "a project by a path": Attempt("metadata.project", _job("job", project="team-a/../team-b")),
    "a project by its namespace": Attempt("metadata.project", _job("job", project=THEIRS)),
    "a project with a blank": Attempt("metadata.project", _job("job", project='"team-b "')),
    "a project with a line break": Attempt("metadata.project", _job("job", project='"team-a\\nnamespace: team-b"')),
    "a project in letters that look alike": Attempt("metadata.project", _job("job", project="tеam-b")),  # noqa: RUF001 - a Cyrillic one
    "a name with a namespace": Attempt("metadata.name", _job(f"{THEIRS}/train")),
    "a name by a path": Attempt("metadata.name", _job('"../../team-b/jobs/train"')),
    "a namespace": Attempt("metadata", _job("job", meta=f", namespace: {THEIRS}")),
    "labels": Attempt("metadata", _job("job", meta=", labels: {gpuctl.dev/project: team-b}")),
    "annotations": Attempt("metadata", _job("job", meta=", annotations: {gpuctl.dev/placement: x}")),
    "an owner": Attempt("metadata", _job("job", meta=", ownerReferences: [{kind: Namespace}]")),
    "another kind": Attempt("kind", f"apiVersion: v1\nkind: Pod\nmetadata: {{name: x, namespace: {THEIRS}}}\n"),
    "another version": Attempt("apiVersion", _job("job").replace("gpuctl.dev/v1", "batch/v1")),
    "team-b's project": Attempt("kind", _job("team-b").replace("kind: Job", "kind: Project")),
    "team-b's project in a second document": Attempt(
        "kind", _job("job", more="---\napiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: team-b}\n")
    ),
    "another cluster": Attempt("kind", "apiVersion: gpuctl.dev/v1\nkind: Cluster\nmetadata: {name: isle}\nspec: {}\n"),
    "a job of team-b by an anchor": Attempt(
        "metadata.project",
        "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {name: &team team-b, project: *team}\nspec: {image: x}\n",
    ),
    "a namespace by a merge key": Attempt(
        "metadata",
        f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: job, project: team-a, <<: {{namespace: {THEIRS}}}}}\n"
        "spec: {image: x}\n",
    ),
    "a claim with its namespace": Attempt("spec.volumes.claim", _volume(f"claim: {THEIRS}/data")),
    "a claim by a path": Attempt("spec.volumes.claim", _volume("claim: ../team-b/data")),
    "a claim and where it is": Attempt("spec.volumes", _volume(f"claim: data, namespace: {THEIRS}")),
    "a claim made of another": Attempt(
        "spec.volumes.newClaim",
        _volume(f"newClaim: {{size: 1Gi, dataSourceRef: {{name: data, namespace: {THEIRS}}}}}"),
    ),
    "a claim to a volume": Attempt("spec.volumes.newClaim", _volume("newClaim: {size: 1Gi, volumeName: isle-b}")),
    "a class by a path": Attempt(
        "spec.volumes.newClaim.storageClass", _volume("newClaim: {size: 1Gi, storageClass: ../isle-b}")
    ),
    "a Secret as a volume with its namespace": Attempt("spec.volumes.secret", _volume(f"secret: {THEIRS}/hub")),
    "a Secret as a volume as a pod has it": Attempt("spec.volumes.secret", _volume("secret: {secretName: hub}")),
    "a ConfigMap by a path": Attempt("spec.volumes.configMap", _volume("configMap: ../team-b/settings")),
    "the node's memory": Attempt("spec.volumes.emptyDir", _volume("emptyDir: {size: 1Gi, medium: Memory}")),
    "a projected token": Attempt("spec.volumes", _volume("projected: {sources: [{serviceAccountToken: {path: t}}]}")),
    "a share": Attempt("spec.volumes.nfs", _volume("nfs: {server: files, path: /team-b}")),
    "a share of another server": Attempt("spec.volumes.nfs.server", _volume("nfs: {server: other, path: /common}")),
    "above a share": Attempt("spec.volumes.nfs.path", _volume("nfs: {server: files, path: /}")),
    "a share by a path": Attempt("spec.volumes.nfs.path", _volume("nfs: {server: files, path: /common/../team-b}")),
    "a driver's volume": Attempt("spec.volumes", _volume("csi: {driver: secrets-store.csi.k8s.io}")),
    "after a job of team-b": Attempt("spec.after.job", _job("job", ", after: [{job: train, result: any}]")),
    "after a job of team-b by its project": Attempt("spec.after", _job("job", ", after: [team-b/train]")),
    "a request to team-b": Attempt(
        "spec.probes.liveness.http", _job("job", f", probes: {{liveness: {{http: {{port: 80, host: {THEIRS}}}}}}}")
    ),
    "a connection to team-b": Attempt(
        "spec.probes.readiness.tcp", _job("job", ", probes: {readiness: {tcp: {port: 80, host: 10.0.0.1}}}")
    ),
    "a request with another's name": Attempt(
        "spec.probes.startup.http", _job("job", ", probes: {startup: {http: {port: 80, httpHeaders: [x]}}}")
    ),
    "two origins": Attempt("spec.volumes", _volume("claim: data, hostPath: /mnt")),
    "a path within a claim": Attempt("spec.volumes", _volume("claim: data, subPath: ../team-b")),
    "a mount out of the container": Attempt(
        "spec.volumes.mountPath", _job("job", ", volumes: [{claim: data, mountPath: /m/../../host}]")
    ),
    "the root of the node": Attempt("spec.volumes.hostPath", _volume("hostPath: /")),
    "the pods of the node": Attempt("spec.volumes.hostPath", _volume("hostPath: /var/lib/kubelet/pods")),
    "above the pods of the node": Attempt("spec.volumes.hostPath", _volume("hostPath: //var/./")),
    "the runtime's socket": Attempt("spec.volumes.hostPath", _volume("hostPath: /run/containerd/containerd.sock")),
    "the logs of the node": Attempt("spec.volumes.hostPath", _volume("hostPath: /var/log/pods")),
    "the processes of the node": Attempt("spec.volumes.hostPath", _volume("hostPath: /proc")),
    "the kubelet's certificate": Attempt("spec.volumes.hostPath", _volume("hostPath: /etc/kubernetes")),
    "a folder by a path": Attempt("spec.volumes.hostPath", _volume("hostPath: /mnt/../var/lib/kubelet")),
    "above the folder for data": Attempt("spec.volumes.hostPath", _volume("hostPath: /mnt")),
    "beside the folder for data": Attempt("spec.volumes.hostPath", _volume("hostPath: /mnt/data-of-b")),
    "the keys of the node's people": Attempt("spec.volumes.hostPath", _volume("hostPath: /home/ubuntu/.ssh")),
    "the devices of the node": Attempt("spec.volumes.hostPath", _volume("hostPath: /dev")),
    "a grant of its own": Attempt("spec.security", _job("job", ", security: {hostPaths: [/]}")),
    "a Secret with its namespace": Attempt("spec.env.secret", _env(f"T: {{secret: {THEIRS}/hub, key: token}}")),
    "a Secret by a path": Attempt("spec.env.secret", _env("T: {secret: ../team-b/hub, key: token}")),
    "a Secret and where it is": Attempt("spec.env", _env(f"T: {{secret: hub, key: token, namespace: {THEIRS}}}")),
    "a key by a path": Attempt("spec.env.key", _env("T: {secret: hub, key: ../../team-b/token}")),
    "a field of another": Attempt("spec.env", _env("T: {fieldRef: {fieldPath: metadata.namespace}}")),
    "a name that is an expression": Attempt("spec.env", _env('"T=$(hub)": x')),
    "every GPU by a value of a sweep": Attempt(
        "spec.sweep.matrix", _job("job", ", sweep: {matrix: {nvidia_visible_devices: [all]}}")
    ),
    "all keys as a pod has them": Attempt("spec.envFrom", _job("job", ", envFrom: [{secretRef: {name: hub}}]")),
    "all keys of team-b's Secret": Attempt(
        "spec.envFrom.secret", _job("job", f", envFrom: [{{secret: {THEIRS}/hub, prefix: A_}}]")
    ),
    "all keys of team-b's ConfigMap": Attempt(
        "spec.envFrom.configMap", _job("job", ", envFrom: [{configMap: ../team-b/x, prefix: A_}]")
    ),
    "keys that may name every GPU": Attempt("spec.envFrom.prefix", _job("job", ", envFrom: [{secret: hub}]")),
    "keys after no prefix": Attempt("spec.envFrom.prefix", _job("job", ', envFrom: [{secret: hub, prefix: ""}]')),
    "keys after the beginning of a variable of GPUs": Attempt(
        "spec.envFrom.prefix", _job("job", ", envFrom: [{secret: hub, prefix: NVIDIA_}]")
    ),
    "an account": Attempt("spec", _job("job", ", serviceAccountName: admin")),
    "an account's token": Attempt("spec", _job("job", ", automountServiceAccountToken: true")),
    "a pull secret with its namespace": Attempt(
        "spec.imagePullSecrets", _job("job", f", imagePullSecrets: [{THEIRS}/hub]")
    ),
    "the node's network": Attempt("spec", _job("job", ", hostNetwork: true")),
    "the node's processes": Attempt("spec", _job("job", ", hostPID: true")),
    "a privileged container by security": Attempt("spec.security", _job("job", ", security: {privileged: true}")),
    "a label of gpuctl": Attempt("spec.labels", _job("job", ", labels: {gpuctl.dev/project: team-b}")),
    "a label that finds pods of a Job": Attempt("spec.labels", _job("job", ", labels: {job-name: train}")),
    "a newer one": Attempt("spec.labels", _job("job", ", labels: {batch.kubernetes.io/job-name: train}")),
    "a label of what gpuctl manages": Attempt(
        "spec.labels", _job("job", ", labels: {app.kubernetes.io/managed-by: x}")
    ),
    "a place by an annotation": Attempt("spec.annotations", _job("job", ", annotations: {gpuctl.dev/placement: x}")),
    "a GPU by an annotation of HAMi": Attempt(
        "spec.annotations", _job("job", ", annotations: {hami.io/vgpu-devices-to-allocate: x}")
    ),
    "all GPUs by an annotation of CDI": Attempt(
        "spec.annotations", _job("job", ", annotations: {cdi.k8s.io/x: nvidia.com/gpu=all}")
    ),
    "all GPUs by an annotation of NVIDIA": Attempt(
        "spec.annotations",
        _job("job", ", annotations: {nvidia.cdi.k8s.io/container.main: management.nvidia.com/gpu=all}"),
    ),
    "a GPU by an annotation of CRI-O": Attempt(
        "spec.annotations", _job("job", ", annotations: {io.kubernetes.cri-o.Devices: /dev/nvidia0}")
    ),
    "a GPU by an annotation of a plugin": Attempt(
        "spec.annotations", _job("job", ", annotations: {devices.nri.io/container.main: /dev/nvidia0}")
    ),
    "a profile by an annotation": Attempt(
        "spec.annotations",
        _job("job", ", annotations: {container.apparmor.security.beta.kubernetes.io/main: unconfined}"),
    ),
    "a name that is an address": Attempt(
        "spec.hostAliases.ip", _job("job", ", hostAliases: [{ip: x, hostnames: [y]}]")
    ),
    "a profile of the node": Attempt("spec.security.seccomp", _job("job", ", security: {seccomp: Unconfined}")),
    "a capability": Attempt(
        "spec.security.capabilities.add", _job("job", ", security: {capabilities: {add: [SYS_ADMIN]}}")
    ),
    "a privileged container": Attempt("spec", _job("job", ", securityContext: {privileged: true}")),
    "a token of the account in a folder": Attempt(
        "spec.volumes.projected.sources", _volume("projected: {sources: [{serviceAccountToken: {path: token}}]}")
    ),
    "bundles of trust": Attempt(
        "spec.volumes.projected.sources", _volume("projected: {sources: [{clusterTrustBundle: {}}]}")
    ),
    "a Secret of theirs in a folder": Attempt(
        "spec.volumes.projected.sources.secret", _volume(f"projected: {{sources: [{{secret: {THEIRS}/hub}}]}}")
    ),
    "a ConfigMap of theirs in a folder": Attempt(
        "spec.volumes.projected.sources.configMap", _volume("projected: {sources: [{configMap: ../x}]}")
    ),
    "a key by a path in a folder": Attempt(
        "spec.volumes.projected.sources.items", _volume("projected: {sources: [{secret: hub, items: {../x: x}}]}")
    ),
    "a file above the folder": Attempt(
        "spec.volumes.projected.sources.items",
        _volume("projected: {sources: [{secret: hub, items: {x: ../../etc/x}}]}"),
    ),
    "a fact of the node": Attempt(
        "spec.volumes.projected.sources.downwardAPI",
        _volume("projected: {sources: [{downwardAPI: {x: spec.nodeName}}]}"),
    ),
    "modes of files": Attempt(
        "spec.volumes.projected", _volume("projected: {sources: [{secret: hub}], defaultMode: 511}")
    ),
    "a driver that is not listed": Attempt("spec.volumes.csi.driver", _volume("csi: {driver: host.example.com}")),
    "a Secret of theirs for a driver": Attempt(
        "spec.volumes.csi.secret", _volume(f"csi: {{driver: host.example.com, secret: {THEIRS}/hub}}")
    ),
    "what a driver is not told": Attempt(
        "spec.volumes.csi", _volume("csi: {driver: host.example.com, volumeHandle: x}")
    ),
    "attributes for a driver that is not listed": Attempt(
        "spec.volumes.csi.attributes", _volume("csi: {driver: host.example.com, attributes: {path: /}}")
    ),
    "a file system of another kind": Attempt(
        "spec.volumes.csi.fsType", _volume("csi: {driver: host.example.com, fsType: -o}")
    ),
    "a second container": Attempt("spec", _job("job", ", containers: [{name: x, image: x}]")),
    "a pod as it is": Attempt("spec", _job("job", ", template: {spec: {nodeName: isle-1}}")),
    "a node": Attempt("spec", _job("job", ", nodeName: isle-1")),
    "a raw object": Attempt("spec", _job("job", f", raw: {{metadata: {{namespace: {THEIRS}}}}}")),
    "a pool of nobody": Attempt("spec.nodePools", _job("job", ", nodePools: [../team-b]")),
    "a host of an Ingress": Attempt(
        "spec.expose", _job("job", ", expose: [{port: 80, via: ingress, host: team-b.example.com}]")
    ),
    "a path of an Ingress": Attempt(
        "spec.expose", _job("job", ", expose: [{port: 80, via: ingress, path: /team-b/train}]")
    ),
    "a way of a Service": Attempt("spec.expose.via", _job("job", ", expose: [{port: 80, via: externalName}]")),
    "a template of team-b": Attempt("spec.template.name", _job("job", ", template: {name: theirs}")),
    "a template by its project": Attempt("spec.template.name", _job("job", ", template: {name: team-b/theirs}")),
    "a template of a project": Attempt("spec.template", _job("job", ", template: {name: theirs, project: team-b}")),
    "a value that is a field": Attempt(
        "spec.template.with", _job("job", ", template: {name: common, with: {image: {nodeName: isle-1}}}")
    ),
    "flags of git": Attempt("spec.git.repository", _git("repository: '--upload-pack=sh'")),
    "a command as a repository": Attempt("spec.git.repository", _git("repository: 'ext::sh -c id'")),
    "a folder of the node as a repository": Attempt("spec.git.repository", _git("repository: 'file:///var/lib'")),
    "a repository by ssh": Attempt("spec.git.repository", _git("repository: 'git@x:y/z'")),
    "a password in Git": Attempt("spec.git.repository", _git("repository: 'https://u:p@x/y'")),
    "a variable of the container": Attempt("spec.git.repository", _git("repository: 'https://x/$(GITSYNC_PASSWORD)'")),
    "a repository with a line break": Attempt("spec.git.repository", _git('repository: "https://x/y\\n--z"')),
    "a folder above": Attempt("spec.git.repository", _git("repository: 'https://x/..'")),
    "a flag as a revision": Attempt("spec.git.revision", _git("repository: 'https://x/y', revision: '--x'")),
    "a revision that is a refspec": Attempt("spec.git.revision", _git("repository: 'https://x/y', revision: '+a:b'")),
    "a folder of git by its parent": Attempt("spec.git.path", _git("repository: 'https://x/y'", path="/a/../etc")),
    "a Secret of team-b for git": Attempt("spec.git.secret", _git(f"repository: 'https://x/y', secret: {THEIRS}/hub")),
    "an image for git": Attempt("spec.git", _git("repository: 'https://x/y', image: mine")),
    "a metric by a path": Attempt(
        "spec.scaling.metric", _job("job", f", type: inference, scaling: {{metric: ../../{THEIRS}/x, target: 1}}")
    ),
    "a metric with its namespace": Attempt(
        "spec.scaling", _job("job", f", type: inference, scaling: {{metric: x, namespace: {THEIRS}, target: 1}}")
    ),
    "a series by an expression": Attempt(
        "spec.scaling.labels", _job("job", ', type: inference, scaling: {metric: x, labels: {a: "b,c=d"}, target: 1}')
    ),
    "an image with a blank": Attempt("spec.image", _job("job").replace("image: x", 'image: "x y"')),
    "a folder by its parent": Attempt("spec.workingDir", _job("job", ", workingDir: /a/../../team-b")),
}
"""None of these is a declaration."""

TAKEN: Mapping[str, Attempt] = {
    "claim": Attempt("spec.volumes.claim", _volume("claim: data", "claim")),
    "class": Attempt(
        "spec.volumes.newClaim.storageClass", _volume("newClaim: {size: 1Gi, storageClass: isle-b}", "class")
    ),
    "folder": Attempt("spec.volumes.hostPath", _volume("hostPath: /mnt/data", "folder")),
    "share": Attempt("spec.volumes.nfs", _volume("nfs: {server: files, path: /common}", "share")),
    "secret": Attempt("spec.env.secret", _env("T: {secret: hub, key: token}", "secret")),
    "files": Attempt("spec.volumes.secret", _volume("secret: hub", "files")),
    "settings": Attempt("spec.volumes.configMap", _volume("configMap: settings", "settings")),
    "scratch": Attempt("spec.volumes.emptyDir", _volume("emptyDir: {size: 1Gi}", "scratch")),
    "keys": Attempt(
        "spec.envFrom", _job("keys", ", envFrom: [{secret: hub, prefix: A_}, {configMap: settings, prefix: B_}]")
    ),
    "registry": Attempt("spec.imagePullSecrets", _job("registry", ", imagePullSecrets: [hub]")),
    "code": Attempt(
        "spec.git.secret", _git("repository: 'https://x:8443/y/z.git', revision: a/b, secret: hub", "code")
    ),
    "made": Attempt(
        "spec.template.with", _job("made", f', template: {{name: common, with: {{image: "{THEIRS}: y"}}}}')
    ),
    "train": Attempt("metadata.name", _job("train", ", expose: [{port: 80, via: ingress}]")),
    "team-b": Attempt(
        "metadata.name", _job("team-b", ", expose: [{port: 80, via: ingress}, {port: 81, via: ingress}]")
    ),
    "kubernetes": Attempt("metadata.name", _job("kubernetes", ", expose: [{port: 443}]")),
    "words": Attempt(
        "spec.command",
        _job("words", f", command: [cat, /proc/1/root, {THEIRS}], args: [--namespace={THEIRS}], workingDir: /team-b"),
    ),
    "variable": Attempt("spec.env", _env(f"POD_NAMESPACE: {THEIRS}, MASTER_ADDR: train.{THEIRS}.svc", "variable")),
    "image": Attempt("spec.image", _job("image").replace("image: x", f"image: registry/{THEIRS}/train")),
    "token": Attempt(
        "spec.volumes.mountPath",
        _job("token", ", volumes: [{newClaim: {size: 1Gi}, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]"),
    ),
    "gang": Attempt("metadata.name", _job("gang", ", workers: 2")),
    "answers": Attempt("spec.type", _job("answers", ", type: inference, expose: [{port: 80}]")),
    "several": Attempt(
        "spec.volumes.projected.sources.secret",
        _volume(
            "projected: {sources: [{secret: hub, items: {token: t}}, {downwardAPI: {l: metadata.labels}}]}", "several"
        ),
    ),
    "before": Attempt(
        "spec.initContainers.command",
        _beside("initContainers", f"command: [curl, https://kubernetes.default.svc/{THEIRS}]", "before"),
    ),
    "beside": Attempt("spec.sidecars.command", _beside("sidecars", "command: [sh], mounts: [{volume: /m}]", "beside")),
    "marks": Attempt("spec.labels", _job("marks", ", labels: {app: train}, annotations: {x.example.com/y: z}")),
    "hosts": Attempt(
        "spec.hostAliases.hostnames",
        _job("hosts", f", hostAliases: [{{ip: 10.0.0.1, hostnames: [train.{THEIRS}.svc]}}]"),
    ),
    "pool": Attempt("spec.nodePools", _job("pool", ", nodePools: [p], largeShm: true, resources: {memory: 1Gi}")),
}
"""These are, by the name of the job: what they name is then team-a's own, there or not."""

_OF_A_PROBE = (
    "http", "http.port", "http.path", "tcp", "tcp.port", "exec", "delay", "period", "timeout", "failures",
)  # fmt: skip

HARMLESS = frozenset({
    "spec.imagePullPolicy", "spec.gpus", "spec.gpuMemory", "spec.workers", "spec.minWorkers", "spec.resources",
    "spec.resources.cpu", "spec.resources.memory", "spec.priority", "spec.preemptible", "spec.maxDuration",
    "spec.expose.port", "spec.largeShm", "spec.volumes.newClaim.size", "spec.volumes.emptyDir.size",
    "spec.volumes.readOnly", "spec.retries", "spec.retriesPerWorker", "spec.suspend", "spec.runIndex", "spec.args",
    "spec.security.runAsUser", "spec.security.runAsGroup", "spec.security.supplementalGroups", "spec.security.fsGroup",
    "spec.security.readOnlyRootFilesystem", "spec.security.capabilities", "spec.security.capabilities.drop",
    "spec.hostAliases", "spec.tty", "spec.dnsPolicy", "spec.pauseGrace", "spec.preStop", "spec.after.result",
    "spec.sweep", "spec.sweep.completions", "spec.sweep.parallelism",
    "spec.framework", "spec.success", "spec.ttlAfterFinished", "spec.checkpointEvery", "spec.git.size",
    "spec.scaling.of", "spec.scaling.target",
    *(
        f"spec.probes{part}"
        for kind in ("startup", "readiness", "liveness")
        for part in ("", f".{kind}", *(f".{kind}.{name}" for name in _OF_A_PROBE))
    ),
    *(
        f"spec.{kind}.{name}"
        for kind in ("initContainers", "sidecars")
        for name in (
            "imagePullPolicy", "args", "resources.cpu", "resources.memory", "mounts.readOnly", "security.runAsUser",
            "security.runAsGroup", "security.readOnlyRootFilesystem", "security.capabilities",
            "security.capabilities.drop",
        )
    ),
    "spec.sidecars.beforeInit",
    *(
        f"spec.sidecars.probes{part}"
        for kind in ("startup", "readiness", "liveness")
        for part in ("", f".{kind}", *(f".{kind}.{name}" for name in _OF_A_PROBE))
    ),
}) - {attempt.field for attempt in REFUSED.values()}  # fmt: skip
"""Numbers, one of a few words, yes or no; and a container's arguments, which are as its command."""
