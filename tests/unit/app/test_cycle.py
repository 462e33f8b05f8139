"""When cycles end: at rest, or where nothing is left to write before something happens in the cluster."""

from __future__ import annotations

from gpuctl.app.bench.cluster_bare import compiled
from gpuctl.app.bench.cluster_tree import HOLDER, SMALL, Wish, ground_files, held, job_files
from gpuctl.app.cycle import CycleContext, converge, cycle, until_calm
from gpuctl.app.object_cache import ObjectCache
from gpuctl.model.change import OutcomeStatus
from gpuctl.model.state import RunPhase
from gpuctl.plan import Stage
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.wiring import sandbox


def test_a_job_that_follows_another_is_let_go_by_two_writes_and_no_cycle_looks_after_it_at_once() -> None:
    here, free = sandbox(EPOCH_MS), 2
    turns = [Wish(project="team", name=f"turn-{number}", run_for="1h") for number in range(2 * free)]
    quotas = {HOLDER: SMALL.gpus - free, "team": free}
    declared = compiled({**dict(ground_files(SMALL, quotas)), **dict(job_files([*held(SMALL, free), *turns]))})
    here.machines.provide(declared.cluster.pools)
    context = CycleContext(object_cache=ObjectCache(here.cluster), clock=here.time, settle=here.world.settle)
    *_, rested = converge(declared, context)
    assert rested.settled
    assert rested.calm
    here.time.advance_to(EPOCH_MS + 60_000)
    here.world.settle()
    (*_, rested) = converge(declared, context)
    running = [run for run in rested.state.runs if run.phase is RunPhase.RUNNING and run.job.project == "team"]
    here.world.finish(running[0].job, 0)
    here.world.settle()

    (report,) = converge(declared, context, done=until_calm)
    made = [(o.change.stage, o.change.ref.kind) for o in report.result.outcomes if o.status is OutcomeStatus.APPLIED]
    assert made == [(Stage.LEDGER, "ConfigMap"), (Stage.ADMIT, "Job")]
    assert report.calm
    assert not report.settled
    assert cycle(declared, context).settled
