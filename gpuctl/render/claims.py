"""A job's own storage: a PersistentVolumeClaim for each `newClaim` volume, named by the job, kept across its runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.quantity import format_bytes
from gpuctl.model.manifest import Manifest
from gpuctl.model.volumes import (
    NewClaimVolume,
)
from gpuctl.render.owner import JobOwner


def volume_claims(owner: JobOwner) -> Iterator[Manifest]:
    """The claims in the order of their volumes. ReadWriteOnce, as Run:ai makes them."""
    new = (volume for volume in owner.job.container.volumes if isinstance(volume, NewClaimVolume))
    for index, volume in enumerate(new):
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": format_bytes(volume.size_bytes)}},
        }
        if volume.storage_class is not None:
            spec["storageClassName"] = volume.storage_class
        yield owner.manifest(kinds.CLAIM, names.claim_name(owner.job.id.name, index), {"spec": spec})
