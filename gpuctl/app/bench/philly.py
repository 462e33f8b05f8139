"""Replays the Philly trace, or some days of it, on clusters of several sizes and in several modes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.app.replay import FROM_HISTORY, Bound, File, Order, replay_trace
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.units import WHOLE_GPU
from gpuctl.simulate.modes import ModeName
from gpuctl.simulate.replay import PauseCost
from gpuctl.simulate.replay_report import ReplayReport
from gpuctl.simulate.trace_philly import HISTORY_UNTIL_MS
from gpuctl.simulate.workload import Layout

GPUS_PER_NODE = 8
DAY_MS = 86_400_000
DAYS = 28

Span: TypeAlias = tuple[Bound, Bound]
"""Two instants: the first one to replay, and the first one after the last."""

FIRST_DAY = Bound(ms=HISTORY_UNTIL_MS, after_first=False)


def days_from(begin: Bound, days: int) -> Span:
    """The span of this many days from an instant on."""
    return begin, Bound(ms=begin.ms + days * DAY_MS, after_first=False)


WHOLE_TRACE = days_from(FIRST_DAY, DAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyRun:
    """All modes on one size of cluster, and the CPU time of each, including reading the trace."""

    gpus: int
    cpu_ms: Mapping[ModeName, int]
    report: ReplayReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyBench:
    """A run for each size; without runs, the diagnostics of the file."""

    runs: tuple[PhillyRun, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def bench_philly(orders: Iterable[Order]) -> PhillyBench:
    """Replay each order, its modes one by one, so that the time of each is known."""
    runs = []
    for order in orders:
        cpu_ms: dict[ModeName, int] = {}
        reports: list[ReplayReport] = []
        for mode in order.modes:
            begun_ns = time.process_time_ns()
            replayed = replay_trace(replace(order, modes=[mode]))
            cpu_ms[mode] = (time.process_time_ns() - begun_ns) // 1_000_000
            if replayed.report is None:
                return PhillyBench(runs=(), diagnostics=replayed.diagnostics)
            reports.append(replayed.report)
        figures = tuple(figures for report in reports for figures in report.modes)
        gpus = order.layout.gpu_milli // WHOLE_GPU
        runs.append(PhillyRun(gpus=gpus, cpu_ms=cpu_ms, report=replace(reports[0], modes=figures)))
    return PhillyBench(runs=tuple(runs))


def philly_order(  # noqa: PLR0913 - what a replay can vary
    trace: File,
    gpus: int,
    modes: Sequence[ModeName],
    pause_cost: PauseCost,
    *,
    quotas: str | File | None = FROM_HISTORY,
    span: Span = WHOLE_TRACE,
) -> Order:
    """The order to replay on this many GPUs, in nodes of GPUS_PER_NODE."""
    return Order(
        trace=trace,
        format="philly",
        layout=Layout(nodes=gpus // GPUS_PER_NODE, gpus=GPUS_PER_NODE),
        quotas=quotas,
        modes=modes,
        pause_cost=pause_cost,
        policy=SchedulingPolicy(),
        begin=span[0],
        end=span[1],
    )
