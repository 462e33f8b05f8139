"""Where a cycle is decided by its first look, another one at the cluster as it will be finds nothing to do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from worlds import World, live_nodes

from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.cycle import Cycle
from gpuctl.engine.fixpoint import is_fixpoint
from gpuctl.engine.rounds import Rounds
from gpuctl.model.declared import Declared


def looked_again(tree: Declared, world: World) -> bool:
    """Whether the cycle is decided by its first look though somebody starts, and so does not look again: as it does
    here, to come to the same."""
    state, cache = world.state(), EngineCache()
    cycle, foresight = Cycle(tree, world.now_ms, cache), Rounds(state, world.now_ms)
    first = cycle.round(state)
    final, shares = is_fixpoint(first.outcome, first.carried), first.carried.shares({})
    foresight.take(first.outcome, first.carried)
    if not final or not first.outcome.started:
        return False
    again = cycle.round(foresight.state(), first)
    assert not again.outcome.started | again.outcome.reserved
    assert not again.outcome.pauses.keys() | again.outcome.shifts.keys()
    assert again.outcome.pending_queues == first.outcome.pending_queues
    assert again.outcome.kept == first.outcome.kept
    assert again.carried.shares({}) == shares
    return True


@given(stories(), st.lists(st.integers(0, 7), max_size=8), st.sampled_from((3_000, 600_000)))
@settings(max_examples=150)
def test_where_is_fixpoint_another_look_is_the_same(story: Story, ends: list[int], patience_ms: int) -> None:
    tree = story.tree
    policy = replace(tree.cluster.scheduling, starvation_guard_ms=patience_ms)
    tree = replace(tree, cluster=replace(tree.cluster, scheduling=policy))
    world = World(nodes=live_nodes(tree.cluster.pools))
    for end in (None, None, *ends):
        running = sorted(world.running())
        if end is not None and running:
            world.end(running[end % len(running)], "Succeeded")
        looked_again(tree, world)
        world.carry_out(tree, schedule(tree, world.state(), world.now_ms))
