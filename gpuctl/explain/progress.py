"""What a schedule comes to: the cluster as it is once everything decided has been done and has taken effect.

It goes as in a cluster: a run is made suspended and let go when it was seen, and what stops is there still for a while,
for who starts, and where, may depend on that. How long that takes, and whether nodes and pods do as they should, is no
part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter, is_
from typing import TypeAlias

from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Move,
    Pending,
    Placement,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
    Suspended,
    TimeOut,
)
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.schedule import Outlook, schedule

Jobs: TypeAlias = Mapping[JobId, Job]
"""Declared jobs by their names."""
ACTIVE = (RunPhase.STARTING, RunPhase.RUNNING)
MAX_CYCLES = 24
"""Schedules at one instant: a pause, the start that it was for, and what follows from that."""


def come_to_rest(
    declared: Declared, state: ClusterState, at_ms: Instant, outlook: Outlook
) -> Iterator[tuple[Schedule, ClusterState]]:
    """What is decided at an instant, and the state after each: the last pair is the cluster at rest.

    Cost: a few schedules; the first of an outlook is a cold one.
    """
    jobs = {job.id: job for job in declared.jobs}
    for _ in range(MAX_CYCLES):
        decided = schedule(declared, state, at_ms, outlook)
        after = carried_out(declared, jobs, state, decided)
        if after is state:
            after = settled(declared, state, at_ms)
        yield decided, after
        if after is state:
            return
        state = after


def settled(declared: Declared, state: ClusterState, at_ms: Instant) -> ClusterState:
    """The state once what is under way is done: pods that start run, those that stop are gone, and with them the runs
    that are not declared, as far as anything may be done for their project. The very same when nothing was."""
    stays = _stays(declared)
    runs = tuple(_arrived(run, at_ms) for run in state.runs if stays(run))
    same = len(runs) == len(state.runs) and all(map(is_, runs, state.runs))
    return state if same else replace(state, runs=runs)


def _stays(declared: Declared) -> Callable[[Run], bool]:
    """Whether a run is declared, or must be left alone."""
    wanted = {(job.id, job.digest) for job in declared.jobs}

    def stays(run: Run) -> bool:
        return (run.job, run.digest) in wanted or run.job.project in declared.held or run.job in declared.barred

    return stays


def _arrived(run: Run, at_ms: Instant) -> Run:
    match run.phase:
        case RunPhase.STARTING:
            began_ms = at_ms if run.started_at_ms is None else run.started_at_ms
            return replace(
                run, phase=RunPhase.RUNNING, started_at_ms=began_ms, unbound=(), unstarted=False, leaving=None
            )
        case RunPhase.STOPPING:
            return replace(run, phase=RunPhase.QUEUED, placement=run.reserved, reserved=None, leaving=None)
        case _:
            return run if run.leaving is None else replace(run, leaving=None)


def carried_out(declared: Declared, jobs: Jobs, state: ClusterState, decided: Schedule) -> ClusterState:
    """The state afterwards, with what starts running and what stops stopping; the very same when nothing was to do.

    Cost: O(decisions + runs).
    """
    stays = _stays(declared)
    runs = {(run.job, run.digest): run if stays(run) else _stopping(run) for run in state.runs}
    labels = {node.name: node.labels for node in state.nodes}
    changed = any(runs[run.job, run.digest] is not run for run in state.runs)
    for decision in decided.decisions:
        job = jobs[decision.job]
        key = job.id, job.digest
        run = runs.get(key)
        after = _after(job, run, decision, decided.at_ms)
        if isinstance(decision, Admit) and run is not None and after is not None:
            where = labels.get(decision.placement.workers[0].node, {})
            after = replace(after, gpu_milli=_charge(declared, job, where))
        if after is not None and after is not run:
            runs[key], changed = after, True
    return replace(state, runs=tuple(runs[key] for key in sorted(runs))) if changed else state


def _after(job: Job, run: Run | None, decision: Decision, at_ms: Instant) -> Run | None:
    match decision:
        case Admit(record=record) if run is None:  # it is made suspended, and let go when it was seen
            return Run(job=job.id, digest=job.digest, phase=RunPhase.QUEUED, queued_at_ms=record.queued_at_ms)
        case Admit() if run is not None:
            return _started(job, run, decision, at_ms)
        case Pending() if run is not None and run.phase is RunPhase.STOPPING:
            return run
        case Pending(reserved=reserved):
            waiting = run or Run(job=job.id, digest=job.digest, phase=RunPhase.QUEUED)
            return _waiting(waiting, decision, reserved)
        case Move() | Reclaim() | Preempt() if run is not None and run.phase in ACTIVE:
            return _paused(run, decision, decision.reserved)
        case Displace() | Suspended() if run is not None and run.phase in ACTIVE:
            return _paused(run, decision, None)
        case Resize() if run is not None:
            return replace(run, placement=decision.placement)
        case TimeOut() if run is not None:
            return replace(run, phase=RunPhase.TIMED_OUT, placement=None)
        case _:
            return run


def _started(job: Job, run: Run, decision: Admit, at_ms: Instant) -> Run:
    return replace(
        run,
        phase=RunPhase.RUNNING,
        placement=decision.placement,
        gpu_milli=job.gpu_milli,
        cpu_milli=job.cpu_milli,
        mem_bytes=job.mem_bytes,
        queued_at_ms=decision.record.queued_at_ms,
        started_at_ms=at_ms,
        starts=decision.record.starts,
        ran_ms=decision.record.ran_ms,
        idle_since_ms=None,
        reason=decision.reason,
    )


def _charge(declared: Declared, job: Job, labels: Mapping[str, str]) -> GpuMilli:
    """What a worker is charged on a node with these labels."""
    for pool in declared.cluster.pools:
        if pool.selects(labels):
            grant = pool.grant(job.gpu_milli_on(pool.gpu_mem_bytes))
            return job.gpu_milli if grant is None else grant.gpu_milli
    return job.gpu_milli


def _stopping(run: Run) -> Run:
    return replace(run, phase=RunPhase.STOPPING) if run.phase in ACTIVE else run


def _paused(run: Run, decision: Decision, reserved: Placement | None) -> Run:
    """The run while its pods leave, as it will wait then; `reserved`: where it is to go on."""
    return replace(
        _waiting(run, decision, reserved), phase=RunPhase.STOPPING, placement=run.placement, reserved=reserved
    )


def _waiting(run: Run, decision: Decision, reserved: Placement | None) -> Run:
    """The run when it waits, as the decision has it; the very same when it waited so already."""
    record = decision.record
    told = record.queued_at_ms, record.starts, record.ran_ms, record.paused_for, decision.reason
    if _how_it_waits(run) == (RunPhase.QUEUED, reserved, None, None, *told):
        return run
    return replace(
        run,
        phase=RunPhase.QUEUED,
        placement=reserved,
        reserved=None,
        started_at_ms=None,
        queued_at_ms=record.queued_at_ms,
        starts=record.starts,
        ran_ms=record.ran_ms,
        paused_for=record.paused_for,
        reason=decision.reason,
    )


_how_it_waits = attrgetter(
    "phase", "placement", "reserved", "started_at_ms", "queued_at_ms", "starts", "ran_ms", "paused_for", "reason"
)
