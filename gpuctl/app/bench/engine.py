"""Measures the engine by itself: `schedule` on generated values. Each workload is a function of the number of runs.

Costs are CPU time of this process. A cold call has an empty engine cache. An event is one call after one change, with
the cache of the call before. Figures that do not depend on the machine are counted: paused runs and attempts.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from gpuctl.app.bench.engine_worlds import (
    NOW_MS,
    SEED,
    World,
    crowded,
    differing,
    gangs,
    job,
    node,
    run_of,
    uneven,
    world,
)
from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.shares.fairshare import ShareClaim, divide
from gpuctl.model.decision import Admit, Displace, Move, Pending, Placement, Reclaim, Schedule, WorkerPlacement
from gpuctl.model.state import RunPhase
from gpuctl.model.units import WHOLE_GPU

NODE_GPUS = 8
LARGE_NODES = (8,) * 1000 + (1,) * 2412 + (0,) * 866
"""4,278 nodes with 10,412 GPUs, as in a published production trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured cost: its median, its upper bound, and counts that do not depend on the machine."""

    workload: str
    what: str
    microseconds: int
    aim_microseconds: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


Workload = Callable[[int], Iterator[Figure]]


def bench_engine(names: Iterable[str], runs: int) -> Iterator[Figure]:
    """Measure workloads by name, each cost `runs` times. KeyError for a name that is not in WORKLOADS."""
    for name in names:
        yield from WORKLOADS[name](runs)


def cycle(runs: int) -> Iterator[Figure]:
    """1,000 nodes, 8,000 GPUs, 10,000 jobs of 100 projects; cold also in pools that do not score fragmentation."""
    full = crowded((NODE_GPUS,) * 1000, 10_000, 100)
    yield from cycle_of("cycle", full, runs, cold_us=250_000, event_us=1000)
    yield _figure("cycle", "cold, spread", [_lap(full.spread(), EngineCache()) for _ in range(runs)], 50_000)


def fill(runs: int) -> Iterator[Figure]:
    """The same jobs, all waiting for the empty cluster."""
    full = crowded((NODE_GPUS,) * 1000, 10_000, 100)
    empty = full.runs(run_of(each) for each in full.declared.jobs)
    yield _figure("fill", "cold", [_lap(empty, EngineCache()) for _ in range(runs)])


def large(runs: int) -> Iterator[Figure]:
    """4,278 nodes, 10,412 GPUs, 100,000 jobs of 100 projects."""
    yield from cycle_of("large", crowded(LARGE_NODES, 100_000, 100), runs, cold_us=1_000_000, event_us=None)


def waiters(runs: int) -> Iterator[Figure]:
    """80 nodes, 640 GPUs, 10,000 jobs of 40 projects that nearly all differ: most wait."""
    yield from cycle_of("waiters", differing((NODE_GPUS,) * 80, 10_000, 40), runs, cold_us=None, event_us=40_000)


def waiting_gangs(runs: int) -> Iterator[Figure]:
    """80 nodes, 640 GPUs, 10,000 gangs of 40 projects that nearly all differ: most wait; runs may be moved or not."""
    for what, count, consolidation in (
        ("cold", 10_000, False),
        ("cold, with moves", 10_000, True),
        ("100 gangs, with moves", 100, True),
    ):
        full = gangs((NODE_GPUS,) * 80, count, 40, consolidation=consolidation)
        yield _figure("gangs", what, [_lap(full, EngineCache()) for _ in range(runs)], 3_000_000)


def reclaim(runs: int) -> Iterator[Figure]:
    """N nodes full of one-GPU jobs of one project; a gang of N/2 workers x 8 GPUs of another project claims half of
    them.

    It is measured as an event: the running jobs were known before the gang was declared.
    """
    for nodes, aim_us in ((10, None), (100, None), (1000, 100_000)):
        yield reclaimed(nodes, runs, aim_us)


def rebalance(runs: int) -> Iterator[Figure]:
    """200 nodes on which 20 projects hold unequal parts: each project comes to its fair share, job by job, in one
    cycle."""
    begun = uneven((NODE_GPUS,) * 200, 2000, 20)
    yield _figure("rebalance", "200 nodes", [_lap(begun, EngineCache()) for _ in range(runs)])


def unschedulable(runs: int) -> Iterator[Figure]:
    """A gang of 10 workers x 8 GPUs that can't fit comes to 500 full nodes on which 5,000 jobs wait."""
    full = crowded((NODE_GPUS,) * 500, 9000, 100)
    gang = job("team-0000", "gang", NODE_GPUS * WHOLE_GPU, 10)
    after = full.jobs([*full.declared.jobs, gang]).runs([*full.state.runs, run_of(gang)])
    yield _figure("unschedulable", "cold", [_lap(after, EngineCache()) for _ in range(runs)])
    laps = []
    for _ in range(runs):
        laps.append(_after(full, after))
        decided = laps[-1].decided.decisions
        if not any(isinstance(d, Pending) and d.job == gang.id and d.reserved is None for d in decided):
            raise RuntimeError("the gang that can't fit does not wait")
    yield _figure("unschedulable", "to its reason", laps, 10_000)


