"""LIVENESS: histories come to rest, and then no GPU idles that somebody could use."""

from __future__ import annotations

from checks import check_schedule, could_start
from hypothesis import HealthCheck, given, settings
from strategies import Story, stories

from gpuctl.model.decision import Pending
from gpuctl.model.state import RunPhase

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
ENOUGH_CYCLES = 9
"""Queue, start, pause, stop, start again, and the same once more for who was displaced."""


@given(stories())
@settings(max_examples=200, suppress_health_check=SLOW)
def test_every_history_comes_to_rest_safely_and_wastes_nothing(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        for _ in range(ENOUGH_CYCLES):
            before = (dict(world.runs), set(world.seen))
            state = world.state()
            made = world.cycle(tree)
            check_schedule(tree, state, made)
            if (world.runs, world.seen) == before:
                break
        else:
            raise AssertionError("still changing")
        for decision in made.decisions:
            job = next(job for job in tree.jobs if job.id == decision.job)
            if isinstance(decision, Pending):
                assert decision.reserved is None, "a reservation nobody fulfils"
                assert not could_start(tree, state, job), f"{job.id} waits beside room for it: {decision.reason}"
        assert not [run for run in world.runs.values() if run.phase is RunPhase.STOPPING]


@given(stories())
@settings(max_examples=60, suppress_health_check=SLOW)
def test_nobody_is_paused_twice_for_one_arrival(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        before = len(world.paused)
        world.settle(tree)
        victims = [job for job, beneficiary in world.paused[before:] if beneficiary is not None]
        assert len(victims) == len(set(victims))
