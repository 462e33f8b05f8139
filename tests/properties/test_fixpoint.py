"""How many schedules after a change have something to do: what waits is made, what makes way stops, what gains starts.

Everything decided takes effect at once, and no time passes meanwhile: what time alone changes is a change of its own.
Three are enough, but for some in a thousand changes: where a run that was paused has a right of its own, or a start
waits for another (ADR 27). The stories are always the same ones.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings
from strategies import Story, stories
from worlds import World

from gpuctl.engine import schedule
from gpuctl.model.declared import Declared
from gpuctl.model.steps import Steps, settled

ENOUGH = 3
MOST = 4
BETWEEN_MS = 10_000
"""From change to change: every guard is due by then, and every run is old enough to make way."""


def test_three_schedules_are_enough_but_for_some_in_a_thousand() -> None:
    needed: Counter[int] = Counter()

    @seed(20)
    @given(stories())
    @settings(
        max_examples=250,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    def live(story: Story) -> None:
        world = story.world()
        for tree in story.chapters(world):
            needed[schedules_to_rest(world, tree)] += 1

    live()
    assert max(needed) <= MOST
    # 5 of 1,272 here, 3 of them after a lost node: what it frees is divided again once its pods have left. In one a job
    # starts on idle GPUs beyond its project's share, by which another project gains a right.
    assert sum(count for many, count in needed.items() if many > ENOUGH) * 250 < needed.total()


def schedules_to_rest(world: World, tree: Declared) -> int:
    """How many had something to do; the world is as they leave it."""
    wanted = {(job.id, job.digest) for job in tree.jobs}
    world.runs = {key: run for key, run in world.runs.items() if key in wanted}
    state, count = world.state(), 0
    while count <= MOST:
        made = schedule(tree, state, world.now_ms)
        after = settled(tree, Steps(tree).carried_out(state, made), world.now_ms)
        if after == state:
            break
        state, count = after, count + 1
    world.runs = {(run.job, run.digest): run for run in state.runs}
    world.now_ms += BETWEEN_MS
    return count
