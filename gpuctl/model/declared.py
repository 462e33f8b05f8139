"""The declarations in Git, resolved: projects, quotas, pools, jobs and the scheduling policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from gpuctl.diag.span import SourceSpan
from gpuctl.model.decision import Reason
from gpuctl.model.freeze import FreezeWindow
from gpuctl.model.ids import DomainName, JobId, NodeName, PoolName, ProjectName, Revision
from gpuctl.model.job import Job
from gpuctl.model.mig import MigProfile, profile_named
from gpuctl.model.taints import Toleration
from gpuctl.model.tenancy import PoolTolerations, Tenancy, selects
from gpuctl.model.units import WHOLE_GPU, CpuMilli, DurationMs, GpuMilli, MemBytes
from gpuctl.model.workload_kind import WorkloadKind

WHOLE_CLUSTER = DomainName("*")


class PlacementStrategy(StrEnum):
    """How a pool is filled: the fullest node that fits first, or the emptiest."""

    BINPACK = "binpack"
    SPREAD = "spread"


class Sharing(StrEnum):
    """How a pool's nodes provide the GPUs of a request."""

    DEVICE_PLUGIN = "device-plugin"
    MIG = "mig"
    HAMI = "hami"
    DRA = "dra"


class Driver(StrEnum):
    """The DRA driver of a pool's nodes: HAMi's gives any part of a GPU, NVIDIA's whole ones and MIG slices."""

    HAMI = "hami"
    NVIDIA = "nvidia"


class Way(StrEnum):
    """How a node's GPUs are requested: by their number, through HAMi's scheduler, or by claims of a driver."""

    COUNT = "count"
    HAMI = "hami"
    HAMI_CLAIM = "hami-claim"
    NVIDIA_CLAIM = "nvidia-claim"


DEFAULT_GPU_SLOTS = 10
"""HAMi's own default."""


NAMEABLE_GPUS = 192
"""The most GPUs that a claim can name by uuid, in a selector of 10 KiB. A larger gang is given its nodes, and how many
on each."""


class QuotaShrink(StrEnum):
    """What a quota cut does to jobs already running over it."""

    RECLAIM = "reclaim"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredNode:
    """A node of a pool's declared inventory. `mig`: how many of its GPUs are cut into slices of each profile.

    `labels`: its labels besides its pool's.
    """

    name: NodeName
    gpus: int
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    mig: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole_gpus(self) -> int:
        """The number of GPUs that are not cut."""
        return self.gpus - sum(self.mig.values())


