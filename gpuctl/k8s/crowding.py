"""Objects that others have filled, so that gpuctl's writes no longer fit.

A person who may write on an object can fill its annotations to the server's last byte, or fill it with labels and
owners. The server then refuses every longer write, also one that pauses a run for another job, or takes a right away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.k8s.kinds import CLAIM
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body

_SIGNS = ("metadata.annotations: Too long", "request is too large")
"""Parts of the server's messages. Source: apimachinery, pkg/api/validation/objectmeta.go; etcd,
`ErrRequestTooLarge`."""


def is_crowded(body: Body, refusal: str) -> bool:
    """Whether a write in a project's namespace was refused because the object is too large."""
    ref = ref_of(body)
    is_cleared = ref.namespace not in {"", SYSTEM_NAMESPACE} and (ref.api_version, ref.kind) != CLAIM
    return is_cleared and any(sign in refusal for sign in _SIGNS)


BARE: Mapping[str, Any] = {"annotations": {}, "labels": {}, "ownerReferences": []}
"""The metadata of a crowded object, where others may write, until gpuctl's own is applied again.
A claim keeps its metadata: Kubernetes records there to which volume it is bound."""
