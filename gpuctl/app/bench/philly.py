"""Replays 28 days of the Philly trace, on clusters of several sizes and in every mode: fairness, waits, speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuctl.app.replay import FROM_HISTORY, Bound, File, Order, replay_trace
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.simulate.modes import ModeName
from gpuctl.simulate.replay import PauseCost
from gpuctl.simulate.replay_report import ReplayReport
from gpuctl.simulate.trace_philly import HISTORY_UNTIL_MS
from gpuctl.simulate.workload import Layout

GPUS_PER_NODE = 8
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyRun:
    """All modes on one size of cluster, and the CPU time of each, with reading the trace."""

    gpus: int
    cpu_ms: Mapping[ModeName, int]
    report: ReplayReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyBench:
    """A run for each size; without runs, the diagnostics of the file."""

    runs: tuple[PhillyRun, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def bench_philly(
    trace: File, gpus: Sequence[int], modes: Sequence[ModeName], days: int, pause_cost: PauseCost
) -> PhillyBench:
    """Replay it. Quotas are by what each virtual cluster used in the weeks before."""
    runs = []
    for size in gpus:
        cpu_ms: dict[ModeName, int] = {}
        reports: list[ReplayReport] = []
        for mode in modes:
            begun_ns = time.process_time_ns()
            replayed = replay_trace(_order(trace, size, mode, days, pause_cost))
            cpu_ms[mode] = (time.process_time_ns() - begun_ns) // 1_000_000
            if replayed.report is None:
                return PhillyBench(runs=(), diagnostics=replayed.diagnostics)
            reports.append(replayed.report)
        figures = tuple(figures for report in reports for figures in report.modes)
        runs.append(PhillyRun(gpus=size, cpu_ms=cpu_ms, report=replace(reports[0], modes=figures)))
    return PhillyBench(runs=tuple(runs))


def _order(trace: File, gpus: int, mode: ModeName, days: int, pause_cost: PauseCost) -> Order:
    return Order(
        trace=trace,
        format="philly",
        layout=Layout(nodes=gpus // GPUS_PER_NODE, gpus=GPUS_PER_NODE),
        quotas=FROM_HISTORY,
        modes=[mode],
        pause_cost=pause_cost,
        policy=SchedulingPolicy(),
        begin=Bound(ms=HISTORY_UNTIL_MS, after_first=False),
        end=Bound(ms=HISTORY_UNTIL_MS + days * DAY_MS, after_first=False),
    )
