"""A job that the check skips could neither have started nor have had a run make way for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from test_outlook import TO_JOBS, TO_RUNS, TO_THE_REST, Life

from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.admit.admission import Admission
from gpuctl.engine.admit.scale_up import ScaleUp
from gpuctl.engine.admit.schedulability import Schedulability
from gpuctl.engine.jobs.under_scaled import under_scaled
from gpuctl.model.ids import JobId
from gpuctl.model.state import RunPhase


def skipped(life: Life, leaving: int | None = None) -> dict[JobId, bool]:
    """The jobs, and the runs that lack workers, that would not be attempted now, and whether an attempt would succeed.

    `leaving`: which of the runs in place is still seen to stop, if any.
    """
    tree, state, now_ms, cache = life.tree, life.world.state(), life.world.now_ms, EngineCache()
    running = [run for run in state.runs if run.phase is RunPhase.RUNNING]
    if leaving is not None and running:
        stops = running[leaving % len(running)]
        runs = (replace(run, phase=RunPhase.STOPPING) if run is stops else run for run in state.runs)
        state = replace(state, runs=tuple(runs))
    schedule(tree, state, now_ms, cache)  # works out what each project may have
    standing = cache.over(tree, state, now_ms)
    policy, lineup = tree.cluster.scheduling, standing.pending_jobs
    lacking = under_scaled(standing.changeable, standing.static_fit)
    scale_up = ScaleUp(standing.snapshot, lacking, standing.allocations)
    admission = Admission(standing.snapshot, policy, scale_up)
    admission._keep_reserved(lineup)
    snapshot, guards, layout, mover = (
        standing.snapshot,
        admission.reservations,
        admission._repacking,
        admission._migrations,
    )
    lines = list(scale_up.queues(lineup.queues))
    check = Schedulability(snapshot, guards, layout, mover if policy.consolidation else None, lines, set())
    listed = [group for line in lines for _, group in check.classes(line)]
    attempted = {group for group in listed if check.of(group.first, group)}
    others = [group.first for line in lines for group in line.job_classes.values() if group not in attempted]
    return {each.job.id: admission._attempt(each) for each in others if each.job.id not in admission._decided}


EVENTS = st.lists(st.tuples(st.sampled_from(TO_JOBS + TO_RUNS + TO_THE_REST), st.integers(0, 7)), max_size=8)


@given(stories(), EVENTS)
@settings(max_examples=150)
def test_no_job_is_skipped_that_could_start(story: Story, events: list[tuple[str, int]]) -> None:
    life = Life(story.tree)
    for event, which in (("cycle", 0), ("cycle", 0), *events):
        life.happen(event, which)
        found = skipped(life)
        assert not any(found.values()), found
        life.cycle()


@given(stories(), EVENTS, st.integers(0, 7))
@settings(max_examples=150)
def test_no_job_is_skipped_while_others_leave(story: Story, events: list[tuple[str, int]], leaving: int) -> None:
    """GPUs that come free are worth an attempt to a job that is entitled to them, also where runs may not be moved."""
    policy = replace(story.tree.cluster.scheduling, consolidation=False)
    life = Life(replace(story.tree, cluster=replace(story.tree.cluster, scheduling=policy)))
    for event, which in (("cycle", 0), ("cycle", 0), *events):
        life.happen(event, which)
        found = skipped(life, leaving)
        assert not any(found.values()), found
        life.cycle()
