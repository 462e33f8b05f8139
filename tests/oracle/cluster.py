"""A cluster in memory that carries schedules out until it is at rest; and the log of what runs lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpuctl.engine import EngineCache, schedule
from gpuctl.model import transition
from gpuctl.model.decision import (
    Decision,
    Displace,
    Move,
    Placement,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
    WorkerPlacement,
)
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName, RunDigest
from gpuctl.model.state import ACTIVE, ClusterState, FinishedRun, Ledger, Node, Run, RunPhase
from gpuctl.model.units import GpuMilli, Instant

from .worlds import DIGEST, WorldSpec

NOW_MS = 1_596_000_000_000
CYCLE_MS = 1_000
MOST_CYCLES = 12


@dataclass(frozen=True, slots=True)
class Loss:
    """A run that lost GPUs. `kind`: reclaim, preempt, shrink, move; displace has no beneficiary. `cycle`: of the loss.

    `goes_on`: its next place is reserved with the same decision.
    """

    cycle: int
    job: JobId
    beneficiary: JobId | None
    kind: str
    milli: GpuMilli
    goes_on: bool = False


@dataclass(slots=True)
class TinyCluster:
    """Nodes, runs and the ledger. A second passes with each cycle."""

    nodes: tuple[Node, ...]
    now_ms: Instant = NOW_MS
    runs: dict[JobId, Run] = field(default_factory=dict)
    finished: dict[tuple[JobId, RunDigest], FinishedRun] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    cycles: int = 0
    decided: int = 0
    """The number of cycles that decided something new.

    A cycle that starts a job in the place that an earlier cycle reserved for it decides nothing new, even if further
    workers get idle GPUs beside it: that was decided then, and pods had to leave first. Nor does a cycle that only
    waits for pods.
    """

    cache: EngineCache = field(default_factory=EngineCache, repr=False, compare=False)
    """What the engine keeps between cycles, as the controller does; it changes no decision. Without it, the two tests
    take 1.15 times as long."""

    def copy(self) -> TinyCluster:
        """A separate copy of the cluster; its log is empty."""
        return TinyCluster(nodes=self.nodes, now_ms=self.now_ms, runs=dict(self.runs), finished=dict(self.finished))

    @property
    def decided_ms(self) -> Instant:
        """The time of the last decision."""
        return self.now_ms - CYCLE_MS

    def state(self) -> ClusterState:
        """The state as it would be observed."""
        seen = {(run.job, run.digest) for run in self.runs.values()} | set(self.finished)
        ledgers = {
            name: Ledger(
                project=name,
                seen=frozenset(key for key in seen if key[0].project == name),
                finished={key: run for key, run in self.finished.items() if key[0].project == name},
            )
            for name in {job.project for job, _ in seen}
        }
        return ClusterState(nodes=self.nodes, runs=tuple(self.runs[job] for job in sorted(self.runs)), ledgers=ledgers)

    def decide(self, tree: Declared) -> Schedule:
        """The engine's decisions for the present state."""
        return schedule(tree, self.state(), self.now_ms, self.cache)

    def carry_out(self, tree: Declared, made: Schedule) -> bool:
        """Write the decisions, then let pods follow; returns whether any run has changed."""
        jobs = {job.id: job for job in tree.jobs}
        before = dict(self.runs)
        is_new = False
        stopping = [job for job, run in self.runs.items() if run.phase is RunPhase.STOPPING]
        for decision in made.decisions:
            run = self.runs.get(decision.job)
            self._note(decision, run)
            after = transition.decided(jobs[decision.job], run, decision, self.now_ms)
            if after is not None and after != run:
                self.runs[decision.job] = after
                is_new |= run is None or is_stopped(run, after) or gives_other_places(run, after)
        for job in [job for job in self.runs if job not in jobs]:
            self.runs[job] = transition.removed(self.runs[job])
        self.now_ms += CYCLE_MS
        self.cycles += 1
        self.decided += is_new
        for job in stopping:
            self.runs[job] = transition.stopped(self.runs[job])
        for job, run in list(self.runs.items()):
            if job not in jobs and run.phase is not RunPhase.STOPPING:
                del self.runs[job]
            elif run.phase is not RunPhase.STOPPING:
                self.runs[job] = transition.started(run, self.now_ms)
        return self.runs != before

    def settle(self, tree: Declared) -> int | None:
        """Decide and carry out until nothing changes; returns how many cycles changed something, None if it does not
        rest."""
        for count in range(MOST_CYCLES):
            if not self.carry_out(tree, self.decide(tree)):
                return count
        return None

    def in_vain(self) -> Iterator[tuple[JobId, str]]:
        """The jobs for which runs lost GPUs and that do not run, each with what was lost for it."""
        running = {job for job, run in self.runs.items() if run.phase in ACTIVE}
        for loss in self.losses:
            if loss.beneficiary is not None and loss.beneficiary not in running:
                yield loss.beneficiary, f"{loss.job} ({loss.kind}) for {loss.beneficiary}, which does not run"

    def add_waiting(self, job: JobId) -> None:
        """Create a job's run, which waits from now on."""
        self.runs[job] = Run(job=job, digest=DIGEST, phase=RunPhase.QUEUED, queued_at_ms=self.now_ms)

    def end(self, job: JobId) -> None:
        """Let a run end by itself."""
        run = self.runs[job]
        self.runs[job] = replace(run, phase=RunPhase.SUCCEEDED, placement=None)
        key = (job, run.digest)
        self.finished[key] = FinishedRun(job=job, digest=run.digest, state="Succeeded", at_ms=self.now_ms)

    def set_ready(self, name: NodeName, *, ready: bool) -> None:
        """Lose a node, or bring it back."""
        self.nodes = tuple(replace(n, ready=ready, usable=ready) if n.name == name else n for n in self.nodes)

    def _note(self, decision: Decision, run: Run | None) -> None:
        if not isinstance(decision, Reclaim | Preempt | Move | Resize | Displace) or run is None:
            return
        if run.phase not in ACTIVE or (isinstance(decision, Resize) and decision.beneficiary is None):
            return
        beneficiary = None if isinstance(decision, Displace) else decision.beneficiary
        kept = len(decision.placement.workers) if isinstance(decision, Resize) else 0
        kind = "shrink" if isinstance(decision, Resize) else type(decision).__name__.lower()
        milli = run.gpu_milli * (workers_of(run) - kept)
        if milli > 0:
            goes_on = isinstance(decision, Reclaim | Preempt | Move) and decision.reserved is not None
            loss = Loss(self.cycles, decision.job, beneficiary, kind, milli, goes_on)
            self.losses.append(loss)


