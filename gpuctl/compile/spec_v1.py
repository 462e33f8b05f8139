"""The public form of declarations, apiVersion gpuctl.dev/v1: the one source of `schemas/gpuctl.dev/v1/*.json`.

Field names are public, and camelCase in YAML. After validation amounts are exact integers in the units of
`model.units`. `resolve` and `capacity` check what depends on other documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag

from gpuctl.compile.agreement import disagreements
from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.choices_v1 import Freezes, GitSync, Scheduling, Security
from gpuctl.compile.containers_v1 import MOST_CONTAINERS, InitContainers, Sidecars
from gpuctl.compile.defaults_v1 import Defaults
from gpuctl.compile.fields_v1 import (
    INT32,
    MOST_POOLS,
    Account,
    CommandText,
    DeclarationV1,
    Gpus,
    Grace,
    Image,
    Limit,
    Memory,
    Name,
    Owner,
    Priority,
    Quota,
    SomePools,
    Spec,
    Subdomain,
    Ttl,
    WorkerGpus,
    exactly_one,
    form_of,
    in_context,
    in_mapping,
    matching,
    positive,
    unique,
)
from gpuctl.compile.kinds_v1 import MOST_KINDS, WorkloadKinds
from gpuctl.compile.manifest_v1 import JobKinds, counted
from gpuctl.compile.pod_v1 import (
    Args,
    Command,
    Env,
    EnvFrom,
    Expose,
    GitCheckout,
    HostAlias,
    PodAnnotations,
    PodLabels,
    PodSecurity,
    Probes,
    Resources,
    WorkingDir,
)
from gpuctl.compile.policy_v1 import PolicySpec
from gpuctl.compile.pool_v1 import NodePool
from gpuctl.compile.scaling_v1 import FewestWorkers, Scaling
from gpuctl.compile.sweep_v1 import Sweep
from gpuctl.compile.template_v1 import TemplateUse
from gpuctl.compile.volumes_v1 import Volume


class Metadata(Spec):
    """What a declaration is called."""

    name: Name = Field(description="Unique among declarations of its kind: a DNS label.")


class JobMetadata(Spec):
    """What a job is called, and whose it is."""

    name: Name = Field(description="Unique among the jobs of its project: a DNS label.")
    project: Name = Field(description="The project that owns the job and whose quota it uses.")


_LONGEST_HOST = 253 - 64
"""The longest host before which a project's name and a dot fit."""


def _hosts_of_projects(ingress: Mapping[str, Any]) -> Iterator[WrongValue]:
    host = str(ingress.get("host"))
    if ingress.get("hostPerProject") is True and (host.rpartition(".")[2].isdigit() or len(host) > _LONGEST_HOST):
        rule = f"a name of at most {_LONGEST_HOST} characters, before which a project's can stand"
        yield WrongValue("GPU2018", at=("host",), found=host, rule=rule)


class Ingress(Spec):
    """Where jobs with `expose: via: ingress` are published."""

    host: Subdomain = Field(description="Host name or IPv4 address, without a scheme.")
    host_per_project: bool = Field(
        default=False,
        description="Each project at PROJECT.HOST: a browser keeps its pages apart from those of other projects.",
    )
    class_name: Subdomain | None = Field(None, description="The IngressClass. Default: the cluster's default class.")

    _has_room = in_mapping(_hosts_of_projects)


class ClusterSpec(Spec):
    """The cluster: its node pools and its choices."""

    node_pools: Annotated[list[NodePool], unique("name")] = Field(
        min_length=1, max_length=MOST_POOLS, description="Groups of like nodes, in order of preference."
    )
    namespace_prefix: Annotated[str, matching(r"([a-z0-9][a-z0-9-]{0,30})?", "the beginning of a DNS label")] = Field(
        "gpu-", description="A project's namespace is this and its name."
    )
    ingress: Ingress | None = Field(None, description="Where exposed ports are published; without it none can be.")
    scheduling: Scheduling = Field({}, validate_default=True, description="The choices the fair-share engine is given.")
    git_sync: GitSync | None = Field(
        None, description="What checks Git repositories out for jobs; without it jobs can't have git."
    )
    security: Security = Field(
        {}, validate_default=True, description="What the people of a project may do in its namespace."
    )
    freeze: Freezes = Field(
        [], max_length=20, description="Windows in which commits wait that would do what the window forbids."
    )
    workload_kinds: WorkloadKinds = Field(
        [],
        max_length=MOST_KINDS,
        description="Kinds of other controllers that a job's manifest may be, besides the built-in ones.",
    )
    defaults: Defaults = Field({}, validate_default=True, description="What jobs have that don't say otherwise.")


