"""Elastic runs that could grow, and what keeps them from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Decision, Displace, Keep, Resize
from gpuctl.model.declared import Declared, Sharing
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.schedule import schedule


@pytest.fixture
def story() -> tuple[World, Declared]:
    """A run of five workers out of eight on two nodes; on the second two GPUs have come free."""
    pools = [pool(nodes=[4, 4], sharing=Sharing.DEVICE_PLUGIN)]
    projects = [project("a", 8000), project("b", 4000)]
    jobs = [job("b/1", 1000), job("b/2", 2000), job("a/e", workers=8, min_workers=2)]
    world = World(nodes=live_nodes(pools))
    for count in range(1, 4):
        world.settle(declared(projects, jobs[:count], pools))
    world.end("b/2")
    return world, declared(projects, jobs, pools)


def decided(world: World, tree: Declared) -> Decision:
    decisions = {d.job: d for d in schedule(tree, world.state(), world.now_ms).decisions}
    return decisions[JobId.parse("a/e")]


def test_it_grows_into_what_has_come_free(story: tuple[World, Declared]) -> None:
    found = decided(*story)
    assert isinstance(found, Resize)
    assert len(found.placement.workers) == 7


def test_one_of_a_project_that_cannot_be_acted_for_stays_as_it_is(story: tuple[World, Declared]) -> None:
    world, tree = story
    assert isinstance(decided(world, replace(tree, held=frozenset({ProjectName("a")}))), Keep)
    assert isinstance(decided(world, replace(tree, barred={JobId.parse("a/e"): "GPU7210"})), Keep)


def test_one_that_has_lost_a_node_is_stopped_and_does_not_grow_elsewhere(story: tuple[World, Declared]) -> None:
    world, tree = story
    world.nodes = (replace(world.nodes[0], ready=False), world.nodes[1])
    assert isinstance(decided(world, tree), Displace)
