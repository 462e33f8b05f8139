"""Victims against trying every set of runs: no set that makes room has fewer GPUs, nor as many in fewer runs."""

from __future__ import annotations

from itertools import combinations

from checks import empty_rooms, occupy
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Reclaim
from gpuctl.model.declared import NodePool
from gpuctl.model.job import Job
from gpuctl.model.state import Run


def cheapest(world: World, pools: list[NodePool], wanted: Job, runs: list[Run]) -> tuple[int, int] | None:
    """(GPUs, runs) of the cheapest set that makes room for the job on some node."""
    best: tuple[int, int] | None = None
    for size in range(1, len(runs) + 1):
        for leaving in combinations(runs, size):
            cost = sum(run.gpu_milli for run in leaving), size
            if best is not None and cost >= best:
                continue
            rooms = empty_rooms(declared([], [], pools), world.nodes)
            for run in runs:
                if run not in leaving:
                    occupy(rooms, run.placement, run.gpu_milli, run.cpu_milli, run.mem_bytes)
            for free, _, _ in rooms.values():
                whole = sum(milli >= 1000 for milli in free)
                part = any(milli >= wanted.gpu_milli for milli in free)
                if part if wanted.gpu_milli % 1000 else whole * 1000 >= wanted.gpu_milli:
                    best = cost
    return best


@given(
    st.lists(st.sampled_from((2, 4)), min_size=1, max_size=2),
    st.lists(st.sampled_from((1000, 1000, 2000, 3000, 500, 300, 700)), min_size=1, max_size=8),
    st.sampled_from((1000, 2000, 3000, 500, 300)),
)
@settings(max_examples=120)
def test_no_cheaper_set_of_victims_exists(nodes: list[int], sizes: list[int], wanted_milli: int) -> None:
    pools = [pool(nodes=nodes)]
    projects = [project("owner", 100_000), project("over", 0)]
    world = World(nodes=live_nodes(pools))
    jobs = [job(f"over/{index}", milli) for index, milli in enumerate(sizes)]
    for count in range(1, len(jobs) + 1):
        world.settle(declared(projects, jobs[:count], pools))
    running = [run for run in world.runs.values() if run.placement]
    wanted = job("owner/job", wanted_milli)
    tree = declared(projects, [*jobs, wanted], pools)
    world.cycle(tree)
    victims = [d.job for d in world.cycle(tree).decisions if isinstance(d, Reclaim)]
    sizes_by_job = {each.id: each.gpu_milli for each in jobs}
    if victims:
        assert (sum(sizes_by_job[v] for v in victims), len(victims)) == cheapest(world, pools, wanted, running)
    elif str(wanted.id) not in world.running():
        assert cheapest(world, pools, wanted, running) is None
