"""RETRIES: a run whose start has failed takes idle GPUs at most, and changes nothing for any other job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from checks import check_form, check_room
from draws import among
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import NOW, dressed, messes, trees
from worlds import World, live_nodes

from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.jobs.timing import RETRIES_MS
from gpuctl.model.decision import Admit, Move, Pending, Preempt, Reclaim, Resize, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
STEP_MS = 17 * 60_000
TWO_HOURS_MS = 7_200_000


def not_started(job: Job, since_ms: int, failed: int) -> Run:
    """A run of the job that waits since its start failed."""
    return Run(
        job=job.id, digest=job.digest, phase=RunPhase.QUEUED, queued_at_ms=since_ms, gpu_milli=job.gpu_milli,
        cpu_milli=job.cpu_milli, mem_bytes=job.mem_bytes, failed_starts=failed,
    )  # fmt: skip


def with_failures(world: World, tree: Declared, jobs: Collection[JobId], failed: int, waited_ms: int) -> World:
    """The world where the last start of these jobs failed so long ago."""
    left = {key: run for key, run in world.runs.items() if run.job not in jobs}
    runs = (not_started(job, world.now_ms - waited_ms, failed) for job in tree.jobs if job.id in jobs)
    finished = {key: run for key, run in world.finished.items() if key[0] not in jobs}
    return replace(world, runs=left | {(run.job, run.digest): run for run in runs}, finished=finished)


def causes(made: Schedule) -> set[JobId]:
    """The jobs for which a run is paused, moved or made smaller, and those with a reservation."""
    making_way = (each for each in made.decisions if isinstance(each, Reclaim | Preempt | Move | Resize))
    reserved = {each.job for each in made.decisions if isinstance(each, Pending) and each.reserved is not None}
    return reserved | {each.beneficiary for each in making_way if each.beneficiary is not None}


@given(st.data(), messes())
@settings(max_examples=250, suppress_health_check=SLOW)
def test_other_jobs_are_decided_as_if_it_were_not_tried(data: st.DataObject, mess: tuple[Declared, World]) -> None:
    tree, world = mess
    jobs = set(data.draw(st.lists(st.sampled_from([job.id for job in tree.jobs]), min_size=1, max_size=4)))
    failed = data.draw(st.integers(1, len(RETRIES_MS) + 1))
    due_ms = RETRIES_MS[min(failed, len(RETRIES_MS)) - 1]
    waited_ms = data.draw(among(due_ms, due_ms + 1, TWO_HOURS_MS - 1))
    tried = with_failures(world, tree, jobs, failed, waited_ms).state()
    untried = with_failures(world, tree, jobs, failed, 0).state()
    made, otherwise = schedule(tree, tried, world.now_ms), schedule(tree, untried, world.now_ms)
    check_form(tree, made)
    check_room(tree, tried, made)
    assert not causes(made) & jobs
    differ = {a.job: (a, b) for a, b in zip(made.decisions, otherwise.decisions, strict=True) if a != b}
    assert differ.keys() <= jobs
    assert not any(job in jobs for job in made.queue)


@given(st.data(), trees())
@settings(max_examples=40, suppress_health_check=SLOW)
def test_a_job_that_never_starts_pauses_others_once_in_two_hours(data: st.DataObject, plain: Declared) -> None:
    tree = data.draw(dressed(plain))
    tree = replace(tree, jobs=tuple(replace(job, max_duration_ms=None, idle_timeout_ms=None) for job in tree.jobs))
    broken = set(data.draw(st.lists(st.sampled_from([job.id for job in tree.jobs]), min_size=1, max_size=3)))
    world, cache = World(nodes=live_nodes(tree.cluster.pools), now_ms=NOW), EngineCache()
    for _ in range(24):
        state = world.state()
        made = schedule(tree, state, world.now_ms, cache)
        assert made == schedule(tree, state, world.now_ms)
        without_rights = {
            run.job
            for run in state.runs
            if run.failed_starts and run.phase is RunPhase.QUEUED and world.now_ms - run.queued_at_ms < TWO_HOURS_MS
        }
        assert not causes(made) & without_rights
        world.carry_out(tree, made)
        let_go = {d.job for d in made.decisions if isinstance(d, Admit)} & broken
        for run in [run for run in state.runs if run.job in let_go]:
            world = with_failures(world, tree, {run.job}, run.failed_starts + 1, 0)
        world.now_ms += STEP_MS
