"""Brings a cluster into the state that a scenario gives: jobs that already run, on their GPUs, and jobs that wait.

The ordinary observe, render, plan and apply do this, in the ordinary order and at the given instants. Only two things
differ: the decisions are the scenario's instead of the engine's, and pods are scheduled where the scenario has them.
Otherwise a gang's pods could be spread over its nodes in another way than given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuctl.app.apply import apply_plan
from gpuctl.app.cycle import CYCLES_TO_A_FIXED_POINT, CycleContext
from gpuctl.app.play import Sandbox
from gpuctl.engine import reasons
from gpuctl.model.decision import Admit, Decision, Keep, Pending, Placement, RunRecord, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase, named, uuids_of
from gpuctl.model.units import Instant
from gpuctl.model.usage import Usage
from gpuctl.plan import make_plan
from gpuctl.render import render
from gpuctl.simulate.scenario import Given


def seed(declared: Declared, given: Given, context: CycleContext, sandbox: Sandbox, zero_ms: Instant) -> None:
    """Play the given past up to `zero_ms`. The clock stands at or before the earliest given instant."""
    since = given.since_ms
    places = {run.job: run.placement for run in given.running}
    for job, place in places.items():
        sandbox.world.deal(job, place)
    usage = {name: Usage(at_ms=zero_ms, milli_hours=milli) for name, milli in given.usage_milli_hours.items()}
    for at_ms in sorted({*since.values(), *([0] if usage else [])}):
        _pass_until(zero_ms + at_ms, sandbox)
        known = tuple(job for job in declared.jobs if since.get(job.id, 1) <= at_ms)
        _settle_as_given(replace(declared, jobs=known), places, usage, context)
    _pass_until(zero_ms, sandbox)
    for job in places:
        sandbox.world.deal(job, None)


def _pass_until(at_ms: Instant, sandbox: Sandbox) -> None:
    sandbox.time.advance_to(at_ms)
    sandbox.world.settle()


def _settle_as_given(
    declared: Declared, places: Mapping[JobId, Placement], usage: Mapping[ProjectName, Usage], context: CycleContext
) -> None:
    for _ in range(CYCLES_TO_A_FIXED_POINT):
        context.object_cache.refresh()
        now_ms = context.clock.now_ms()
        state = context.caches.state_of(context.object_cache.objects(), declared.tenancy)
        schedule = replace(_as_given(declared, places, state, now_ms), usage=usage)
        manifests = render(declared, schedule, context.caches.render)
        plan = make_plan(declared, schedule, manifests, state, frozenset(), cache=context.caches.plan)
        if not apply_plan(plan, context.object_cache).writes:
            return
        context.settle()


def _as_given(declared: Declared, places: Mapping[JobId, Placement], state: ClusterState, now_ms: Instant) -> Schedule:
    runs = {run.job: run for run in state.runs}
    uuids = uuids_of(state.nodes)
    there = {job: named(place, uuids) for job, place in places.items()}
    decisions = tuple(_decision(job, there.get(job.id), runs.get(job.id), now_ms) for job in declared.jobs)
    return Schedule(at_ms=now_ms, decisions=decisions)


def _decision(job: Job, place: Placement | None, run: Run | None, now_ms: Instant) -> Decision:
    queued_at_ms = run.queued_at_ms if run is not None else now_ms
    record = RunRecord(queued_at_ms=queued_at_ms, starts=run.starts if run is not None else 0)
    if place is None:
        return Pending(job=job.id, reason=reasons.no_free_gpus(job), record=record)
    reason = reasons.runs_in_quota(job.id.project)
    if run is not None and run.phase in {RunPhase.STARTING, RunPhase.RUNNING}:
        return Keep(job=job.id, reason=reason, record=record, placement=run.placement or place)
    return Admit(job=job.id, reason=reason, record=record._replace(starts=record.starts + 1), placement=place)
