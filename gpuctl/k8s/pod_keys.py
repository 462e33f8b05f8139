"""Keys of pods' labels and annotations that runtimes, drivers and controllers act on.

Source: the container runtimes' and drivers' own pages: NVIDIA container toolkit and HAMi; the CDI specification; CRI-O,
"Annotations"; NRI, "Device injector"; Kubernetes, "Well-Known Labels, Annotations and Taints".
"""

from __future__ import annotations

from gpuctl.k8s import names

GPU_ANNOTATIONS = (
    "hami.io/", "nvidia.com/", "nvidia.cdi.k8s.io", "cdi.k8s.io", "gpu-", "io.kubernetes.cri-o.", "devices.nri.io",
    "cdi-devices.nri.io", "devices.noderesource.dev", "cdi-devices.noderesource.dev", "devices.crio.io",
)  # fmt: skip
"""An annotation whose key begins so may give a pod GPUs, or other devices of its node."""
_OF_OTHERS = (
    "gpuctl.dev", "kubernetes.io", "k8s.io", "nvidia.com", "hami.io", "nri.io", "noderesource.dev", "crio.io",
)  # fmt: skip
_BEGINNINGS = (
    *GPU_ANNOTATIONS, "io.kubernetes.", "io.katacontainers.", "io.containerd.", "job-name", "controller-uid",
)  # fmt: skip
_FOR_PEOPLE = "app.kubernetes.io/"


def is_for_people(key: str) -> bool:
    """Whether a job may put a label or annotation with that key on its pods: neither gpuctl nor the cluster acts on it.

    Of the keys with a domain of Kubernetes, only the recommended labels `app.kubernetes.io/...` are allowed. A key may
    be only a domain: `devices.crio.io`.
    """
    if key.startswith(_FOR_PEOPLE):
        return key != names.MANAGED_BY_LABEL
    domain = key.partition("/")[0]
    return not (
        key.startswith(_BEGINNINGS) or any(domain == other or domain.endswith(f".{other}") for other in _OF_OTHERS)
    )


def reserved_after(prefix: str) -> str:
    """A reserved variable that the prefix and some key of a Secret or ConfigMap could form together; "" if none."""
    reserved = (*sorted(names.RESERVED_ENV_NAMES), *names.RESERVED_ENV_PREFIXES)
    return next((name for name in reserved if _may_name(prefix, name)), "")


def _may_name(prefix: str, reserved: str) -> bool:
    """Whether the prefix and a key can form that variable, or one that begins so."""
    return reserved.startswith(prefix) or (prefix.startswith(reserved) and reserved in names.RESERVED_ENV_PREFIXES)
