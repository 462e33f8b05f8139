"""Looking ahead leaves what is kept between schedules as if it had not looked."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import MinRuntime, SchedulingPolicy
from gpuctl.model.ids import NodeName

POLICY = SchedulingPolicy(consolidation=False, min_runtime=MinRuntime(guarantee_ms=0, fairness_ms=0, moves_ms=0))
POOLS = [pool(nodes=(2, 1))]
PROJECTS = [project("a", weight=1), project("b", weight=2)]
SMALL, LARGE, URGENT = job("a/small"), job("b/large", 2000), job("a/urgent", 2000, priority=1)


def test_what_has_changed_is_told_since_the_schedule_before() -> None:
    few = declared(PROJECTS, [SMALL], POOLS, policy=POLICY)
    tree = replace(few, jobs=tuple(sorted((SMALL, LARGE, URGENT), key=lambda each: each.id)))
    world, cache = World(nodes=live_nodes(POOLS)), EngineCache()
    world.settle(few)
    (key, run), *_ = world.runs.items()
    world.runs[key] = replace(run, placement=Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),)))
    before = {each.job: each for each in schedule(few, world.state(), world.now_ms, cache).decisions}
    told = []
    for _ in range(4):
        made = schedule(tree, world.state(), world.now_ms, cache)
        assert made == schedule(tree, world.state(), world.now_ms)
        differs = [each for each in made.decisions if before.get(each.job) != each]
        assert cache.changed() == differs
        told += [(str(each.job), each.reason.code) for each in differs]
        before = {each.job: each for each in made.decisions}
        world.carry_out(tree, made)
    assert ("a/urgent", "GPU5028") in told
    assert world.running() == {"a/small"}
    assert world.starts()["a/small"] == 1
