"""What a cycle costs: a generated cluster brought to rest, then cycles in which nothing has changed."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass

from gpuctl.app.bench_compile import JOBS, PROJECTS, bench_tree, compiled_bench, peak_mib
from gpuctl.app.cycle import Site, converge, cycle
from gpuctl.app.mirror import Mirror
from gpuctl.app.play import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleBench:
    """`first_*`: from an empty cluster to rest, the embedded cluster's own work included. `unchanged_*`: the median of
    the cycles after that, and the writes of all of them together.
    """

    jobs: int
    projects: int
    runs: int
    first_ms: int
    first_writes: int
    first_cycles: int
    unchanged_ms: int
    unchanged_writes: int
    peak_mib: int


def bench_cycle(sandbox: Sandbox, jobs: int = JOBS, projects: int = PROJECTS, runs: int = 5) -> CycleBench:
    """Bring an empty cluster to rest, then time cycles over it. RuntimeError if it does not come to rest."""
    declared = compiled_bench(bench_tree(jobs, projects), jobs)
    sandbox.machines.provide(declared.cluster.pools)
    site = Site(mirror=Mirror(sandbox.cluster), clock=sandbox.time, settle=sandbox.world.settle)
    begun = time.perf_counter_ns()
    first = converge(declared, site)
    first_ms = (time.perf_counter_ns() - begun) // 1_000_000
    if not first[-1].settled:
        raise RuntimeError("the generated cluster does not come to rest")
    laps, writes = [], 0
    for _ in range(runs):
        gc.collect()
        begun = time.perf_counter_ns()
        writes += cycle(declared, site).result.writes
        laps.append((time.perf_counter_ns() - begun) // 1_000_000)
    return CycleBench(
        jobs=jobs,
        projects=projects,
        runs=runs,
        first_ms=first_ms,
        first_writes=sum(report.result.writes for report in first),
        first_cycles=len(first),
        unchanged_ms=statistics.median_low(laps),
        unchanged_writes=writes,
        peak_mib=peak_mib(),
    )
