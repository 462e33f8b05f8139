"""Places are kept for the jobs that they were freed for: across cycles, crashes and all that happens meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elastic_worlds import at, world_of
from elastic_worlds import decided as all_decided
from tr4858 import SECTION_4_8, SECTION_4_9, story_job, teams
from worlds import GIB, World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Admit, Keep, Pending, Placement, Reclaim, WorkerPlacement
from gpuctl.model.declared import Declared, SchedulingPolicy, Sharing
from gpuctl.model.ids import JobId, NodeName, PoolName
from gpuctl.model.job import Job, JobType
from gpuctl.model.mig import profiles_of
from gpuctl.model.state import CutGpu, RunPhase

NODE = NodeName("dgx1-1")


def full() -> tuple[World, Declared]:
    """The cluster of section 4.8 at rest, and the declarations of section 4.9."""
    world = World(nodes=live_nodes([pool()]))
    world.settle(declared(teams(), [story_job(name) for name in SECTION_4_8]))
    return world, declared(teams(), [story_job(name) for name in (*SECTION_4_8, *SECTION_4_9)])


@pytest.mark.parametrize("crash_in_cycle", [0, 1, 2, 3])
@pytest.mark.parametrize("after_writes", [0, 1, 2, 3, 4, 5])
def test_a_crash_at_any_write_ends_in_the_same_pauses(crash_in_cycle: int, after_writes: int) -> None:
    world, tree = full()
    for cycle in range(4):
        world.cycle(tree, after_writes if cycle == crash_in_cycle else None)
    world.settle(tree)
    assert world.allocated() == {"team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
    assert {str(victim) for victim, _ in world.paused} == {"team-b/b-4-gg", "team-c/c-4-gg"}
    assert len(world.paused) == 2
    assert all(count == 1 for count in world.starts().values())


@pytest.mark.parametrize("crash_in_cycle", [0, 1, 2, 3])
@pytest.mark.parametrize("after_writes", [0, 1, 2, 3])
def test_a_crash_between_a_pause_and_what_follows_from_it_ends_in_both(crash_in_cycle: int, after_writes: int) -> None:
    projects, pools = [project("a", 1000), project("b", 2000)], [pool(nodes=[3])]
    jobs = [job("b/high", priority=1), job("b/low", 2000)]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, jobs, pools))
    tree = declared(projects, [*jobs, job("a/own")], pools)
    for cycle in range(4):
        world.cycle(tree, after_writes if cycle == crash_in_cycle else None)
    world.settle(tree)
    assert world.running() == {"a/own", "b/high"}
    assert sorted(str(victim) for victim, _ in world.paused) == ["b/high", "b/low"]


def waiting_for_a_stop() -> tuple[World, Declared, list[object]]:
    """A node full of a's work, reserved for b's job while a's run is still stopping."""
    projects = [project("a", 0), project("b", 2000)]
    pools = [pool(nodes=[2])]
    world = World(nodes=live_nodes(pools))
    jobs = [job("a/1", 2000)]
    world.settle(declared(projects, jobs, pools))
    jobs.append(job("b/1", 2000))
    tree = declared(projects, jobs, pools)
    world.cycle(tree)
    made = world.cycle(tree)
    assert [type(d) for d in made.decisions] == [Reclaim, Pending]
    return world, tree, [projects, jobs, pools]


def test_a_paused_run_has_idle_gpus_elsewhere_reserved_with_the_pause() -> None:
    projects, pools = [project("a", 0), project("b", 2000)], [pool(nodes=[2, 1])]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, [job("a/first"), job("a/second")], pools))
    world.settle(declared(projects, [job("a/second")], pools))
    tree = declared(projects, [job("a/second"), job("b/own", 2000)], pools)
    world.cycle(tree)
    (reclaimed,) = [each for each in world.cycle(tree).decisions if isinstance(each, Reclaim)]
    assert reclaimed.reserved is not None
    assert reclaimed.reserved.nodes == {"dgx1-2"}
    world.settle(tree)
    assert world.starts() == {"a/second": 2, "b/own": 1}


