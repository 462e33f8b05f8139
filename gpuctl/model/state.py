"""The observed state of the API server, in gpuctl's terms. Kubernetes dictionaries appear only as `live` bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from gpuctl.model.decision import Placement, Reason, RunRecord, WorkerPlacement
from gpuctl.model.declared import Way
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import NO_REVISION, JobId, NodeName, ObjectRef, ProjectName, Revision, RunDigest
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.units import CpuMilli, DurationMs, GpuMilli, Instant, MemBytes
from gpuctl.model.usage import Usage

Body: TypeAlias = Mapping[str, Any]
"""A Kubernetes object as decoded JSON; read-only by convention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawObjects:
    """Every live object of the kinds gpuctl uses, by reference. Bodies are never changed in place.

    `by_kind`: the same objects by API version and kind, if the caller has them so; else empty. `unseen`: kinds that
    could not be read: their objects are missing, or are those of the last reading.
    """

    objects: Mapping[ObjectRef, Body] = field(default_factory=dict)
    by_kind: Mapping[tuple[str, str], Mapping[ObjectRef, Body]] = field(default_factory=dict, compare=False, repr=False)
    unseen: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGpu:
    """A GPU that is cut into MIG slices of one profile: how many slices it has, and how many of them others hold."""

    profile: str
    slices: int
    taken: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A live node: what it can hold, and what pods that are not gpuctl's take of it.

    - `foreign_gpu_milli`: one entry a device.
    - `usable`: it is Ready, not cordoned, and has no taint that the pods of its pool do not tolerate.
    - `ready`: alone decides whether runs there can stay: a cordoned node keeps its pods.
    - `lost_gpus`: GPUs that are not healthy, or are taken out of use.
    - `ways`: how its GPUs can be requested; None: not observed.
    - `uuids`: by index, "" if not known, of nodes whose GPUs are requested by uuid.
    - `cut`: the GPUs that are cut into slices.
    - `gpu_slots`: how many workers may share a GPU, if that is limited.
    - `excess_gpus`: how many more GPUs runs hold there than the node has.
    """

    name: NodeName
    labels: Mapping[str, str]
    gpus: int
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    usable: bool = True
    ready: bool = True
    lost_gpus: frozenset[int] = frozenset()
    foreign_cpu_milli: CpuMilli = 0
    foreign_mem_bytes: MemBytes = 0
    foreign_gpu_milli: tuple[GpuMilli, ...] = ()
    ways: frozenset[Way] | None = None
    uuids: tuple[str, ...] = ()
    cut: Mapping[int, CutGpu] = field(default_factory=dict)
    gpu_slots: int | None = None
    excess_gpus: int = 0


class RunPhase(StrEnum):
    """The phase of a run, as seen on its objects.

    QUEUED: suspended, no pods. STARTING: released, not all pods running. RUNNING. STOPPING: suspended or being deleted,
    with pods. The last three are final.
    """

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"

    @property
    def final(self) -> bool:
        """Whether the run will never hold a GPU again."""
        return self in _FINAL


ACTIVE = (RunPhase.STARTING, RunPhase.RUNNING)
"""Phases of a run that was released: its pods start or run."""
_FINAL = frozenset((RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.TIMED_OUT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One live run of a job, whether the job is still declared or not.

    - `placement`: the places it holds or, while QUEUED, the place reserved for it. Amounts are per worker, as charged.
    - `queued_at_ms`: when it last began to wait; `started_at_ms`: when it last started; `ran_ms`: how long it ran
      before that start; `starts`: how often it was released.
    - `reason`: the one last written on it. `paused_for`: the job it was last paused for, or gave up workers for that
      it still lacks.
    - `idle_since_ms`: since when its GPUs have done nothing.
    - `checkpointed_at_ms`: when it said that it had written a checkpoint; for people, as `problem` is.
    - `reserved`: while STOPPING, the place that its object names: where a moved run goes, not where it is. While
      ACTIVE: places for workers that it lacks.
    - `unbound`: while STARTING, the nodes of places that none of its pods is bound to yet. `unstarted`: no pod of it
      was ever bound.
    - `leaving`: workers it has given up whose pods still exist. `made_with`: the placement that its pods are created
      with while it runs: they can be nowhere else.
    - `ended`: the numbers of workers of its placement that have ended for good and hold nothing. `ends_as`: while
      STOPPING, the final phase that is certain although its pods, or its object's status, are not that far.
    - `failed_starts`, `starting_ms`: see `RunRecord`. `let_go_at_ms`: when it was released. `begun`: whether all its
      workers have run since; None if no pod of it tells. Both matter only until it runs, and are not compared.
    - `asked_workers`: how many workers the load of a service asks for, if that is another number.
    - `problem`: the worst problem of its pods, for people. `unready_since_ms`: while RUNNING, since when one of its
      running pods is not ready. Neither is compared: they may come and go with each try of a kubelet.
    """

    job: JobId
    digest: RunDigest
    phase: RunPhase
    placement: Placement | None = None
    gpu_milli: GpuMilli = 0
    cpu_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0
    queued_at_ms: Instant = 0
    started_at_ms: Instant | None = None
    finished_at_ms: Instant | None = None
    ran_ms: int = 0
    starts: int = 0
    reason: Reason | None = None
    paused_for: JobId | None = None
    idle_since_ms: Instant | None = None
    checkpointed_at_ms: Instant | None = field(default=None, compare=False)
    unbound: tuple[NodeName, ...] = ()
    unstarted: bool = False
    reserved: Placement | None = None
    leaving: Placement | None = None
    made_with: Placement | None = None
    ended: frozenset[int] = frozenset()
    ends_as: RunPhase | None = None
    failed_starts: int = 0
    starting_ms: DurationMs = 0
    asked_workers: int | None = None
    let_go_at_ms: Instant | None = field(default=None, compare=False)
    begun: bool | None = field(default=False, compare=False)
    problem: PodProblem | None = field(default=None, compare=False)
    unready_since_ms: Instant | None = field(default=None, compare=False)

    @property
    def record(self) -> RunRecord:
        """The record of the run as it is now."""
        return RunRecord(
            self.queued_at_ms, self.starts, self.ran_ms, self.paused_for, self.failed_starts, self.starting_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The amounts that one worker of a run is charged."""

    gpu_milli: GpuMilli = 0
    cpu_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """The ledger's entry of a run: all facts that count against other runs. The run's tenant can't write it.

    - `uid`: of the run's object; "" before it was seen.
    - `is_let_go`: by the last decision the run is released; `let_go_at_ms`: when that was decided.
    - `placement`: where it runs, or the place reserved for it. `started_with`: where its pods were sent at its last
      start. `charge`: what each of them is charged.
    - `reason`: of its last start, pause or reservation.
    - `min_workers`: the fewest workers with which an elastic run goes on.
    - `reserved`: places for workers that it lacks.
    """

    uid: str = ""
    record: RunRecord
    is_let_go: bool = False
    let_go_at_ms: Instant | None = None
    placement: Placement | None = None
    started_with: Placement | None = None
    charge: Charge | None = None
    reason: Reason | None = None
    min_workers: int | None = None
    reserved: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run that ended, as the ledger keeps it: it is never started again. `state`: a final JobState."""

    job: JobId
    digest: RunDigest
    state: str
    at_ms: Instant
    starts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """When a job stopped being declared, and the commit that was taken up then. For people: nothing is decided by
    it."""

    revision: Revision
    at_ms: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """gpuctl's memory for one project, kept in the cluster and written before the effect it records.

    - `inventory`: every object that gpuctl may have applied for the project and may therefore prune.
    - `seen`: runs whose object was observed to exist (`<job>-<digest>` -> job): if one is gone, it is not started
      again.
    - `revision`: the last good commit applied for the project. `content`: a digest of the project's declarations in
      it; another commit with the same declarations is not recorded.
    - `usage`: kept if fairness has a half-life.
    - `runs`: the runs whose object or pods exist. `keeps_runs`: False for a ledger of a version of gpuctl that kept
      this on the objects themselves.
    - `removed`: the jobs that were removed last, by name.
    """

    project: ProjectName
    revision: Revision = NO_REVISION
    content: str = ""
    inventory: frozenset[ObjectRef] = frozenset()
    seen: frozenset[tuple[JobId, RunDigest]] = frozenset()
    usage: Usage | None = None
    finished: Mapping[tuple[JobId, RunDigest], FinishedRun] = field(default_factory=dict)
    runs: Mapping[tuple[JobId, RunDigest], RunEntry] = field(default_factory=dict)
    keeps_runs: bool = True
    removed: Mapping[str, Removal] = field(default_factory=dict)


class OwnObject(NamedTuple):
    """A Job or Deployment that gpuctl created: its run, and its uid."""

    run: tuple[JobId, RunDigest]
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The observed state. Sorted: nodes by name, runs by job and digest.

    - `cluster`: the cluster that these runs and ledgers belong to; objects of another cluster on the same API server
      are foreign. "": all clusters.
    - `damaged`: gpuctl's own records that can't be read completely, each with the unreadable parts, which count as
      empty.
    - `shards`: the objects that hold a part of a ledger, or did. `claimed`: namespaces in other clusters' ledgers, with
      the cluster.
    - `own`: the Jobs and Deployments that gpuctl created, in the order of their runs; `foreign`: all others.
    - `pods`: the pods of runs, with the run of each. `occupied`: namespaces with foreign pods that are not terminal.
    - `unreadable`: objects that could not be read, each with the reason. `frozen`: the parts that people froze.
    - `is_measured`: gpuctl itself measures which runs are idle, so no annotation is read for it.
    - `unseen`: kinds that could not be read: their objects may exist without being in `live`.
    """

    nodes: tuple[Node, ...] = ()
    runs: tuple[Run, ...] = ()
    ledgers: Mapping[ProjectName, Ledger] = field(default_factory=dict)
    live: Mapping[ObjectRef, Body] = field(default_factory=dict)
    damaged: tuple[tuple[ObjectRef, str], ...] = ()
    cluster: str = ""
    shards: tuple[ObjectRef, ...] = ()
    claimed: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[ObjectRef, OwnObject] = field(default_factory=dict)
    foreign: frozenset[ObjectRef] = frozenset()
    pods: Mapping[ObjectRef, tuple[JobId, RunDigest]] = field(default_factory=dict)
    occupied: frozenset[str] = frozenset()
    unreadable: tuple[tuple[ObjectRef, str], ...] = ()
    frozen: tuple[Frozen, ...] = ()
    is_measured: bool = False
    unseen: frozenset[tuple[str, str]] = frozenset()

    @property
    def all_frozen(self) -> bool:
        """Whether the whole cluster is frozen."""
        return any(each.project is None for each in self.frozen)


def uuids_of(nodes: Iterable[Node]) -> dict[NodeName, tuple[str, ...]]:
    """The uuids of each node's GPUs by index, for nodes that publish them."""
    return {node.name: node.uuids for node in nodes if node.uuids}


def named(placement: Placement, uuids: Mapping[NodeName, tuple[str, ...]]) -> Placement:
    """The placement with its devices' uuids, as far as their nodes publish them."""
    if not any(worker.node in uuids for worker in placement.workers):
        return placement
    return Placement(workers=tuple(_named(worker, uuids.get(worker.node, ())) for worker in placement.workers))


def _named(worker: WorkerPlacement, uuids: tuple[str, ...]) -> WorkerPlacement:
    return replace(worker, uuids=tuple(uuids[gpu] for gpu in worker.gpus if gpu < len(uuids)))
