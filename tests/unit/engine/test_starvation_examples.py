"""Head reservations: a large job gets its place however many small ones come, and idle GPUs are lent meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elastic_worlds import at, world_of
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Admit, Decision, Pending, Placement
from gpuctl.model.declared import Declared, MinRuntime, PlacementStrategy, SchedulingPolicy
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.job import Job, JobType

MINUTE = 60_000
PATIENCE = 10 * MINUTE
POLICY = SchedulingPolicy(starvation_guard_ms=PATIENCE, consolidation=False)


def told(world: World, tree: Declared) -> dict[str, Decision]:
    """One cycle's decisions by job."""
    return {str(decision.job): decision for decision in world.cycle(tree).decisions}


def waited(smalls: Mapping[str, int | None], large: Job, *, nodes: tuple[int, ...] = (4,)) -> tuple[World, Declared]:
    """Small running jobs, each with its maxDuration in minutes, and a large job that has waited for half an hour."""
    pools = [pool(nodes=nodes, placement=PlacementStrategy.SPREAD)]
    world = World(nodes=live_nodes(pools))
    running = [job(name, max_duration_ms=minutes and minutes * MINUTE) for name, minutes in smalls.items()]
    projects = [project("a", 0, weight=1), project("b", 1000 * sum(nodes))]
    for count in range(1, len(running) + 1):
        world.settle(declared(projects, running[:count], pools, policy=POLICY))
    tree = declared(projects, [*running, large], pools, policy=POLICY)
    world.settle(tree)
    assert str(large.id) not in world.running()
    overtaken(world, large)
    return world, tree


def overtaken(world: World, *jobs: Job) -> None:
    """Make these jobs the longest-waiting ones."""
    for each in jobs:
        key = each.id, each.digest
        world.runs[key] = replace(world.runs[key], queued_at_ms=world.now_ms - 3 * PATIENCE)


def with_jobs(tree: Declared, *more: Job) -> Declared:
    """The declarations with more jobs."""
    return replace(tree, jobs=tuple(sorted((*tree.jobs, *more), key=lambda each: each.id)))


def without(tree: Declared, *names: str) -> Declared:
    """The declarations without some jobs."""
    gone = {JobId.parse(name) for name in names}
    return replace(tree, jobs=tuple(each for each in tree.jobs if each.id not in gone))


def test_the_longest_waiting_job_has_a_place_kept() -> None:
    world, tree = waited({"b/1": None, "b/2": None}, job("b/large", 4000))
    decision = told(world, tree)["b/large"]
    assert isinstance(decision, Pending)
    assert decision.reserved is not None
    assert decision.reason.code == "GPU5080"
    assert dict(decision.reason.params) == {"pool": "dgx1"}


def test_nothing_is_kept_before_the_guard_is_due() -> None:
    world, tree = waited({"b/1": None}, job("b/large", 4000))
    key = JobId.parse("b/large"), tree.jobs[-1].digest
    world.runs[key] = replace(world.runs[key], queued_at_ms=world.now_ms - PATIENCE + MINUTE)
    decision = told(world, tree)["b/large"]
    assert isinstance(decision, Pending)
    assert decision.reserved is None
    assert decision.reason.code != "GPU5080"


def test_small_jobs_do_not_start_in_a_place_that_is_kept() -> None:
    world, tree = waited({"b/1": None, "b/2": None}, job("b/large", 4000))
    world.settle(tree)
    crowd = with_jobs(tree, job("a/small"), job("b/small"))
    world.settle(crowd)
    assert world.running() == {"b/1", "b/2"}
    decisions = told(world, crowd)
    assert {decisions[name].reason.code for name in ("a/small", "b/small")} == {"GPU5081"}
    world.end("b/1")
    world.end("b/2")
    world.settle(crowd)
    assert "b/large" in world.running()


def test_a_short_job_starts_in_it_if_it_ends_in_time() -> None:
    world, tree = waited({"b/1": 60}, job("b/large", 4000))
    world.settle(tree)
    crowd = with_jobs(tree, job("a/long", max_duration_ms=90 * MINUTE), job("a/short", max_duration_ms=20 * MINUTE))
    world.settle(with_jobs(crowd, job("a/just", max_duration_ms=59 * MINUTE)))
    assert world.running() == {"b/1", "a/short"}, "a start takes its time too"