@pytest.mark.parametrize("taken", [{"foreign_cpu_milli": 75_000}, {"foreign_mem_bytes": 508 * GIB}])
def test_a_reservation_is_not_kept_where_others_took_its_cpu_or_memory(taken: dict[str, int]) -> None:
    projects, pools = [project("a", 0), project("b", 2000), project("c", 2000)], [pool(nodes=[2, 2])]
    world = World(nodes=live_nodes(pools))
    there = [job("a/1", 2000), job("c/fixed", 2000, kind=JobType.INTERACTIVE)]
    world.settle(declared(projects, there, pools))
    tree = declared(projects, [*there, job("b/1", 2000, cpu_milli=10_000, mem_bytes=10 * GIB)], pools)
    for _ in range(3):
        world.cycle(tree)
    (place,) = (run.placement for run in world.runs.values() if run.job.project == "b")
    assert place is not None
    before = world.nodes
    world.nodes = tuple(replace(n, **taken) if n.name == place.workers[0].node else n for n in before)  # type: ignore[arg-type]
    made = world.cycle(tree)
    assert not any(isinstance(d, Admit) and d.job.project == "b" for d in made.decisions)
    world.nodes = before
    world.settle(tree)
    assert world.running() == {"b/1", "c/fixed"}


def crashed(first: Declared, job_id: str, *jobs: Job) -> World:
    """At rest, then these jobs come; of the decisions a crash leaves only the reservation of one of them."""
    world = World(nodes=live_nodes(first.cluster.pools))
    world.settle(first)
    tree = replace(first, jobs=tuple(sorted((*first.jobs, *jobs), key=lambda each: each.id)))
    world.cycle(tree)
    world.cycle(tree, stop_after=1)
    assert [str(run.job) for run in world.runs.values() if run.phase is RunPhase.QUEUED and run.placement] == [job_id]
    assert world.paused == []
    return world


def test_after_a_crash_no_more_runs_are_paused_than_would_have_been() -> None:
    jobs = [job("a/1", 2000), job("a/2", 2000)]
    first = declared([project("a", 0), project("b", 2000)], jobs, [pool(nodes=[4])])
    world = crashed(first, "b/1", job("b/1", 2000))
    world.settle(replace(first, jobs=(*jobs, job("b/1", 2000))))
    assert len(world.paused) == 1
    assert world.allocated() == {"a": 2000, "b": 2000}


def test_after_a_crash_no_run_is_paused_that_may_not_be_any_more() -> None:
    first = declared([project("a", 0), project("b", 2000)], [job("a/1", 2000)], [pool(nodes=[2])])
    world = crashed(first, "b/1", job("b/1", 2000))
    world.settle(replace(first, jobs=(job("a/1", 2000, preemptible=False), job("b/1", 2000))))
    assert (world.running(), world.paused) == ({"a/1"}, [])


def test_after_a_crash_not_all_are_paused_where_only_some_may_be() -> None:
    jobs = [job("a/1"), job("a/2"), job("d/1", 2000)]
    first = declared([project("a", 0), project("b", 2000), project("d", 2000)], jobs, [pool(nodes=[2, 2])])
    world = crashed(first, "b/1", job("b/1", 2000))
    now = declared(
        [project("a", 1000), project("b", 2000), project("d", 0)],
        [*jobs[:2], job("b/1", 2000), jobs[2]],
        [pool(nodes=[2, 2])],
    )
    world.settle(now)
    assert world.running() == {"a/1", "a/2", "b/1"}
    assert [str(victim) for victim, _ in world.paused] == ["d/1"]


@pytest.mark.parametrize("gpus", [(0,), (0, 0), (0, 9), (-1, 0), ()])
def test_a_reserved_place_that_the_job_can_not_use_is_dropped(gpus: tuple[int, ...]) -> None:
    world, tree, _ = waiting_for_a_stop()
    for key, run in world.runs.items():
        if run.job.project == "b":
            world.runs[key] = replace(run, placement=Placement(workers=(WorkerPlacement(node=NODE, gpus=gpus),)))
    world.settle(tree)
    assert world.running() == {"b/1"}
    assert world.allocated() == {"b": 2000}


