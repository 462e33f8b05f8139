"""Consolidation: the fewest GPU-hours are lost, each moved run has a place, and none is moved twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Admit, Move, Pending, Placement, WorkerPlacement
from gpuctl.model.declared import Declared, MinRuntime, NodePool, SchedulingPolicy
from gpuctl.model.ids import NodeName, RunDigest
from gpuctl.model.job import Job
from gpuctl.model.state import Node, Run, RunPhase

Places = Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]]
HOUR = 3_600_000


def running(world: World, jobs: list[Job], places: Places, hours: Mapping[str, int] | None = None) -> None:
    """Put jobs into given places, where they have run for an hour unless `hours` says otherwise."""
    by_name = {str(each.id): each for each in jobs}
    for name, workers in places.items():
        each = by_name[name]
        key = each.id, RunDigest("00000001")
        since = world.now_ms - HOUR * (hours or {}).get(name, 1)
        placement = Placement(workers=tuple(WorkerPlacement(node=NodeName(n), gpus=gpus) for n, gpus in workers))
        world.runs[key] = Run(
            job=each.id, digest=key[1], phase=RunPhase.RUNNING, placement=placement, gpu_milli=each.gpu_milli,
            cpu_milli=each.cpu_milli, mem_bytes=each.mem_bytes, queued_at_ms=since, started_at_ms=since, starts=1,
        )  # fmt: skip
        world.seen.add(key)


def scattered(**options: object) -> tuple[World, Declared, list[NodePool]]:
    """Three nodes with one of two GPUs used on each, and a job within its quota that asks for two."""
    pools = [pool(nodes=[2, 2, 2])]
    jobs = [job(f"a/{i}", **options) for i in range(3)] + [job("b/two", 2000)]  # type: ignore[arg-type]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 3000), project("b", 2000)], jobs, pools)
    places: Places = {f"a/{i}": ((f"dgx1-{i + 1}", (0,)),) for i in range(3)}
    running(world, jobs, places, {"a/0": 3, "a/1": 2, "a/2": 5})
    world.cycle(tree)
    return world, tree, pools


def test_the_one_that_loses_least_is_moved_and_both_run() -> None:
    world, tree, _ = scattered()
    moves = [d for d in world.cycle(tree).decisions if isinstance(d, Move)]
    assert [(str(d.job), str(d.beneficiary), d.reason.code) for d in moves] == [("a/1", "b/two", "GPU5082")]
    assert moves[0].reserved.workers[0].node != "dgx1-2"
    world.settle(tree)
    assert world.running() == {"a/0", "a/1", "a/2", "b/two"}
    assert world.starts() == {"a/0": 1, "a/1": 2, "a/2": 1, "b/two": 1}


def test_all_of_them_are_back_within_three_cycles() -> None:
    world, tree, _ = scattered()
    for _ in range(3):
        world.cycle(tree)
    assert world.running() == {"a/0", "a/1", "a/2", "b/two"}


def test_its_place_is_kept_while_it_stops() -> None:
    world, tree, _ = scattered()
    world.cycle(tree)
    greedy = replace(tree, jobs=(*tree.jobs, job("a/greedy")), projects=(project("a", 9000), project("b", 2000)))
    made = world.cycle(greedy)
    decisions = {str(d.job): d for d in made.decisions}
    mover = decisions["a/1"]
    assert isinstance(mover, Pending)
    assert mover.reserved is not None
    world.settle(greedy)
    assert "a/1" in world.running()
    assert world.starts()["a/1"] == 2


def test_a_place_lost_meanwhile_is_kept_no_longer() -> None:
    world, tree, _ = scattered()
    move = next(d for d in world.cycle(tree).decisions if isinstance(d, Move))
    lost = move.reserved.workers[0].node
    world.nodes = tuple(replace(n, ready=False, usable=False) if n.name == lost else n for n in world.nodes)
    decisions = {str(d.job): d for d in world.cycle(tree).decisions}
    mover = decisions["a/1"]
    assert isinstance(mover, Pending)
    assert mover.reserved is None
    assert mover.reason.code == "GPU5020"
    world.settle(tree)
    assert "b/two" in world.running()


def test_nothing_is_moved_that_may_not_be_paused() -> None:
    world, tree, _ = scattered(preemptible=False)
    world.settle(tree)
    assert "b/two" not in world.running()
    assert world.paused == []


def test_nothing_is_moved_before_it_has_run_for_min_runtime() -> None:
    world, tree, _ = scattered()
    policy = SchedulingPolicy(min_runtime=MinRuntime.of_all(10 * HOUR))
    patient = replace(tree, cluster=replace(tree.cluster, scheduling=policy))
    assert not any(isinstance(d, Move) for d in world.cycle(patient).decisions)
    policy = SchedulingPolicy(min_runtime=MinRuntime.of_all(4 * HOUR))
    patient = replace(tree, cluster=replace(tree.cluster, scheduling=policy))
    assert [str(d.job) for d in world.cycle(patient).decisions if isinstance(d, Move)] == ["a/2"]


def test_nothing_is_moved_where_the_cluster_forbids_it() -> None:
    world, tree, _ = scattered()
    fixed = replace(tree, cluster=replace(tree.cluster, scheduling=SchedulingPolicy(consolidation=False)))
    world.settle(fixed)
    assert "b/two" not in world.running()


def test_nothing_is_moved_for_a_job_beyond_its_share() -> None:
    world, tree, _ = scattered()
    poor = replace(tree, projects=(project("a", 6000), project("b", 0, weight=0)))
    world.settle(replace(poor, jobs=(*tree.jobs, job("a/next", 2000))))
    assert world.running() == {"a/0", "a/1", "a/2", "a/next"}
    assert [(str(victim), str(beneficiary)) for victim, beneficiary in world.paused] == [("a/1", "a/next")]


def test_a_run_that_was_moved_for_a_job_is_not_moved_for_it_again() -> None:
    world, tree, _ = scattered()
    world.settle(tree)
    key = next(key for key in world.runs if str(key[0]) == "b/two")
    moved = next(key for key in world.runs if str(key[0]) == "a/1")
    assert str(world.runs[moved].paused_for) == "b/two"
    # The run is stopped by hand, and the GPUs that it had are scattered again.
    world.runs[key] = replace(world.runs[key], phase=RunPhase.QUEUED, placement=None, started_at_ms=None)
    for index, name in enumerate(("a/0", "a/1", "a/2")):
        place = Placement(workers=(WorkerPlacement(node=NodeName(f"dgx1-{index + 1}"), gpus=(0,)),))
        own = next(key for key in world.runs if str(key[0]) == name)
        world.runs[own] = replace(world.runs[own], placement=place)
    assert [str(d.job) for d in world.cycle(tree).decisions if isinstance(d, Move)] == ["a/0"]


def test_a_gang_moves_whole_and_a_gang_is_made_room_for() -> None:
    pools = [pool(nodes=[2, 2, 2, 2])]
    jobs = [job("a/pair", workers=2), job("a/x"), job("a/y"), job("b/gang", 2000, workers=2)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 4000), project("b", 4000)], jobs, pools)
    places: Places = {
        "a/pair": (("dgx1-1", (0,)), ("dgx1-2", (0,))), "a/x": (("dgx1-3", (1,)),), "a/y": (("dgx1-4", (1,)),),
    }  # fmt: skip
    running(world, jobs, places, {"a/x": 9, "a/y": 9})
    world.cycle(tree)
    moves = [d for d in world.cycle(tree).decisions if isinstance(d, Move)]
    assert [str(d.job) for d in moves] == ["a/pair"]
    assert {w.node for w in moves[0].reserved.workers} == {"dgx1-3", "dgx1-4"}
    world.settle(tree)
    assert world.running() == {"a/pair", "a/x", "a/y", "b/gang"}


def test_fractions_on_one_node_make_a_device_whole() -> None:
    pools = [pool(nodes=[2])]
    jobs = [job("a/x", 500), job("a/y", 500), job("b/whole", 1000)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 1000), project("b", 1000)], jobs, pools)
    running(world, jobs, {"a/x": (("dgx1-1", (0,)),), "a/y": (("dgx1-1", (1,)),)}, {"a/x": 2})
    world.settle(tree)
    assert world.running() == {"a/x", "a/y", "b/whole"}
    assert world.starts() == {"a/x": 1, "a/y": 2, "b/whole": 1}


def test_a_job_that_may_use_another_pool_goes_there() -> None:
    pools = [pool("dgx1", nodes=[1]), pool("v100", nodes=[1])]
    either = (pools[0].name, pools[1].name)
    jobs = [job("a/either", pools=either), job("b/here")]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 1000), project("b", 1000)], jobs, pools)
    running(world, jobs, {"a/either": (("dgx1-1", (0,)),)})
    world.settle(tree)
    assert world.running() == {"a/either", "b/here"}


def test_a_crash_in_the_middle_ends_in_the_same_moves() -> None:
    for after_writes in range(4):
        world, tree, _ = scattered()
        world.cycle(tree, after_writes)
        world.settle(tree)
        assert world.running() == {"a/0", "a/1", "a/2", "b/two"}
        assert world.starts() == {"a/0": 1, "a/1": 2, "a/2": 1, "b/two": 1}


def test_the_reason_of_the_start_is_the_projects_standing() -> None:
    world, tree, _ = scattered()
    world.cycle(tree)
    world.cycle(tree)
    starts = [d for d in world.cycle(tree).decisions if isinstance(d, Admit)]
    assert {(str(d.job), d.reason.code) for d in starts} == {("a/1", "GPU5001"), ("b/two", "GPU5001")}


def test_a_gang_of_many_is_brought_together_on_many_nodes() -> None:
    """For each worker all nodes are ranked, but not each is searched: nodes that can't be cheaper are skipped."""
    pools = [pool(nodes=[2] * 200)]
    jobs = [*(job(f"a/{i:03}") for i in range(200)), job("b/gang", 2000, workers=20)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 200_000), project("b", 40_000)], jobs, pools)
    running(world, jobs, {f"a/{i:03}": ((f"dgx1-{i + 1}", (0,)),) for i in range(200)})
    world.cycle(tree)
    assert sum(isinstance(d, Move) for d in world.cycle(tree).decisions) == 20


