"""The changes of a ResourceQuota, in gpuctl's words instead of Kubernetes' keys: `at most 8 -> 16 GPU claims`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.k8s import names

_NONE: Mapping[str, str] = {}
_REQUESTS = "requests."
_CLASSES = "spec.scopeSelector.matchExpressions"
_WORDS: Mapping[str, str] = {
    f"{_REQUESTS}{names.GPU_RESOURCE}": "GPUs by count",
    f"{names.DRA_DEVICE_CLASS}{names.CLAIMED_DEVICES}": "GPU claims",
    f"{names.NVIDIA_GPU_CLASS}{names.CLAIMED_DEVICES}": "GPU claims",
    f"{names.NVIDIA_MIG_CLASS}{names.CLAIMED_DEVICES}": "claims of MIG slices",
    "pods": "pods",
    "count/jobs.batch": "Jobs",
    "count/deployments.apps": "Deployments",
    "count/replicasets.apps": "ReplicaSets",
    "count/horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscalers",
    "count/services": "Services",
    "count/ingresses.networking.k8s.io": "Ingresses",
    "count/networkpolicies.networking.k8s.io": "NetworkPolicies",
    "count/persistentvolumeclaims": "volume claims",
    "count/resourceclaims.resource.k8s.io": "ResourceClaims",
    "count/resourceclaimtemplates.resource.k8s.io": "ResourceClaimTemplates",
    "count/rolebindings.rbac.authorization.k8s.io": "RoleBindings",
}


def ceiling_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """The ceilings that differ between two bodies of a ResourceQuota, each as `8 -> 16 pods`.

    GPUs come first. Cost: linear in the ceilings.
    """
    old, new = (body.get("spec", _NONE).get("hard", _NONE) for body in (before, after))
    known = list(_WORDS)
    for key in sorted(old.keys() | new.keys(), key=lambda key: (known.index(key) if key in _WORDS else 1, key)):
        if old.get(key) != new.get(key):
            yield f"{old.get(key, 'any number')} -> {new.get(key, 'any number')} {_name(key)}"


def in_words(path: str) -> str:
    """Another field of a ResourceQuota."""
    return "other priority classes are allowed" if path == _CLASSES else path


def _name(key: str) -> str:
    slices = f"{_REQUESTS}{names.MIG_RESOURCE_PREFIX}"
    return f"MIG slices {key.removeprefix(slices)}" if key.startswith(slices) else _WORDS.get(key, key)