def test_no_other_job_takes_a_reserved_place() -> None:
    world, tree, _ = waiting_for_a_stop()
    later = declared(
        [*tree.projects, project("c", 0)], [*tree.jobs, job("c/older", 2000), job("c/small", 500)], tree.cluster.pools
    )
    world.settle(later)
    assert world.running() == {"b/1"}


def test_no_second_run_is_paused_for_a_reservation() -> None:
    world, tree, _ = waiting_for_a_stop()
    made = world.cycle(tree)
    waiting = {str(d.job): d for d in made.decisions}["b/1"]
    assert isinstance(waiting, Pending)
    assert waiting.reserved is not None
    assert dict(waiting.reason.params) == {"victims": "a/1"}
    assert len(world.paused) == 1


def test_a_reservation_ends_once_its_project_is_not_entitled_any_more() -> None:
    projects = [project("a", 0), project("b", 2000)]
    pools = [pool(nodes=[2])]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, [job("a/1", 2000)], pools))
    jobs = [job("a/1", 2000), job("b/1", 2000)]
    world.cycle(declared(projects, jobs, pools), stop_after=1)
    assert {run.phase for run in world.runs.values()} == {RunPhase.RUNNING, RunPhase.QUEUED}
    world.settle(declared([project("a", 2000), project("b", 0)], jobs, pools))
    assert world.running() == {"a/1"}
    assert world.paused == []


def test_a_job_with_a_reserved_place_may_start_sooner_elsewhere_and_spare_the_victims() -> None:
    projects = [project("a", 0), project("b", 2000)]
    pools = [pool(nodes=[2, 2])]
    world = World(nodes=live_nodes(pools))
    jobs = [job("a/1", 2000), job("a/2", 2000), job("b/1", 2000)]
    world.settle(declared(projects, jobs[:2], pools))
    tree = declared(projects, jobs, pools)
    world.cycle(tree)
    world.cycle(tree, stop_after=1)
    spared = next(
        run for run in world.runs.values() if run.placement and run.job.name == "1" and run.job.project == "b"
    )
    assert spared.placement is not None
    victim = next(run for run in world.runs.values() if run.job.project == "a" and run.placement == spared.placement)
    world.end(next(str(run.job) for run in world.runs.values() if run.job.project == "a" and run is not victim))
    made = world.cycle(tree)
    assert any(isinstance(d, Admit) and str(d.job) == "b/1" for d in made.decisions)
    world.settle(tree)
    assert world.running() == {str(victim.job), "b/1"}
    assert world.paused == []


def test_space_that_is_coming_free_costs_no_pause() -> None:
    projects = [project("a", 0), project("b", 2000)]
    pools = [pool(nodes=[2, 2])]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, [job("a/1", 2000), job("a/2", 2000)], pools))
    world.cycle(declared(projects, [job("a/1", 2000)], pools))
    world.settle(declared(projects, [job("a/1", 2000), job("b/1", 2000)], pools))
    assert world.running() == {"a/1", "b/1"}
    assert [str(victim) for victim, gainer in world.paused if gainer is not None] == []


def test_nothing_is_paused_for_a_run_whose_object_is_not_there_yet() -> None:
    projects = [project("a", 0), project("b", 2000)]
    pools = [pool(nodes=[2])]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, [job("a/1", 2000)], pools))
    tree = declared(projects, [job("a/1", 2000), job("b/1", 2000)], pools)
    first, second = world.cycle(tree).decisions, world.cycle(tree).decisions
    assert isinstance(first[0], Keep)
    assert isinstance(second[0], Reclaim)
    assert isinstance(second[1], Pending)


def test_a_job_with_a_reserved_place_is_demand_in_the_pool_of_that_place() -> None:
    """It demands the pool of its place, not the one it prefers: else shares and reasons would change at its start."""
    pools = [pool("dgx1", nodes=[2]), pool("v100", nodes=[2])]
    projects = [project("a", {"dgx1": 1000, "v100": 0}), project("b", {"dgx1": 2000, "v100": 2000})]
    jobs = [job("a/1", 1000), job("a/2", 1000, pools=(PoolName("v100"),))]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, jobs, pools, by_pool=True))
    gang = job("b/1", 1000, workers=2, pools=(PoolName("dgx1"), PoolName("v100")))
    tree = declared(projects, [*jobs, gang], pools, by_pool=True)
    waiting_for_it = [world.cycle(tree) for _ in range(3)][-1]
    assert {row.domain: row.demand_milli for row in waiting_for_it.shares if row.project == "b"} == {
        "dgx1": 0,
        "v100": 2000,
    }
    starting = next(each for each in (world.cycle(tree) for _ in range(3)) if "b/1" in world.running())
    waiting = JobId.parse("a/2")
    reasons = [next(d.reason for d in each.decisions if d.job == waiting) for each in (starting, world.cycle(tree))]
    assert reasons[0] == reasons[1]


