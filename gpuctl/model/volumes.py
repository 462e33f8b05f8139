"""The volumes that are mounted into a job's containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gpuctl.model.units import MemBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVolume:
    """An existing PersistentVolumeClaim of the project."""

    claim: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClaimVolume:
    """A PersistentVolumeClaim made for the job, kept across its runs."""

    size_bytes: MemBytes
    storage_class: str | None
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPathVolume:
    """A folder of the node."""

    host_path: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsVolume:
    """A folder of an NFS server."""

    server: str
    path: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVolume:
    """A Secret of the project's namespace: a file for each key."""

    secret: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapVolume:
    """A ConfigMap of the project's namespace: a file for each key."""

    config_map: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDirVolume:
    """A folder on the node's disk, which is gone with the pod."""

    size_bytes: MemBytes
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedSource:
    """Files of a projected volume: keys of a Secret or ConfigMap (all of them, or those in `items`), or pod `facts`.

    `items`: file paths by key; `facts`: facts by file path.
    """

    secret: str | None = None
    config_map: str | None = None
    items: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedVolume:
    """Several Secrets, ConfigMaps and facts of the pod in one folder."""

    sources: tuple[ProjectedSource, ...]
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiVolume:
    """A volume that a CSI driver makes for the pod, without a claim."""

    driver: str
    attributes: Mapping[str, str]
    fs_type: str | None
    secret: str | None
    mount_path: str
    read_only: bool = False


Volume: TypeAlias = (
    ClaimVolume
    | NewClaimVolume
    | HostPathVolume
    | NfsVolume
    | SecretVolume
    | ConfigMapVolume
    | EmptyDirVolume
    | ProjectedVolume
    | CsiVolume
)
