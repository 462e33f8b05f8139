"""Which job starts, which waits and why: one example for each rule."""

from __future__ import annotations

from collections.abc import Iterable

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.diag.codes import CODES
from gpuctl.engine import schedule
from gpuctl.model.decision import Admit, Decision, Pending, Placement
from gpuctl.model.declared import Declared, PlacementStrategy, Sharing
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.job import Job, JobType

INTERACTIVE = JobType.INTERACTIVE


def decide(tree: Declared) -> dict[str, Decision]:
    """Decisions on an empty cluster, by `project/name`."""
    world = World(nodes=live_nodes(tree.cluster.pools))
    return {str(d.job): d for d in schedule(tree, world.state(), world.now_ms).decisions}


def codes(tree: Declared) -> dict[str, str]:
    return {name: decision.reason.code for name, decision in decide(tree).items()}


def one_node(gpus: int, jobs: Iterable[Job], **quotas: int) -> Declared:
    projects = [project(name, quota) for name, quota in quotas.items()]
    return declared(projects, jobs, [pool(nodes=[gpus])])


def test_reasons_for_starting_say_where_the_project_stands() -> None:
    tree = one_node(4, [job("a/1"), job("a/2", priority=-1), job("a/cpu", 0, cpu_milli=1000)], a=1000)
    assert codes(tree) == {"a/1": "GPU5001", "a/2": "GPU5002", "a/cpu": "GPU5004"}


def test_beyond_its_share_a_project_gets_idle_gpus_only() -> None:
    tree = one_node(4, [job("a/1", 3000), job("a/2"), job("b/1", 2000), job("b/2")], a=1000, b=1000)
    assert codes(tree) == {"a/1": "GPU5011", "a/2": "GPU5001", "b/1": "GPU5002", "b/2": "GPU5003"}


def test_projects_larger_than_their_share_take_turns() -> None:
    tree = one_node(2, [job("a/1", 2000), job("b/1", 2000)], a=1000, b=1000)
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(tree)
    assert world.running() == {"a/1"}
    tree = one_node(2, [job("a/1", 2000), job("b/1", 2000), job("a/2", 2000)], a=1000, b=1000)
    world.settle(tree)
    world.end("a/1")
    world.settle(tree)
    assert world.running() == {"b/1"}


def test_inside_a_project_people_go_before_priority_before_age() -> None:
    jobs = [job("a/old"), job("a/urgent", priority=5), job("a/shell", kind=INTERACTIVE)]
    for gpus, running in ((1, {"a/shell"}), (2, {"a/shell", "a/urgent"})):
        tree = one_node(gpus, jobs, a=1000)
        world = World(nodes=live_nodes(tree.cluster.pools))
        world.settle(one_node(gpus, [], a=1000))
        world.settle(tree)
        assert world.running() == running


def test_work_that_cannot_be_paused_stays_within_quota_whatever_runs_besides() -> None:
    jobs = [job("a/shell", kind=INTERACTIVE), job("a/shell2", kind=INTERACTIVE), job("a/train", 2000)]
    tree = one_node(4, jobs, a=1000)
    assert codes(tree) == {"a/shell": "GPU5001", "a/shell2": "GPU5013", "a/train": "GPU5002"}


def test_a_limit_holds_beside_idle_gpus() -> None:
    tree = declared([project("a", 1000, limit=2000)], [job(f"a/{i}") for i in range(3)])
    decisions = decide(tree)
    assert sorted(d.reason.code for d in decisions.values()) == ["GPU5001", "GPU5002", "GPU5012"]
    assert dict(decisions["a/2"].reason.params) == {"gpus": "1", "owner": "project a", "limit": "2"}


def test_a_limit_of_nothing_is_nothing() -> None:
    tree = declared([project("a", 0, limit=0)], [job("a/1"), job("a/cpu", 0)])
    assert codes(tree) == {"a/1": "GPU5012", "a/cpu": "GPU5004"}


def test_what_can_never_run_is_told_so_and_wants_nothing() -> None:
    tree = one_node(4, [job("a/huge", 8000), job("a/gang", 2000, workers=3), job("b/1", 4000)], a=4000, b=0)
    made = schedule(tree, World(nodes=live_nodes(tree.cluster.pools)).state(), 0)
    assert {d.job.name: d.reason.code for d in made.decisions} == {
        "huge": "GPU5014", "gang": "GPU5014", "1": "GPU5002",
    }  # fmt: skip
    assert {row.project: row.demand_milli for row in made.shares} == {"a": 0, "b": 4000}


def test_a_job_that_does_not_fit_blocks_no_other() -> None:
    first = one_node(4, [job("a/1", 2000)], a=4000)
    world = World(nodes=live_nodes(first.cluster.pools))
    world.settle(first)
    tree = one_node(4, [job("a/1", 2000), job("a/2", 3000), job("a/3", 2000, priority=-1)], a=4000)
    world.settle(tree)
    assert world.running() == {"a/1", "a/3"}
    waiting = {str(d.job): d.reason.code for d in world.cycle(tree).decisions if isinstance(d, Pending)}
    assert waiting == {"a/2": "GPU5011"}