def test_after_a_crash_the_run_that_loses_least_by_now_makes_way() -> None:
    jobs = [job("a/1", 2000), job("a/2", 2000)]
    tree = declared([project("a", 0), project("b", 2000)], [*jobs, job("b/1", 2000)], [pool(nodes=[4])])
    world = crashed(replace(tree, jobs=tuple(jobs)), "b/1", job("b/1", 2000))
    (waits,) = (run for run in world.runs.values() if run.phase is RunPhase.QUEUED)
    for key, run in world.runs.items():
        is_there = run.placement == waits.placement and run is not waits
        age_ms = 50_000 if is_there else 10_000
        if run is not waits:
            world.runs[key] = replace(run, started_at_ms=world.now_ms - age_ms)
    (elsewhere,) = (run for run in world.runs.values() if run.placement != waits.placement)
    decisions = {d.job: d for d in world.cycle(tree).decisions}
    assert [name for name, d in decisions.items() if isinstance(d, Reclaim)] == [elsewhere.job]
    kept = decisions[waits.job]
    assert isinstance(kept, Pending)
    assert kept.reserved == elsewhere.placement


def moving() -> tuple[World, Declared]:
    """A run that stops on one node in order to go on at a place on the other."""
    tree = declared([project("a", 16000)], [job("a/x", 4000), job("a/y", 4000)])
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(tree)
    for key, node in zip(sorted(world.runs), ("dgx1-1", "dgx1-2"), strict=True):
        place = Placement(workers=(WorkerPlacement(node=NodeName(node), gpus=(0, 1, 2, 3)),))
        world.runs[key] = replace(world.runs[key], placement=place)
    tree = declared([project("a", 16000)], [job("a/w", 8000), *tree.jobs])
    world.cycle(tree)
    world.cycle(tree)
    (leaves,) = (run for run in world.runs.values() if run.phase is RunPhase.STOPPING)
    assert (str(leaves.job), leaves.reserved is not None) == ("a/x", True)
    return world, tree


def reserved_for_x(world: World, tree: Declared) -> Placement | None:
    (found,) = (d for d in world.cycle(tree).decisions if str(d.job) == "a/x")
    assert isinstance(found, Pending)
    return found.reserved


def test_a_moved_run_keeps_the_place_until_it_has_stopped() -> None:
    assert reserved_for_x(*moving()) is not None


def test_a_place_to_go_on_at_that_others_have_taken_is_not_kept() -> None:
    world, tree = moving()
    taken = (0, 0, 0, 0, 1000, 0, 0, 0)
    world.nodes = (world.nodes[0], replace(world.nodes[1], foreign_gpu_milli=taken))
    assert reserved_for_x(world, tree) is None


def test_a_place_to_go_on_at_is_not_kept_where_no_node_is_large_enough_any_more() -> None:
    world, tree = moving()
    world.nodes = tuple(replace(node, gpus=2) for node in world.nodes)
    assert reserved_for_x(world, tree) is None


def with_reservation(tree: Declared, place: Placement) -> World:
    """The world in which the only job waits with this place reserved."""
    world = world_of(tree)
    ((key, run),) = world.runs.items()
    world.runs[key] = replace(run, placement=place)
    return world


