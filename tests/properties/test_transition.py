"""TRANSITION: a run after a decision is what plan, apply and observe make of it, before its pods move and after."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import HealthCheck, given, settings
from strategies import Story, stories

from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.app.cycle import CycleContext, cycle, foresee
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.play import Sandbox
from gpuctl.model import transition
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared
from gpuctl.model.ids import RunDigest, RunKey
from gpuctl.model.state import Run, RunPhase
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.wiring import sandbox

CHANGED = RunDigest("0000beef")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def context_of(here: Sandbox) -> CycleContext:
    return CycleContext(object_cache=ObjectCache(here.cluster), clock=here.time, settle=here.world.settle)


def runs_of(tree: Declared, context: CycleContext) -> dict[RunKey, Run]:
    """The runs as the next cycle would observe them."""
    return {(run.job, run.digest): run for run in foresee(tree, context).state.runs}


def moved(run: Run, at_ms: int) -> Run:
    """The run once its pods have followed."""
    return transition.stopped(run) if run.phase is RunPhase.STOPPING else transition.started(run, at_ms)


def differing(seen: Run | None, wanted: Run | None) -> dict[str, tuple[object, object]]:
    """The fields in which two runs differ, as seen and as wanted.

    Not compared: how far kube-scheduler is by now, and the charge of a run that waits for its first start, which is
    read off its template.
    """
    if seen is None or wanted is None:
        return {} if seen is wanted else {"run": (seen, wanted)}
    left_out = {
        "unbound",
        "unstarted",
        "let_go_at_ms",
        "begun",
        "problem",
        *(["gpu_milli"] if wanted.starts == 0 else []),
    }
    both = {
        field.name: (as_dealt(getattr(seen, field.name)), as_dealt(getattr(wanted, field.name)))
        for field in fields(Run)
        if field.name not in left_out
    }
    return {name: values for name, values in both.items() if values[0] != values[1]}


def as_dealt(value: object) -> object:
    """Of a placement, the devices that its workers have on each node: which worker there has which is the driver's to
    decide.
    """
    if not isinstance(value, Placement):
        return value
    dealt = {
        node: iter(sorted((worker.gpus, worker.uuids) for worker in value.workers if worker.node == node))
        for node in value.nodes
    }
    return [(worker.node, *next(dealt[worker.node])) for worker in value.workers]


@given(stories(most=8))
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
def test_a_run_after_a_decision_is_what_is_observed_of_it(story: Story) -> None:
    here = sandbox(EPOCH_MS)
    here.machines.provide(story.tree.cluster.pools)
    context = context_of(here)
    compared = 0
    batches = [[story.tree.jobs[index] for index in sorted(batch)] for batch in story.batches]
    changed = {story.tree.jobs[index].id for index in story.ended}
    batches.append([replace(job, digest=CHANGED) if job.id in changed else job for job in batches[-1]])
    for batch in batches:
        tree = replace(story.tree, jobs=tuple(batch))
        wanted = {job.id: (job.id, job.digest) for job in tree.jobs}
        jobs = {job.id: job for job in tree.jobs}
        for _ in range(6):
            here.time.advance_to(here.time.now_ms() + 1000)
            before = runs_of(tree, context)
            made = cycle(tree, context).schedule
            after = runs_of(tree, context)
            for decision in made.decisions:
                key = wanted[decision.job]
                run = transition.decided(jobs[decision.job], before.get(key), decision, made.at_ms)
                assert not (found := differing(after.get(key), run)), (decision, found)
                compared += 1
            here.time.advance_to(here.time.now_ms() + 30_000)
            here.world.settle()
            rest = runs_of(tree, context)
            for key in after.keys() & set(wanted.values()):
                at_rest = moved(after[key], made.at_ms + EmbeddedTimings().start_ms)
                assert not (found := differing(rest.get(key), at_rest)), (key, found)
    assert compared
