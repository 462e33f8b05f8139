"""Looking ahead leaves the carried state as it would be without looking ahead."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.cycle import decide
from gpuctl.engine.restraints import Restraints
from gpuctl.model.decision import Keep, Move, Pending, Placement, WorkerPlacement
from gpuctl.model.declared import MinRuntime, SchedulingPolicy
from gpuctl.model.ids import NodeName

POLICY = SchedulingPolicy(consolidation=False, min_runtime=MinRuntime(guarantee_ms=0, fairness_ms=0, moves_ms=0))
POOLS = [pool(nodes=(2, 1))]
PROJECTS = [project("a", weight=1), project("b", weight=2)]
SMALL, LARGE, URGENT = job("a/small"), job("b/large", 2000), job("a/urgent", 2000, priority=1)


def test_schedules_with_and_without_what_is_kept_are_the_same() -> None:
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
        told += [(str(each.job), each.reason.code) for each in differs]
        before = {each.job: each for each in made.decisions}
        world.carry_out(tree, made)
    assert ("a/urgent", "GPU5028") in told
    assert world.running() == {"a/small"}
    assert world.starts()["a/small"] == 1


def test_what_was_found_under_restraints_holds_under_them_only() -> None:
    policy = replace(POLICY, consolidation=True)
    few = declared(PROJECTS, [SMALL], [pool(nodes=(3, 2))], policy=policy)
    tree = replace(few, jobs=(SMALL, job("b/large", 3000)))
    world, cache = World(nodes=live_nodes([pool(nodes=(3, 2))])), EngineCache()
    world.settle(few)
    (key, run), *_ = world.runs.items()
    world.runs[key] = replace(run, placement=Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),)))
    world.carry_out(tree, decide(tree, world.state(), world.now_ms, EngineCache()))
    free = decide(tree, world.state(), world.now_ms, EngineCache())
    restrained = decide(tree, world.state(), world.now_ms, cache, Restraints(untouched=frozenset({SMALL.id})))
    assert {type(each) for each in free.decisions} == {Move, Pending}
    assert {type(each) for each in restrained.decisions} == {Keep, Pending}
    assert decide(tree, world.state(), world.now_ms, cache).decisions == free.decisions
