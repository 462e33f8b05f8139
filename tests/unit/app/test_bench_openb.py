"""The openb experiment: the same figures on every machine, and those that were published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.app.bench.openb import OpenbCase, Taken, bench_openb, run_once
from gpuctl.app.bench.openb_pods import ask_of, counted, pool_of, pools_of
from gpuctl.app.bench.openb_policies import POLICIES
from gpuctl.app.bench.openb_published import PUBLISHED
from gpuctl.engine.capacity.free import FreeCapacity, NodeFree
from gpuctl.model.ids import NodeName
from gpuctl.simulate.trace_openb import OpenbNode, OpenbPod, read_nodes, read_pods

GIB = 1 << 30
NODES = tuple(OpenbNode(name=f"n{i}", cpu_milli=32_000, mem_bytes=64 * GIB, gpus=4, model="T4") for i in range(75))
PODS = tuple(
    OpenbPod(name=f"p{i:03}", cpu_milli=1000, mem_bytes=GIB, gpu_milli=milli)
    for i, milli in enumerate([500, 500, 300, 700, 1000, 1000, 2000, 0, 250] * 40)
)


def _case(traces: Path, pod_list: str, policy: str, seeds: int = 1) -> OpenbCase:
    folder = traces / "openb"
    if not (folder / f"openb_pod_list_{pod_list}.csv").is_file():
        pytest.skip(f"no list {pod_list} in {folder}")
    nodes, _ = read_nodes("nodes", (folder / "openb_node_list_gpu_node.csv").read_bytes())
    pods, _ = read_pods("pods", (folder / f"openb_pod_list_{pod_list}.csv").read_bytes())
    return OpenbCase(pod_list=pod_list, nodes=nodes, pods=pods, policy=policy, seeds=seeds)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("blind", [False, True])
def test_every_policy_fills_what_it_can(policy: str, blind: bool) -> None:  # noqa: FBT001
    case = OpenbCase(pod_list="made-up", nodes=NODES, pods=PODS, policy=policy, seeds=2, blind=blind)
    figure = next(iter(bench_openb([case])))
    assert figure.published is None
    assert [run.seed for run in figure.runs] == [42, 43]
    first, second = (run.allocated_at_100 for run in figure.runs)
    assert figure.error_at_100 == abs(first - second) // 2
    for run in figure.runs:
        assert 600_000 < run.allocated_at_100 <= run.allocated_at_130 <= 1_000_000
        assert 0 < run.lost < run.pods


def test_what_chance_makes_of_a_mean_is_told_where_there_is_more_than_one_run(traces: Path) -> None:
    (single,) = bench_openb([_case(traces, "multigpu50", "random")])
    assert (single.error_at_100, single.published, single.published_error) == (None, 812_800, 2624)


def test_what_is_learned_meanwhile_is_about_the_nodes_as_they_are() -> None:
    few = tuple(replace(node, gpus=8) for node in NODES[:6])
    parts = tuple(
        replace(pod, gpu_milli=milli) for pod, milli in zip(PODS, [340, 660, 120, 880, 510] * 72, strict=True)
    )
    for seed in range(40):
        case = OpenbCase(pod_list="made-up", nodes=few, pods=parts, policy="gpuctl", seeds=1, blind=True)
        run = run_once(case, seed)
        assert 0 < run.lost < run.pods


def test_the_same_seed_gives_the_same_run() -> None:
    case = OpenbCase(pod_list="made-up", nodes=NODES, pods=PODS, policy="gpuctl", seeds=1)
    first, second = run_once(case, 7), run_once(case, 7)
    assert (first.lost, first.allocated_at_100) == (second.lost, second.allocated_at_100)
    shuffled = OpenbCase(pod_list="made-up", nodes=NODES, pods=PODS[::-1], policy="gpuctl", seeds=1)
    assert run_once(shuffled, 7).allocated_at_100 == first.allocated_at_100


@pytest.mark.parametrize(
    ("pod_list", "policy", "allocated", "lost"),
    [
        ("default", "random", 861_267, 2681),
        ("default", "bestfit", 926_954, 2681),
        ("default", "fgd", 950_481, 2517),
        ("default", "gpuctl", 955_587, 2477),
        ("gpushare100", "fgd", 866_005, 4748),
        ("gpushare100", "gpuctl", 878_328, 4602),
        ("gpuspec10", "gpuctl", 953_230, 2464),
        ("gpuspec20", "gpuctl", 952_026, 2462),
        ("gpuspec25", "gpuctl", 949_420, 2460),
        ("gpuspec33", "gpuctl", 900_799, 2498),
    ],
)
def test_a_run_on_the_published_lists(traces: Path, pod_list: str, policy: str, allocated: int, lost: int) -> None:
    run = run_once(_case(traces, pod_list, policy), 42)
    assert (run.allocated_at_100, run.lost) == (allocated, lost)
    published = PUBLISHED[pod_list]
    if policy == "gpuctl":
        assert run.allocated_at_100 > 100 * published["fgd"][0]
    else:
        assert abs(run.allocated_at_100 - 100 * published[policy][0]) < 3_000, "within 0.3 points of the paper"


TYPED = tuple(
    OpenbPod(name=f"t{i:03}", cpu_milli=1000, mem_bytes=GIB, gpu_milli=milli, models=models)
    for i, (milli, models) in enumerate([(500, ()), (1000, ("T4",)), (300, ("P100",)), (2000, ("A10", "P100"))] * 30)
)
MIXED = tuple(
    OpenbNode(name=f"n{i:02}", cpu_milli=32_000, mem_bytes=64 * GIB, gpus=4, model=("T4", "P100", "A10")[i % 3])
    for i in range(30)
)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_gets_a_gpu_model_that_it_may_use(policy: str) -> None:
    pools = pools_of(MIXED, TYPED)
    assert list(pools) == ["A10", "P100", "T4"]
    rooms = {
        NodeName(node.name): NodeFree(
            NodeName(node.name), pool_of(node, pools), [1000] * 4, node.cpu_milli, node.mem_bytes
        )
        for node in MIXED
    }
    placer = POLICIES[policy](FreeCapacity(rooms), pools, 42)
    placer.learn(counted(ask_of(pod, pools) for pod in TYPED))
    lost = []
    for pod in TYPED:
        ask = ask_of(pod, pools)
        placement = placer.place(ask)
        if placement is None:
            lost.append(pod)
            continue
        (worker,) = placement.workers
        placer.ledger.take((Taken(placement, ask.request.per_worker),))
        assert not pod.models or rooms[worker.node].pool in pod.models
        assert min(rooms[worker.node].gpu_milli) >= 0
    assert len(lost) < len(TYPED) // 6


def test_without_pods_that_name_models_all_nodes_are_one_pool() -> None:
    pools = pools_of(MIXED, PODS)
    assert list(pools) == ["openb"]
    assert {pool_of(node, pools) for node in MIXED} == {"openb"}
    assert ask_of(PODS[0], pools).pools == ("openb",)


def test_a_model_that_no_node_has_is_no_place() -> None:
    pod = OpenbPod(name="h", cpu_milli=1, mem_bytes=1, gpu_milli=1000, models=("H100",))
    case = OpenbCase(pod_list="made-up", nodes=MIXED, pods=(pod,), policy="gpuctl", seeds=1)
    run = run_once(case, 42)
    assert (run.lost, run.allocated_at_100) == (run.pods, 0)
