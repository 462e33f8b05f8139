"""Random small clusters, trees of projects, jobs and histories. Shared by all properties of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from draws import among, at_most_two, perhaps, shuffled
from hypothesis import strategies as st
from worlds import GIB, World, declared, department, job, live_nodes, pool, project

from gpuctl.engine.shares.fairshare import ShareClaim
from gpuctl.model.decision import Placement, Reason, WorkerPlacement
from gpuctl.model.declared import Declared, Department, MinRuntime, PlacementStrategy, SchedulingPolicy, Sharing
from gpuctl.model.ids import JobId, NodeName, PoolName, RunDigest
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import FinishedRun, Node, Run, RunPhase

NOW = 1_596_000_000_000
PROJECTS = ("alpha", "beta", "gamma", "delta")
NONE = MinRuntime.of_all(0)
SIZES = (1000, 1000, 1000, 2000, 2000, 2000, 3000, 4000, 500, 250, 600, 300, 0)
MOSTLY = st.sampled_from((True, True, False))
MOMENT = st.sampled_from((None, None, 1000, 4000))
DEVICES = st.lists(st.integers(-1, 9), max_size=3).map(tuple)
LIMIT = st.none() | st.integers(0, 10_000)
LOST_GPUS = st.lists(st.integers(0, 9), max_size=2)
STRANGERS = st.lists(st.sampled_from((0, 400, 1000, 3000)), max_size=9)
NODE_SIZES = st.lists(st.sampled_from((4, 4, 2, 8)), min_size=1, max_size=2)
CODES = ("GPU5001", "GPU5018", "GPU5019", "GPU5023", "GPU5080", "GPU5082", "GPU5090")
REASON = st.none() | st.sampled_from(CODES).map(lambda code: Reason(code=code))


@cache
@st.composite
def claims(draw: st.DrawFn, depth: int = 2, prefix: str = "o") -> list[ShareClaim]:
    """Siblings with quotas, demands, limits, weights and bands; some have children of their own."""
    siblings = []
    for index in range(draw(st.integers(1, 5))):
        owner = f"{prefix}{index}"
        children = draw(claims(depth - 1, f"{owner}.")) if depth > 1 and draw(st.integers(0, 3)) == 0 else []
        demand = sum(c.wanted_milli for c in children) if children else draw(st.integers(0, 12_000))
        siblings.append(
            ShareClaim(
                owner=owner,
                quota_milli=draw(st.integers(0, 8_000)),
                demand_milli=demand,
                limit_milli=draw(LIMIT),
                weight=draw(among(0, 1, 1, 2, 3, 4000, 7919)),
                priority=draw(st.integers(0, 2)),
                children=tuple(children),
            )
        )
    return siblings


@cache
@st.composite
def jobs(draw: st.DrawFn, most: int = 12, pools: tuple[str, ...] = ("dgx1",)) -> list[Job]:
    """Jobs of several types, sizes, ranks and gang sizes; some ask for much CPU."""
    made = []
    for index in range(draw(st.integers(min(4, most), most))):
        size = draw(among(*SIZES))
        kind = draw(among(JobType.TRAINING, JobType.TRAINING, JobType.TRAINING, *JobType))
        narrowed = draw(shuffled(pools)) if len(pools) > 1 else pools
        made.append(
            job(
                f"{draw(among(*PROJECTS))}/j{index}",
                size,
                kind=kind,
                workers=draw(among(1, 1, 1, 1, 2, 3)) if size >= 1000 else 1,
                priority=draw(st.integers(0, 2)),
                preemptible=kind is JobType.TRAINING or draw(st.integers(0, 3)) == 0,
                cpu_milli=draw(among(0, 0, 1000, 1000, 30_000)),
                mem_bytes=draw(among(0, GIB)),
                pools=tuple(PoolName(name) for name in narrowed),
                suspend=draw(st.integers(0, 19)) == 7,
            )
        )
    return made


@cache
@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> Declared:
    """A small cluster with projects, departments at times, and jobs."""
    names = draw(among(("dgx1",), ("dgx1",), ("dgx1", "v100")))
    by_pool = len(names) > 1 and draw(st.booleans())
    pools = [
        pool(
            name,
            nodes=draw(NODE_SIZES),
            sharing=draw(among(Sharing.DRA, Sharing.DRA, Sharing.DRA, Sharing.DEVICE_PLUGIN)),
            placement=draw(among(*PlacementStrategy)),
        )
        for name in names
    ]
    departments: list[Department] = []
    if draw(st.integers(0, 2)) == 0:
        departments.append(department("research", 1000 * draw(st.integers(0, 8))))
    projects = []
    for name in PROJECTS:
        milli = draw(among(2000, 1000, 0, 3000, 4500))
        quota = dict.fromkeys(names, milli) if by_pool else milli
        projects.append(
            project(
                name,
                quota,
                limit=draw(among(None, None, None, None, None, 6000, 3000, 0)),
                weight=draw(among(None, None, 0, 1, 5000)),
                priority=draw(among(0, 0, 1)),
                department=draw(among("research", None)) if departments else None,
            )
        )
    policy = SchedulingPolicy(
        min_runtime=draw(among(NONE, NONE, MinRuntime.of_all(1500), MinRuntime(0, 1500, 700))),
        starvation_guard_ms=draw(among(600_000, 600_000, 3000)),
        consolidation=draw(MOSTLY),
    )
    return declared(
        projects, draw(jobs(most, names)), pools, by_pool=by_pool, departments=tuple(departments), policy=policy
    )


@dataclass(frozen=True, repr=False)
class Story:
    """A tree whose jobs arrive in batches on a cluster to which things happen in between."""

    tree: Declared
    batches: tuple[tuple[int, ...], ...]
    """Indexes of the jobs that are declared from each step on."""
    leaving: tuple[int, ...]
    """Indexes of the jobs that are taken away at the end."""
    lost: NodeName | None
    """A node that is lost for a while after all have arrived."""
    ended: tuple[int, ...]
    """Indexes of jobs that end by themselves after that."""

    def __repr__(self) -> str:
        """What matters of it, short enough to read."""
        lines = [f"{p.name}: {dict(p.allowances)} priority={p.priority} in {p.department}" for p in self.tree.projects]
        lines += [
            f"{j.id}: {j.type} {j.workers}x{j.gpu_milli} cpu={j.cpu_milli} mem={j.mem_bytes} priority={j.priority} "
            f"preemptible={j.preemptible} pools={j.pools} suspend={j.suspend}"
            for j in self.tree.jobs
        ]
        lines += [f"{p.name}: {[n.gpus for n in p.nodes]} {p.sharing} {p.placement}" for p in self.tree.cluster.pools]
        lines.append(f"departments={[(d.name, dict(d.allowances)) for d in self.tree.departments]}")
        lines.append(f"{self.tree.cluster.scheduling}")
        lines.append(f"batches={self.batches} leaving={self.leaving} lost={self.lost} ended={self.ended}")
        return "\n".join(lines)

    def world(self) -> World:
        """An empty cluster."""
        return World(nodes=live_nodes(self.tree.cluster.pools))

    def chapters(self, world: World) -> Iterator[Declared]:
        """The trees, one after another; in between the cluster loses a node and gets it back, and jobs end."""
        tree = self.tree
        for batch in self.batches:
            tree = replace(self.tree, jobs=tuple(self.tree.jobs[i] for i in sorted(batch)))
            yield tree
        if self.lost is not None:
            whole = world.nodes
            world.nodes = tuple(
                replace(node, ready=False, usable=False) if node.name == self.lost else node for node in whole
            )
            yield tree
            world.nodes = whole
            yield tree
        for index in self.ended:
            world.end(str(self.tree.jobs[index].id))
        yield tree
        gone = {self.tree.jobs[i].id for i in self.leaving}
        yield replace(self.tree, jobs=tuple(job for job in tree.jobs if job.id not in gone))


@st.composite
def stories(draw: st.DrawFn, most: int = 12) -> Story:
    """A tree and its history."""
    tree = draw(trees(most))
    order = draw(shuffled(range(len(tree.jobs))))
    cuts = sorted({draw(st.integers(0, len(order))) for _ in range(2)} | {len(order)})
    batches = tuple(tuple(order[:cut]) for cut in cuts if cut)
    some = at_most_two(len(order), unique=True)
    nodes = [node.name for each in tree.cluster.pools for node in each.nodes]
    return Story(
        tree=tree,
        batches=batches,
        leaving=tuple(draw(some)),
        lost=draw(perhaps(*nodes)),
        ended=tuple(draw(some)),
    )


@cache
def places(nodes: tuple[NodeName, ...]) -> st.SearchStrategy[Placement | None]:
    """No place or any at all: on nodes that are there or not, on devices that they have or not."""
    worker = st.builds(WorkerPlacement, node=st.sampled_from((*nodes, NodeName("vanished"))), gpus=DEVICES)
    return st.none() | st.lists(worker, max_size=3).map(lambda workers: Placement(workers=tuple(workers)))


@st.composite
def runs(draw: st.DrawFn, tree: Declared) -> Run:
    """Any run at all: declared or not, in any phase, in places that are taken, wrong or gone, with anything on it."""
    which = tree.jobs[draw(st.integers(0, len(tree.jobs) - 1))]
    stranger = draw(st.integers(0, 5)) == 0
    others = (which.id, tree.jobs[0].id, JobId.parse("nobody/knows"))
    place = places(tuple(node.name for each in tree.cluster.pools for node in each.nodes))
    placement = draw(place)
    nodes = [worker.node for worker in placement.workers] if placement is not None else []
    return Run(
        job=JobId.parse("nobody/knows") if stranger else which.id,
        digest=draw(among(which.digest, which.digest, RunDigest("0000beef"))),
        phase=draw(among(*RunPhase)),
        placement=placement,
        gpu_milli=draw(among(which.gpu_milli, 500, 1000, 2500)),
        cpu_milli=which.cpu_milli,
        mem_bytes=which.mem_bytes,
        queued_at_ms=draw(among(0, NOW - 5000, NOW + 5000)),
        started_at_ms=draw(perhaps(NOW - 5000, NOW, NOW + 5000)),
        starts=draw(st.integers(0, 3)),
        ran_ms=draw(st.integers(0, 5000)),
        reason=draw(REASON),
        paused_for=draw(perhaps(*others)),
        idle_since_ms=draw(perhaps(NOW - 1000)),
        unbound=tuple(draw(st.lists(among(*nodes), max_size=2))) if nodes else (),
        reserved=draw(place),
        leaving=draw(place) if draw(st.booleans()) else None,
        made_with=draw(place),
    )


@st.composite
def dressed(draw: st.DrawFn, tree: Declared) -> Declared:
    """The tree, some of whose jobs may run for a moment only, or with fewer workers."""
    jobs = (
        replace(
            each,
            max_duration_ms=draw(MOMENT),
            idle_timeout_ms=draw(MOMENT),
            min_workers=draw(among(1, each.workers)),
        )
        for each in tree.jobs
    )
    return replace(tree, jobs=tuple(jobs))


@st.composite
def nodes(draw: st.DrawFn, tree: Declared) -> tuple[Node, ...]:
    """The declared nodes, some gone, lost, cordoned, shrunk, sick or used by strangers."""
    made = []
    for node in live_nodes(tree.cluster.pools):
        if draw(st.integers(0, 6)) == 0:
            continue
        ready = draw(st.integers(0, 6)) > 0
        gpus = draw(among(node.gpus, node.gpus, 1, 0))
        made.append(
            Node(
                name=node.name,
                labels=node.labels if draw(st.integers(0, 6)) else {},
                gpus=gpus,
                cpu_milli=draw(among(node.cpu_milli, 0)),
                mem_bytes=node.mem_bytes,
                usable=ready and draw(st.integers(0, 4)) > 0,
                ready=ready,
                lost_gpus=frozenset(draw(LOST_GPUS)),
                foreign_gpu_milli=tuple(draw(STRANGERS)),
            )
        )
    return tuple(made)


@st.composite
def worlds(draw: st.DrawFn, tree: Declared) -> World:
    """A cluster that is in any state whatever."""
    world = World(nodes=draw(nodes(tree)), now_ms=NOW)
    for run in draw(st.lists(runs(tree), max_size=8)):
        world.runs[run.job, run.digest] = run
        if draw(st.booleans()):
            world.seen.add((run.job, run.digest))
    for which in map(tree.jobs.__getitem__, draw(at_most_two(len(tree.jobs)))):
        state = draw(among("Succeeded", "Deleted", "nonsense"))
        world.finished[which.id, which.digest] = FinishedRun(job=which.id, digest=which.digest, state=state, at_ms=NOW)
        world.seen.add((which.id, which.digest))
    return world


@st.composite
def messes(draw: st.DrawFn) -> tuple[Declared, World]:
    """A tree and a cluster that is in any state whatever."""
    tree = draw(dressed(draw(trees())))
    return tree, draw(worlds(tree))
