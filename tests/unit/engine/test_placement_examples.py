"""Where jobs go: packed, spread, fractions, gangs, and batches that are repacked together."""

from __future__ import annotations

import itertools

import pytest
from worlds import GIB, World, declared, job, live_nodes, pool, project

from gpuctl.engine import schedule
from gpuctl.model.decision import Admit, Placement
from gpuctl.model.declared import NodePool, PlacementStrategy
from gpuctl.model.job import Job


def places(jobs: list[Job], pools: list[NodePool]) -> dict[str, Placement]:
    """Where each admitted job goes on an empty cluster."""
    tree = declared([project("a", 100_000)], jobs, pools)
    world = World(nodes=live_nodes(pools))
    made = schedule(tree, world.state(), world.now_ms)
    return {d.job.name: d.placement for d in made.decisions if isinstance(d, Admit)}


def on(placement: Placement) -> list[tuple[str, tuple[int, ...]]]:
    return [(worker.node, worker.gpus) for worker in placement.workers]


def test_packed_pools_fill_the_fullest_node_that_fits() -> None:
    made = places([job("a/1", 3000), job("a/2", 1000), job("a/3", 4000)], [pool(nodes=[4, 4])])
    assert on(made["1"])[0][0] == on(made["2"])[0][0] != on(made["3"])[0][0]


def test_spread_pools_take_the_emptiest_node() -> None:
    made = places([job("a/1"), job("a/2")], [pool(nodes=[4, 4], placement=PlacementStrategy.SPREAD)])
    assert {on(p)[0][0] for p in made.values()} == {"dgx1-1", "dgx1-2"}


@pytest.mark.parametrize("order", sorted(itertools.permutations([600, 500, 400, 300, 200]))[::7])
def test_fractions_that_arrive_together_fill_as_few_devices_as_they_need(order: tuple[int, ...]) -> None:
    made = places([job(f"a/{i}", milli) for i, milli in enumerate(order)], [pool(nodes=[8])])
    assert len({on(p)[0] for p in made.values()}) == 2


def test_halves_of_a_gang_fill_the_whole_device_that_one_of_them_must_have() -> None:
    made = places([job("a/small", 300, priority=1), job("a/gang", 500, workers=2)], [pool(nodes=[2])])
    (device,) = {gpus for _, gpus in on(made["gang"])}
    assert device != on(made["small"])[0][1]


def test_a_batch_is_laid_out_anew_rather_than_left_waiting() -> None:
    sizes = [1000, 1000, 1000, 3000, 2000, 4000, 4000]
    made = places([job(f"a/{i}", milli, priority=-i) for i, milli in enumerate(sizes)], [pool(nodes=[8, 8])])
    assert len(made) == len(sizes)


def test_a_gang_uses_few_nodes_and_the_same_devices_on_each() -> None:
    made = places([job("a/gang", 2000, workers=4)], [pool(nodes=[4, 4, 4])])
    assert on(made["gang"]) == [
        ("dgx1-1", (0, 1)), ("dgx1-1", (2, 3)), ("dgx1-2", (0, 1)), ("dgx1-2", (2, 3)),
    ]  # fmt: skip


def test_a_gang_prefers_device_indexes_that_all_its_nodes_have_free() -> None:
    pools = [pool(nodes=[4, 4])]
    first = [job("a/1", 1000, cpu_milli=80_000)]
    world = World(nodes=live_nodes(pools))
    world.settle(declared([project("a", 8000)], first, pools))
    gang = job("a/gang", 3000, workers=2)
    made = places([gang], [pool(nodes=[4, 4])])
    assert {worker.gpus for worker in made["gang"].workers} == {(0, 1, 2)}
    world.settle(declared([project("a", 8000)], [*first, gang], pools))
    placement = next(run.placement for run in world.runs.values() if run.job.name == "gang")
    assert placement is not None
    assert {worker.gpus for worker in placement.workers} == {(1, 2, 3)}


def test_a_gang_starts_whole_or_not_at_all() -> None:
    assert places([job("a/gang", 2000, workers=3)], [pool(nodes=[4, 1])]) == {}


def test_cpu_work_goes_where_it_is_in_no_gpu_job_s_way() -> None:
    made = places([job("a/gpu", 4000), job("a/z-cpu", 0, cpu_milli=1000)], [pool(nodes=[4, 4])])
    assert on(made["z-cpu"])[0][0] == on(made["gpu"])[0][0]
    assert on(made["z-cpu"])[0][1] == ()


def test_cpu_and_memory_are_never_overbooked() -> None:
    jobs = [job(f"a/{i}", 1000, mem_bytes=300 * GIB) for i in range(4)]
    assert len(places(jobs, [pool(nodes=[8, 8])])) == 2
