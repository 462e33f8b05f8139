"""What pods of a run request beyond what the run is charged is foreign, where the pods are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from objects_by_hand import NAMESPACE, UID, claim, decided_on, job, node, on_record, pod, resource_slice

from gpuctl.k8s import names
from gpuctl.model.decision import Placement, RunRecord, WorkerPlacement
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body, Charge, ClusterState, RunEntry
from gpuctl.model.units import WHOLE_GPU

GIB = 1024**3


def running(charge: Charge, *pods: Body, on: Body | None = None, gpus: tuple[int, ...] = (0,)) -> ClusterState:
    """A run with a worker on dgx1-1, charged so much, and its pods."""
    place = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=gpus),))
    record = RunRecord(queued_at_ms=0, starts=1)
    entry = RunEntry(uid=UID, record=record, is_let_go=True, placement=place, started_with=place, charge=charge)
    return decided_on(on or node(), on_record(entry), job(), *pods)


def asking(**amounts: str) -> dict[str, Any]:
    return {"limits": {key.replace("_", "/"): amount for key, amount in amounts.items()}}


ONE = Charge(gpu_milli=WHOLE_GPU, cpu_milli=4000, mem_bytes=GIB)
GPUS = names.GPU_RESOURCE


def test_a_pod_that_requests_what_its_run_is_charged_leaves_nothing_over() -> None:
    (found,) = running(ONE, pod(resources={"limits": {GPUS: "1", "cpu": "4", "memory": "1Gi"}})).nodes
    assert (found.foreign_cpu_milli, found.foreign_mem_bytes, sum(found.foreign_gpu_milli)) == (0, 0, 0)


def test_what_it_requests_beyond_is_foreign() -> None:
    (found,) = running(ONE, pod(resources={"limits": {GPUS: "3", "cpu": "5", "memory": "3Gi"}})).nodes
    assert (found.foreign_cpu_milli, found.foreign_mem_bytes) == (1000, 2 * GIB)
    assert found.foreign_gpu_milli == (0, 0, 0, 0, 0, 0, 1000, 1000)


def test_a_pod_that_requests_less_takes_nothing_off_the_runs_charge() -> None:
    state = running(ONE, pod())
    assert state.runs[0].gpu_milli == WHOLE_GPU
    assert sum(state.nodes[0].foreign_gpu_milli) == 0


@pytest.mark.parametrize("fields", [{"phase": "Succeeded"}, {"on": None, "phase": "Pending"}])
def test_a_pod_that_has_ended_or_has_no_node_holds_nothing(fields: dict[str, Any]) -> None:
    (found,) = running(ONE, pod(resources={"limits": {GPUS: "3"}}, **fields)).nodes
    assert sum(found.foreign_gpu_milli) == 0


def test_amounts_for_the_pod_as_a_whole_stand_for_those_of_its_containers() -> None:
    whole = pod("b", owners=[], spec={"resources": {"requests": {"cpu": "8", "memory": "2Gi"}}})
    (found,) = decided_on(node(), whole).nodes
    assert (found.foreign_cpu_milli, found.foreign_mem_bytes) == (8000, 2 * GIB)


def cut() -> Body:
    """A node with a GPU in seven slices and one in one."""
    body = node(gpus=0)
    for part in ("capacity", "allocatable"):
        body["status"][part] |= {"nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-7g.40gb": "1"}
    return body


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ({"nvidia.com/mig-1g.5gb": "1"}, [0, 0]),
        ({"nvidia.com/mig-1g.5gb": "2"}, [2, 0]),
        ({"nvidia.com/mig-7g.40gb": "1"}, [0, 1]),
    ],
)
def test_a_slice_more_or_a_larger_one_is_foreign(asked: dict[str, str], taken: list[int]) -> None:
    charge = Charge(gpu_milli=WHOLE_GPU // 7)
    (found,) = running(charge, pod(resources={"limits": asked}), on=cut()).nodes
    assert [one.taken for _, one in sorted(found.cut.items())] == taken


def test_a_device_more_or_a_larger_part_of_one_is_foreign() -> None:
    half = Charge(gpu_milli=500)
    state = decided_on(node(gpus=0), resource_slice())
    assert state.nodes[0].gpus == 8
    claims = [claim("mine", "hami-gpu-0", pod_name="a-1-x", cores="50"), claim("more", "hami-gpu-3", pod_name="a-1-x")]
    found = running(half, pod(), resource_slice(), *claims, on=node(gpus=0))
    assert found.nodes[0].foreign_gpu_milli == (0, 0, 0, 1000, 0, 0, 0, 0)
    larger = claim("mine", "hami-gpu-0", pod_name="a-1-x", cores="80")
    found = running(half, pod(), resource_slice(), larger, on=node(gpus=0))
    assert found.nodes[0].foreign_gpu_milli == (300, 0, 0, 0, 0, 0, 0, 0)


HAMI = [
    {
        "id": f"GPU-{gpu}",
        "index": gpu,
        "count": 10,
        "devmem": 32_000,
        "devcore": 100,
        "type": "NVIDIA-V100",
        "health": True,
    }
    for gpu in range(2)
]


def shared(given: str | None, asked: dict[str, str], **fields: Any) -> tuple[int, ...]:
    """What foreign pods hold of a node with HAMi's GPUs, by the books."""
    machine = node(gpus=20, metadata={"annotations": {names.HAMI_REGISTER_ANNOTATION: json.dumps(HAMI)}})
    notes = {names.HAMI_NODE_ANNOTATION: "dgx1-1", **({names.HAMI_DEVICES_ANNOTATION: given} if given else {})}
    theirs = pod("b", owners=[], annotations=notes, resources={"limits": asked}, **fields)
    return decided_on(machine, theirs).nodes[0].foreign_gpu_milli


HALF = {GPUS: "1", names.HAMI_MEMORY_PERCENT_RESOURCE: "50", names.HAMI_CORES_RESOURCE: "50"}


def test_what_hami_gave_is_held_as_the_pod_requests_it() -> None:
    assert shared("GPU-0,NVIDIA,16000,50:;", HALF) == (500, 0)


@pytest.mark.parametrize(
    ("given", "asked", "held"),
    [
        ("GPU-0,NVIDIA,1,0:;", HALF, (500, 0)),  # less than it requests
        ("GPU-0,NVIDIA,32000,100:;", HALF, (500, 0)),  # more than it requests
        ("GPU-0,NVIDIA,32000,100:GPU-1,NVIDIA,32000,100:;", HALF, (500, 0)),  # more devices
        ("GPU-0,NVIDIA,32000,100:;", {}, (0, 0)),  # it requests none
        ("", HALF, (0, 1000)),  # it does not say which: one, nobody knows which
        (f"GPU-0,NVIDIA,{'9' * 5000},{'9' * 5000}:;", HALF, (500, 0)),
    ],
)
def test_a_pod_that_says_otherwise_is_not_believed(given: str, asked: dict[str, str], held: tuple[int, ...]) -> None:
    assert shared(given, asked) == held


def test_a_pod_that_only_says_where_it_is_holds_nothing() -> None:
    assert shared("GPU-0,NVIDIA,16000,50:;", HALF, on=None) == (0, 0)


def test_all_of_it_is_in_the_namespace_of_the_run() -> None:
    assert running(ONE, pod()).occupied == frozenset()
    assert running(ONE, pod("b", owners=[])).occupied == {NAMESPACE}