def workers_of(run: Run) -> int:
    """The number of workers with a place."""
    return len(run.placement.workers) if run.placement else 0


def places(run: Run) -> Counter[WorkerPlacement]:
    """The places that a run has, or will have by earlier decisions: a stopping run loses all but its next place."""
    held = () if run.phase is RunPhase.STOPPING or run.placement is None else run.placement.workers
    return Counter((*held, *(run.reserved.workers if run.reserved is not None else ())))


def is_stopped(before: Run, after: Run) -> bool:
    """Whether a run is stopped, even if it goes on in the same place."""
    return before.phase in ACTIVE and after.phase is RunPhase.STOPPING


def gives_other_places(before: Run, after: Run) -> bool:
    """Whether a run gets other places than before; starting in the place reserved for it does not count."""
    if before.phase is RunPhase.QUEUED and before.placement is not None and after.phase in ACTIVE:
        return not places(before) <= places(after)
    return places(before) != places(after)


def start(spec: WorldSpec) -> TinyCluster:
    """The world at its beginning."""
    nodes = tuple(
        Node(
            name=NodeName(name), labels={"gpuctl.dev/pool": pool.name}, gpus=gpus, cpu_milli=64_000,
            mem_bytes=512 * 1024**3,
        )
        for pool in spec.pools
        for name, gpus in zip(pool.node_names(), pool.nodes, strict=True)
    )  # fmt: skip
    cluster = TinyCluster(nodes=tuple(sorted(nodes, key=lambda node: node.name)))
    for each in spec.runs:
        job = spec.job(each.job)
        name = JobId.parse(each.job)
        if not each.places:
            cluster.runs[name] = Run(
                job=name, digest=DIGEST, phase=RunPhase.QUEUED, queued_at_ms=NOW_MS - 1000 * each.ago_s
            )
            continue
        placement = Placement(workers=tuple(WorkerPlacement(node=NodeName(n), gpus=g) for n, g in each.places))
        since_ms = NOW_MS - 1000 * each.ago_s
        cluster.runs[name] = Run(
            job=name, digest=DIGEST, phase=RunPhase.RUNNING, placement=placement, gpu_milli=job.milli,
            queued_at_ms=since_ms, started_at_ms=since_ms, starts=1,
            made_with=placement if job.least < job.workers else None,
        )  # fmt: skip
    return cluster