def consolidate(runs: int) -> Iterator[Figure]:
    """100 nodes with one GPU free each, and an 8-GPU job within quota: seven one-GPU jobs have to move."""
    yield consolidated(100, runs, 50_000)


def fairshare(runs: int) -> Iterator[Figure]:
    """Fair shares of 1,000 projects."""
    random = Random(SEED)  # noqa: S311 - the same values every time
    claims = [
        ShareClaim(
            owner=f"project team-{index:04}", quota_milli=random.randrange(16) * WHOLE_GPU,
            demand_milli=random.randrange(32_000), weight=random.randrange(10), priority=random.randrange(3),
        )
        for index in range(1000)
    ]  # fmt: skip
    costs = []
    for _ in range(runs):
        begun = time.process_time_ns()
        divide(8_000_000, claims)
        costs.append((time.process_time_ns() - begun) // 1000)
    yield Figure(
        workload="fairshare", what="1000 projects", microseconds=statistics.median_low(costs), aim_microseconds=1000
    )


WORKLOADS: Mapping[str, Workload] = {
    "cycle": cycle, "fill": fill, "large": large, "waiters": waiters, "gangs": waiting_gangs, "reclaim": reclaim,
    "rebalance": rebalance, "unschedulable": unschedulable, "consolidate": consolidate, "fairshare": fairshare,
}  # fmt: skip
"""The workloads by name. Each takes the number of runs, and yields its figures."""


def cycle_of(name: str, full: World, runs: int, cold_us: int | None, event_us: int | None) -> Iterator[Figure]:
    """A cluster at rest: cold, unchanged, and after each of the usual events; with the memory for one job."""
    yield _figure(name, "cold", [_lap(full, EngineCache()) for _ in range(runs)], cold_us, _memory(full))
    yield _figure(name, "unchanged", [_after(full, full) for _ in range(runs)], event_us)
    for what, event in (("a run ended", _ended), ("a job more", _added), ("a node lost", _lost)):
        yield _figure(name, what, [_after(full, event(full, index)) for index in range(runs)], event_us)


def reclaimed(nodes: int, runs: int, aim_us: int | None = None) -> Figure:
    """One size of `reclaim`."""
    lent = lent_out(nodes)
    before = lent.jobs(each for each in lent.declared.jobs if each.id.project == "lender")
    return _figure("reclaim", f"{nodes} nodes", [_after(before, lent) for _ in range(runs)], aim_us)


def lent_out(nodes: int) -> World:
    """Nodes full of one-GPU jobs of a project without quota, half of which one gang of the owner claims."""
    there = [node(index, NODE_GPUS) for index in range(nodes)]
    empty = world([("lender", 0), ("owner", nodes * NODE_GPUS * WHOLE_GPU)], there)
    gang = job("owner", "gang", NODE_GPUS * WHOLE_GPU, nodes // 2)
    lent = [job("lender", f"job-{index:06}", WHOLE_GPU) for index in range(nodes * NODE_GPUS)]
    runs = [
        run_of(each, Placement(workers=(WorkerPlacement(node=place.name, gpus=(index % NODE_GPUS,)),)))
        for index, each in enumerate(lent)
        for place in (there[index // NODE_GPUS],)
    ]
    return empty.jobs([*lent, gang]).runs([*runs, run_of(gang)])


def consolidated(nodes: int, runs: int, aim_us: int | None = None) -> Figure:
    """One size of `consolidate`: an event, as `reclaim` is."""
    full = scattered(nodes)
    before = full.jobs(each for each in full.declared.jobs if each.id.name != "large")
    return _figure("consolidate", f"{nodes} nodes", [_after(before, full) for _ in range(runs)], aim_us)


def scattered(nodes: int) -> World:
    """Nodes with one free GPU each, otherwise full of one-GPU jobs of a project that has a job for a whole node."""
    there = [node(index, NODE_GPUS) for index in range(nodes)]
    empty = world([("team", nodes * NODE_GPUS * WHOLE_GPU)], there, consolidation=True)
    large = job("team", "large", NODE_GPUS * WHOLE_GPU)
    small = [job("team", f"job-{index:06}", WHOLE_GPU) for index in range(nodes * (NODE_GPUS - 1))]
    runs = [
        run_of(each, Placement(workers=(WorkerPlacement(node=place.name, gpus=(index % (NODE_GPUS - 1),)),)), since_ms)
        for index, each in enumerate(small)
        for place, since_ms in ((there[index // (NODE_GPUS - 1)], NOW_MS - 1000 * (index + 1)),)
    ]
    return empty.jobs([*small, large]).runs([*runs, run_of(large)])


@dataclass(frozen=True, slots=True)
class Lap:
    """One call: its cost, its decisions, and its counts."""

    microseconds: int
    decided: Schedule
    counters: Mapping[str, int]


def _lap(here: World, cache: EngineCache) -> Lap:
    gc.collect()
    begun = time.process_time_ns()
    decided = schedule(here.declared, here.state, NOW_MS, cache)
    spent = (time.process_time_ns() - begun) // 1000
    return Lap(spent, decided, cache.counters.counts())


def _after(before: World, after: World) -> Lap:
    """A call with the cache of a call before the change."""
    cache = EngineCache()
    schedule(before.declared, before.state, NOW_MS, cache)
    return _lap(after, cache)


def _ended(full: World, index: int) -> World:
    running = [run for run in full.state.runs if run.phase is RunPhase.RUNNING]
    run = running[(index * 997 + 31) % len(running)]
    ended = replace(run, phase=RunPhase.SUCCEEDED, placement=None, finished_at_ms=NOW_MS)
    return full.runs([ended if each is run else each for each in full.state.runs])


def _added(full: World, index: int) -> World:
    return full.jobs([*full.declared.jobs, job(f"team-{index:04}", f"new-{index}", WHOLE_GPU)])


def _lost(full: World, index: int) -> World:
    at = index * 97 % len(full.state.nodes)
    nodes = full.state.nodes
    return full.nodes((*nodes[:at], replace(nodes[at], ready=False, usable=False), *nodes[at + 1 :]))


def _memory(here: World) -> Mapping[str, int]:
    """The bytes for each job that a call leaves behind: its cache and its decisions."""
    gc.collect()
    cache = EngineCache()
    tracemalloc.start()
    decided = schedule(here.declared, here.state, NOW_MS, cache)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"bytesAJob": size // len(decided.decisions)}


def _figure(
    workload: str, what: str, laps: list[Lap], aim_us: int | None = None, counts: Mapping[str, int] | None = None
) -> Figure:
    last = laps[-1]
    decided = last.decided.decisions
    paused = {
        "jobs": len(decided),
        "started": sum(isinstance(each, Admit) for each in decided),
        "victims": sum(isinstance(each, Reclaim) for each in decided),
        "displaced": sum(isinstance(each, Displace) for each in decided),
        "moved": sum(isinstance(each, Move) for each in decided),
    }
    return Figure(
        workload=workload,
        what=what,
        microseconds=statistics.median_low(lap.microseconds for lap in laps),
        aim_microseconds=aim_us,
        counts=paused | dict(last.counters) | dict(counts or {}),
    )