def test_scattered_gpus_and_short_cpu_are_named() -> None:
    pools = [pool(nodes=[2, 2])]
    fill = [job("a/1", cpu_milli=80_000), job("a/2", cpu_milli=10_000)]
    world = World(nodes=live_nodes(pools))
    world.settle(declared([project("a", 4000)], fill, pools))
    late = [job("a/3", 2000), job("a/4", cpu_milli=75_000), job("a/5", workers=2, cpu_milli=60_000)]
    world.settle(declared([project("a", 4000)], [*fill, *late], pools))
    made = world.cycle(declared([project("a", 4000)], [*fill, *late], pools))
    assert {d.job.name: d.reason.code for d in made.decisions if isinstance(d, Pending)} == {
        "3": "GPU5015", "4": "GPU5017", "5": "GPU5017",
    }  # fmt: skip


def test_fractions_need_a_pool_that_shares_devices() -> None:
    plain = pool("plain", sharing=Sharing.DEVICE_PLUGIN)
    shared = pool("shared", nodes=[2])
    half = job("a/half", 500, pools=(PoolName("plain"), PoolName("shared")))
    alone = job("a/alone", 500, pools=(PoolName("plain"),))
    decisions = decide(declared([project("a", 4000)], [half, alone], [plain, shared]))
    admitted = decisions["a/half"]
    assert isinstance(admitted, Admit)
    assert admitted.placement.workers[0].node == "shared-1"
    assert decisions["a/alone"].reason.code == "GPU5014"


def test_pools_are_tried_in_the_job_s_order() -> None:
    pools = [pool("x", nodes=[1]), pool("y", nodes=[1])]
    names = (PoolName("y"), PoolName("x"))
    jobs = [job(f"a/{i}", pools=names, pools_in_order=True) for i in range(2)]
    tree = declared([project("a", 2000)], jobs, pools)
    placed = [d.placement.workers[0].node for d in decide(tree).values() if isinstance(d, Admit)]
    assert placed == ["y-1", "x-1"]


def test_quotas_by_pool_are_kept_apart() -> None:
    pools = [pool("x", nodes=[2]), pool("y", nodes=[2])]
    projects = [project("a", {"x": 2000, "y": 0}), project("b", {"x": 0, "y": 2000})]
    jobs = [job(f"{p}/{i}", pools=(PoolName(n),)) for p, n in (("a", "y"), ("b", "y")) for i in range(2)]
    tree = declared(projects, jobs, pools, by_pool=True)
    assert codes(tree) == {"a/0": "GPU5011", "a/1": "GPU5011", "b/0": "GPU5001", "b/1": "GPU5001"}


def test_an_unknown_project_is_named() -> None:
    tree = declared([], [job("ghost/1")])
    assert dict(decide(tree)["ghost/1"].reason.params) == {"project": "ghost"}


def test_every_reason_s_message_can_be_told() -> None:
    jobs = [job("a/1", 2000), job("a/2"), job("b/1"), job("b/9", 9000), job("c/1", kind=INTERACTIVE)]
    tree = one_node(3, jobs, a=1000, b=1000, c=0)
    for decision in decide(tree).values():
        entry = CODES[decision.reason.code]
        assert entry.message.format(**dict(decision.reason.params))


def test_a_job_by_memory_is_charged_by_the_pool_s_devices() -> None:
    tree = declared([project("a", 4000)], [job("a/1", 500, gpu_mem_bytes=16 * 1024**3)])
    world = World(nodes=live_nodes(tree.cluster.pools))
    made = schedule(tree, world.state(), world.now_ms)
    assert made.shares[0].allocated_milli == 500
    assert isinstance(made.decisions[0], Admit)
    assert made.decisions[0].job == JobId.parse("a/1")


def admitted(tree: Declared) -> dict[str, Placement]:
    """The jobs that start at once on empty nodes, and where."""
    return {name: d.placement for name, d in decide(tree).items() if isinstance(d, Admit)}


def test_a_large_job_has_its_turn_before_small_ones_that_come_after_it_though_those_before_it_are_spread() -> None:
    spread = pool(nodes=(2, 2), placement=PlacementStrategy.SPREAD)
    sizes = (1000, 1000, 2000, 1000)
    jobs = [job(f"a/{index}", milli, priority=9 - index) for index, milli in enumerate(sizes, start=1)]
    found = admitted(declared([project("a", 4000)], jobs, [spread]))
    assert set(found) == {"a/1", "a/2", "a/3"}


def test_two_elastic_jobs_that_fit_nowhere_whole_start_smaller_in_two_pools_at_once() -> None:
    pools = [pool(nodes=(4,)), pool("v100", nodes=(4,))]
    v100 = (PoolName("v100"),)
    first = [job("a/x", priority=9), job("a/y", priority=9, pools=v100)]
    elastic = [job(f"a/{index}", workers=4, min_workers=1, pools=(PoolName("dgx1"), *v100)) for index in (1, 2)]
    tree = declared([project("a", 8000)], [*first, *elastic, job("a/later", 3000, pools=v100)], pools)
    assert {name: len(place.workers) for name, place in admitted(tree).items()} == {
        "a/x": 1,
        "a/y": 1,
        "a/1": 3,
        "a/2": 3,
    }