def test_a_reserved_gpu_that_has_been_cut_since_is_no_place_for_a_whole_one() -> None:
    h100 = 81_559 << 20
    of = replace(pool(nodes=[2], sharing=Sharing.MIG), gpu_mem_bytes=h100, profiles=profiles_of(h100))
    tree = declared([project("a", 2000)], [job("a/x")], [of])
    world = with_reservation(tree, at((1, 0)))
    (whole,) = all_decided(world, tree).values()
    assert isinstance(whole, Admit)
    assert whole.placement == at((1, 0))
    world.nodes = (replace(world.nodes[0], cut={0: CutGpu(profile="3g.40gb", slices=2)}),)
    (found,) = all_decided(world, tree).values()
    assert isinstance(found, Admit)
    assert found.placement == at((1, 1))


def test_a_reserved_place_in_a_pool_that_the_job_may_no_longer_use_is_dropped() -> None:
    pools = [pool(nodes=[2]), pool("v100", nodes=[2])]
    tree = declared([project("a", 4000)], [job("a/x", pools=(PoolName("v100"),))], pools)
    world = with_reservation(tree, at((1, 0)))
    (found,) = all_decided(world, tree).values()
    assert isinstance(found, Admit)
    assert [worker.node for worker in found.placement.workers] == ["v100-1"]


def test_a_reserved_place_on_a_node_that_is_gone_is_dropped() -> None:
    tree = declared([project("a", 4000)], [job("a/x")], [pool(nodes=[2])])
    world = with_reservation(tree, at((7, 0)))
    (found,) = all_decided(world, tree).values()
    assert isinstance(found, Admit)
    assert found.placement == at((1, 0))


@pytest.mark.parametrize("short", [{"foreign_cpu_milli": 79_999}, {"foreign_mem_bytes": 512 * GIB - 1}])
def test_a_reserved_place_takes_all_the_cpu_and_memory_there_is_but_no_more(short: dict[str, int]) -> None:
    asks = {"cpu_milli": 80_000, "mem_bytes": 512 * GIB}
    tree = declared([project("a", 4000)], [job("a/x", **asks)], [pool(nodes=[2])])  # type: ignore[arg-type]
    world = with_reservation(tree, at((1, 1)))
    (found,) = all_decided(world, tree).values()
    assert isinstance(found, Admit)
    assert found.placement == at((1, 1))
    world.nodes = (replace(world.nodes[0], **short),)  # type: ignore[arg-type]
    (found,) = all_decided(world, tree).values()
    assert isinstance(found, Pending)


def test_only_runs_in_a_reserved_place_on_two_nodes_are_paused_for_it() -> None:
    projects = [project("a", 0), project("b", 2000)]
    jobs = [job("a/beside", workers=2), job("a/there"), job("b/gang", workers=2)]
    tree = declared(projects, jobs, [pool(nodes=[2, 2])], policy=SchedulingPolicy(consolidation=False))
    world = world_of(tree, a_beside=at((1, 1), (2, 0)), a_there=at((1, 0)))
    key = next(key for key in world.runs if str(key[0]) == "b/gang")
    world.runs[key] = replace(world.runs[key], placement=at((1, 0), (2, 1)))
    found = all_decided(world, tree)
    assert [name for name, d in found.items() if isinstance(d, Reclaim)] == ["a/there"]
    gang = found["b/gang"]
    assert isinstance(gang, Pending)
    assert gang.reserved == at((1, 0), (2, 1))


def test_no_run_is_paused_in_a_reserved_place_that_would_not_be_free_even_then() -> None:
    projects = [project("a", 0), project("b", 2000), project("c", 3000)]
    fixed = job("c/fixed", workers=3, preemptible=False)
    tree = declared(projects, [job("a/there"), job("b/two", 2000), fixed], [pool(nodes=[2, 2, 2])])
    world = world_of(tree, a_there=at((1, 0)), c_fixed=at((2, 0), (2, 1), (3, 0)))
    key = next(key for key in world.runs if str(key[0]) == "b/two")
    both = Placement(workers=(replace(at((1, 0)).workers[0], gpus=(0, 1)),))
    world.runs[key] = replace(world.runs[key], placement=both)
    assert [name for name, d in all_decided(world, tree).items() if isinstance(d, Reclaim)] == ["a/there"]
    world.nodes = (replace(world.nodes[0], foreign_gpu_milli=(0, 1000)), *world.nodes[1:])
    assert not any(isinstance(d, Reclaim) for d in all_decided(world, tree).values())
