"""SAFETY and LIVENESS with services that follow a load, down to none: whatever their autoscalers ask for, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import worlds
from checks import by_job, check_schedule, could_start
from draws import among
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from worlds import World, live_nodes

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import Admit, Finished, Keep, Resize, Schedule, Suspended
from gpuctl.model.declared import Declared, Sharing
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job, JobType, MetricSource, Scaling
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase

LOADS = st.sampled_from((0, 0, 1, 2, 3, 9))


@dataclass
class ScaledWorld(World):
    """A world with autoscalers: `loads` are the workers that each service would have."""

    loads: Mapping[JobId, int] = field(default_factory=dict)

    def carry_out(self, tree: Declared, made: Schedule, stop_after: int | None = None) -> None:
        """Carry a schedule out; then autoscalers look."""
        super().carry_out(tree, made, stop_after)
        self.measure(tree)

    def measure(self, tree: Declared) -> None:
        """What autoscalers say of the runs that there are; one that may takes the last worker of a service."""
        services = {(job.id, job.digest): job for job in tree.jobs if job.scaling is not None}
        for key in self.runs.keys() & services.keys():
            self.runs[key] = _measured(services[key], self.runs[key], self.loads.get(key[0], 1))


def _measured(job: Job, run: Run, load: int) -> Run:
    to_zero = job.scaling is not None and job.scaling.to_zero
    if run.phase in ACTIVE and run.placement is not None:
        if run.phase is RunPhase.RUNNING and to_zero and not load:
            return replace(run, phase=RunPhase.STOPPING, started_at_ms=None, asked_workers=0)
        has = len(run.placement.workers)
        return replace(run, asked_workers=None if load == has else load)
    if run.phase is RunPhase.QUEUED and to_zero and run.starts:
        return replace(run, asked_workers=min(load, 1))
    return run


@dataclass(frozen=True, repr=False)
class ScaledStory(Story):
    """A story with the loads of its services in each chapter."""

    loads: tuple[Mapping[JobId, int], ...]

    def __repr__(self) -> str:
        """With what each service is scaled by."""
        scaled = [f"{j.id}: {j.min_workers} to {j.workers}, {j.scaling}" for j in self.tree.jobs if j.scaling]
        return "\n".join([super().__repr__(), *scaled, f"loads={self.loads}"])

    def world(self) -> ScaledWorld:
        """An empty cluster."""
        return ScaledWorld(nodes=live_nodes(self.tree.cluster.pools))

    def scaled_chapters(self, world: ScaledWorld) -> Iterator[Declared]:
        """The trees, each first with the loads of the one before: no load changes in the cycle that loses a node."""
        for number, tree in enumerate(self.chapters(world)):
            yield tree
            world.loads = self.loads[number % len(self.loads)]
            world.measure(tree)
            yield tree


@st.composite
def scaled_stories(draw: st.DrawFn) -> ScaledStory:
    """Stories in which services of whole GPUs are scaled: GPUs are handed out by number."""
    story = draw(stories(8))
    pools = tuple(replace(pool, sharing=Sharing.DEVICE_PLUGIN) for pool in story.tree.cluster.pools)
    jobs: list[Job] = []
    for job in story.tree.jobs:
        if job.gpu_milli not in {1000, 2000} or job.type is not JobType.INFERENCE:
            kind = draw(among(job.type, JobType.INFERENCE)) if job.gpu_milli in {1000, 2000} else job.type
        else:
            kind = JobType.INFERENCE
        whole = max(1000, job.gpu_milli // 1000 * 1000) if job.gpu_milli else 0
        changed = replace(job, type=kind, gpu_milli=whole)
        if kind is JobType.INFERENCE and whole:
            workers = draw(among(1, 2, 3, 5))
            scaling = Scaling(
                metric="m", source=MetricSource.EXTERNAL, target_milli=1000, most=workers, to_zero=draw(st.booleans())
            )
            fewest = 1 if scaling.to_zero else draw(st.integers(1, workers))
            changed = replace(
                changed, workers=workers, min_workers=fewest, scaling=scaling, preemptible=job.preemptible
            )
        jobs.append(changed)
    tree = replace(story.tree, jobs=tuple(jobs), cluster=replace(story.tree.cluster, pools=pools))
    services = [job.id for job in jobs if job.scaling is not None]
    loads = draw(st.lists(st.fixed_dictionaries(dict.fromkeys(services, LOADS)), min_size=1, max_size=4))
    fields = {name: getattr(story, name) for name in ("batches", "leaving", "lost", "ended")}
    return ScaledStory(tree=tree, loads=tuple(loads), **fields)


def check_scaled(tree: Declared, state: ClusterState, made: Schedule) -> None:
    """No service has more workers than it asks for; one at zero holds and claims nothing, and is not started."""
    runs, decisions = {(run.job, run.digest): run for run in state.runs}, by_job(made)
    for job in tree.jobs:
        run, decision = runs.get((job.id, job.digest)), decisions[job.id]
        if job.scaling is None or run is None:
            continue
        if run.phase not in ACTIVE and run.asked_workers == 0 and not isinstance(decision, Finished):
            assert isinstance(decision, Suspended), decision
        if isinstance(decision, Resize | Keep | Admit) and decision.placement.workers:
            has = len(run.placement.workers) if run.phase in ACTIVE and run.placement is not None else 0
            asked = run.asked_workers if run.asked_workers is not None and run.phase in ACTIVE else has
            assert len(decision.placement.workers) <= max(job.min_workers, min(job.workers, asked)), decision


def test_a_service_grows_that_asks_for_the_same_as_a_training_job() -> None:
    """Whether any run may grow is counted over jobs that ask alike, of which only some may."""
    scaling = Scaling(metric="m", source=MetricSource.PODS, target_milli=1000, most=3)
    web = worlds.job("alpha/web", kind=JobType.INFERENCE, workers=3, min_workers=1, scaling=scaling, preemptible=True)
    pool = worlds.pool("dgx1", sharing=Sharing.DEVICE_PLUGIN)
    tree = worlds.declared([worlds.project("alpha", 4000)], [worlds.job("alpha/a"), web], [pool])
    world, cache = ScaledWorld(nodes=live_nodes(tree.cluster.pools), loads={web.id: 3}), EngineCache()
    for state, made in world.decided(tree):
        assert schedule(tree, state, made.at_ms, cache).decisions == made.decisions
    assert world.allocated() == {"alpha": 4000}


@settings(max_examples=60)
@given(scaled_stories())
def test_every_schedule_is_safe_comes_to_rest_and_is_the_same_with_a_cache(story: ScaledStory) -> None:
    world, cache = story.world(), EngineCache()
    for tree in story.scaled_chapters(world):
        for state, made in world.decided(tree):
            check_schedule(tree, state, made)
            check_scaled(tree, state, made)
            assert schedule(tree, state, made.at_ms, cache).decisions == made.decisions


@settings(max_examples=40)
@given(scaled_stories())
def test_at_rest_no_service_with_load_waits_that_could_start(story: ScaledStory) -> None:
    world = story.world()
    for tree in story.scaled_chapters(world):
        world.settle(tree, most=30)
        state = world.state()
        made = by_job(schedule(tree, state, world.now_ms))
        jobs = {(job.id, job.digest): job for job in tree.jobs}
        for run in state.runs:
            job = jobs.get((run.job, run.digest))
            if job is None or job.scaling is None or run.phase is not RunPhase.QUEUED:
                continue
            if run.asked_workers == 0 or job.suspend or run.placement is not None:
                continue
            held = made[job.id].reason.code == "GPU5081"
            assert held or not could_start(tree, state, replace(job, workers=job.min_workers)), job.id
