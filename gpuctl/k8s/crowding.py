"""Objects on which what others wrote leaves no room for what gpuctl writes.

A person who may write on an object can fill its annotations to the server's last byte, or the object with labels and
owners: then each longer write is refused, also the one that pauses a run for another, or takes a right away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.k8s.kinds import CLAIM
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body

_SIGNS = ("metadata.annotations: Too long", "request is too large")
"""In the server's words. Source: apimachinery, pkg/api/validation/objectmeta.go; etcd, `ErrRequestTooLarge`."""


def is_crowded(body: Body, refusal: str) -> bool:
    """Whether a write in a project's namespace was refused for the object's size."""
    ref = ref_of(body)
    is_cleared = ref.namespace not in {"", SYSTEM_NAMESPACE} and (ref.api_version, ref.kind) != CLAIM
    return is_cleared and any(sign in refusal for sign in _SIGNS)


BARE: Mapping[str, Any] = {"annotations": {}, "labels": {}, "ownerReferences": []}
"""What a crowded object has in its metadata, where others write as well, until gpuctl's own is applied again.
A claim keeps its own: Kubernetes has there to which volume it is bound."""
