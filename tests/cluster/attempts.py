"""Attempts in Git by a person of team-a to reach what is team-b's: one for every field of a job.

Each is the text of a file in team-a's folder. Team-b has a Secret `hub`, a claim `data`, a volume of the class
`isle-b`, and its job `train`.
"""

from __future__ import annotations

from collections.abc import Mapping

from attempt import THEIRS, Attempt, job
from attempts_in_pods import REFUSED_IN_PODS, beside


def _volume(source: str, name: str = "job") -> str:
    return job(name, f", volumes: [{{{source}, mountPath: /m}}]")


def _env(entry: str, name: str = "job") -> str:
    return job(name, f", env: {{{entry}}}")


def _git(source: str, name: str = "job", *, path: str = "/code") -> str:
    return job(name, f", git: {{{source}, path: {path}}}")


REFUSED: Mapping[str, Attempt] = {
    **REFUSED_IN_PODS,
    "a job of team-b": Attempt("metadata.project", job("train", project="team-b")),
    "a project spelt in capitals": Attempt("metadata.project", job("job", project="Team-B")),
    "a project by a path": Attempt("metadata.project", job("job", project="team-a/../team-b")),
    "a project by its namespace": Attempt("metadata.project", job("job", project=THEIRS)),
    "a project with a blank": Attempt("metadata.project", job("job", project='"team-b "')),
    "a project with a line break": Attempt("metadata.project", job("job", project='"team-a\\nnamespace: team-b"')),
    "a project in letters that look alike": Attempt("metadata.project", job("job", project="tеam-b")),  # noqa: RUF001 - a Cyrillic one
    "a name with a namespace": Attempt("metadata.name", job(f"{THEIRS}/train")),
    "a name by a path": Attempt("metadata.name", job('"../../team-b/jobs/train"')),
    "a namespace": Attempt("metadata", job("job", meta=f", namespace: {THEIRS}")),
    "labels": Attempt("metadata", job("job", meta=", labels: {gpuctl.dev/project: team-b}")),
    "annotations": Attempt("metadata", job("job", meta=", annotations: {gpuctl.dev/placement: x}")),
    "an owner": Attempt("metadata", job("job", meta=", ownerReferences: [{kind: Namespace}]")),
    "another kind": Attempt("kind", f"apiVersion: v1\nkind: Pod\nmetadata: {{name: x, namespace: {THEIRS}}}\n"),
    "another version": Attempt("apiVersion", job("job").replace("gpuctl.dev/v1", "batch/v1")),
    "team-b's project": Attempt("kind", job("team-b").replace("kind: Job", "kind: Project")),
    "team-b's project in a second document": Attempt(
        "kind", job("job", more="---\napiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: team-b}\n")
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
    "after a job of team-b": Attempt("spec.after.job", job("job", ", after: [{job: train, result: any}]")),
    "after a job of team-b by its project": Attempt("spec.after", job("job", ", after: [team-b/train]")),
    "a request to team-b": Attempt(
        "spec.probes.liveness.http", job("job", f", probes: {{liveness: {{http: {{port: 80, host: {THEIRS}}}}}}}")
    ),
    "a connection to team-b": Attempt(
        "spec.probes.readiness.tcp", job("job", ", probes: {readiness: {tcp: {port: 80, host: 10.0.0.1}}}")
    ),
    "a request with another's name": Attempt(
        "spec.probes.startup.http", job("job", ", probes: {startup: {http: {port: 80, httpHeaders: [x]}}}")
    ),
    "two origins": Attempt("spec.volumes", _volume("claim: data, hostPath: /mnt")),
    "a path within a claim": Attempt("spec.volumes", _volume("claim: data, subPath: ../team-b")),
    "a mount out of the container": Attempt(
        "spec.volumes.mountPath", job("job", ", volumes: [{claim: data, mountPath: /m/../../host}]")
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
    "a grant of its own": Attempt("spec.security", job("job", ", security: {hostPaths: [/]}")),
    "a Secret with its namespace": Attempt("spec.env.secret", _env(f"T: {{secret: {THEIRS}/hub, key: token}}")),
    "a Secret by a path": Attempt("spec.env.secret", _env("T: {secret: ../team-b/hub, key: token}")),
    "a Secret and where it is": Attempt("spec.env", _env(f"T: {{secret: hub, key: token, namespace: {THEIRS}}}")),
    "a key by a path": Attempt("spec.env.key", _env("T: {secret: hub, key: ../../team-b/token}")),
    "a field of another": Attempt("spec.env", _env("T: {fieldRef: {fieldPath: metadata.namespace}}")),
    "a name that is an expression": Attempt("spec.env", _env('"T=$(hub)": x')),
    "every GPU by a value of a sweep": Attempt(
        "spec.sweep.matrix", job("job", ", sweep: {matrix: {nvidia_visible_devices: [all]}}")
    ),
    "all keys as a pod has them": Attempt("spec.envFrom", job("job", ", envFrom: [{secretRef: {name: hub}}]")),
    "all keys of team-b's Secret": Attempt(
        "spec.envFrom.secret", job("job", f", envFrom: [{{secret: {THEIRS}/hub, prefix: A_}}]")
    ),
    "all keys of team-b's ConfigMap": Attempt(
        "spec.envFrom.configMap", job("job", ", envFrom: [{configMap: ../team-b/x, prefix: A_}]")
    ),
    "keys that may name every GPU": Attempt("spec.envFrom.prefix", job("job", ", envFrom: [{secret: hub}]")),
    "keys after no prefix": Attempt("spec.envFrom.prefix", job("job", ', envFrom: [{secret: hub, prefix: ""}]')),
    "keys after the beginning of a variable of GPUs": Attempt(
        "spec.envFrom.prefix", job("job", ", envFrom: [{secret: hub, prefix: NVIDIA_}]")
    ),
    "an account": Attempt("spec", job("job", ", serviceAccountName: admin")),
    "an account's token": Attempt("spec", job("job", ", automountServiceAccountToken: true")),
    "a pull secret with its namespace": Attempt(
        "spec.imagePullSecrets", job("job", f", imagePullSecrets: [{THEIRS}/hub]")
    ),
    "the node's network": Attempt("spec", job("job", ", hostNetwork: true")),
    "the node's processes": Attempt("spec", job("job", ", hostPID: true")),
    "a privileged container by security": Attempt("spec.security", job("job", ", security: {privileged: true}")),
    "a label of gpuctl": Attempt("spec.labels", job("job", ", labels: {gpuctl.dev/project: team-b}")),
    "a label that finds pods of a Job": Attempt("spec.labels", job("job", ", labels: {job-name: train}")),
    "a newer one": Attempt("spec.labels", job("job", ", labels: {batch.kubernetes.io/job-name: train}")),
    "a label of what gpuctl manages": Attempt("spec.labels", job("job", ", labels: {app.kubernetes.io/managed-by: x}")),
    "a place by an annotation": Attempt("spec.annotations", job("job", ", annotations: {gpuctl.dev/placement: x}")),
    "a GPU by an annotation of HAMi": Attempt(
        "spec.annotations", job("job", ", annotations: {hami.io/vgpu-devices-to-allocate: x}")
    ),
    "all GPUs by an annotation of CDI": Attempt(
        "spec.annotations", job("job", ", annotations: {cdi.k8s.io/x: nvidia.com/gpu=all}")
    ),
    "all GPUs by an annotation of NVIDIA": Attempt(
        "spec.annotations",
        job("job", ", annotations: {nvidia.cdi.k8s.io/container.main: management.nvidia.com/gpu=all}"),
    ),
    "a GPU by an annotation of CRI-O": Attempt(
        "spec.annotations", job("job", ", annotations: {io.kubernetes.cri-o.Devices: /dev/nvidia0}")
    ),
    "a GPU by an annotation of a plugin": Attempt(
        "spec.annotations", job("job", ", annotations: {devices.nri.io/container.main: /dev/nvidia0}")
    ),
    "a profile by an annotation": Attempt(
        "spec.annotations",
        job("job", ", annotations: {container.apparmor.security.beta.kubernetes.io/main: unconfined}"),
    ),
    "a name that is an address": Attempt("spec.hostAliases.ip", job("job", ", hostAliases: [{ip: x, hostnames: [y]}]")),
    "a profile of the node": Attempt("spec.security.seccomp", job("job", ", security: {seccomp: Unconfined}")),
    "a capability": Attempt(
        "spec.security.capabilities.add", job("job", ", security: {capabilities: {add: [SYS_ADMIN]}}")
    ),
    "a privileged container": Attempt("spec", job("job", ", securityContext: {privileged: true}")),
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
    "a second container": Attempt("spec", job("job", ", containers: [{name: x, image: x}]")),
    "a pod as it is": Attempt("spec", job("job", ", template: {spec: {nodeName: isle-1}}")),
    "a node": Attempt("spec", job("job", ", nodeName: isle-1")),
    "a raw object": Attempt("spec", job("job", f", raw: {{metadata: {{namespace: {THEIRS}}}}}")),
    "a pool of nobody": Attempt("spec.nodePools", job("job", ", nodePools: [../team-b]")),
    "a host of an Ingress": Attempt(
        "spec.expose", job("job", ", expose: [{port: 80, via: ingress, host: team-b.example.com}]")
    ),
    "a path of an Ingress": Attempt(
        "spec.expose", job("job", ", expose: [{port: 80, via: ingress, path: /team-b/train}]")
    ),
    "a way of a Service": Attempt("spec.expose.via", job("job", ", expose: [{port: 80, via: externalName}]")),
    "a template of team-b": Attempt("spec.template.name", job("job", ", template: {name: theirs}")),
    "a template by its project": Attempt("spec.template.name", job("job", ", template: {name: team-b/theirs}")),
    "a template of a project": Attempt("spec.template", job("job", ", template: {name: theirs, project: team-b}")),
    "a value that is a field": Attempt(
        "spec.template.with", job("job", ", template: {name: common, with: {image: {nodeName: isle-1}}}")
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
        "spec.scaling.metric", job("job", f", type: inference, scaling: {{metric: ../../{THEIRS}/x, target: 1}}")
    ),
    "a metric with its namespace": Attempt(
        "spec.scaling", job("job", f", type: inference, scaling: {{metric: x, namespace: {THEIRS}, target: 1}}")
    ),
    "a series by an expression": Attempt(
        "spec.scaling.labels", job("job", ', type: inference, scaling: {metric: x, labels: {a: "b,c=d"}, target: 1}')
    ),
    "an image with a blank": Attempt("spec.image", job("job").replace("image: x", 'image: "x y"')),
    "a folder by its parent": Attempt("spec.workingDir", job("job", ", workingDir: /a/../../team-b")),
}
"""Attempts that gpuctl refuses: none is a valid declaration."""

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
        "spec.envFrom", job("keys", ", envFrom: [{secret: hub, prefix: A_}, {configMap: settings, prefix: B_}]")
    ),
    "registry": Attempt("spec.imagePullSecrets", job("registry", ", imagePullSecrets: [hub]")),
    "code": Attempt(
        "spec.git.secret", _git("repository: 'https://x:8443/y/z.git', revision: a/b, secret: hub", "code")
    ),
    "made": Attempt("spec.template.with", job("made", f', template: {{name: common, with: {{image: "{THEIRS}: y"}}}}')),
    "train": Attempt("metadata.name", job("train", ", expose: [{port: 80, via: ingress}]")),
    "team-b": Attempt("metadata.name", job("team-b", ", expose: [{port: 80, via: ingress}, {port: 81, via: ingress}]")),
    "kubernetes": Attempt("metadata.name", job("kubernetes", ", expose: [{port: 443}]")),
    "words": Attempt(
        "spec.command",
        job("words", f", command: [cat, /proc/1/root, {THEIRS}], args: [--namespace={THEIRS}], workingDir: /team-b"),
    ),
    "variable": Attempt("spec.env", _env(f"POD_NAMESPACE: {THEIRS}, MASTER_ADDR: train.{THEIRS}.svc", "variable")),
    "image": Attempt("spec.image", job("image").replace("image: x", f"image: registry/{THEIRS}/train")),
    "token": Attempt(
        "spec.volumes.mountPath",
        job("token", ", volumes: [{newClaim: {size: 1Gi}, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]"),
    ),
    "gang": Attempt("metadata.name", job("gang", ", workers: 2")),
    "answers": Attempt("spec.type", job("answers", ", type: inference, expose: [{port: 80}]")),
    "several": Attempt(
        "spec.volumes.projected.sources.secret",
        _volume(
            "projected: {sources: [{secret: hub, items: {token: t}}, {downwardAPI: {l: metadata.labels}}]}", "several"
        ),
    ),
    "before": Attempt(
        "spec.initContainers.command",
        beside("initContainers", f"command: [curl, https://kubernetes.default.svc/{THEIRS}]", "before"),
    ),
    "beside": Attempt("spec.sidecars.command", beside("sidecars", "command: [sh], mounts: [{volume: /m}]", "beside")),
    "marks": Attempt("spec.labels", job("marks", ", labels: {app: train}, annotations: {x.example.com/y: z}")),
    "hosts": Attempt(
        "spec.hostAliases.hostnames",
        job("hosts", f", hostAliases: [{{ip: 10.0.0.1, hostnames: [train.{THEIRS}.svc]}}]"),
    ),
    "pool": Attempt("spec.nodePools", job("pool", ", nodePools: [p], largeShm: true, resources: {memory: 1Gi}")),
}
"""Attempts that gpuctl accepts, by the name of the job: the names in them then mean team-a's own objects, there or
not."""

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
"""Harmless fields: numbers, one of a few words, yes or no; and a container's arguments, which are like its command."""
