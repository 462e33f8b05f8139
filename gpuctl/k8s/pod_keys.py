"""Keys of labels and annotations of pods that are more than words: runtimes, drivers and controllers obey them.

Source: the container runtimes' and drivers' own pages: NVIDIA container toolkit and HAMi; the CDI specification; CRI-O,
"Annotations"; NRI, "Device injector"; Kubernetes, "Well-Known Labels, Annotations and Taints".
"""

from __future__ import annotations

from gpuctl.k8s import names

GPU_ANNOTATIONS = (
    "hami.io/", "nvidia.com/", "nvidia.cdi.k8s.io", "cdi.k8s.io", "gpu-", "io.kubernetes.cri-o.", "devices.nri.io",
    "cdi-devices.nri.io", "devices.noderesource.dev", "cdi-devices.noderesource.dev", "devices.crio.io",
)  # fmt: skip
"""An annotation with a key that begins so may give a pod GPUs, or other devices of its node."""
_OF_OTHERS = (
    "gpuctl.dev", "kubernetes.io", "k8s.io", "nvidia.com", "hami.io", "nri.io", "noderesource.dev", "crio.io",
)  # fmt: skip
_BEGINNINGS = (
    *GPU_ANNOTATIONS, "io.kubernetes.", "io.katacontainers.", "io.containerd.", "job-name", "controller-uid",
)  # fmt: skip
_FOR_PEOPLE = "app.kubernetes.io/"


def is_for_people(key: str) -> bool:
    """Whether a job may give its pods a label or annotation of that key: neither gpuctl nor the cluster goes by it.

    Of keys with a domain of Kubernetes, only the recommended labels `app.kubernetes.io/...` are so. A key may be a
    domain alone: `devices.crio.io`.
    """
    if key.startswith(_FOR_PEOPLE):
        return key != names.MANAGED_BY_LABEL
    domain = key.partition("/")[0]
    return not (
        key.startswith(_BEGINNINGS) or any(domain == other or domain.endswith(f".{other}") for other in _OF_OTHERS)
    )


def reserved_after(prefix: str) -> str:
    """A reserved variable that a key of a Secret or ConfigMap could make, put after the prefix; "" if none."""
    reserved = (*sorted(names.RESERVED_ENV_NAMES), *names.RESERVED_ENV_PREFIXES)
    return next((name for name in reserved if _may_name(prefix, name)), "")


def _may_name(prefix: str, reserved: str) -> bool:
    """Whether a key after the prefix can make that variable, or one that begins so."""
    return reserved.startswith(prefix) or (prefix.startswith(reserved) and reserved in names.RESERVED_ENV_PREFIXES)
