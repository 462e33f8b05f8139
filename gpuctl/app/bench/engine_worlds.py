"""Generates clusters for the engine's benchmark, as values: the same each time, by fixed seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from gpuctl.diag.span import SourceSpan
from gpuctl.engine import reasons
from gpuctl.explain import at_rest
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import (
    WHOLE_CLUSTER,
    Allowance,
    Cluster,
    Declared,
    NodePool,
    PlacementStrategy,
    Project,
    QuotaDomain,
    SchedulingPolicy,
    Sharing,
)
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName, RunDigest
from gpuctl.model.job import Container, Job, JobType
from gpuctl.model.state import ClusterState, Node, Run, RunPhase
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant

SEED = 4858
NOW_MS: Instant = 1_596_000_000_000
POOL = PoolName("h100")
MIX: tuple[tuple[int, GpuMilli, int], ...] = (
    (250, 500, 1), (170, 250, 1), (80, 700, 1), (400, 1000, 1), (63, 2000, 1), (28, 4000, 1), (6, 8000, 1),
    (3, 8000, 2),
)  # fmt: skip
"""The requests among a thousand jobs: how many jobs, milli-GPU a worker, and workers."""

_SPAN = SourceSpan(file="bench.yaml")
_CONTAINER = Container(image="registry.example.com/bench:1")
_DIGEST = RunDigest("00000001")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The declarations and the observed state."""

    declared: Declared
    state: ClusterState

    def jobs(self, jobs: Iterable[Job]) -> World:
        """The world with these jobs declared."""
        return replace(self, declared=replace(self.declared, jobs=tuple(sorted(jobs, key=lambda job: job.id))))

    def runs(self, runs: Iterable[Run]) -> World:
        """The world with these runs."""
        return replace(self, state=replace(self.state, runs=tuple(sorted(runs, key=lambda run: run.job))))

    def spread(self) -> World:
        """The world with pools that spread work, and so do not score fragmentation."""
        cluster = self.declared.cluster
        pools = tuple(replace(pool, placement=PlacementStrategy.SPREAD) for pool in cluster.pools)
        return replace(self, declared=replace(self.declared, cluster=replace(cluster, pools=pools)))

    def nodes(self, nodes: tuple[Node, ...]) -> World:
        """The world with these nodes."""
        return replace(self, state=replace(self.state, nodes=nodes))


def node(index: int, gpus: int = 8) -> Node:
    """The n-th node, empty."""
    return Node(
        name=NodeName(f"node-{index:05}"), labels={"pool": POOL}, gpus=gpus, cpu_milli=128_000, mem_bytes=2048 * _GIB
    )


def job(project: str, name: str, gpu_milli: GpuMilli, workers: int = 1) -> Job:
    """A training job."""
    return Job(
        id=JobId(ProjectName(project), name), digest=_DIGEST, type=JobType.TRAINING, container=_CONTAINER,
        gpu_milli=gpu_milli, workers=workers, min_workers=workers, cpu_milli=1000, mem_bytes=_GIB, pools=(POOL,),
        span=_SPAN,
    )  # fmt: skip


def run_of(job: Job, placement: Placement | None = None, since_ms: Instant = NOW_MS) -> Run:
    """The job's run: queued, or running where it was placed."""
    return Run(
        job=job.id, digest=job.digest, phase=RunPhase.RUNNING if placement else RunPhase.QUEUED, placement=placement,
        gpu_milli=job.gpu_milli, cpu_milli=job.cpu_milli, mem_bytes=job.mem_bytes, queued_at_ms=since_ms,
        started_at_ms=since_ms if placement else None, starts=1 if placement else 0,
        reason=reasons.runs_in_quota(job.id.project) if placement else None,
    )  # fmt: skip


def world(quotas: Sequence[tuple[str, GpuMilli]], nodes: Iterable[Node], *, consolidation: bool = False) -> World:
    """Projects with quotas over one pool, without jobs."""
    projects = (
        Project(
            name=ProjectName(name), namespace=f"gpu-{name}", span=_SPAN,
            allowances={WHOLE_CLUSTER: Allowance(quota_milli=quota, weight=quota)},
        )
        for name, quota in sorted(quotas)
    )  # fmt: skip
    pool = NodePool(
        name=POOL, match_labels={"pool": POOL}, nodes=(), gpu_mem_bytes=80 * _GIB, gpu_product="H100",
        placement=PlacementStrategy.BINPACK, sharing=Sharing.DRA, span=_SPAN,
    )  # fmt: skip
    cluster = Cluster(
        name="bench",
        namespace_prefix="gpu-",
        pools=(pool,),
        ingress=None,
        scheduling=SchedulingPolicy(consolidation=consolidation),
        span=_SPAN,
    )
    declared = Declared(
        cluster=cluster, domains=(QuotaDomain(name=WHOLE_CLUSTER, pools=(POOL,)),), projects=tuple(projects)
    )
    return World(declared=declared, state=ClusterState(nodes=tuple(nodes)))


def mixed_jobs(count: int, projects: int) -> list[Job]:
    """As many jobs as `count`, with the requests of MIX, of each project in turn."""
    random = Random(SEED)  # noqa: S311 - the same values every time
    weights = [weight for weight, _, _ in MIX]
    kinds = random.choices(MIX, weights, k=count)
    return [
        job(f"team-{index % projects:04}", f"job-{index:06}", milli, workers)
        for index, (_, milli, workers) in enumerate(kinds)
    ]