class DepartmentSpec(Spec):
    """The optional level above projects."""

    quota: Quota | None = Field(
        None, description="Guaranteed GPUs: a number, or {pool: number}. Default: the sum of its projects' quotas."
    )
    limit: Quota | None = Field(None, description="Hard ceiling with over-quota, in the form of quota. Default: none.")
    over_quota_weight: Gpus | None = Field(None, description="Claim on spare GPUs. Default: the quota.")
    department: Name | None = Field(None, description="The department this one belongs to.")


class Affinity(Spec):
    """The node pools a project may use, in its order of preference."""

    training: SomePools | None = Field(None, description="Pools for training and inference jobs. Default: any.")
    interactive: SomePools | None = Field(None, description="Pools for interactive jobs. Default: any.")


class InteractiveLimits(Spec):
    """Limits of interactive jobs."""

    max_duration: Limit | None = Field(None, description="An interactive job ends after running this long: 8h.")
    idle_timeout: Limit | None = Field(
        None,
        description="An interactive job ends after its GPUs idled this long: 1h. Where gpuctl does not read what GPUs "
        "do, and nothing writes the annotation gpuctl.dev/idle-since on its pods, it ends no job.",
    )


class TrainingLimits(Spec):
    """Limits of training jobs."""

    max_duration: Limit | None = Field(None, description="A training job ends after running this long: 7d.")


class Access(Spec):
    """Access to the project's namespace for a group or a user."""

    group: Account | None = Field(None, description="A group, as the cluster's authentication names it.")
    user: Account | None = Field(None, description="A user, as the cluster's authentication names them.")
    role: Account = Field(description="A ClusterRole: view, edit, admin or another.")

    _one_subject = in_mapping(lambda data: exactly_one(data, "group", "user"))


class ProjectSpec(Spec):
    """The unit that owns quota and jobs."""

    quota: Quota = Field(0, description="Guaranteed GPUs of the whole cluster: 4; or of each pool: {dgx1: 4, h100: 2}.")
    limit: Quota | None = Field(None, description="Hard ceiling with over-quota, in the form of quota. Default: none.")
    over_quota_weight: Gpus | None = Field(
        None, description="Claim on spare GPUs, relative to other projects. Default: the quota. 0: only what is left."
    )
    department: Name | None = Field(None, description="The department the project belongs to.")
    priority: Priority = Field(0, description="Band for over-quota: higher bands are served first. Never for quota.")
    node_affinity: Affinity = Field({}, validate_default=True, description="The node pools the project may use.")
    interactive: InteractiveLimits = Field({}, validate_default=True, description="Limits of its interactive jobs.")
    training: TrainingLimits = Field({}, validate_default=True, description="Limits of its training jobs.")
    pause_grace: Grace | None = Field(
        None, description="The pauseGrace of its jobs that state none. Default: 30s. At most the Cluster's."
    )
    defaults: Defaults = Field(
        {}, validate_default=True, description="What its jobs have that don't say otherwise. Before the Cluster's."
    )
    owners: Annotated[list[Owner], unique()] = Field(
        [], max_length=1000, description="Who reviews changes, as CODEOWNERS names them."
    )
    adopt: bool = Field(
        default=False,
        description="Take over a namespace that is already there. An administrator releases it with the label "
        "gpuctl.dev/adopt=PROJECT on the namespace, and it must have no pods.",
    )
    access: list[Access] = Field([], max_length=1000, description="Who may use the namespace.")


class Dependency(Spec):
    """A job that has to end first."""

    job: Name = Field(description="A job of the same project.")
    result: Literal["success", "any"] = Field(
        "success", description="How it has to end. success: it has succeeded. any: it has ended, in whatever way."
    )


DependencyEntry = Annotated[
    Annotated[Name, Tag("(plain)")] | Annotated[Dependency, Tag("(mapping)")], Discriminator(form_of)
]


