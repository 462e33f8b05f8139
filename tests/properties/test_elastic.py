"""SAFETY and LIVENESS with elastic jobs in every story: any of them may run with fewer workers than it asks for."""

from __future__ import annotations

from dataclasses import replace

from checks import check_schedule, could_start
from draws import among
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Story, stories

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import Resize
from gpuctl.model.declared import Declared, QuotaShrink
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import Ledger, RunPhase
from gpuctl.model.usage import Usage


@st.composite
def elastic_stories(draw: st.DrawFn) -> Story:
    """Stories in which gangs are elastic, and some larger than usual. No run is moved: that is another matter."""
    story = draw(stories(10))
    jobs = []
    for job in story.tree.jobs:
        workers = draw(among(1, 2, 3, 5)) if job.gpu_milli in {1000, 2000} else job.workers
        jobs.append(replace(job, workers=workers, min_workers=draw(st.integers(1, workers))))
    return replace(story, tree=replace(story.tree, jobs=tuple(jobs)))


@settings(max_examples=120)
@given(elastic_stories())
def test_every_schedule_is_safe_and_comes_to_rest(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        for state, made in world.decided(tree):
            check_schedule(tree, state, made)


@settings(max_examples=80)
@given(elastic_stories())
def test_at_rest_no_job_waits_that_could_start_and_none_is_below_its_least(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        world.settle(tree, most=30)
        state = world.state()
        made = schedule(tree, state, world.now_ms)
        assert not any(isinstance(decision, Resize) for decision in made.decisions)
        waiting = {run.job for run in state.runs if run.phase is RunPhase.QUEUED and run.placement is None}
        jobs = {job.id: job for job in tree.jobs}
        for job in waiting & jobs.keys():
            held = jobs[job].suspend or any(d.reason.code == "GPU5081" for d in made.decisions if d.job == job)
            assert held or not could_start(tree, state, jobs[job]), job
        for run in state.runs:
            if run.phase is RunPhase.RUNNING and run.job in jobs and run.placement is not None:
                assert len(run.placement.workers) >= jobs[run.job].min_workers


@settings(max_examples=60)
@given(elastic_stories(), st.sampled_from((5_000, 3_600_000)), st.integers(1, 9))
def test_with_past_use_and_cut_quotas_it_is_safe_comes_to_rest_and_forgets_nothing(
    story: Story, half_life_ms: int, cut_at: int
) -> None:
    world, cache = story.world(), EngineCache()
    usage: dict[ProjectName, Usage] = {}
    for chapter, whole in enumerate(story.chapters(world)):
        tree = _draining(whole, half_life_ms, halved=chapter >= cut_at)
        for _ in range(40):
            known = world.state()
            old = {name: known.ledgers.get(name, Ledger(project=name)) for name in usage}
            snapshot = {name: replace(old[name], usage=use) for name, use in usage.items()}
            state = replace(known, ledgers={**known.ledgers, **snapshot})
            made = schedule(tree, state, world.now_ms)
            check_schedule(tree, state, made)
            warm = schedule(tree, state, world.now_ms, cache)
            assert (warm.decisions, warm.shares, warm.usage) == (made.decisions, made.shares, made.usage)
            before = dict(world.runs), set(world.seen), usage
            world.carry_out(tree, made)
            usage = dict(made.usage)
            if (world.runs, world.seen, usage) == before:
                break
        else:
            raise AssertionError("still changing after 40 cycles")


def _draining(tree: Declared, half_life_ms: int, *, halved: bool) -> Declared:
    """The tree with the two settings, and with half its quotas."""
    policy = replace(tree.cluster.scheduling, fairness_half_life_ms=half_life_ms, quota_shrink=QuotaShrink.DRAIN)
    cluster = replace(tree.cluster, scheduling=policy)
    if not halved:
        return replace(tree, cluster=cluster)
    projects = tuple(
        replace(p, allowances={d: replace(a, quota_milli=a.quota_milli // 2) for d, a in p.allowances.items()})
        for p in tree.projects
    )
    return replace(tree, cluster=cluster, projects=projects)