class Grant(NamedTuple):
    """What one worker gets: the amount it is charged, and the profile of its slice if that was cut beforehand.

    A named tuple, because several are made for each job and pool.
    """

    gpu_milli: GpuMilli
    profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A group of like nodes. `match_labels` selects its live nodes; `nodes` is the declared inventory.

    - `topology`: labels that say where a node is, from the widest to the narrowest.
    - `profiles`: the slices that some of its GPUs are cut into, smallest first.
    - `gpu_slots`: how many workers HAMi lets share a GPU.
    - `tolerations`: taints of its nodes that jobs' pods tolerate.
    """

    name: PoolName
    match_labels: Mapping[str, str]
    nodes: tuple[DeclaredNode, ...]
    gpu_mem_bytes: MemBytes
    gpu_product: str
    placement: PlacementStrategy
    sharing: Sharing
    span: SourceSpan
    driver: Driver = Driver.HAMI
    profiles: tuple[MigProfile, ...] = ()
    gpu_slots: int = DEFAULT_GPU_SLOTS
    topology: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def gpu_milli(self) -> GpuMilli:
        """The pool's declared GPUs."""
        return 1000 * sum(node.gpus for node in self.nodes)

    @property
    def way(self) -> Way:
        """How its nodes' GPUs are requested. MIG slices of the device plugin are counted, as whole GPUs are."""
        match self.sharing:
            case Sharing.HAMI:
                return Way.HAMI
            case Sharing.DRA:
                return Way.NVIDIA_CLAIM if self.driver is Driver.NVIDIA else Way.HAMI_CLAIM
            case Sharing.DEVICE_PLUGIN | Sharing.MIG:
                return Way.COUNT

    @property
    def by_uuid(self) -> bool:
        """Whether a GPU is requested by the uuid that its live node publishes."""
        return self.way in (Way.HAMI, Way.NVIDIA_CLAIM)

    @property
    def cuts(self) -> bool:
        """Whether a part of a GPU is a slice that was cut beforehand."""
        return self.sharing is Sharing.MIG or self.way is Way.NVIDIA_CLAIM

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a live node with these labels belongs to the pool, if no earlier pool has it."""
        return selects(self.match_labels, labels)

    def grant(self, gpu_milli: GpuMilli) -> Grant | None:
        """What a worker that asks for so much gets here; None for a part of a GPU that the pool can't provide.

        This one rule decides what is refused in declarations, what is charged, and what is rendered.
        """
        if gpu_milli % WHOLE_GPU == 0:
            return Grant(gpu_milli=gpu_milli)
        if gpu_milli > WHOLE_GPU or self.sharing is Sharing.DEVICE_PLUGIN:
            return None
        if self.cuts:
            profile = next((p for p in self.profiles if p.holds_milli >= gpu_milli), None)
            return None if profile is None else Grant(gpu_milli=profile.charge_milli, profile=profile.name)
        if self.sharing is Sharing.HAMI:
            return Grant(gpu_milli=max(gpu_milli, -(-WHOLE_GPU // self.gpu_slots)))
        return Grant(gpu_milli=gpu_milli)

    def slice_milli(self, profile: str) -> GpuMilli:
        """The charge for a slice of a live GPU here; 0 for a profile that a GPU of this memory does not have."""
        known = profile_named(profile, self.gpu_mem_bytes)
        return 0 if known is None else known.charge_milli


_DAY_MS: DurationMs = 86_400_000
_GROWTH = 4
"""The factor by which minRuntime grows with each start: 1 minute, 4, 16, an hour, four."""
_MOST_STARTS = 20
"""The most starts that count: by then a millisecond has grown to a day."""


class MinRuntime(NamedTuple):
    """How long a preemptible run is left alone after its start, by the reason to stop it.

    `guarantee_ms`: before it is paused or moved for a job that stays within its project's guarantee.
    `fairness_ms`, `moves_ms`: before it is paused, or moved, for a job that stays within its project's fair share.
    """

    guarantee_ms: DurationMs = 0
    fairness_ms: DurationMs = 60_000
    moves_ms: DurationMs = 60_000

    @property
    def least_ms(self) -> DurationMs:
        """The time before which no other job can affect the run."""
        return min(self)

    def after(self, starts: int) -> MinRuntime:
        """The durations for a run that was started so often: those for fairness and moves grow with each start, up to
        a day.

        So a run that was stopped often gets longer to do its work. The duration for guarantees does not grow.
        """
        if starts <= 1:
            return self
        factor = _GROWTH ** min(starts - 1, _MOST_STARTS)
        grown = (max(ms, min(ms * factor, _DAY_MS)) for ms in (self.fairness_ms, self.moves_ms))
        return MinRuntime(self.guarantee_ms, *grown)

    @classmethod
    def of_all(cls, least_ms: DurationMs) -> MinRuntime:
        """The same duration for every reason to stop a run."""
        return cls(least_ms, least_ms, least_ms)


USUAL_MIN_RUNTIME = MinRuntime()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """The scheduling choices of a cluster. All but the last two are inputs of the engine.

    `stop_guard_percent`: declarations that end more of the running GPUs than that wait for confirmation.
    `delete_guard_jobs`: so do declarations that remove more unfinished jobs than that. None: no number is too large.
    """

    min_runtime: MinRuntime = USUAL_MIN_RUNTIME
    starvation_guard_ms: DurationMs = 600_000
    consolidation: bool = True
    start_timeout_ms: DurationMs = 900_000
    pause_grace_ms: DurationMs = 300_000
    quota_shrink: QuotaShrink = QuotaShrink.RECLAIM
    fairness_half_life_ms: DurationMs | None = None
    overcommit_quota: bool = False
    stop_guard_percent: int = 100
    delete_guard_jobs: int | None = None


class PodSecurity(StrEnum):
    """A Pod Security level of Kubernetes: how much of their node the pods of a namespace may use, from all to least."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What the people of a project may do in its namespace, as the cluster's administrators declare it.

    - `host_paths`: folders of nodes that jobs may mount; `nfs`: folders of NFS servers, as SERVER:PATH.
    - `csi_drivers`: drivers whose inline volumes jobs may have.
    - `priority_classes`: PriorityClasses that pods may have besides gpuctl's own.
    - `reachable_from`: namespaces whose pods may reach those of all projects, besides each project's own; None: all.
    """

    pod_security: PodSecurity = PodSecurity.BASELINE
    exceptions: Mapping[ProjectName, PodSecurity] = field(default_factory=dict)
    host_paths: tuple[str, ...] = ()
    nfs: tuple[str, ...] = ()
    csi_drivers: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    reachable_from: tuple[str, ...] | None = None

    def level_of(self, project: ProjectName) -> PodSecurity:
        """The level that the project's namespace enforces."""
        return self.exceptions.get(project, self.pod_security)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings:
    """Where exposed ports are published; `host` has no scheme. `host_per_project`: each project gets PROJECT.HOST."""

    host: str
    class_name: str | None
    host_per_project: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster's own declaration. `pools`: in order of preference. `git_sync`: an image; "": jobs can't have `git`.

    `workload_kinds`: the kinds of other controllers that jobs may be, besides the built-in ones.
    """

    name: str
    namespace_prefix: str
    pools: tuple[NodePool, ...]
    ingress: IngressSettings | None
    scheduling: SchedulingPolicy
    span: SourceSpan
    security: Security = field(default_factory=Security)
    freeze: tuple[FreezeWindow, ...] = ()
    git_sync: str = ""
    workload_kinds: tuple[WorkloadKind, ...] = ()

    def pool(self, name: PoolName) -> NodePool:
        """The pool of that name; KeyError if there is none."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDomain:
    """Pools whose GPUs are divided together."""

    name: DomainName
    pools: tuple[PoolName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """One project's or department's claim on one domain. `limit_milli` None: no limit; `weight` 0: only leftovers.

    `own_weight`: the weight is declared; else it equals the quota.
    """

    quota_milli: GpuMilli
    limit_milli: GpuMilli | None = None
    weight: int = 0
    own_weight: bool = field(default=True, compare=False, repr=False)

    def with_quota(self, quota_milli: GpuMilli, limit_milli: GpuMilli | None) -> Allowance:
        """The allowance if another quota and limit were declared."""
        weight = self.weight if self.own_weight else quota_milli
        return replace(self, quota_milli=quota_milli, limit_milli=limit_milli, weight=weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Department:
    """The optional level above projects; `parent`: the department above it, if there is one.

    `has_own_quota`: it declares a quota; else its quota is the sum of those below it.
    """

    name: str
    allowances: Mapping[DomainName, Allowance]
    parent: str | None = None
    has_own_quota: bool = field(default=True, repr=False)
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGrant:
    """Namespace access for a group or a user; `role` names a ClusterRole (view, edit, admin or another)."""

    subject_kind: str
    subject: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project with its claims by quota domain; domains without a claim are absent."""

    name: ProjectName
    namespace: str
    allowances: Mapping[DomainName, Allowance]
    department: str | None = None
    priority: int = 0
    owners: tuple[str, ...] = ()
    adopt: bool = False
    access: tuple[RoleGrant, ...] = ()
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Everything declared, with all references resolved. All tuples but pools are sorted by name.

    - `project_contents`: a digest of each project's declarations, whichever files contain them.
    - `pinned`: projects that stay as they are now, because no good commit of theirs can be read, their ledger is
      damaged, or their namespace is not gpuctl's. Their runs are left alone, and none is started.
    - `blocked`: single jobs that stay as they are, each with the reason.
    """

    cluster: Cluster
    domains: tuple[QuotaDomain, ...]
    departments: tuple[Department, ...] = ()
    projects: tuple[Project, ...] = ()
    jobs: tuple[Job, ...] = ()
    project_revisions: Mapping[ProjectName, Revision] = field(default_factory=dict)
    project_contents: Mapping[ProjectName, str] = field(default_factory=dict)
    pinned: frozenset[ProjectName] = frozenset()
    blocked: Mapping[JobId, Reason] = field(default_factory=dict)

    @property
    def tenancy(self) -> Tenancy:
        """The part that reading the cluster's objects needs. Cost: linear in projects and pools, each time."""
        spaces = {project.namespace: project.name for project in self.projects}
        pools = self.cluster.pools if any(pool.tolerations for pool in self.cluster.pools) else ()
        tolerant = (PoolTolerations(match_labels=pool.match_labels, tolerations=pool.tolerations) for pool in pools)
        return Tenancy(
            cluster=self.cluster.name,
            projects=spaces,
            pools=tuple(tolerant),
            workload_kinds=self.cluster.workload_kinds,
        )

    def project(self, name: ProjectName) -> Project:
        """The project of that name; KeyError if there is none."""
        for project in self.projects:
            if project.name == name:
                return project
        raise KeyError(name)
