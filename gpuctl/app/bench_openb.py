"""The openb experiment of FGD (ATC 2023): how much of a cluster's GPUs are given away once as much was asked for.

Pods come in a random order, more of the same follow until 130 % of the GPUs were asked for, and none ever leaves. What
does not fit is lost. The figure is the mean of what is allocated over all arrivals at which what came rounds to 100 %.
Nodes are given random names, because a tie goes to the first. By the recipe of the paper's simulator, with seeds 42, 43
and so on; the random numbers are Python's, so a single run is not one of theirs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from gpuctl.app.bench_openb_policies import ENGINE, POLICIES, POOL
from gpuctl.model.decision import Placement
from gpuctl.model.ids import NodeName
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.schedule.fit import Request
from gpuctl.schedule.fragmentation import Mix
from gpuctl.schedule.ledger import Ledger, Room
from gpuctl.simulate.trace_openb import OpenbNode, OpenbPod

FIRST_SEED = 42
UNTIL_PERCENT = 130
MILLION = 1_000_000

PUBLISHED: Mapping[str, Mapping[str, int]] = {
    "default": {"random": 86_30, "bestfit": 92_86, "fgd": 95_23},
    "gpushare40": {"random": 84_86, "bestfit": 91_44, "fgd": 93_96},
    "gpushare60": {"random": 82_81, "bestfit": 89_06, "fgd": 91_25},
    "gpushare80": {"random": 80_62, "bestfit": 86_66, "fgd": 89_08},
    "gpushare100": {"random": 78_90, "bestfit": 84_62, "fgd": 86_64},
    "multigpu20": {"random": 86_92, "bestfit": 93_73, "fgd": 95_53},
    "multigpu30": {"random": 86_63, "bestfit": 94_57, "fgd": 96_36},
    "multigpu40": {"random": 85_38, "bestfit": 95_10, "fgd": 96_91},
    "multigpu50": {"random": 81_28, "bestfit": 95_62, "fgd": 97_09},
    "cpu050": {"random": 89_02, "bestfit": 93_56, "fgd": 95_00},
    "cpu100": {"random": 87_44, "bestfit": 93_26, "fgd": 95_21},
    "cpu200": {"random": 83_03, "bestfit": 92_15, "fgd": 94_82},
    "cpu250": {"random": 80_00, "bestfit": 91_21, "fgd": 93_20},
}
"""What the paper's authors measured, the mean of ten runs at 100 %, in hundredths of a percent: from their repository's
analysis_allo_discrete.csv. Lists that ask for GPU models are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbRun:
    """One run. `allocated_*`: millionths of all GPUs, at so many percent of them asked for. `lost`: without a place."""

    seed: int
    pods: int
    lost: int
    allocated_at_100: int
    allocated_at_130: int
    cpu_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbFigure:
    """All runs of one policy on one list, and their mean in millionths of all GPUs.

    `published`: the paper's, in the same unit; of FGD beside gpuctl's own policy. None where there is none.
    """

    pod_list: str
    policy: str
    published: int | None
    mean_at_100: int
    mean_at_130: int
    runs: tuple[OpenbRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbCase:
    """What is run: the nodes and one list, by one policy, with so many seeds.

    `blind`: gpuctl's policy learns from what has come so far instead of from the whole list.
    """

    pod_list: str
    nodes: tuple[OpenbNode, ...]
    pods: tuple[OpenbPod, ...]
    policy: str
    seeds: int
    blind: bool = False


def bench_openb(cases: Sequence[OpenbCase], processes: int = 1) -> Iterable[OpenbFigure]:
    """The figures of each case, its seeds spread over processes. Cost: a second a run."""
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
    told = published.get("fgd" if case.policy == ENGINE else case.policy)
    return OpenbFigure(
        pod_list=case.pod_list,
        policy=case.policy,
        published=None if told is None else 100 * told,
        mean_at_100=sum(run.allocated_at_100 for run in runs) // len(runs),
        mean_at_130=sum(run.allocated_at_130 for run in runs) // len(runs),
        runs=tuple(runs),
    )


def run_once(case: OpenbCase, seed: int) -> OpenbRun:
    """One run; the same seed gives the same result on every machine."""
    begun = time.process_time_ns()
    capacity = sum(node.gpus for node in case.nodes) * WHOLE_GPU
    arrivals = _arrivals(case.pods, capacity, seed)
    placer = POLICIES[case.policy](_ledger(case.nodes, seed), seed)
    if not case.blind:
        placer.learn(mix_of(case.pods))
    asked = allocated = lost = 0
    at: dict[int, list[GpuMilli]] = {100: [], UNTIL_PERCENT: []}
    for number, request in enumerate(arrivals, start=1):
        if case.blind and number & (number - 1) == 0:
            placer.learn(_counted(arrivals[: number - 1]))
        asked += request.gpu_milli
        worker = placer.place(request)
        if worker is None:
            lost += 1
        else:
            placer.ledger.take(Placement(workers=(worker,)), request.charge)
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
    """In millionths of the capacity; 0 where a run did not come so far."""
    return MILLION * sum(allocated) // (len(allocated) * capacity) if allocated else 0


def _arrivals(pods: Iterable[OpenbPod], capacity: GpuMilli, seed: int) -> list[Request]:
    """What is asked for, in order: all pods in a random order, and random ones of them again."""
    chance = random.Random(seed)  # noqa: S311 - the same every time, by a fixed seed
    once = [_request(pod) for pod in sorted(pods, key=lambda pod: pod.name)]
    chance.shuffle(once)
    arrivals = list(once)
    asked = sum(request.gpu_milli for request in once)
    while asked and 100 * asked < UNTIL_PERCENT * capacity:
        arrivals.append(chance.choice(once))
        asked += arrivals[-1].gpu_milli
    return arrivals


def _request(pod: OpenbPod) -> Request:
    return Request(pod.gpu_milli, pod.cpu_milli, pod.mem_bytes, 1)


def _ledger(nodes: Sequence[OpenbNode], seed: int) -> Ledger:
    """Empty nodes, whose names are in a random order."""
    order = list(range(len(nodes)))
    random.Random(1000 + seed).shuffle(order)  # noqa: S311
    rooms = {}
    for rank, index in enumerate(order):
        node = nodes[index]
        name = NodeName(f"{rank:05d}-{node.name}")
        rooms[name] = Room(name, POOL.name, [WHOLE_GPU] * node.gpus, node.cpu_milli, node.mem_bytes)
    return Ledger(rooms)


def mix_of(pods: Iterable[OpenbPod]) -> Mix:
    """How often each request is in a list."""
    return _counted(map(_request, pods))


def _counted(requests: Iterable[Request]) -> Mix:
    counts: dict[tuple[int, int], int] = {}
    for request in requests:
        want = request.gpu_milli, request.cpu_milli
        counts[want] = counts.get(want, 0) + 1
    return tuple(sorted(counts.items()))