def different_jobs(count: int, projects: int, most_workers: int = 1) -> list[Job]:
    """As many jobs as `count`, of each project in turn, that nearly all differ in their request or rank.

    With `most_workers` above 1 they are gangs of 2 to `most_workers` workers.
    """
    random = Random(SEED)  # noqa: S311 - the same values every time
    made = []
    for index in range(count):
        gpus = random.choice((1, 1, 1, 2, 4, 8))
        workers = random.randint(2, most_workers) if most_workers > 1 else 1
        plain = job(f"team-{index % projects:04}", f"job-{index:06}", WHOLE_GPU * gpus, workers)
        made.append(
            replace(
                plain, cpu_milli=1000 * gpus * random.randint(1, 24), mem_bytes=_GIB * random.randint(1, 256),
                priority=random.choice((0, 0, 0, 1)), preemptible=random.random() < 0.9,
            )
        )  # fmt: skip
    return made


def crowded(nodes: Sequence[int], jobs: int, projects: int) -> World:
    """A full cluster at rest; `nodes`: the GPUs of each node. Most jobs run, the others wait for free GPUs.

    Every job has its run. Quotas are half of an equal part, so that most projects borrow.
    """
    return _full(nodes, mixed_jobs(jobs, projects), projects, jobs)


def uneven(nodes: Sequence[int], jobs: int, projects: int) -> World:
    """The same before it comes to rest: jobs run by first fit, so that the first projects hold more than their shares
    and the last less. One cycle pauses a part of the runs."""
    return _begun(nodes, mixed_jobs(jobs, projects), projects, jobs)


def differing(nodes: Sequence[int], jobs: int, projects: int) -> World:
    """As `crowded`, but nearly all jobs differ, and runs may be moved. On most nodes CPU is exhausted before GPUs
    are."""
    return _full(nodes, different_jobs(jobs, projects), projects, sum(nodes) // 5, consolidation=True)


def gangs(nodes: Sequence[int], count: int, projects: int, *, consolidation: bool = False) -> World:
    """A cluster filled with gangs of 2 to 8 workers that nearly all differ; all others wait. Not at rest."""
    return _begun(nodes, different_jobs(count, projects, 8), projects, count, consolidation=consolidation)


def _full(
    nodes: Sequence[int], made: Sequence[Job], projects: int, running: int, *, consolidation: bool = False
) -> World:
    """The cluster at rest. `running`: how many jobs run at the beginning."""
    busy = _begun(nodes, made, projects, running, consolidation=consolidation)
    return replace(busy, state=at_rest(busy.declared, busy.state, NOW_MS).state)


def _begun(
    nodes: Sequence[int], made: Sequence[Job], projects: int, running: int, *, consolidation: bool = False
) -> World:
    """The cluster at the beginning: the first `running` jobs run, as far as there are places."""
    there = [node(index, gpus) for index, gpus in enumerate(nodes)]
    quota = WHOLE_GPU * sum(nodes) // (2 * projects)
    empty = world([(f"team-{index:04}", quota) for index in range(projects)], there, consolidation=consolidation)
    places = _Shelves(there)
    runs = [
        run_of(each, places.place(each) if index < running else None, NOW_MS - 1000 * (len(made) - index))
        for index, each in enumerate(made)
    ]
    return empty.jobs(made).runs(runs)


class _Shelves:
    """Places generated runs by first fit: nodes in order, each filled before the next; whole nodes from the end."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = {each.name: [WHOLE_GPU] * each.gpus for each in nodes}
        self._names = [each.name for each in nodes]
        self._backwards = self._names[::-1]
        self._passed: dict[GpuMilli, int] = {}

    def place(self, job: Job) -> Placement | None:
        """Take the devices of all workers of a job; None if there are not enough."""
        taken: list[tuple[NodeName, tuple[int, ...]]] = []
        for name in self._open(job.gpu_milli):
            while len(taken) < job.workers:
                found = self._devices(name, job.gpu_milli)
                if found is None:
                    break
                self._take(name, found, job.gpu_milli)
                taken.append((name, found))
            if len(taken) == job.workers:
                return Placement(workers=tuple(WorkerPlacement(node=node, gpus=gpus) for node, gpus in taken))
        for name, gpus in taken:
            self._take(name, gpus, -job.gpu_milli)
        return None

    def _open(self, milli: GpuMilli) -> Iterator[NodeName]:
        """The nodes from the first one on which a worker fits. Devices are never given back, so earlier nodes never fit
        again."""
        order, first = self._names if milli < 8 * WHOLE_GPU else self._backwards, self._passed.get(milli, 0)
        while first < len(order) and self._devices(order[first], milli) is None:
            first += 1
        self._passed[milli] = first
        return (order[at] for at in range(first, len(order)))

    def _devices(self, name: NodeName, milli: GpuMilli) -> tuple[int, ...] | None:
        each, count = min(milli, WHOLE_GPU), max(1, milli // WHOLE_GPU)
        found = [index for index, free in enumerate(self._free[name]) if free >= each][:count]
        return tuple(found) if len(found) == count else None

    def _take(self, name: NodeName, gpus: tuple[int, ...], milli: GpuMilli) -> None:
        for index in gpus:
            self._free[name][index] -= milli // len(gpus)
