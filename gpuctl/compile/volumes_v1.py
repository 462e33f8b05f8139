"""The public form of a job's volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gpuctl.compile.amounts import PATH_LENGTH, WrongValue, excludes
from gpuctl.compile.fields_v1 import (
    LABEL_KEY,
    AbsolutePath,
    EnvText,
    Memory,
    Spec,
    Subdomain,
    exactly_one,
    in_mapping,
    matching,
    positive,
)


class NewClaim(Spec):
    """A volume made for the job, kept across its runs."""

    size: Annotated[Memory, AfterValidator(positive)] = Field(description="Its size: 100Gi.")
    storage_class: Subdomain | None = Field(None, description="The StorageClass. Default: the cluster's default class.")


_ORIGINS = ("claim", "newClaim", "secret", "configMap", "emptyDir", "projected", "csi", "nfs", "hostPath")


class EmptyDir(Spec):
    """A folder of the pod's own, which is gone with the pod."""

    size: Annotated[Memory, AfterValidator(positive)] = Field(
        description="How much it may hold on the node's disk: 100Gi. A pod that writes more is evicted."
    )


class NfsVolume(Spec):
    """A folder of an NFS server: one of the cluster's security.nfs, or below one."""

    server: Subdomain = Field(description="The server's host name or IPv4 address, as the cluster lists it.")
    path: AbsolutePath = Field(description="The folder: /datasets/images.")


_Key = Annotated[
    str,
    matching(r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*", "a key of a Secret or ConfigMap"),
    Field(min_length=1, max_length=253),
]
_Fact = Annotated[
    str,
    matching(
        r"metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['" + LABEL_KEY + r"'\])",
        "a fact of the pod: metadata.name, metadata.labels, or metadata.labels['KEY']",
    ),
    Field(max_length=400),
]


def _within(path: str) -> str:
    """Refuse a path that the API server would refuse: it must stay below the volume's folder."""
    leads_out = path.startswith("..") or {"", ".", ".."} & set(path.split("/"))
    if not leads_out and ":" not in path and len(path) <= PATH_LENGTH and path.isprintable():
        return path
    raise WrongValue("GPU2023", found=path, wanted="a path below the volume's folder: hub/token")


_Within = Annotated[str, AfterValidator(_within)]


def _no_token(source: Mapping[str, Any]) -> Iterator[WrongValue]:
    if "serviceAccountToken" in source:
        yield WrongValue("GPU3113", at=("serviceAccountToken",))
    else:
        yield from exactly_one(source, "secret", "configMap", "downwardAPI")
        if source.get("items") is not None and source.get("downwardAPI") is not None:
            yield excludes("items", "downwardAPI", at=("items",))


class ProjectedSource(Spec):
    """Files of a projected volume: exactly one of secret, configMap and downwardAPI."""

    secret: Subdomain | None = Field(None, description="A Secret of the project's namespace.")
    config_map: Subdomain | None = Field(None, description="A ConfigMap of the project's namespace.")
    items: dict[_Key, _Within] = Field(
        {}, max_length=1000, description="Of its keys only these, each with the path of its file. Default: all."
    )
    downward_api: dict[_Within, _Fact] = Field(
        {}, alias="downwardAPI", max_length=100, description="Facts of the pod by the path of their file."
    )

    _one_origin = in_mapping(
        _no_token, lambda source: {name: each for name, each in source.items() if name != "serviceAccountToken"}
    )


def _paths_taken_twice(volume: Mapping[str, Any]) -> Iterator[WrongValue]:
    sources, taken = volume.get("sources"), set[str]()
    for position, source in enumerate(sources if isinstance(sources, list) else ()):
        items, facts = (source.get(name) if isinstance(source, dict) else None for name in ("items", "downwardAPI"))
        for key, path in items.items() if isinstance(items, dict) else ():
            if str(path) in taken:
                yield WrongValue("GPU2021", at=("sources", position, "items", key), found=str(path))
            taken.add(str(path))
        for path in facts if isinstance(facts, dict) else ():
            if path in taken:
                yield WrongValue("GPU2021", at=("sources", position, "downwardAPI", path), found=str(path))
            taken.add(path)


class Projected(Spec):
    """One folder with files of several origins."""

    sources: list[ProjectedSource] = Field(min_length=1, max_length=50, description="What is in it.")

    _no_two_at_one_path = in_mapping(_paths_taken_twice)


class CsiVolume(Spec):
    """A volume that a CSI driver makes for each pod, and that is gone with it. No claim is behind it."""

    driver: Annotated[Subdomain, Field(max_length=63)] = Field(
        description="The driver, one of the cluster's security.csiDrivers: secrets-store.csi.k8s.io."
    )
    attributes: dict[Annotated[str, Field(min_length=1, max_length=253)], EnvText] = Field(
        {}, max_length=100, description="What the driver is told; its own page says what it takes."
    )
    fs_type: Annotated[str, matching(r"[a-z0-9]+", "a file system: ext4")] | None = Field(
        None, max_length=32, description="The file system. Default: the driver's."
    )
    secret: Subdomain | None = Field(None, description="A Secret of the project's namespace that the driver is given.")


class Volume(Spec):
    """A volume: exactly one of claim, newClaim, secret, configMap, emptyDir, projected, csi, nfs and hostPath."""

    claim: Subdomain | None = Field(None, description="An existing PersistentVolumeClaim of the project's namespace.")
    new_claim: NewClaim | None = Field(None, description="A claim made for the job.")
    secret: Subdomain | None = Field(None, description="A Secret of the project's namespace: a file for each key.")
    config_map: Subdomain | None = Field(
        None, description="A ConfigMap of the project's namespace: a file for each key."
    )
    empty_dir: EmptyDir | None = Field(
        None, description="An empty folder on the node's disk, for as long as the pod is."
    )
    projected: Projected | None = Field(
        None, description="Several Secrets, ConfigMaps and facts of the pod in one folder."
    )
    csi: CsiVolume | None = Field(None, description="What one of the cluster's security.csiDrivers makes for the pod.")
    nfs: NfsVolume | None = Field(None, description="A folder of an NFS server.")
    host_path: AbsolutePath | None = Field(
        None, description="A folder of the node: one of the cluster's security.hostPaths, or below one."
    )
    mount_path: AbsolutePath = Field(description="Where the container sees it.")
    read_only: bool = Field(default=False, description="Mount it read-only.")

    _one_origin = in_mapping(lambda data: exactly_one(data, *_ORIGINS))
