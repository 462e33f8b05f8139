"""Victims against trying every set of runs: no set that makes room has fewer GPUs, nor as many in fewer runs.

Under a ceiling as many GPUs must leave as the job would be above it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations, zip_longest

from checks import empty_rooms, occupy
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Placement, Preempt, Reclaim, Resize
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run

TREE = declared([], [])
"""All nodes are of its pool."""


def size(run: Run) -> int:
    """Its GPUs, of all workers."""
    return run.gpu_milli * len(run.placement.workers if run.placement else ())


def cheapest(
    world: World, wanted: Job, runs: list[Run], staying: Sequence[Run] = (), lost_milli: int = 0
) -> tuple[int, int] | None:
    """(GPUs, runs) of the cheapest set that makes room for the job on some node, and has so many GPUs."""
    best: tuple[int, int] | None = None
    for count in range(1, len(runs) + 1):
        for leaving in combinations(runs, count):
            cost = sum(map(size, leaving)), count
            if cost[0] < lost_milli or (best is not None and cost >= best):
                continue
            rooms = empty_rooms(TREE, world.nodes)
            for run in (*runs, *staying):
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
        assert (sum(sizes_by_job[v] for v in victims), len(victims)) == cheapest(world, wanted, running)
    elif str(wanted.id) not in world.running():
        assert cheapest(world, wanted, running) is None


@given(
    st.lists(st.sampled_from((2, 4)), min_size=1, max_size=3),
    st.lists(st.sampled_from(((1000, 1), (1000, 1), (2000, 1), (3000, 1), (500, 1), (300, 1), (1000, 2))), max_size=8),
    st.integers(0, 3),
    st.sampled_from((1000, 2000, 3000, 500, 300)),
    st.integers(1, 10),
)
@settings(max_examples=200)
def test_no_cheaper_set_makes_way_under_a_ceiling(
    nodes: list[int], shapes: list[tuple[int, int]], guests: int, wanted_milli: int, limit: int
) -> None:
    pools = [pool(nodes=nodes)]
    projects = [project("a", 10_000, limit=limit * 1000), project("guest", 10_000)]
    world = World(nodes=live_nodes(pools))
    fixed = [job(f"guest/{index}", kind=JobType.INTERACTIVE) for index in range(guests)]
    lower = [job(f"a/{index}", milli, workers=workers) for index, (milli, workers) in enumerate(shapes)]
    jobs = [each for pair in zip_longest(lower, fixed) for each in pair if each is not None]
    for count in range(1, len(jobs) + 1):
        world.settle(declared(projects, jobs[:count], pools))
    running = [run for run in world.runs.values() if run.placement]
    theirs = [run for run in running if run.job.project == "guest"]
    ours = [run for run in running if run not in theirs]
    wanted = job("a/job", wanted_milli, priority=1)
    tree = declared(projects, [*jobs, wanted], pools)
    victims = [d.job for _ in range(2) for d in world.cycle(tree).decisions if isinstance(d, Preempt)]
    sizes = {run.job: size(run) for run in ours}
    over_milli = sum(sizes.values()) + wanted_milli - limit * 1000
    best = cheapest(world, wanted, ours, theirs, over_milli)
    if victims:
        assert (sum(sizes[victim] for victim in victims), len(victims)) == best
    elif str(wanted.id) not in world.running():
        assert best is None or wanted_milli > limit * 1000


@given(
    st.lists(st.sampled_from((2, 4)), min_size=1, max_size=3),
    st.lists(st.sampled_from(((1000, 1, 1), (2000, 1, 1), (500, 1, 1), (1000, 2, 2), (1000, 4, 1))), max_size=8),
    st.sampled_from(((1000, 2), (1000, 3), (2000, 2))),
    st.integers(2, 10),
)
@settings(max_examples=120)
def test_no_run_makes_way_for_a_gang_that_could_be_spared(
    nodes: list[int], shapes: list[tuple[int, int, int]], gang: tuple[int, int], limit: int
) -> None:
    pools = [pool(nodes=nodes)]
    projects = [project("a", 10_000, limit=limit * 1000)]
    world = World(nodes=live_nodes(pools))
    lower = [job(f"a/{n}", milli, workers=most, min_workers=least) for n, (milli, most, least) in enumerate(shapes)]
    for count in range(1, len(lower) + 1):
        world.settle(declared(projects, lower[:count], pools))
    running = {run.job: run for run in world.runs.values() if run.placement}
    wanted = job("a/job", gang[0], priority=1, workers=gang[1])
    tree = declared(projects, [*lower, wanted], pools)
    made = [d for _ in range(2) for d in world.cycle(tree).decisions]
    left = dict(running)
    for decision in made:
        if isinstance(decision, Preempt):
            del left[decision.job]
        elif isinstance(decision, Resize) and decision.beneficiary == wanted.id:
            left[decision.job] = replace(running[decision.job], placement=decision.placement)
    if left == running:
        return
    assert is_enough(world, wanted, left.values(), limit)
    for name, run in running.items():
        held = left[name].placement if name in left else None
        spared = len(held.workers) + 1 if held else len(run.placement.workers if run.placement else ())
        if run.placement and run.placement != held:
            back = replace(run, placement=Placement(workers=run.placement.workers[:spared]))
            assert not is_enough(world, wanted, [*(r for n, r in left.items() if n != name), back], limit)


def is_enough(world: World, wanted: Job, left: Collection[Run], limit: int) -> bool:
    """All workers have room beside those that are left, and the limit holds."""
    rooms = empty_rooms(TREE, world.nodes)
    for run in left:
        occupy(rooms, run.placement, run.gpu_milli, run.cpu_milli, run.mem_bytes)
    devices = wanted.gpu_milli // 1000
    there = sum(sum(milli >= 1000 for milli in free) // devices for free, _, _ in rooms.values())
    return there >= wanted.workers and sum(map(size, left)) + wanted.total_gpu_milli <= limit * 1000


@given(
    st.lists(st.tuples(st.sampled_from(("r1", "r2", "r3", "")), st.sampled_from((2, 4))), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from((1000, 1000, 2000, 3000)), st.integers(1, 3)), min_size=1, max_size=12),
    st.sampled_from(((1000, 2), (1000, 4), (2000, 2), (2000, 3))),
)
@settings(max_examples=120)
def test_racks_decide_only_where_nothing_else_does(
    nodes: list[tuple[str, int]], shapes: list[tuple[int, int]], gang: tuple[int, int]
) -> None:
    lost = []
    for labels in ((), ("rack",)):
        pools = [replace(pool(nodes=[gpus for _, gpus in nodes]), topology=labels)]
        live = live_nodes(pools)
        marked = (replace(n, labels={**n.labels, "rack": rack}) for n, (rack, _) in zip(live, nodes, strict=True))
        world = World(nodes=tuple(marked))
        projects = [project("owner", 100_000), project("over", 0)]
        jobs = [job(f"over/{index}", milli) for index, (milli, _) in enumerate(shapes)]
        world.settle(declared(projects, jobs, pools))
        hours = {each.id: hour for each, (_, hour) in zip(jobs, shapes, strict=True)}
        world.runs = {
            key: replace(run, started_at_ms=world.now_ms - hours[run.job] * 3_600_000) if run.placement else run
            for key, run in world.runs.items()
        }
        wanted = job("owner/job", gang[0], workers=gang[1])
        tree = declared(projects, [*jobs, wanted], pools, policy=SchedulingPolicy(consolidation=False))
        victims = [d.job for _ in range(2) for d in world.cycle(tree).decisions if isinstance(d, Reclaim)]
        sizes = {each.id: each.gpu_milli for each in jobs}
        lost.append((len(victims), sum(sizes[v] for v in victims), sum(sizes[v] * hours[v] for v in victims)))
    assert lost[0] == lost[1]