def in_racks(world: World, *racks: str) -> tuple[Node, ...]:
    """The world's nodes, each in the rack named for it."""
    label = "topology.test/rack"
    return tuple(
        replace(node, labels={**node.labels, label: rack}) for node, rack in zip(world.nodes, racks, strict=True)
    )


def gang_of_two(hours: Mapping[str, int]) -> list[str]:
    """The nodes of a gang of two, for which runs must be moved off two of five nodes in three racks."""
    pools = [replace(pool(nodes=[2, 2, 2, 2, 2]), topology=("topology.test/rack",))]
    jobs = [job(f"a/{i}") for i in range(5)] + [job("b/gang", 2000, workers=2)]
    tree = declared([project("a", 5000), project("b", 4000)], jobs, pools)
    world = World(nodes=live_nodes(pools))
    world.nodes = in_racks(world, "r1", "r2", "r1", "r2", "r3")
    running(world, jobs, {f"a/{i}": ((f"dgx1-{i + 1}", (0,)),) for i in range(5)}, hours)
    world.settle(tree)
    (gang,) = (run for run in world.runs.values() if run.job.project == "b")
    assert gang.placement is not None
    return sorted(worker.node for worker in gang.placement.workers)


def test_a_gang_for_which_runs_are_moved_is_in_one_rack_where_that_costs_no_more() -> None:
    assert gang_of_two({"a/4": 9}) == ["dgx1-1", "dgx1-3"]


def test_work_lost_counts_before_the_rack() -> None:
    assert gang_of_two({"a/0": 3, "a/1": 1, "a/2": 2, "a/3": 9, "a/4": 9}) == ["dgx1-2", "dgx1-3"]
