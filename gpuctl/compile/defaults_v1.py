"""The public form of defaults for jobs, which a cluster and its projects declare: part of `spec_v1`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuctl.compile.fields_v1 import Cpu, EnvName, Memory, Spec, Subdomain, Ttl, unique
from gpuctl.compile.pod_v1 import EnvEntry, EnvSource, HostAlias, PodAnnotations, PodLabels, PodSecurity
from gpuctl.compile.volumes_v1 import Volume


class JobDefaults(Spec):
    """What jobs have that don't say otherwise themselves."""

    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When images are pulled."
    )
    image_pull_secrets: Annotated[list[Subdomain], unique()] = Field(
        [], max_length=100, description="Secrets of the project's namespace with which registries are asked."
    )
    env: dict[EnvName, EnvEntry] = Field(
        {}, max_length=1000, description="Environment variables; a job that sets one of them keeps its own."
    )
    env_from: list[EnvSource] = Field(
        [], max_length=100, description="All keys of Secrets and ConfigMaps as environment variables."
    )
    cpu_per_gpu: Cpu | None = Field(
        None, description="CPU cores of each worker, for each GPU that its job asks for by gpus: 8. Rounded up."
    )
    memory_per_gpu: Memory | None = Field(
        None, description="Memory of each worker, for each GPU that its job asks for by gpus: 64Gi. Rounded up."
    )
    large_shm: bool | None = Field(None, description="Shared memory as large as the worker's memory.")
    volumes: Annotated[list[Volume], unique("mount_path")] = Field(
        [], max_length=100, description="Volumes of each worker; a job that mounts one at the same path keeps its own."
    )
    security: PodSecurity = Field(
        {}, validate_default=True, description="As which user and groups processes run; each field by itself."
    )
    labels: PodLabels = Field({}, max_length=100, description="Labels of the pods, each by itself.")
    annotations: PodAnnotations = Field({}, max_length=100, description="Annotations of the pods, each by itself.")
    host_aliases: list[HostAlias] = Field(
        [], max_length=100, description="Names that processes find without asking a name server."
    )
    ttl_after_finished: Ttl | None = Field(
        None, description="How long a run's Job and its pods stay, with their logs, after it has ended: 7d."
    )
    dns_policy: Literal["ClusterFirst", "Default"] | None = Field(None, description="Which name server is asked.")


class Defaults(Spec):
    """Defaults for jobs, for all of them and by type. Those of a type go before those of all."""

    all: JobDefaults = Field({}, validate_default=True, description="For jobs of every type.")
    training: JobDefaults = Field({}, validate_default=True, description="For training jobs.")
    interactive: JobDefaults = Field({}, validate_default=True, description="For interactive jobs.")
    inference: JobDefaults = Field({}, validate_default=True, description="For inference jobs.")
