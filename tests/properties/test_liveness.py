"""LIVENESS: histories come to rest, and then no GPU idles that a job could use."""

from __future__ import annotations

from checks import check_schedule, could_start, is_guarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from worlds import World

from gpuctl.model.decision import Pending
from gpuctl.model.declared import Declared
from gpuctl.model.state import RunPhase

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
ENOUGH_CYCLES = 9
"""Queue, start, pause, stop, start again, and the same once more for a run that was displaced."""


@given(stories())
@settings(max_examples=200, suppress_health_check=SLOW)
def test_every_history_comes_to_rest_safely_and_wastes_nothing(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        rest(world, tree)


@given(stories(), st.lists(st.integers(0, 6), min_size=1, max_size=3))
@settings(max_examples=100, suppress_health_check=SLOW)
def test_so_does_every_history_with_crashes_in_it(story: Story, crashes: list[int]) -> None:
    world = story.world()
    for tree in story.chapters(world):
        for writes in crashes:
            world.cycle(tree, writes)
        rest(world, tree)


@given(stories())
@settings(max_examples=60, suppress_health_check=SLOW)
def test_no_run_is_paused_twice_for_one_arrival(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        before = len(world.paused)
        world.settle(tree)
        victims = [job for job, beneficiary in world.paused[before:] if beneficiary is not None]
        assert len(victims) == len(set(victims))


def rest(world: World, tree: Declared) -> None:
    """Cycle until nothing changes; then nothing is stopping or promised, and no job waits beside room for it."""
    for _ in range(ENOUGH_CYCLES):
        before = (dict(world.runs), set(world.seen))
        state = world.state()
        made = world.cycle(tree)
        check_schedule(tree, state, made)
        if (world.runs, world.seen) == before:
            break
    else:
        raise AssertionError("still changing")
    jobs = {job.id: job for job in tree.jobs}
    for decision in made.decisions:
        if isinstance(decision, Pending):
            assert decision.reserved is None or is_guarded(decision), "a reservation that nothing fulfils"
            held_back = decision.reason.code in ("GPU5080", "GPU5081")
            assert held_back or not could_start(tree, state, jobs[decision.job]), (
                f"{decision.job} waits beside room for it"
            )
    assert not [run for run in world.runs.values() if run.phase is RunPhase.STOPPING]


@given(stories())
@settings(max_examples=60, suppress_health_check=SLOW)
def test_every_job_that_a_run_made_way_for_runs_in_the_end(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        before = len(world.paused)
        world.settle(tree)
        made_way_for = {str(beneficiary) for _, beneficiary in world.paused[before:] if beneficiary is not None}
        assert made_way_for <= world.running()
