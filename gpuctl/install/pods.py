"""Ways that the guard closes to pods that are not gpuctl's: to a GPU, to the node itself, and onto tainted GPU nodes.

Each way is a CEL expression that is true for a pod that takes it. The expressions use variables of the policy: `pod`
(the spec, or what an update adds to it), `containers` (of all kinds) and `notes` (annotations).

Security: one way stays open, since admission does not see images: an image that itself sets NVIDIA_VISIBLE_DEVICES gets
GPUs on each node whose runtime honours that variable. The taints close it: with them, such a pod gets onto no GPU node.

Source: NVIDIA container toolkit, internal/config/image/cuda_image.go. GPUs are given by NVIDIA_VISIBLE_DEVICES; if it
is not set, to images with CUDA_VERSION; by mounts below /var/run/nvidia-container-devices; by annotations. `void` in a
pod's own variable gives none, whatever its image or an envFrom says. Kubernetes, "Pod Security Standards".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuctl.compile.pod_v1 import HARMLESS_CAPABILITIES
from gpuctl.k8s import names
from gpuctl.k8s.pod_keys import GPU_ANNOTATIONS

_GPU_RESOURCES = ("nvidia.com/", "deviceclass.resource.kubernetes.io/")
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_HIDES = f"e.name == '{_VISIBLE}' && e.?value.orValue('all') in ['void', 'none']"
_SHOWS = f"e.name == '{_VISIBLE}' && !(e.?value.orValue('all') in ['void', 'none'])"
_LEGACY = "CUDA_VERSION"
_DEVICE_MOUNTS = "nvidia-container-devices"


def ways() -> Iterator[tuple[str, str]]:
    """Each way as an expression, with the message for a person who tries it."""
    yield from _ways_to_a_gpu()
    yield from _ways_to_the_node()
    yield (
        f"variables.pod.?tolerations.orValue([]).exists(t, {reaches_gpu_nodes()})",
        "only gpuctl's pods tolerate the taints of GPU nodes",
    )


def hides_gpus_before() -> str:
    """Whether each init container without a GPU hides those of the node, whatever its image says."""
    has = "c.?resources.?limits.orValue({}).exists(k, k.startsWith('nvidia.com/'))"
    hides = f"c.?env.orValue([]).exists(e, {_HIDES})"
    return f"variables.pod.?initContainers.orValue([]).all(c, {has} || {hides})"


def _ways_to_a_gpu() -> Iterator[tuple[str, str]]:
    limits = f"c.?resources.?limits.orValue({{}}).exists(k, {_begins(_GPU_RESOURCES)})"
    yield _any_container(limits), "GPUs are asked for in Git: only gpuctl's pods have them"
    yield (
        "variables.pod.?resourceClaims.orValue([]).size() > 0",
        "devices are claimed in Git: only gpuctl's pods have resource claims",
    )
    yield (
        _any_container(f"c.?env.orValue([]).exists(e, {_SHOWS})"),
        f"{_VISIBLE} gives a container GPUs that no quota counts",
    )
    unseen = f"c.?envFrom.orValue([]).size() > 0 || c.?env.orValue([]).exists(e, e.name == '{_LEGACY}')"
    yield (
        _any_container(f"({unseen}) && !c.?env.orValue([]).exists(e, {_HIDES})"),
        f"a container with envFrom or {_LEGACY} may get GPUs that no quota counts: add {_VISIBLE}: void to its env",
    )
    yield (
        _any_container(f"c.?volumeMounts.orValue([]).exists(m, m.mountPath.contains('{_DEVICE_MOUNTS}'))"),
        f"a mount at {_DEVICE_MOUNTS} gives a container GPUs that no quota counts",
    )
    yield (
        f"variables.notes.exists(k, {is_gpu_note()})",
        "annotations that give a pod GPUs are written by gpuctl only",
    )
    yield (
        "variables.pod.?runtimeClassName.orValue('') != ''",
        "a runtime class may give GPUs, whatever its name: only gpuctl's pods have one",
    )


def _ways_to_the_node() -> Iterator[tuple[str, str]]:
    """Ways to the node. Pod Security's baseline refuses them too, but not in namespaces that are privileged by
    exception."""
    privileged = "c.?securityContext.?privileged.orValue(false)"
    yield _any_container(privileged), "a privileged container has every GPU of its node"
    added = f"c.?securityContext.?capabilities.?add.orValue([]).exists(k, !(k in {sorted(HARMLESS_CAPABILITIES)}))"
    yield _any_container(added), "these capabilities reach the node: containers may not add them"
    hosts = " || ".join(f"variables.pod.?{field}.orValue(false)" for field in ("hostPID", "hostIPC", "hostNetwork"))
    yield hosts, "hostPID, hostIPC and hostNetwork reach the processes of the node"
    yield (
        "variables.pod.?volumes.orValue([]).exists(v, has(v.hostPath))",
        "folders of the node are mounted by jobs that are declared in Git",
    )


def is_gpu_note(key: str = "k") -> str:
    """Whether an annotation gives a pod GPUs."""
    return _begins(GPU_ANNOTATIONS, key)


def reaches_gpu_nodes(toleration: str = "t") -> str:
    """Whether a toleration lets a pod past the taints that keep all but gpuctl's pods off GPU nodes."""
    key, effect = f"{toleration}.?key.orValue('')", f"{toleration}.?effect.orValue('')"
    return f"({key} in {['', *names.TOLERATED_TAINT_KEYS]} && {effect} in ['', 'NoSchedule'])"


def _begins(prefixes: Iterable[str], key: str = "k") -> str:
    return "(" + " || ".join(f"{key}.startsWith('{prefix}')" for prefix in prefixes) + ")"


def _any_container(holds: str) -> str:
    return f"variables.containers.exists(c, {holds})"
