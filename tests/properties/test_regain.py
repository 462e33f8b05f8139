"""Elastic runs that their project is owed workers for: they regain them from projects with more than is guaranteed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from checks import ACTIVE, Room, check_schedule, empty_rooms, occupy, pool_of, workers_of
from draws import among
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Keep, Reclaim, Resize, Schedule
from gpuctl.model.declared import Declared, SchedulingPolicy, Sharing
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Node, Run, RunPhase


@st.composite
def quota_stories(draw: st.DrawFn) -> tuple[Declared, ...]:
    """Trees of the same jobs, most of them elastic, that come one after another; then quotas change hands."""
    way = draw(among(Sharing.DEVICE_PLUGIN, Sharing.DEVICE_PLUGIN, Sharing.DRA))
    pools = [pool(nodes=draw(among((4,), (8,), (4, 4), (2, 4))), sharing=way)]
    names = ("a", "b", "c")
    jobs = []
    for index in range(draw(st.integers(2, 7))):
        workers = draw(among(1, 1, 2, 4, 6))
        jobs.append(
            job(
                f"{draw(among(*names))}/j{index}", draw(among(1000, 1000, 1000, 2000)),
                workers=workers, min_workers=draw(st.integers(1, min(2, workers))),
                priority=draw(among(0, 0, 0, 1)), preemptible=draw(st.integers(0, 5)) > 0,
            )
        )  # fmt: skip
    policy = SchedulingPolicy(consolidation=False)
    quotas = [[project(name, 1000 * draw(st.integers(0, 5))) for name in names] for _ in range(3)]
    arriving = (declared(quotas[0], jobs[:count], pools, policy=policy) for count in range(1, len(jobs) + 1))
    return (*arriving, *(declared(projects, jobs, pools, policy=policy) for projects in quotas[1:]))


@settings(max_examples=150)
@given(quota_stories())
def test_a_run_that_is_owed_workers_regains_them_and_no_run_makes_way_in_vain(story: tuple[Declared, ...]) -> None:
    world = World(nodes=live_nodes(story[0].cluster.pools))
    for tree in story:
        expecting: dict[JobId, int] = {}
        for state, made in world.decided(tree):
            check_schedule(tree, state, made)
            for name, workers in gainers(state, made):
                expecting.setdefault(name, workers)
        state = world.state()
        for run in state.runs:
            assert run.job not in expecting or workers_of(run) > expecting[run.job], f"{run.job} has no more"
        assert not could_regain(tree, state, made, world.now_ms)


def gainers(state: ClusterState, made: Schedule) -> Iterator[tuple[JobId, int]]:
    """Runs for which others make way, and how many workers they have."""
    kept = {decision.job for decision in made.decisions if isinstance(decision, Keep)}
    active = {run.job: workers_of(run) for run in state.runs if run.phase in ACTIVE and run.job in kept}
    for decision in made.decisions:
        if isinstance(decision, Reclaim | Resize) and decision.beneficiary in active:
            yield decision.beneficiary, active[decision.beneficiary]


def could_regain(tree: Declared, state: ClusterState, made: Schedule, now_ms: int) -> list[tuple[JobId, JobId | None]]:
    """Runs owed a worker for which there is a place, or would be without one run of a project above its guarantee."""
    jobs = {job.id: job for job in tree.jobs}
    live = {node.name: node for node in state.nodes}
    quotas = sum(p.allowances[d.name].quota_milli for p in tree.projects for d in tree.domains)
    there = sum(1000 * len(free) for free, _, _ in empty_rooms(tree, state.nodes).values())
    kept = any(decision.reason.code in {"GPU5080", "GPU5081"} for decision in made.decisions)
    if kept or quotas > there or tree.departments or len(tree.domains) > 1:
        return []
    domain = tree.domains[0].name
    held: Counter[ProjectName] = Counter()
    waits = {run.job.project for run in state.runs if run.phase is RunPhase.QUEUED and not jobs[run.job].suspend}
    for run in state.runs:
        held[run.job.project] += run.gpu_milli * workers_of(run)
    found: list[tuple[JobId, JobId | None]] = []
    for run in state.runs:
        each, allowance = jobs.get(run.job), tree.project(run.job.project).allowances[domain]
        lacks = each is not None and workers_of(run) < each.workers
        if (
            each is None
            or run.phase is not RunPhase.RUNNING
            or not lacks
            or not each.gpu_milli
            or run.made_with is None
        ):
            continue
        after = held[run.job.project] + each.gpu_milli
        most = min(allowance.quota_milli, after if allowance.limit_milli is None else allowance.limit_milli)
        if run.job.project in waits or after > most:
            continue
        over = (other for other in state.runs if _may_make_way(tree, other, run, held[other.job.project], now_ms))
        for gone in (None, *over):
            rooms = empty_rooms(tree, state.nodes)
            for other in state.runs:
                if other is not gone:
                    occupy(rooms, other.placement, other.gpu_milli, other.cpu_milli, other.mem_bytes)
            if any(_holds(tree, live[name], rooms[name], run, each) for name in _nodes_of(run) if name in rooms):
                found.append((run.job, gone.job if gone else None))
    return found


def _may_make_way(tree: Declared, run: Run, other: Run, held_milli: int, now_ms: int) -> bool:
    job = next((job for job in tree.jobs if job.id == run.job), None)
    policy, allowance = tree.cluster.scheduling, tree.project(run.job.project).allowances[tree.domains[0].name]
    old = now_ms - (run.started_at_ms or now_ms) >= policy.min_runtime.guarantee_ms
    over = held_milli > allowance.quota_milli and run.job.project != other.job.project
    return job is not None and job.preemptible and run.phase in ACTIVE and old and over and run.gpu_milli > 0


def _nodes_of(run: Run) -> set[NodeName]:
    return {worker.node for worker in run.made_with.workers} if run.made_with else set()


def _holds(tree: Declared, node: Node, room: Room, run: Run, wanted: Job) -> bool:
    """A worker more fits a node on the devices that its pods can have, in the pool they are in."""
    free, cpu, mem = room
    pool = pool_of(tree, node)
    if pool is None or run.made_with is None or not pool.name or cpu < wanted.cpu_milli or mem < wanted.mem_bytes:
        return False
    own = {i for worker in run.made_with.workers if worker.node == node.name for i in worker.gpus}
    usable = [milli for i, milli in enumerate(free) if pool.sharing is Sharing.DEVICE_PLUGIN or i in own]
    return sum(milli >= 1000 for milli in usable) >= wanted.gpu_milli // 1000