def test_it_has_until_the_last_of_those_in_the_place_ends() -> None:
    world, tree = waited({"b/1": 30, "b/2": 60}, job("b/large", 4000))
    world.settle(tree)
    world.settle(with_jobs(tree, job("a/short", max_duration_ms=40 * MINUTE)))
    assert world.running() == {"b/1", "b/2", "a/short"}


def test_it_has_until_the_last_known_end_where_that_of_another_is_not_known() -> None:
    world, tree = waited({"b/1": 60, "b/2": None}, job("b/large", 4000))
    world.settle(tree)
    crowd = with_jobs(tree, job("a/long", max_duration_ms=90 * MINUTE), job("a/short", max_duration_ms=20 * MINUTE))
    world.settle(crowd)
    assert world.running() == {"b/1", "b/2", "a/short"}


def test_it_has_no_time_where_no_end_is_known() -> None:
    world, tree = waited({"b/1": None, "b/2": None}, job("b/large", 4000))
    world.settle(tree)
    world.settle(with_jobs(tree, job("a/short", max_duration_ms=20 * MINUTE)))
    assert world.running() == {"b/1", "b/2"}


def test_of_the_devices_of_a_node_those_are_kept_that_are_known_to_be_free_first() -> None:
    world, tree = waited({"b/1": None, "b/2": 60}, job("b/large", 2000), nodes=(3,))
    decision = told(world, tree)["b/large"]
    assert isinstance(decision, Pending)
    assert decision.reserved is not None
    (endless,) = (run.placement for run in world.runs.values() if run.job.name == "1")
    assert endless is not None
    assert set(decision.reserved.workers[0].gpus).isdisjoint(endless.workers[0].gpus)


def kept_beside(large: Job, *there: tuple[Job, Placement], gpus: int) -> list[tuple[int, ...]]:
    """The devices reserved for a job that has waited, worker by worker, on one node where other jobs run."""
    running = {str(each.id).replace("/", "_"): place for each, place in there}
    jobs = [large, *(each for each, _ in there)]
    tree = declared([project("b", 1000 * gpus)], jobs, [pool(nodes=[gpus])], policy=POLICY)
    decision = told(world_of(tree, **running), tree)[str(large.id)]
    assert isinstance(decision, Pending)
    assert decision.reserved is not None
    assert decision.reason.code == "GPU5080"
    return [worker.gpus for worker in decision.reserved.workers]


def test_devices_that_are_free_already_are_kept_before_those_that_come_free() -> None:
    two = at((1, 0)).workers[0]
    of_two = Placement(workers=(replace(two, gpus=(0, 1)),))
    ends, endless = job("b/two", 2000, max_duration_ms=60 * MINUTE), job("b/one")
    assert kept_beside(job("b/large", 2000), (ends, of_two), (endless, at((1, 2))), gpus=4) == [(0, 3)]


def test_a_part_of_a_gpu_is_kept_where_it_leaves_the_least() -> None:
    """Both runs must leave, for their CPU; of their two GPUs the second then has just the room that is asked for."""
    ends: dict[str, Any] = {"max_duration_ms": 60 * MINUTE, "cpu_milli": 30_000}
    first, second = (job("b/p", 600, **ends), at((1, 0))), (job("b/q", 400, **ends), at((1, 1)))
    there = [first, second, (job("b/r", 200), at((1, 1)))]
    assert kept_beside(job("b/large", 700, cpu_milli=60_000), *there, gpus=2) == [(1,)]


def test_parts_of_gpus_for_many_workers_are_kept_on_as_many_gpus_as_they_need() -> None:
    there = [(job(f"b/{gpu}", max_duration_ms=60 * MINUTE), at((1, gpu))) for gpu in range(2)]
    kept = kept_beside(job("b/large", 500, workers=3), *there, gpus=2)
    assert sorted(kept) in ([(0,), (0,), (1,)], [(0,), (1,), (1,)])


def test_a_job_that_ranks_above_work_that_can_t_be_paused_does_not_pass_it() -> None:
    world, tree = waited({"b/1": None}, job("b/large", 4000, preemptible=False))
    world.settle(tree)
    found = told(world, with_jobs(tree, job("b/urgent", priority=5)))["b/urgent"]
    assert isinstance(found, Pending)
    assert found.reason.code == "GPU5081"


