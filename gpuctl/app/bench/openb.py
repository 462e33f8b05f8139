"""The openb experiment of FGD (ATC 2023): how many of a cluster's GPUs are allocated once as many were requested.

Pods arrive in a random order, more of the same follow until 130 % of the GPUs were requested, and none ever leaves. A
pod that does not fit is lost. The figure is the mean allocation over all arrivals at which the requests round to 100 %.

Nodes get random names, because a tie goes to the first. The recipe is that of the paper's simulator, with seeds 42, 43
and so on; the random numbers are Python's, so a single run equals none of the paper's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import isqrt
from multiprocessing import get_context
from typing import NamedTuple

from gpuctl.app.bench.openb_pods import Ask, Pools, ask_of, counted, pool_of, pools_of
from gpuctl.app.bench.openb_policies import ENGINE, POLICIES
from gpuctl.app.bench.openb_published import PUBLISHED, PUBLISHED_RUNS
from gpuctl.engine.capacity.fit import WorkerRequest
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.model.decision import Placement
from gpuctl.model.ids import NodeName
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.simulate.trace_openb import OpenbNode, OpenbPod

FIRST_SEED = 42
UNTIL_PERCENT = 130
MILLION = 1_000_000


class Taken(NamedTuple):
    """The place of a pod, and what it is charged there."""

    placement: Placement
    per_worker: WorkerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbRun:
    """One run. `allocated_*`: millionths of all GPUs, at that requested percentage. `lost`: pods that did not fit."""

    seed: int
    pods: int
    lost: int
    allocated_at_100: int
    allocated_at_130: int
    cpu_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbFigure:
    """All runs of one policy on one pod list, and their mean in millionths of all GPUs.

    `published`: the paper's mean in the same unit (FGD's for gpuctl's own policy); None if there is none. `*error*`:
    the standard error of a mean; None for a single run. Two means may differ by chance by twice the root of the sum of
    both errors' squares.
    """

    pod_list: str
    policy: str
    published: int | None
    published_error: int | None
    mean_at_100: int
    error_at_100: int | None
    mean_at_130: int
    runs: tuple[OpenbRun, ...]

    @property
    def difference(self) -> int | None:
        """By how much the mean is above what was published."""
        return None if self.published is None else self.mean_at_100 - self.published


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbCase:
    """One case: the nodes and one pod list, one policy, and the number of seeds.

    `blind`: gpuctl's policy learns from the pods that have come so far instead of from the whole list.
    """

    pod_list: str
    nodes: tuple[OpenbNode, ...]
    pods: tuple[OpenbPod, ...]
    policy: str
    seeds: int
    blind: bool = False


def bench_openb(cases: Sequence[OpenbCase], processes: int = 1) -> Iterable[OpenbFigure]:
    """Run the cases, their seeds spread over processes. Returns the figures. Cost: a second a run."""
    if processes == 1:
        for case in cases:
            yield _figure(case, [run_once(case, seed) for seed in _seeds(case)])
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = [(case, [pool.submit(run_once, case, seed) for seed in _seeds(case)]) for case in cases]
        for case, runs in futures:
            yield _figure(case, [run.result() for run in runs])


def _seeds(case: OpenbCase) -> range:
    return range(FIRST_SEED, FIRST_SEED + case.seeds)


def _figure(case: OpenbCase, runs: Sequence[OpenbRun]) -> OpenbFigure:
    published = PUBLISHED.get(case.pod_list, {})
    told, deviation = published.get("fgd" if case.policy == ENGINE else case.policy, (None, 0))
    at_100 = [run.allocated_at_100 for run in runs]
    return OpenbFigure(
        pod_list=case.pod_list,
        policy=case.policy,
        published=None if told is None else 100 * told,
        published_error=None if told is None else isqrt((100 * deviation) ** 2 // PUBLISHED_RUNS),
        mean_at_100=sum(at_100) // len(runs),
        error_at_100=_error(at_100),
        mean_at_130=sum(run.allocated_at_130 for run in runs) // len(runs),
        runs=tuple(runs),
    )


def _error(values: Sequence[int]) -> int | None:
    """The standard error of the mean of the values."""
    count = len(values)
    squares = count * sum(value * value for value in values) - sum(values) ** 2
    return isqrt(squares // (count * count * (count - 1))) if count > 1 else None


def run_once(case: OpenbCase, seed: int) -> OpenbRun:
    """One run; the same seed gives the same result on every machine."""
    begun = time.process_time_ns()
    capacity = sum(node.gpus for node in case.nodes) * WHOLE_GPU
    pools = pools_of(case.nodes, case.pods)
    arrivals = _arrivals(case.pods, pools, capacity, seed)
    placer = POLICIES[case.policy](_ledger(case.nodes, pools, seed), pools, seed)
    if not case.blind:
        placer.learn(counted(ask_of(pod, pools) for pod in case.pods))
    asked = allocated = lost = 0
    at: dict[int, list[GpuMilli]] = {100: [], UNTIL_PERCENT: []}
    for number, ask in enumerate(arrivals, start=1):
        if case.blind and number & (number - 1) == 0:
            placer.learn(counted(arrivals[: number - 1]))
        request = ask.request
        asked += request.gpu_milli
        placement = placer.place(ask)
        if placement is None:
            lost += 1
        else:
            placer.ledger.take((Taken(placement, request.per_worker),))
            allocated += request.gpu_milli
        percent = (200 * asked + capacity) // (2 * capacity)
        if percent in at:
            at[percent].append(allocated)
    return OpenbRun(
        seed=seed,
        pods=len(arrivals),
        lost=lost,
        allocated_at_100=_mean(at[100], capacity),
        allocated_at_130=_mean(at[UNTIL_PERCENT], capacity),
        cpu_ms=(time.process_time_ns() - begun) // MILLION,
    )


def _mean(allocated: Sequence[GpuMilli], capacity: GpuMilli) -> int:
    """The mean in millionths of the capacity; 0 if a run did not come that far."""
    return MILLION * sum(allocated) // (len(allocated) * capacity) if allocated else 0


def _arrivals(pods: Iterable[OpenbPod], pools: Pools, capacity: GpuMilli, seed: int) -> list[Ask]:
    """The pods in order: all of them in a random order, then random pods of the list again."""
    chance = random.Random(seed)  # noqa: S311 - the same every time, by a fixed seed
    once = [ask_of(pod, pools) for pod in sorted(pods, key=lambda pod: pod.name)]
    chance.shuffle(once)
    arrivals = list(once)
    asked = sum(ask.request.gpu_milli for ask in once)
    while asked and 100 * asked < UNTIL_PERCENT * capacity:
        arrivals.append(chance.choice(once))
        asked += arrivals[-1].request.gpu_milli
    return arrivals


def _ledger(nodes: Sequence[OpenbNode], pools: Pools, seed: int) -> FreeCapacity:
    """Empty nodes, whose names are in a random order."""
    order = list(range(len(nodes)))
    random.Random(1000 + seed).shuffle(order)  # noqa: S311
    rooms = {}
    for rank, index in enumerate(order):
        node = nodes[index]
        name = NodeName(f"{rank:05d}-{node.name}")
        rooms[name] = NodeFree(name, pool_of(node, pools), [WHOLE_GPU] * node.gpus, node.cpu_milli, node.mem_bytes)
    return FreeCapacity(rooms)
