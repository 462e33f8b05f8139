"""Carry decisions out as values: the cluster once every decision has taken effect.

The steps are those of a real cluster: a run is created suspended and admitted in a later cycle, and a stopping run
holds its GPUs until it is gone, since later decisions may depend on that. Durations and failures are not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import TypeAlias

from gpuctl.engine import EngineCache, schedule
from gpuctl.model import transition
from gpuctl.model.decision import Admit, Placement, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import Charge, ClusterState, Run, RunPhase
from gpuctl.model.units import Instant

Jobs: TypeAlias = Mapping[JobId, Job]
"""Declared jobs by their names."""
MAX_CYCLES = 24
"""The most schedules at one instant: pauses, the starts that they are for, and what follows from those."""


def come_to_rest(
    declared: Declared, state: ClusterState, at_ms: Instant, engine_cache: EngineCache
) -> Iterator[tuple[Schedule, ClusterState]]:
    """Schedule repeatedly at one instant; yields each schedule with the state after it. The last is the cluster at
    rest.

    Cost: a few schedules; the first of an outlook is a cold one.
    """
    jobs = {job.id: job for job in declared.jobs}
    for _ in range(MAX_CYCLES):
        decided = schedule(declared, state, at_ms, engine_cache)
        after = carried_out(declared, jobs, state, decided)
        if after is state:
            after = settled(declared, state, at_ms)
        yield decided, after
        if after is state:
            return
        state = after


def settled(declared: Declared, state: ClusterState, at_ms: Instant) -> ClusterState:
    """The state once starting pods run and stopping pods are gone, with undeclared runs removed where that is allowed.

    The same object when nothing changes.
    """
    stays = _stays(declared)
    runs = tuple(_arrived(run, at_ms) for run in state.runs if stays(run))
    same = len(runs) == len(state.runs) and all(map(is_, runs, state.runs))
    return state if same else replace(state, runs=runs)


def _stays(declared: Declared) -> Callable[[Run], bool]:
    """Make the test whether a run is declared, or must not be touched."""
    wanted = {(job.id, job.digest) for job in declared.jobs}

    def stays(run: Run) -> bool:
        return (run.job, run.digest) in wanted or run.job.project in declared.pinned or run.job in declared.blocked

    return stays


def _arrived(run: Run, at_ms: Instant) -> Run:
    return transition.stopped(run) if run.phase is RunPhase.STOPPING else transition.started(run, at_ms)


def carried_out(declared: Declared, jobs: Jobs, state: ClusterState, made: Schedule) -> ClusterState:
    """The state after a schedule: admitted runs run, paused runs are stopping. The same object when nothing changes.

    Cost: O(decisions + runs).
    """
    stays = _stays(declared)
    runs = {(run.job, run.digest): run if stays(run) else transition.removed(run) for run in state.runs}
    labels = {node.name: node.labels for node in state.nodes}
    changed = any(runs[run.job, run.digest] is not run for run in state.runs)
    for decision in made.decisions:
        job = jobs[decision.job]
        key = job.id, job.digest
        run = runs.get(key)
        charge = _charge(declared, job, labels, decision.placement) if isinstance(decision, Admit) else None
        after = transition.decided(job, run, decision, made.at_ms, charge)
        if isinstance(decision, Admit) and after is not None:
            after = transition.started(after, made.at_ms)
        if after is not None and after is not run:
            runs[key], changed = after, True
    return replace(state, runs=tuple(runs[key] for key in sorted(runs))) if changed else state


def _charge(declared: Declared, job: Job, labels: Mapping[NodeName, Mapping[str, str]], placement: Placement) -> Charge:
    """What a worker is charged on the pool that it starts in, found by the labels of nodes."""
    where, milli = labels.get(placement.workers[0].node, {}), job.gpu_milli
    pool = next((pool for pool in declared.cluster.pools if pool.selects(where)), None)
    grant = pool.grant(job.gpu_milli_on(pool.gpu_mem_bytes)) if pool is not None else None
    if grant is not None:
        milli = grant.gpu_milli
    return Charge(gpu_milli=milli, cpu_milli=job.cpu_milli, mem_bytes=job.mem_bytes)