def two_pools(*ends: int | None) -> tuple[World, Declared, Job]:
    """A running job on each of two pools of two GPUs, and a job that has waited for two GPUs of either."""
    pools = [pool("x", nodes=[2]), pool("y", nodes=[2])]
    world = World(nodes=live_nodes(pools))
    small = [
        job(f"b/{each.name}", pools=(each.name,), max_duration_ms=end and end * MINUTE)
        for each, end in zip(pools, ends, strict=True)
    ]
    large = job("b/large", 2000, pools=tuple(each.name for each in pools))
    projects = [project("a", 0, weight=1), project("b", 4000)]
    world.settle(declared(projects, small, pools, policy=POLICY))
    tree = declared(projects, [large, *small], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, large)
    world.settle(tree)
    return world, tree, large


def test_the_pool_is_kept_that_is_free_soonest_and_no_other() -> None:
    for ends, kept, open_ in (((None, 600), "y", "x"), ((600, None), "x", "y"), ((60, 600), "x", "y")):
        world, tree, _ = two_pools(*ends)
        decision = told(world, tree)["b/large"]
        assert dict(decision.reason.params) == {"pool": kept}
        news = [job(f"a/{name}", pools=(PoolName(name),)) for name in (kept, open_)]
        world.settle(with_jobs(tree, *news))
        assert {name for name in world.running() if name.startswith("a/")} == {f"a/{open_}"}


def test_of_pools_with_known_ends_the_earlier_one_is_kept() -> None:
    for ends, there in (((90, 60), "y-1"), ((60, 90), "x-1")):
        world, tree, _ = two_pools(*ends)
        decision = told(world, tree)["b/large"]
        assert isinstance(decision, Pending)
        assert decision.reserved is not None
        assert {worker.node for worker in decision.reserved.workers} == {there}


def test_where_no_end_is_known_the_node_is_kept_with_the_least_on_it() -> None:
    two = at((2, 0)).workers[0]
    gang, single = job("b/gang", workers=3), job("b/single", 2000)
    tree = declared([project("b", 8000)], [gang, single, job("b/large", 4000)], [pool(nodes=(4, 4))], policy=POLICY)
    of_two = Placement(workers=(replace(two, gpus=(0, 1)),))
    decision = told(world_of(tree, b_gang=at((1, 0), (1, 1), (1, 2)), b_single=of_two), tree)["b/large"]
    assert isinstance(decision, Pending)
    assert decision.reserved is not None
    assert {worker.node for worker in decision.reserved.workers} == {"dgx1-2"}


def test_no_place_is_kept_for_a_job_that_a_limit_keeps_from_it() -> None:
    for limit, is_kept in ((5000, False), (6000, True)):
        jobs = [
            job("b/x", workers=2),
            job("b/y", max_duration_ms=60 * MINUTE),
            job("c/large", 4000),
            job("c/x", workers=2),
        ]
        projects = [project("b", 3000), project("c", 5000, limit=limit)]
        tree = declared(projects, jobs, [pool(nodes=(4, 4))], policy=POLICY)
        world = world_of(tree, c_x=at((2, 0), (2, 1)), b_x=at((2, 2), (2, 3)), b_y=at((1, 0)))
        decision = told(world, tree)["c/large"]
        assert isinstance(decision, Pending)
        assert (decision.reserved is not None) is is_kept


def test_a_place_is_let_go_of_when_a_run_in_it_may_never_end() -> None:
    world, tree = waited({"b/1": None}, job("b/large", 4000))
    assert told(world, tree)["b/large"].reason.code == "GPU5080"
    stays = with_jobs(without(tree, "b/1"), job("b/1", preemptible=False))
    assert told(world, stays)["b/large"].reason.code != "GPU5080"


def test_nothing_is_kept_for_a_job_that_is_beyond_its_quota_for_good() -> None:
    pools = [pool(nodes=[6])]
    world = World(nodes=live_nodes(pools))
    projects = [project("a", 0, weight=1), project("b", 4000)]
    desk = job("b/desk", 2000, kind=JobType.INTERACTIVE, max_duration_ms=60 * MINUTE)
    world.settle(declared(projects, [desk], pools, policy=POLICY))
    tree = declared(projects, [desk, job("b/large", 4000, kind=JobType.INTERACTIVE)], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, tree.jobs[-1])
    world.settle(tree)
    world.settle(with_jobs(tree, job("a/small", 4000)))
    assert world.running() == {"b/desk", "a/small"}