def _of_manifest(data: Mapping[str, Any], kinds: JobKinds | None) -> Iterator[WrongValue]:
    if data.get("manifest") is not None:
        yield from counted(data, kinds or JobKinds()).mistakes


def _with_counts(data: dict[str, Any], kinds: JobKinds | None) -> dict[str, Any]:
    return data if data.get("manifest") is None else {**data, **counted(data, kinds or JobKinds()).fields}


def _image_or_template(schema: dict[str, Any]) -> None:
    """In the schema: the image may also come from a template or a manifest."""
    del schema["required"]
    schema["anyOf"] = [{"required": [field]} for field in ("image", "template", "manifest")]


class JobSpec(Spec):
    """What runs, and what it needs."""

    model_config = ConfigDict(json_schema_extra=_image_or_template)

    type: Literal["training", "interactive", "inference"] = Field(
        "training", description="Training is preemptible unless it says otherwise; interactive and inference are not."
    )
    template: TemplateUse | None = Field(
        None, description="A template that says what the job does not say itself. Default: none."
    )
    manifest: dict[str, Any] | None = Field(
        None,
        description="The object of another controller that the job is, in place of an image: a JobSet, PyTorchJob, "
        "MPIJob, RayJob, RayCluster or LeaderWorkerSet, or of a kind in the Cluster's workloadKinds. gpuctl places, "
        "starts and pauses it; workers, GPUs, CPU and memory are counted in its pod templates.",
    )
    image: Image = Field(description="The container image. It has to be there, unless template or manifest says it.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When the image is pulled. Never: it is on the node already."
    )
    image_pull_secrets: Annotated[list[Subdomain], unique()] = Field(
        [], max_length=100, description="Secrets of the project's namespace with which the image's registry is asked."
    )
    command: Command = Field([])
    args: Args = Field([])
    working_dir: WorkingDir = Field(None)
    env: Env = Field({}, description="Environment variables: text, or {secret, key}.")
    env_from: EnvFrom = Field([])
    gpus: WorkerGpus = Field(
        0, description="GPUs of each worker: 4, or a fraction such as 0.5. 0: a CPU job, outside of GPU quota."
    )
    gpu_memory: Annotated[Memory, AfterValidator(positive)] | None = Field(
        None, description="Instead of gpus: that much memory of one GPU for each worker: 16Gi."
    )
    workers: int = Field(1, ge=1, le=10_000, description="More than one: a gang, started all or none.")
    min_workers: FewestWorkers | None = Field(
        None, description="Elastic: may run with so few; 0: a service with scaling, without load. Default: all workers."
    )
    framework: Literal["pytorch", "jax"] | None = Field(
        None, description="What tells its workers of each other besides MASTER_ADDR, NODE_RANK and WORLD_SIZE."
    )
    success: Literal["all", "worker0", "any"] = Field(
        "all", description="When a gang has succeeded: once so many of its workers have. The others are then stopped."
    )
    resources: Resources = Field({}, validate_default=True, description="What each worker asks for besides GPUs.")
    priority: Priority = Field(0, description="Order within the project: higher first.")
    preemptible: bool | None = Field(
        None, description="May be stopped for others. Default: training true, interactive and inference false."
    )
    max_duration: Limit | None = Field(
        None, description="Ends after running this long: 8h. The project's limit holds too."
    )
    node_pools: SomePools | None = Field(
        None,
        description="Narrows the project's node affinity, in this order. Default: all of it that hands out GPUs alike.",
    )
    expose: Annotated[list[Expose], unique("port")] = Field(
        [], max_length=100, description="Ports that are reached from outside."
    )
    large_shm: bool = Field(
        default=False, description="Shared memory as large as the worker's memory, for data loaders."
    )
    volumes: Annotated[list[Volume], unique("mount_path")] = Field(
        [], max_length=100, description="Volumes of each worker."
    )
    init_containers: InitContainers = Field(
        [],
        max_length=MOST_CONTAINERS,
        description="Containers that run one after another before the job starts, each to its end.",
    )
    sidecars: Sidecars = Field(
        [],
        max_length=MOST_CONTAINERS,
        description="Containers that run beside the job's own for as long as that runs.",
    )
    git: GitCheckout | None = Field(
        None, description="A Git repository that is checked out before the job starts. Default: none."
    )
    security: PodSecurity = Field({}, validate_default=True, description="As which user and groups its processes run.")
    labels: PodLabels = Field({}, max_length=100, description="Labels of its pods, for people and their tools.")
    annotations: PodAnnotations = Field(
        {}, max_length=100, description="Annotations of its pods, for people and their tools."
    )
    tty: bool = Field(default=False, description="A terminal, and input that stays open, for programs that ask for it.")
    host_aliases: list[HostAlias] = Field(
        [], max_length=100, description="Names that its processes find without asking a name server."
    )
    dns_policy: Literal["ClusterFirst", "Default"] | None = Field(
        None, description="Which name server is asked: ClusterFirst the cluster's, Default the node's."
    )
    pause_grace: Grace | None = Field(
        None,
        description="How long a worker has from SIGTERM to its end, when it is paused or moved, to save its work: 2m. "
        "Default: the project's. At most the Cluster's scheduling.pauseGrace. The variable GPUCTL_PAUSE_GRACE_SECONDS "
        "has it.",
    )
    pre_stop: list[CommandText] = Field(
        [], max_length=1000, description="A command that is run in the container before SIGTERM, within pauseGrace."
    )
    checkpoint_every: Limit | None = Field(
        None,
        description="How often it writes a checkpoint from which it goes on after a pause: 30m. plan and simulate tell "
        "by it what a pause loses; it is no protection from one. Default: not known.",
    )
    ttl_after_finished: Ttl | None = Field(
        None,
        description="How long the run's Job and its pods stay, with their logs, after its end: 1d. Its state stays. "
        "Default: until the job is no longer declared.",
    )
    probes: Probes = Field(
        {}, validate_default=True, description="How its node learns whether a worker has started, can serve, is alive."
    )
    retries: int = Field(0, ge=0, le=1000, description="How often a worker that failed is started again.")
    retries_per_worker: int = Field(
        0,
        ge=0,
        le=1000,
        description="How often each worker that failed is started again by itself, while the others of its gang wait "
        "for it; counted from each start of the run. With retries as well, both hold.",
    )
    suspend: bool = Field(default=False, description="A person's pause. The engine never writes it.")
    after: Annotated[list[DependencyEntry], unique("job")] = Field(
        [],
        max_length=20,
        description="Jobs of the same project that have to end before this one is queued: names, or {job, result}. "
        "A job that has started once waits for them no more.",
    )
    sweep: Sweep | None = Field(
        None, description="Several training jobs of this one declaration, with other variables each. Default: one job."
    )
    scaling: Scaling | None = Field(
        None,
        description="The workers of a service follow its load, between minWorkers and workers. Default: as many of "
        "workers as have a place.",
    )
    run_index: int = Field(1, ge=1, le=INT32, description="Raise it to run a finished job again.")

    _agrees = in_mapping(disagreements)
    _counts = in_context(_of_manifest, _with_counts)


