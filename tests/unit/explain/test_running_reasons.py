"""A run's reason is that of now: recorded is why it was started, which stays, so that nothing is rewritten."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import schedule
from gpuctl.explain import explain
from gpuctl.model.decision import Keep
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.job import JobType


def told(world: World, tree: Declared, name: str) -> tuple[str, str]:
    """The reason on record of a run, and the one that is told of it."""
    state, id_ = world.state(), JobId.parse(name)
    made = schedule(tree, state, world.now_ms)
    (kept,) = [decision for decision in made.decisions if decision.job == id_]
    assert isinstance(kept, Keep)
    found = explain(tree, state, made, id_)
    assert found is not None
    return kept.reason.code, found.reason.code


def test_a_job_started_over_quota_is_within_it_once_another_has_ended_and_back() -> None:
    pools = [pool(nodes=[4])]
    world, first = World(nodes=live_nodes(pools)), job("a/first")
    tree = declared([project("a", 1000), project("b", 3000)], [first], pools)
    world.settle(tree)
    tree = replace(tree, jobs=(first, job("a/second")))
    world.settle(tree)
    assert told(world, tree, "a/second") == ("GPU5002", "GPU5002")
    assert told(world, tree, "a/first") == ("GPU5001", "GPU5002")
    world.end("a/first")
    world.settle(tree)
    assert told(world, tree, "a/second") == ("GPU5002", "GPU5001")
    tree = replace(tree, jobs=(*tree.jobs, job("a/third")))
    world.settle(tree)
    assert told(world, tree, "a/second") == ("GPU5002", "GPU5002")


def test_it_is_beyond_the_share_once_others_are_entitled_to_more_but_can_not_have_it() -> None:
    """Its project has 2 GPUs by its share until another asks for its own, for which no run may be paused yet."""
    pools = [pool(nodes=[2])]
    world, loan = World(nodes=live_nodes(pools)), job("a/loan", 2000)
    policy = {"projects": (project("a", 0, weight=1), project("b", 0, weight=1))}
    tree = replace(declared([], [loan], pools), **policy)  # type: ignore[arg-type]
    world.settle(tree)
    assert told(world, tree, "a/loan") == ("GPU5002", "GPU5002")
    tree = replace(tree, jobs=(loan, job("b/one")))
    world.settle(tree)
    assert told(world, tree, "a/loan") == ("GPU5002", "GPU5003")


def test_work_that_can_not_be_paused_is_within_quota_whatever_else_its_project_runs() -> None:
    pools = [pool(nodes=[4])]
    world = World(nodes=live_nodes(pools))
    jobs = [job("a/notebook", kind=JobType.INTERACTIVE), job("a/train", 3000)]
    tree = declared([project("a", 1000), project("b", 3000)], jobs, pools)
    world.settle(tree)
    assert told(world, tree, "a/notebook")[1] == "GPU5001"
    assert told(world, tree, "a/train")[1] == "GPU5002"


def test_a_run_without_a_gpu_keeps_its_reason() -> None:
    pools = [pool(nodes=[4])]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 1000)], [job("a/cpu", 0)], pools)
    world.settle(tree)
    assert told(world, tree, "a/cpu") == ("GPU5004", "GPU5004")
