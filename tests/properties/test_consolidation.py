"""Moves against trying every set of runs on every node: none that leaves everybody a place loses less GPU-time.

And they come to rest: a moved run runs again, the beneficiary starts, and no run is moved twice.
"""

from __future__ import annotations

from itertools import combinations

from draws import among
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Admit, Move, Placement, WorkerPlacement
from gpuctl.model.declared import NodePool
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase

Free = dict[NodeName, list[int]]


def free_on(world: World, runs: list[Run]) -> Free:
    """Milli-GPU free on each device beside some runs."""
    free = {node.name: [1000] * node.gpus for node in world.nodes}
    for run in runs:
        for worker in run.placement.workers if run.placement else ():
            for gpu in worker.gpus:
                free[worker.node][gpu] -= min(1000, run.gpu_milli)
    return free


def places(free: Free, milli: int) -> list[tuple[NodeName, tuple[int, ...]]]:
    """All places of one worker."""
    need = max(1, milli // 1000)
    return [
        (node, gpus)
        for node, devices in free.items()
        for gpus in combinations(range(len(devices)), need)
        if all(devices[gpu] >= min(1000, milli) for gpu in gpus)
    ]


def fit_all(free: Free, sizes: list[int]) -> bool:
    """Whether so many single workers have a place each."""
    if not sizes:
        return True
    for node, gpus in places(free, sizes[0]):
        for gpu in gpus:
            free[node][gpu] -= min(1000, sizes[0])
        if fit_all(free, sizes[1:]):
            return True
        for gpu in gpus:
            free[node][gpu] += min(1000, sizes[0])
    return False


def least_lost(world: World, wanted: Job, runs: list[Run]) -> int | None:
    """GPU-milliseconds of the cheapest moves: they go where it is free, or where a moved run has left."""
    best: int | None = None
    for size in range(1, len(runs) + 1):
        for moved in combinations(runs, size):
            lost = sum(run.gpu_milli * (world.now_ms - (run.started_at_ms or 0)) for run in moved)
            if best is not None and lost >= best:
                continue
            later = free_on(world, [run for run in runs if run not in moved])
            for node, gpus in places(later, wanted.gpu_milli):
                beside = free_on(world, [run for run in runs if run not in moved])
                for gpu in gpus:
                    beside[node][gpu] -= min(1000, wanted.gpu_milli)
                if fit_all(beside, [run.gpu_milli for run in moved]):
                    best = lost
                    break
    return best


@st.composite
def scattered(draw: st.DrawFn) -> tuple[list[NodePool], list[Job], list[tuple[int, tuple[int, ...], int]]]:
    """Nodes with jobs here and there that all began at another time, and how long each runs."""
    nodes = draw(st.lists(st.sampled_from((2, 3, 4)), min_size=2, max_size=3))
    made: list[tuple[int, tuple[int, ...], int]] = []
    jobs: list[Job] = []
    for index, gpus in enumerate(nodes):
        gpu = 0
        while gpu < gpus:
            size = draw(among(0, 1, 1, 2, 2, 3))
            if size and gpu + size <= gpus and len(jobs) < 7:
                jobs.append(job(f"a/j{len(jobs)}", 1000 * size))
                made.append((index, tuple(range(gpu, gpu + size)), draw(st.integers(1, 1000))))
            gpu += max(1, size)
    return [pool(nodes=nodes)], jobs, made


@given(scattered(), st.sampled_from((1000, 2000, 3000, 4000)))
@settings(max_examples=300)
def test_no_moves_lose_less(
    spread: tuple[list[NodePool], list[Job], list[tuple[int, tuple[int, ...], int]]], wanted_milli: int
) -> None:
    pools, jobs, made = spread
    world = World(nodes=live_nodes(pools))
    for each, (index, gpus, seconds) in zip(jobs, made, strict=True):
        worker = WorkerPlacement(node=world.nodes[index].name, gpus=gpus)
        since = world.now_ms - 1000 * seconds
        world.runs[each.id, each.digest] = Run(
            job=each.id, digest=each.digest, phase=RunPhase.RUNNING, placement=Placement(workers=(worker,)),
            gpu_milli=each.gpu_milli, queued_at_ms=since, started_at_ms=since, starts=1,
        )  # fmt: skip
        world.seen.add((each.id, each.digest))
    wanted = job("b/wanted", wanted_milli)
    # Each project is within its quota, so no run is paused. Quotas that exceed what there is are scaled to whole
    # GPUs: then one may be paused, and others be moved besides.
    a_milli = sum(each.gpu_milli for each in jobs)
    if a_milli + wanted_milli > 1000 * sum(node.gpus for node in world.nodes):
        return
    projects = [project("a", a_milli), project("b", wanted_milli)]
    tree = declared(projects, [*jobs, wanted], pools)
    assume(not any(isinstance(d, Admit) for d in world.cycle(tree).decisions if d.job == wanted.id))
    running = [run for run in world.runs.values() if run.placement]
    expected = least_lost(world, wanted, running)
    now_ms = world.now_ms
    moves = [d for d in world.cycle(tree).decisions if isinstance(d, Move)]
    began = {run.job: now_ms - (run.started_at_ms or 0) for run in running}
    sizes = {each.id: each.gpu_milli for each in jobs}
    assert (sum(sizes[d.job] * began[d.job] for d in moves) if moves else None) == expected
    world.settle(tree)
    assert {str(each.id) for each in jobs} <= world.running()
    assert (str(wanted.id) in world.running()) is (expected is not None)
    assert len(world.paused) == len(moves)