class ClusterV1(DeclarationV1):
    """The cluster a folder declares: its nodes and the choices of its engine."""

    kind: Literal["Cluster"] = Field(description="What this declares.")
    metadata: Metadata = Field(description="Its name.")
    spec: ClusterSpec = Field(description="The cluster.")


class DepartmentV1(DeclarationV1):
    """The optional level above projects."""

    kind: Literal["Department"] = Field(description="What this declares.")
    metadata: Metadata = Field(description="Its name.")
    spec: DepartmentSpec = Field({}, validate_default=True, description="The department.")


class ProjectV1(DeclarationV1):
    """A project: who owns quota and jobs."""

    kind: Literal["Project"] = Field(description="What this declares.")
    metadata: Metadata = Field(description="Its name.")
    spec: ProjectSpec = Field({}, validate_default=True, description="The project.")


class JobV1(DeclarationV1):
    """A job: what runs on how many GPUs."""

    kind: Literal["Job"] = Field(description="What this declares.")
    metadata: JobMetadata = Field(description="Its name and project.")
    spec: JobSpec = Field(description="The job.")


class PolicyV1(DeclarationV1):
    """A rule that declarations must keep."""

    kind: Literal["Policy"] = Field(description="What this declares.")
    metadata: Metadata = Field(description="Its name.")
    spec: PolicySpec = Field(description="The rule.")
