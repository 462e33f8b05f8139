"""What time changes: starts that wait long for a node; runs that have stopped, and then do not wait like others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elastic_worlds import at, decided, world_of
from worlds import declared, job, pool, project

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import NOT_YET, Admit, Pending
from gpuctl.model.declared import MinRuntime, SchedulingPolicy, Sharing
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import RunPhase


@pytest.mark.parametrize(("since_s", "is_slow"), [(10, False), (60, False), (61, True), (600, True)])
def test_a_pod_that_finds_no_node_for_a_minute_is_not_waited_for(since_s: int, *, is_slow: bool) -> None:
    jobs = [job("a/stuck"), job("a/gang", workers=3)]
    tree = declared([project("a", 4000)], jobs, [pool(nodes=[2, 2], sharing=Sharing.DEVICE_PLUGIN)])
    world = world_of(tree, a_stuck=at((1, 0)))
    stuck = (JobId.parse("a/stuck"), jobs[0].digest)
    world.runs[stuck] = replace(
        world.runs[stuck],
        phase=RunPhase.STARTING,
        unbound=(NodeName("dgx1-1"),),
        unstarted=True,
        let_go_at_ms=world.now_ms - 1000 * since_s,
        started_at_ms=world.now_ms - 1000 * since_s,
        starting_ms=NOT_YET if is_slow else 0,
    )
    decision = decided(world, tree)["a/gang"]
    if since_s < 60:
        assert isinstance(decision, Pending)
        assert decision.reason.code == "GPU5023"
    else:
        assert isinstance(decision, Admit)


@pytest.mark.parametrize("how", ["suspended", "withdrawn", "failed before"])
def test_a_run_that_has_stopped_and_does_not_wait_is_no_demand_from_then_on(how: str) -> None:
    one, other = job("a/one", workers=2), job("b/other", workers=4)
    fixed = job("c/fixed", workers=2, preemptible=False)
    projects = [project("a", 2000), project("b", weight=1000), project("c", 2000)]
    tree = declared(projects, [one, other, fixed], [pool(nodes=[4])])
    world, cache = world_of(tree, a_one=at((1, 0), (1, 1)), c_fixed=at((1, 2), (1, 3))), EngineCache()
    key = one.id, one.digest
    world.runs[key] = replace(
        world.runs[key],
        phase=RunPhase.STOPPING,
        paused_for=other.id,
        queued_at_ms=world.now_ms,
        failed_starts=int(how == "failed before"),
    )
    for _ in range(2):
        schedule(tree, world.state(), world.now_ms, cache)
    if how == "failed before":
        world.runs[key] = replace(world.runs[key], phase=RunPhase.QUEUED, placement=None)
    elif how == "suspended":
        tree = replace(tree, jobs=(replace(one, suspend=True), other, fixed))
    else:
        tree = replace(tree, jobs=(other, fixed))
    warm, cold = schedule(tree, world.state(), world.now_ms, cache), schedule(tree, world.state(), world.now_ms)
    assert warm.shares == cold.shares
    assert {row.project: row.share_milli for row in warm.shares} == {"a": 0, "b": 2000, "c": 2000}


@pytest.mark.parametrize("min_runtime", [MinRuntime(), MinRuntime.of_all(300_000)])
def test_a_run_that_is_foreseen_to_grow_old_is_settled_as_it_is_now(min_runtime: MinRuntime) -> None:
    loan, small, large = job("a/loan", workers=2), job("b/small"), job("b/large", 2000, priority=1)
    policy = SchedulingPolicy(min_runtime=min_runtime)
    projects = [project("a", weight=1000), project("b", 1000, weight=0)]
    tree = declared(projects, [loan, small, large], [pool(nodes=[2])], policy=policy)
    world = world_of(tree, a_loan=at((1, 0), (1, 1)))
    came = world.runs[large.id, large.digest]
    world.runs[large.id, large.digest] = replace(came, queued_at_ms=world.now_ms - 60_000)
    world.settle(tree)
    assert world.running() == {"b/small"}, "large waited when small was let go, and does not take its place"
