"""Objects of runs that what others wrote on them leaves no room for what gpuctl writes.

Who may write on a run's object can fill its annotations to the server's last byte, or the object with labels and
owners: then each longer write is refused, also the one that pauses the run for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.k8s.objects import ref_of
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.state import Body

_SIGNS = ("metadata.annotations: Too long", "request is too large")
"""In the server's words. Source: apimachinery, pkg/api/validation/objectmeta.go; etcd, `ErrRequestTooLarge`."""


def is_crowded(body: Body, refusal: str) -> bool:
    """Whether a write of a run's object was refused for its size."""
    return is_workload(ref_of(body)) and any(sign in refusal for sign in _SIGNS)


BARE: Mapping[str, Any] = {"annotations": {}, "labels": {}, "ownerReferences": []}
"""What a crowded object has in its metadata, where others write as well, until gpuctl's own is applied again."""
