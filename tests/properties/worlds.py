"""Small clusters as values, and a pure model of carrying a schedule out: what the rest of gpuctl does to a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuctl.diag.span import SourceSpan
from gpuctl.engine import EngineCache, schedule
from gpuctl.model import transition
from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Finished,
    Keep,
    Move,
    Pending,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
    Suspended,
    TimeOut,
)
from gpuctl.model.declared import (
    WHOLE_CLUSTER,
    Allowance,
    Cluster,
    Declared,
    DeclaredNode,
    Department,
    NodePool,
    PlacementStrategy,
    Project,
    QuotaDomain,
    SchedulingPolicy,
    Sharing,
)
from gpuctl.model.ids import DomainName, JobId, NodeName, PoolName, ProjectName, RunDigest
from gpuctl.model.job import Container, Job, JobType
from gpuctl.model.state import ClusterState, FinishedRun, Ledger, Node, Run, RunPhase
from gpuctl.model.units import Instant

SPAN = SourceSpan(file="test.yaml")
IMAGE = Container(image="image")
GIB = 1024**3
CYCLE_MS = 1_000


def pool(
    name: str = "dgx1",
    *,
    nodes: Sequence[int] = (8, 8),
    sharing: Sharing = Sharing.DRA,
    placement: PlacementStrategy = PlacementStrategy.BINPACK,
) -> NodePool:
    """A pool whose nodes have the GPUs given."""
    return NodePool(
        name=PoolName(name),
        match_labels={"pool": name},
        nodes=tuple(
            DeclaredNode(name=NodeName(f"{name}-{i + 1}"), gpus=gpus, cpu_milli=80_000, mem_bytes=512 * GIB)
            for i, gpus in enumerate(nodes)
        ),
        gpu_mem_bytes=32 * GIB,
        gpu_product="V100",
        placement=placement,
        sharing=sharing,
        span=SPAN,
    )


def live_nodes(pools: Iterable[NodePool]) -> tuple[Node, ...]:
    """The declared inventory, alive."""
    return tuple(
        Node(
            name=node.name,
            labels=dict(each.match_labels),
            gpus=node.gpus,
            cpu_milli=node.cpu_milli,
            mem_bytes=node.mem_bytes,
        )
        for each in pools
        for node in each.nodes
    )


def project(name: str, quota: int | Mapping[str, int] = 0, **options: object) -> Project:
    """A project with a quota in milli-GPU, of the whole cluster or by domain; weight is the quota unless given."""
    limit, weight = options.pop("limit", None), options.pop("weight", None)
    quotas = {WHOLE_CLUSTER: quota} if isinstance(quota, int) else {DomainName(d): q for d, q in quota.items()}
    allowances = {
        domain: Allowance(
            quota_milli=milli,
            limit_milli=limit,  # type: ignore[arg-type]
            weight=milli if weight is None else weight,  # type: ignore[arg-type]
            own_weight=weight is not None,
        )
        for domain, milli in quotas.items()
    }
    return Project(name=ProjectName(name), namespace=f"gpu-{name}", allowances=allowances, span=SPAN, **options)  # type: ignore[arg-type]


def department(name: str, quota: int, **options: object) -> Department:
    """A department with a quota in milli-GPU of the whole cluster."""
    weight = options.pop("weight", quota)
    allowance = Allowance(quota_milli=quota, limit_milli=options.pop("limit", None), weight=weight)  # type: ignore[arg-type]
    return Department(name=name, allowances={WHOLE_CLUSTER: allowance}, span=SPAN, **options)  # type: ignore[arg-type]


def job(name: str, gpu_milli: int = 1000, *, kind: JobType = JobType.TRAINING, **options: object) -> Job:
    """A job by `project/name`, with the defaults of its type."""
    values: dict[str, object] = {
        "id": JobId.parse(name),
        "digest": RunDigest("00000001"),
        "type": kind,
        "container": IMAGE,
        "gpu_milli": gpu_milli,
        "preemptible": kind is JobType.TRAINING,
        "pools": (PoolName("dgx1"),),
        "span": SPAN,
    } | options
    values.setdefault("min_workers", values.get("workers", 1))
    return Job(**values)  # type: ignore[arg-type]


def declared(
    projects: Iterable[Project],
    jobs: Iterable[Job],
    pools: Sequence[NodePool] | None = None,
    **options: object,
) -> Declared:
    """A declaration over one pool of two nodes with 8 GPUs, unless other pools are given."""
    pools = tuple(pools or (pool(),))
    by_pool = options.pop("by_pool", False)
    domains = (
        tuple(QuotaDomain(name=DomainName(p.name), pools=(p.name,)) for p in pools)
        if by_pool
        else (QuotaDomain(name=WHOLE_CLUSTER, pools=tuple(p.name for p in pools)),)
    )
    policy = options.pop("policy", SchedulingPolicy())
    return Declared(
        cluster=Cluster(
            name="test", namespace_prefix="gpu-", pools=pools, ingress=None, scheduling=policy, span=SPAN  # type: ignore[arg-type]
        ),
        domains=domains,
        projects=tuple(sorted(projects, key=lambda p: p.name)),
        jobs=tuple(sorted(jobs, key=lambda j: j.id)),
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass
class World:
    """A cluster in memory: nodes, runs, and gpuctl's records; and what the engine keeps between its cycles.

    `kept` is what the controller has too, and changes no decision: tests/properties/test_outlook.py. Measured: the
    stories of test_safety.py take 1.5x without it, those of five modules 1.3x, for most of their cycles change little.
    """

    nodes: tuple[Node, ...]
    now_ms: Instant = 1_596_000_000_000
    runs: dict[tuple[JobId, RunDigest], Run] = field(default_factory=dict)
    seen: set[tuple[JobId, RunDigest]] = field(default_factory=set)
    finished: dict[tuple[JobId, RunDigest], FinishedRun] = field(default_factory=dict)
    paused: list[tuple[JobId, JobId | None]] = field(default_factory=list)
    kept: EngineCache = field(default_factory=EngineCache, init=False, repr=False, compare=False)

    def state(self) -> ClusterState:
        """What `observe` would say."""
        projects = {job.project for job, _ in self.seen}
        ledgers = {
            name: Ledger(
                project=name,
                seen=frozenset(key for key in self.seen if key[0].project == name),
                finished={key: run for key, run in self.finished.items() if key[0].project == name},
            )
            for name in projects
        }
        return ClusterState(nodes=self.nodes, runs=tuple(self.runs[key] for key in sorted(self.runs)), ledgers=ledgers)

    def cycle(self, tree: Declared, stop_after: int | None = None) -> Schedule:
        """One cycle: decide, write in the plan's order (at most `stop_after` writes: a crash), let the cluster move."""
        made = schedule(tree, self.state(), self.now_ms, self.kept)
        self.carry_out(tree, made, stop_after)
        if stop_after is not None:
            self.kept = EngineCache()
        return made

    def carry_out(self, tree: Declared, made: Schedule, stop_after: int | None = None) -> None:
        """Reservations, then pauses, then starts, then removals; then time passes and what was stopping is gone."""
        jobs = {job.id: job for job in tree.jobs}
        stages: list[tuple[int, JobId, Run]] = []
        for decision in made.decisions:
            declared_job = jobs[decision.job]
            before = self.runs.get((declared_job.id, declared_job.digest))
            after = transition.decided(declared_job, before, decision, self.now_ms)
            if after != before and after is not None:
                stages.append((_stage(decision), decision.job, after))
        wanted = {(each.id, each.digest) for each in tree.jobs}
        for key, run in self.runs.items():
            if key not in wanted and run.job.project not in tree.pinned:
                stages.append((9, run.job, replace(run, phase=RunPhase.STOPPING, paused_for=None)))
        stopping = [key for key, run in self.runs.items() if run.phase is RunPhase.STOPPING]
        for _, name, run in sorted(stages, key=lambda s: (s[0], s[1]))[:stop_after]:
            key = (run.job, run.digest)
            was = self.runs.get(key)
            if run.phase is RunPhase.STOPPING and was is not None and was.phase is not RunPhase.STOPPING:
                self.paused.append((name, run.paused_for))
            self.runs[key] = run
            self.seen.add(key)
        self.now_ms += CYCLE_MS
        self._move(tree, stopping)

    def _move(self, tree: Declared, stopping: Iterable[tuple[JobId, RunDigest]]) -> None:
        wanted = {(job.id, job.digest) for job in tree.jobs}
        for key in stopping:
            if key in wanted:
                self.runs[key] = transition.stopped(self.runs[key])
            else:
                del self.runs[key]
        for key, run in self.runs.items():
            if run.phase is not RunPhase.STOPPING:
                self.runs[key] = transition.started(run, self.now_ms)

    def settle(self, tree: Declared, most: int = 12) -> int:
        """Cycle until nothing changes; returns how many cycles did."""
        for count in range(most):
            before = (dict(self.runs), set(self.seen))
            self.cycle(tree)
            if (self.runs, self.seen) == before:
                return count
        raise AssertionError(f"still changing after {most} cycles")

    def decided(self, tree: Declared, most: int = 30) -> Iterator[tuple[ClusterState, Schedule]]:
        """What is there and what is decided on it, each carried out before the next, until nothing changes."""
        for _ in range(most):
            state = self.state()
            made = schedule(tree, state, self.now_ms, self.kept)
            yield state, made
            before = dict(self.runs), set(self.seen)
            self.carry_out(tree, made)
            if (self.runs, self.seen) == before:
                return
        raise AssertionError(f"still changing after {most} cycles")

    def end(self, name: str, state: str = "Succeeded") -> None:
        """A running job ends by itself."""
        for key, run in list(self.runs.items()):
            if str(run.job) == name:
                phase = RunPhase(state)
                self.runs[key] = replace(run, phase=phase, placement=None)
                self.finished[key] = FinishedRun(job=run.job, digest=run.digest, state=state, at_ms=self.now_ms)

    def running(self) -> set[str]:
        """Jobs that run or start."""
        return {str(r.job) for r in self.runs.values() if r.phase in (RunPhase.RUNNING, RunPhase.STARTING)}

    def allocated(self) -> dict[str, int]:
        """GPUs of running jobs by project, in milli-GPU."""
        milli: dict[str, int] = {}
        for run in self.runs.values():
            if run.phase in (RunPhase.RUNNING, RunPhase.STARTING) and run.placement:
                milli[run.job.project] = milli.get(run.job.project, 0) + run.gpu_milli * len(run.placement.workers)
        return milli

    def starts(self) -> dict[str, int]:
        """How often each job was let go."""
        return {str(run.job): run.starts for run in self.runs.values()}


def _stage(decision: Decision) -> int:
    match decision:
        case Pending():
            return 3
        case Reclaim() | Preempt() | Displace() | Move() | Resize() | Suspended() | TimeOut():
            return 4
        case Admit() | Keep() | Finished():
            return 7
