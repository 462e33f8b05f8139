"""A declared job: `Job` has what the engine needs, its `Container` what only rendering needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from gpuctl.diag.span import SourceSpan
from gpuctl.model.ids import JobId, PoolName, RunDigest
from gpuctl.model.units import WHOLE_GPU, CpuMilli, DurationMs, GpuMilli, MemBytes
from gpuctl.model.volumes import Volume


class JobType(StrEnum):
    """Training is preemptible by default; interactive and inference are not."""

    TRAINING = "training"
    INTERACTIVE = "interactive"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """An environment variable's value taken from a Secret of the project's namespace."""

    secret: str
    key: str


EnvValue: TypeAlias = str | SecretKey


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSource:
    """All keys of a Secret or of a ConfigMap of the project's namespace as variables: exactly one is set."""

    secret: str | None
    config_map: str | None
    prefix: str


class ExposeVia(StrEnum):
    """How a port is reached: an Ingress path, a Service, or only by port-forwarding."""

    INGRESS = "ingress"
    SERVICE = "service"
    PORT_FORWARD = "portForward"


class Framework(StrEnum):
    """How workers find each other: by torchrun and `torch.distributed`, or by `jax.distributed`."""

    PYTORCH = "pytorch"
    JAX = "jax"


class Success(StrEnum):
    """When a gang has succeeded: once all workers have, once worker 0 has, or once any of them has."""

    ALL = "all"
    WORKER_0 = "worker0"
    ANY = "any"


USUAL_GRACE_MS: DurationMs = 30_000
"""Kubernetes' default time from the signal that stops a pod to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expose:
    """One port of the job's container."""

    port: int
    via: ExposeVia


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The user and groups of a job's processes; None and (): those of the image, or Kubernetes' defaults.

    `added` and `dropped`: capabilities. `seccomp`: the profile of allowed system calls.
    """

    user: int | None = None
    group: int | None = None
    further_groups: tuple[int, ...] = ()
    fs_group: int | None = None
    read_only_root: bool = False
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    seccomp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAlias:
    """Names that a job's processes find at an address, without asking a name server."""

    ip: str
    hostnames: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A check that the node repeats on a worker: an HTTP request if there is a `path`; else a connection, if there is a
    `port`; else a command in the container, which must succeed.

    `failures`: how many failures in a row count.
    """

    port: int | None = None
    path: str | None = None
    command: tuple[str, ...] = ()
    delay_ms: DurationMs = 0
    period_ms: DurationMs = 10_000
    timeout_ms: DurationMs = 1_000
    failures: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Checks whether a worker has started (until then the others are not made), can serve, and is alive; None: no
    check."""

    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCheckout:
    """A Git repository that is checked out below a folder of the container before it starts.

    `secret`: a Secret with `username` and `password`; for ssh, with `ssh-privatekey` and `known_hosts`. `size_bytes`:
    the most disk it may take.
    """

    repository: str
    revision: str
    path: str
    secret: str | None
    size_bytes: MemBytes

    @property
    def is_by_ssh(self) -> bool:
        """Whether the repository is fetched by ssh."""
        return self.repository.startswith("ssh://")

    @property
    def folder(self) -> str:
        """The repository's own name, which the folder of the checkout has too."""
        return self.repository.rpartition("/")[2].removesuffix(".git")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume of the job in another of its containers. `volume`: the path at which the job's own container sees it."""

    volume: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraContainer:
    """A container of a job's pods besides its own: an init container, which ends before that starts, or a sidecar.

    `gpus`: whole ones. `run_as`: includes what the job sets for all its containers. `before_init`, `probes`: only for
    sidecars.
    """

    name: str
    image: str
    image_pull_policy: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str | None = None
    env: Mapping[str, EnvValue] = field(default_factory=dict)
    env_from: tuple[EnvSource, ...] = ()
    gpus: int = 0
    cpu_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0
    mounts: tuple[Mount, ...] = ()
    run_as: RunAs = RunAs()
    probes: Probes = Probes()
    before_init: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAmounts:
    """The amounts of a job's own container, if other containers of its pod ask for some too.

    `gpus`: whole ones; None if no other container has any, so that this one has all of the worker's.
    """

    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWorkload:
    """The object of another controller that a job is: its kind, and its declaration as JSON.

    `pods`: the number of its pods at a time, those without GPUs included. `made`: how many other objects its controller
    creates for it, by apiVersion and kind.
    """

    api_version: str
    kind: str
    text: str
    pods: int
    made: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The content of a job's pods: everything of a job that the engine does not read.

    - `labels`, `annotations`: of its pods.
    - `pre_stop`: a command that is run in the container before it is stopped.
    - `tty`: it has a terminal, and its input stays open.
    - `manifest`: the object that the job is, in place of all other fields.
    - `init_containers` run before it, `sidecars` beside it; `own`: its own amounts, None if no other asks for any.
    - `retries`: how often workers are started again, all together; `retries_per_worker`: each worker by itself.
    """

    image: str
    image_pull_policy: str = "IfNotPresent"
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str | None = None
    env: Mapping[str, EnvValue] = field(default_factory=dict)
    expose: tuple[Expose, ...] = ()
    large_shm: bool = False
    volumes: tuple[Volume, ...] = ()
    retries: int = 0
    env_from: tuple[EnvSource, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    run_as: RunAs = RunAs()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    tty: bool = False
    pre_stop: tuple[str, ...] = ()
    host_aliases: tuple[HostAlias, ...] = ()
    dns_policy: str | None = None
    git: GitCheckout | None = None
    probes: Probes = Probes()
    framework: Framework | None = None
    success: Success = Success.ALL
    manifest: OtherWorkload | None = None
    init_containers: tuple[ExtraContainer, ...] = ()
    sidecars: tuple[ExtraContainer, ...] = ()
    own: OwnAmounts | None = None
    retries_per_worker: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A job of the same project that must end before another one is queued; `needs_success`: it must succeed.

    `job`: as in `Job.declared_as`; for a sweep, all its indices must end.
    """

    job: JobId
    needs_success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepIndex:
    """The place of a job in its sweep: `sweep` and `key` make its name, `values` are the variables that only it has."""

    sweep: str
    key: str
    values: Mapping[str, str]