def test_the_place_that_is_free_soonest_is_kept() -> None:
    smalls = {"b/1": 600, "b/2": 60}
    world, tree = waited(smalls, job("b/large", 2000), nodes=(2, 2))
    decision = told(world, tree)["b/large"]
    assert isinstance(decision, Pending)
    assert decision.reserved is not None
    assert {worker.node for worker in decision.reserved.workers} == {"dgx1-2"}


def test_it_stays_from_cycle_to_cycle_and_goes_with_the_job() -> None:
    world, tree = waited({"b/1": None}, job("b/large", 4000))
    first = told(world, tree)["b/large"]
    assert [told(world, tree)["b/large"] for _ in range(3)] == [first] * 3
    later = with_jobs(without(tree, "b/large"), job("a/small", 3000))
    world.settle(later)
    assert world.running() == {"b/1", "a/small"}


def test_the_guarded_job_starts_elsewhere_if_that_is_free_sooner() -> None:
    world, tree = waited({"b/1": None, "b/2": None}, job("b/large", 2000), nodes=(2,))
    world.settle(tree)
    pools = [pool(nodes=[2, 2])]
    world.nodes = live_nodes(pools)
    world.settle(replace(tree, cluster=replace(tree.cluster, pools=tuple(pools))))
    assert "b/large" in world.running()


def test_one_job_is_guarded_in_each_pool() -> None:
    pools = [pool("dgx1", nodes=[2]), pool("v100", nodes=[2])]
    world = World(nodes=live_nodes(pools))
    small = [job(f"b/{each.name}", pools=(each.name,)) for each in pools]
    large = [job(f"b/{each.name}-{i}", 2000, pools=(each.name,)) for each in pools for i in range(2)]
    projects = [project("a", 4000), project("b", 4000)]
    world.settle(declared(projects, small, pools, policy=POLICY))
    tree = declared(projects, [*small, *large], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, *large)
    decisions = told(world, tree)
    assert {name for name, d in decisions.items() if d.reason.code == "GPU5080"} == {"b/dgx1-0", "b/v100-0"}


def test_a_claim_that_would_take_it_back_is_not_held_up() -> None:
    pools = [pool(nodes=[4])]
    world = World(nodes=live_nodes(pools))
    projects = [project("a", 3000), project("b", 0, weight=1)]
    small, large = job("b/1"), job("b/large", 4000)
    world.settle(declared(projects, [small], pools, policy=POLICY))
    tree = declared(projects, [small, large], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, large)
    assert told(world, tree)["b/large"].reason.code == "GPU5080"
    world.settle(with_jobs(tree, job("b/other"), job("a/owed", 2000)))
    assert world.running() == {"b/1", "b/other", "a/owed"}, "nor is any other run, as long as it can't start anyway"


def test_other_nodes_stay_open() -> None:
    world, tree = waited({"b/1": None, "b/2": None}, job("b/large", 2000), nodes=(2, 2, 1))
    world.settle(tree)
    crowd = with_jobs(tree, *(job(f"a/new-{i}") for i in range(4)))
    world.settle(crowd)
    assert len(world.running()) == 4


def test_no_gpu_idles_beneath_work_that_may_never_end() -> None:
    for endless in (job("b/1", kind=JobType.INTERACTIVE), job("b/1", kind=JobType.INFERENCE, preemptible=True)):
        pools = [pool(nodes=[4])]
        world = World(nodes=live_nodes(pools))
        projects = [project("a", 0, weight=1), project("b", 4000)]
        world.settle(declared(projects, [endless], pools, policy=POLICY))
        tree = declared(projects, [endless, job("b/large", 4000)], pools, policy=POLICY)
        world.settle(tree)
        overtaken(world, tree.jobs[-1])
        world.settle(tree)
        world.settle(with_jobs(tree, job("a/small", 3000)))
        assert world.running() == {"b/1", "a/small"}


def test_a_job_that_can_never_have_its_gpus_while_others_use_theirs_idles_none() -> None:
    pools = [pool(nodes=[4])]
    world = World(nodes=live_nodes(pools))
    projects = [project("a", 2000), project("b", 2000)]
    owed = [job("a/1", max_duration_ms=60 * MINUTE), job("a/2", max_duration_ms=60 * MINUTE)]
    world.settle(declared(projects, owed, pools, policy=POLICY))
    tree = declared(projects, [*owed, job("b/large", 4000)], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, tree.jobs[-1])
    world.settle(tree)
    world.settle(with_jobs(tree, job("b/small", 2000)))
    assert "b/small" in world.running()


