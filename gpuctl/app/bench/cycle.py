"""Measures a cycle, stage by stage: a generated cluster is brought to rest, then cycles run over it.

There are three kinds of cycle: cold, the first of a process; unchanged, with nothing new; and the cycle after a job
ended, in which another starts. Costs are CPU time of this process, so that other processes on the machine count little.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuctl.app.bench.compile import JOBS, PROJECTS, bench_tree, compiled_bench, peak_mib
from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleContext, CycleReport, converge, cycle, foresee
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.play import Sandbox
from gpuctl.engine import schedule
from gpuctl.model.declared import Declared
from gpuctl.model.state import RunPhase
from gpuctl.observe import observe
from gpuctl.plan import make_plan, mass_stop
from gpuctl.render import render


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Milliseconds of CPU of one cycle without its writes: medians of each stage and of the whole."""

    read_ms: int
    observe_ms: int
    schedule_ms: int
    render_ms: int
    plan_ms: int
    all_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleBench:
    """The figures. `first_*`: from an empty cluster to rest, the embedded cluster's own work included.

    `unchanged_writes`: of all unchanged cycles together. `changes`: the median number of writes in the plan of a cycle
    after a job ended.
    """

    jobs: int
    projects: int
    running: int
    runs: int
    first_ms: int
    first_writes: int
    first_cycles: int
    cold: StageCosts
    unchanged: StageCosts
    event: StageCosts
    unchanged_writes: int
    changes: int
    peak_mib: int


def bench_cycle(sandbox: Sandbox, jobs: int = JOBS, projects: int = PROJECTS, runs: int = 5) -> CycleBench:
    """Bring an empty cluster to rest, then time cycles over it. RuntimeError if it does not come to rest."""
    declared = compiled_bench(bench_tree(jobs, projects), jobs)
    sandbox.machines.provide(declared.cluster.pools)
    context = CycleContext(object_cache=ObjectCache(sandbox.cluster), clock=sandbox.time, settle=sandbox.world.settle)
    begun = time.perf_counter_ns()
    first = converge(declared, context)
    first_ms = (time.perf_counter_ns() - begun) // 1_000_000
    report = _running(declared, context, sandbox, first[-1])
    cold = [_lap(report, replace(context, caches=CycleCaches())) for _ in range(runs)]
    unchanged = [_lap(report, context) for _ in range(runs)]
    writes = sum(cycle(declared, context).result.writes for _ in range(runs))
    event, changes = [], []
    for run in [run for run in report.state.runs if run.phase is RunPhase.RUNNING][:runs]:
        sandbox.world.finish(run.job, 0)
        sandbox.world.settle()
        event.append(_lap(report, context))
        changes.append(len(foresee(declared, context).plan.changes))
        _rested(converge(declared, context))
    return CycleBench(
        jobs=jobs,
        projects=projects,
        running=sum(run.phase is RunPhase.RUNNING for run in report.state.runs),
        runs=runs,
        first_ms=first_ms,
        first_writes=sum(report.result.writes for report in first),
        first_cycles=len(first),
        cold=_medians(cold),
        unchanged=_medians(unchanged),
        event=_medians(event),
        unchanged_writes=writes,
        changes=statistics.median_low(changes),
        peak_mib=peak_mib(),
    )


def _running(declared: Declared, context: CycleContext, sandbox: Sandbox, report: CycleReport) -> CycleReport:
    """Let time pass until all started runs are running."""
    while not any(run.phase is RunPhase.RUNNING for run in report.state.runs):
        due = sandbox.world.next_event_ms()
        if due is None:
            raise RuntimeError("nothing of the generated cluster runs")
        sandbox.time.advance_to(due)
        sandbox.world.settle()
        report = _rested(converge(declared, context))
    return _rested((report,))


def _rested(reports: tuple[CycleReport, ...]) -> CycleReport:
    if not reports[-1].settled:
        raise RuntimeError("the generated cluster does not come to rest")
    return reports[-1]


def _lap(report: CycleReport, context: CycleContext) -> tuple[int, ...]:
    """The microseconds of each stage of one cycle: the stages of `foresee`, on the enforced declarations."""
    declared, caches = report.declared, context.caches
    gc.collect()
    marks = [time.process_time_ns()]
    context.object_cache.refresh()
    raw = context.object_cache.objects()
    marks.append(time.process_time_ns())
    state = observe(raw, declared.tenancy, caches.observe)
    marks.append(time.process_time_ns())
    decided = schedule(declared, state, context.clock.now_ms(), caches.engine_cache)
    marks.append(time.process_time_ns())
    manifests = render(declared, decided, caches.render)
    marks.append(time.process_time_ns())
    stops = mass_stop(declared, state, frozenset(), caches.plan)
    make_plan(declared, decided, manifests, state, frozenset(), stops=stops, cache=caches.plan)
    marks.append(time.process_time_ns())
    return tuple((end - begin) // 1000 for begin, end in (*pairwise(marks), (marks[0], marks[-1])))


def _medians(laps: Iterable[tuple[int, ...]]) -> StageCosts:
    read, observed, decided, rendered, planned, whole = (
        statistics.median_low(stage) // 1000 for stage in zip(*laps, strict=True)
    )
    return StageCosts(
        read_ms=read, observe_ms=observed, schedule_ms=decided, render_ms=rendered, plan_ms=planned, all_ms=whole
    )
