"""The public form of a job's further containers: init containers, which run before its own, and sidecars beside it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import AbsolutePath, Image, Name, Spec, unique
from gpuctl.compile.pod_v1 import Args, Capabilities, Command, Env, EnvFrom, Probes, Resources, UserId, WorkingDir
from gpuctl.k8s import names
from gpuctl.k8s.requests import Requests

MOST_CONTAINERS = 10
"""The most init containers, and the most sidecars."""


def _not_taken(name: str) -> str:
    if name not in {names.MAIN_CONTAINER, names.GIT_CONTAINER}:
        return name
    rule = f"{names.MAIN_CONTAINER} is the job's own container, and {names.GIT_CONTAINER} checks its repository out"
    raise WrongValue("GPU2018", fix="give it another name", found=name, rule=rule)


ContainerName = Annotated[Name, AfterValidator(_not_taken)]


class ContainerSecurity(Spec):
    """As which user a container's processes run. What is left out is as the job's own security says."""

    run_as_user: UserId | None = Field(None, description="The user's number.")
    run_as_group: UserId | None = Field(None, description="The number of the user's group.")
    read_only_root_filesystem: bool | None = Field(None, description="The image's files can't be written.")
    capabilities: Capabilities | None = Field(None, description="Rights of root, in place of the job's.")
    seccomp: Literal["RuntimeDefault"] | None = Field(
        None, description="Which system calls its processes may make: those of the container runtime's own profile."
    )


class Mount(Spec):
    """A volume of the job in another of its containers."""

    volume: AbsolutePath = Field(
        description="Which one: the mountPath of one of the job's volumes, or the path of its git."
    )
    mount_path: AbsolutePath | None = Field(None, description="Where this container sees it. Default: the same path.")
    read_only: bool = Field(
        default=False, description="Mount it read-only. What is read-only for the job is so for all its containers."
    )


class InitContainer(Spec):
    """A container that runs to its end before the job starts; the pod fails where it does."""

    name: ContainerName = Field(description="Unique among all containers of the job: a DNS label.")
    image: Image = Field(description="The container image.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When the image is pulled. Default: as the job's."
    )
    command: Command = Field([])
    args: Args = Field([])
    working_dir: WorkingDir = Field(None)
    env: Env = Field({}, description="Environment variables: text, or {secret, key}. It has none of the job's.")
    env_from: EnvFrom = Field([])
    gpus: int = Field(
        0,
        ge=0,
        le=1000,
        description="Whole GPUs, where the job has whole ones by a device plugin. An init container gets those that "
        "the job has after it, a sidecar gets others.",
    )
    resources: Resources = Field({}, validate_default=True, description="What it asks for besides GPUs.")
    mounts: Annotated[list[Mount], unique("mount_path")] = Field(
        [], max_length=100, description="Volumes of the job that it sees."
    )
    security: ContainerSecurity = Field(
        {}, validate_default=True, description="As which user its processes run. Default: as the job's."
    )


class Sidecar(InitContainer):
    """A container that runs beside the job, is started again when it ends, and is stopped when the job has ended."""

    before_init: bool = Field(
        default=False, description="It starts before the init containers, which can use it; else after them."
    )
    probes: Probes = Field(
        {}, validate_default=True, description="How its node learns whether it has started, can serve, is alive."
    )


InitContainers = Annotated[list[InitContainer], unique("name")]
Sidecars = Annotated[list[Sidecar], unique("name")]


def requests_of_container(container: InitContainer) -> Requests:
    """The amounts that a container asks for."""
    asked = container.resources
    return Requests(cpu_milli=asked.cpu, mem_bytes=asked.memory, gpus=container.gpus)