def test_where_idle_room_ends_in_a_cycle_what_is_kept_is_lent_in_the_same() -> None:
    world, tree = waited({"b/1": 60, "b/2": None}, job("b/large", 2000), nodes=(2, 2))
    assert isinstance(told(world, tree)["b/large"], Pending)
    short = [job(f"b/s{index}", max_duration_ms=10 * MINUTE) for index in (1, 2)]
    found = told(world, with_jobs(tree, *short))
    assert [type(found[name]).__name__ for name in ("b/s1", "b/s2")] == ["Admit", "Admit"]


def test_one_of_the_same_project_that_ranks_above_passes_though_it_asks_for_more_than_its_share() -> None:
    pools = [pool(nodes=(4, 4), placement=PlacementStrategy.SPREAD)]
    projects = [project("a", 2000), project("b", 2000), project("c", 4000)]
    fixed = {"kind": JobType.INTERACTIVE, "cpu_milli": 30_000, "max_duration_ms": 600 * MINUTE}
    there = [job(f"a/{index}", **fixed) for index in (1, 2)]  # type: ignore[arg-type]
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, there, pools, policy=POLICY))
    tree = declared(projects, [*there, job("b/large", 2000, cpu_milli=60_000), job("c/w", 4000)], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, job("b/large"))
    kept = told(world, tree)["b/large"]
    assert isinstance(kept, Pending)
    assert kept.reserved is not None
    wide = {"workers": 5, "min_workers": 5}
    found = told(world, with_jobs(tree, job("b/later", **wide), job("b/urgent", priority=5, **wide)))  # type: ignore[arg-type]
    assert [type(found[name]).__name__ for name in ("b/urgent", "b/later")] == ["Admit", "Pending"]


def kept_from(quota: int) -> Decision:
    """The decision for a guaranteed job that fits only where a place is kept for a job of a project with this quota.

    Two nodes are full of work too young to be paused; on the third one GPU is used for some more hours.
    """
    pools = [pool(nodes=(4, 4, 4))]
    policy = replace(POLICY, min_runtime=MinRuntime.of_all(600 * MINUTE))
    projects = [project("b", quota, weight=1000), project("c", 3000), project("d", 1000), project("e", 0, weight=1)]
    there = [
        job("e/1", 4000), job("e/2", 4000), job("d/1", kind=JobType.INTERACTIVE, max_duration_ms=600 * MINUTE),
    ]  # fmt: skip
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, there, pools, policy=policy))
    tree = declared(projects, [*there, job("b/large", 4000)], pools, policy=policy)
    world.settle(tree)
    overtaken(world, job("b/large"))
    kept = told(world, tree)["b/large"]
    assert isinstance(kept, Pending)
    assert kept.reserved is not None
    return told(world, with_jobs(tree, job("c/x", 3000)))["c/x"]


def test_a_job_that_could_take_the_place_back_at_once_is_not_kept_from_it() -> None:
    assert isinstance(kept_from(0), Admit)


def test_a_job_that_could_not_take_it_back_waits() -> None:
    found = kept_from(4000)
    assert isinstance(found, Pending)
    assert found.reason.code == "GPU5081"


def test_a_place_whose_end_is_not_known_is_given_up_for_one_that_is_free_by_a_known_time() -> None:
    pools = [pool(nodes=(2, 2, 2, 2))]
    projects = [project("b", 8000)]
    there = [
        job("b/1", 2000, priority=1), job("b/2", 2000, priority=1), job("b/3", 2000, preemptible=False),
        job("b/4", 2000, priority=1, max_duration_ms=60 * MINUTE),
    ]  # fmt: skip
    world = World(nodes=live_nodes(pools))
    world.settle(declared(projects, there, pools, policy=POLICY))
    gang = job("b/gang", 2000, workers=2)
    tree = declared(projects, [*there, gang], pools, policy=POLICY)
    world.settle(tree)
    overtaken(world, gang)
    world.settle(tree)
    on = {str(run.job): run.placement.workers[0].node for run in world.runs.values() if run.placement is not None}
    assert kept_nodes(world, tree) == sorted([on["b/1"], on["b/4"]])
    world.end("b/3")
    assert kept_nodes(world, tree) == sorted([on["b/3"], on["b/4"]])


def kept_nodes(world: World, tree: Declared) -> list[str]:
    found = told(world, tree)["b/gang"]
    assert isinstance(found, Pending)
    assert found.reserved is not None
    return sorted(worker.node for worker in found.reserved.workers)