class MetricSource(StrEnum):
    """Where an autoscaler reads a metric: from the service's pods, or from things outside of the cluster."""

    PODS = "pods"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How the number of a service's workers follows its load: as many as give each `target_milli` of a metric.

    - `target_milli`: thousandths of the metric's unit.
    - `labels`: select series of the metric.
    - `most`: the most workers that the job may have.
    - `to_zero`: it has no workers while there is no load; the job's `min_workers` is then 1.
    """

    metric: str
    source: MetricSource
    target_milli: int
    labels: Mapping[str, str] = field(default_factory=dict)
    most: int
    to_zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with every default filled in and every reference resolved.

    - Amounts are for one worker, with all containers of its pod. `gpu_milli`: a multiple of 1000, a fraction below
      1000, or 0 for a CPU job. If `gpu_mem_bytes` is set, the request is by memory, and `gpu_milli` is its largest
      charge over `pools`.
    - `pools`: the pools that it may use. `pools_in_order`: the job or its project lists them, and the first one with a
      place is taken.
    - `max_duration_ms`, `idle_timeout_ms`: the shorter of the job's and the project's.
    - `pause_grace_ms`: how long a worker has from the signal that stops it to its end.
    - `checkpoint_ms`: how often the job says that it writes a checkpoint; the engine never reads it.
    - `ttl_ms`: how long the object of its run is kept after the run's end; None: for ever.
    - `min_workers`: equals `workers` unless the job is elastic.
    - `after`: the jobs that it waits for, until its run first starts.
    - `sweep`: None for a job that is no index; `position`: its place among the indices, from 0; `parallelism`: how many
      of them may run at a time, None for all.
    - `scaling`: its number of workers follows its load, between `min_workers` and `workers`. None: it asks for all.
    """

    id: JobId
    digest: RunDigest
    type: JobType
    container: Container
    gpu_milli: GpuMilli
    gpu_mem_bytes: MemBytes | None = None
    workers: int = 1
    min_workers: int = 1
    cpu_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0
    priority: int = 0
    preemptible: bool = True
    max_duration_ms: DurationMs | None = None
    pause_grace_ms: DurationMs = USUAL_GRACE_MS
    idle_timeout_ms: DurationMs | None = None
    ttl_ms: DurationMs | None = None
    checkpoint_ms: DurationMs | None = None
    pools: tuple[PoolName, ...] = ()
    pools_in_order: bool = False
    suspend: bool = False
    run_index: int = 1
    after: tuple[Dependency, ...] = ()
    sweep: SweepIndex | None = None
    position: int = 0
    parallelism: int | None = None
    scaling: Scaling | None = None
    span: SourceSpan

    @property
    def declared_as(self) -> JobId:
        """The job under the name of its declaration: for an index, that of its sweep."""
        return self.id if self.sweep is None else JobId(self.id.project, self.sweep.sweep)

    def gpu_milli_on(self, device_mem_bytes: MemBytes) -> GpuMilli:
        """The GPUs that one worker is charged on devices of that memory. A request by memory is rounded up to whole
        milli."""
        if self.gpu_mem_bytes is None:
            return self.gpu_milli
        if device_mem_bytes <= 0:
            return self.gpu_milli
        return -(-self.gpu_mem_bytes * WHOLE_GPU // device_mem_bytes)

    @property
    def own_amounts(self) -> OwnAmounts:
        """The amounts of the job's own container."""
        return self.container.own or OwnAmounts(cpu_milli=self.cpu_milli, mem_bytes=self.mem_bytes)

    @property
    def own_gpu_milli(self) -> GpuMilli:
        """The GPUs of the job's own container."""
        gpus = self.own_amounts.gpus
        return self.gpu_milli if gpus is None else gpus * WHOLE_GPU

    @property
    def has_deadline(self) -> bool:
        """Whether the object ends by itself at a time written on it: a Job does, no other kind."""
        return self.type is not JobType.INFERENCE and self.container.manifest is None

    @property
    def is_elastic(self) -> bool:
        """Whether the job may run with fewer workers than it asks for, or changes the number while it runs."""
        return self.min_workers < self.workers or self.scaling is not None

    @property
    def total_gpu_milli(self) -> GpuMilli:
        """The GPUs of all workers together."""
        return self.gpu_milli * self.workers
