"""A job that runs were paused for names those that are still stopping, and none that has left."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import schedule
from gpuctl.model import transition
from gpuctl.model.declared import Declared
from gpuctl.model.state import RunPhase

POOLS = [pool(nodes=(4,))]
PROJECTS = [project("a"), project("b", 4000)]


def test_a_run_that_has_left_is_not_named_any_more() -> None:
    few = declared(PROJECTS, [job("a/one", 2000), job("a/two", 2000)], POOLS)
    world = World(nodes=live_nodes(POOLS))
    world.settle(few)
    tree = replace(few, jobs=(*few.jobs, job("b/own", 4000)))
    world.now_ms += 3_600_000
    for _ in range(2):
        world.carry_out(tree, schedule(tree, world.state(), world.now_ms))
    assert {str(run.job) for run in world.runs.values() if run.phase is RunPhase.STOPPING} == {"a/one", "a/two"}
    assert victims(world, tree) == "a/one, a/two"
    world.runs = {key: transition.stopped(run) if str(run.job) == "a/one" else run for key, run in world.runs.items()}
    assert victims(world, tree) == "a/two"


def victims(world: World, tree: Declared) -> str | int:
    """The jobs that the reason of b/own names."""
    made = schedule(tree, world.state(), world.now_ms)
    (reason,) = [each.reason for each in made.decisions if str(each.job) == "b/own"]
    return dict(reason.params)["victims"]
