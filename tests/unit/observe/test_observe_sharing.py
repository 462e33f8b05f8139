"""Devices as NVIDIA's driver, HAMi and MIG by count tell them, and those that they take out of use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuctl.k8s import names
from gpuctl.k8s.objects import ref_of
from gpuctl.model.declared import Way
from gpuctl.model.ids import RunDigest
from gpuctl.model.state import ClusterState, CutGpu, Node, RawObjects
from gpuctl.observe import observe


def seen(*bodies: Mapping[str, Any]) -> ClusterState:
    return observe(RawObjects(objects={ref_of(body): body for body in bodies}))


def the_node(*bodies: Mapping[str, Any]) -> Node:
    (found,) = seen(*bodies).nodes
    return found


def node(
    amounts: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    healthy: Mapping[str, str] | None = None,
) -> Any:
    capacity = {"cpu": "8", "memory": "64Gi", **(amounts or {})}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "annotations": notes or {}, "labels": {names.GPU_MEMORY_LABEL: "81559"}},
        "status": {"capacity": capacity, "allocatable": {**capacity, **(healthy or {})},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def pod(name: str, limits: Mapping[str, str], notes: Mapping[str, str] | None = None) -> Any:
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "theirs", "annotations": notes or {}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }  # fmt: skip


# MIG by count


def test_counted_slices_are_of_the_gpus_after_the_whole_ones() -> None:
    found = the_node(node({"nvidia.com/gpu": "5", "nvidia.com/mig-3g.40gb": "4", "nvidia.com/mig-1g.10gb": "7"}))
    assert found.gpus == 8
    assert found.ways == frozenset({Way.COUNT})
    assert found.cut == {
        5: CutGpu(profile="1g.10gb", slices=7),
        6: CutGpu(profile="3g.40gb", slices=2),
        7: CutGpu(profile="3g.40gb", slices=2),
    }


def test_slices_that_broke_or_are_others_are_of_the_last_gpu() -> None:
    broken = {"nvidia.com/mig-3g.40gb": "3"}
    theirs = pod("theirs", {"nvidia.com/mig-3g.40gb": "1"})
    found = the_node(node({"nvidia.com/gpu": "6", "nvidia.com/mig-3g.40gb": "4"}, healthy=broken), theirs)
    assert found.cut == {
        6: CutGpu(profile="3g.40gb", slices=2),
        7: CutGpu(profile="3g.40gb", slices=1, taken=1),
    }


def test_whole_gpus_that_others_count_are_never_those_that_are_cut() -> None:
    amounts = {"nvidia.com/gpu": "2", "nvidia.com/mig-3g.40gb": "2"}
    found = the_node(node(amounts), pod("theirs", {"nvidia.com/gpu": "1"}))
    assert found.foreign_gpu_milli == (0, 1000, 0)


def test_other_resources_are_no_slices() -> None:
    found = the_node(node({"nvidia.com/gpu": "2", "nvidia.com/mig-strange": "2", "nvidia.com/gpu.shared": "4"}))
    assert (found.gpus, found.cut) == (2, {})


# HAMi


def registered(*changes: Mapping[str, Any]) -> str:
    return json.dumps([
        {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 81559, "devcore": 100, "type": "NVIDIA-H100",
         "mode": "hami-core", "health": True, **change}
        for i, change in enumerate(changes)
    ])  # fmt: skip


def hami(*changes: Mapping[str, Any], cordoned: str = "") -> Any:
    notes = {names.HAMI_REGISTER_ANNOTATION: registered(*changes), names.HAMI_CORDON_ANNOTATION: cordoned}
    return node({"nvidia.com/gpu": str(10 * len(changes))}, notes)


def test_registered_gpus_are_known_by_index_and_uuid() -> None:
    found = the_node(hami({}, {}))
    assert (found.gpus, found.uuids, found.ways, found.gpu_slots) == (2, ("GPU-0", "GPU-1"), frozenset({Way.HAMI}), 10)
    assert found.lost_gpus == frozenset()


def test_gpus_that_are_sick_cordoned_or_cut_are_out_of_use() -> None:
    found = the_node(hami({"health": False}, {}, {"mode": "mig"}, {}, cordoned="GPU-1, GPU-9"))
    assert found.lost_gpus == frozenset({0, 1, 2})


def test_what_hami_gave_others_is_taken_by_the_larger_part() -> None:
    given = {
        names.HAMI_NODE_ANNOTATION: "n",
        names.HAMI_DEVICES_ANNOTATION: "GPU-0,NVIDIA,40779,30:GPU-1,NVIDIA,9,60:;",
    }
    found = the_node(hami({}, {}), pod("theirs", {"nvidia.com/gpu": "2"}, given))
    assert found.foreign_gpu_milli == (500, 600)


@pytest.mark.parametrize("text", ["", "[", "{}", '["x"]', '[{"index": 1}]'])
def test_a_register_that_cant_be_read_keeps_new_work_away(text: str) -> None:
    found = the_node(node({"nvidia.com/gpu": "20"}, {names.HAMI_REGISTER_ANNOTATION: text}))
    assert not found.usable


@pytest.mark.parametrize("given", ["", "GPU-0", "GPU-0,NVIDIA,x,50:;", "GPU-7,NVIDIA,1,50:;", ";;:,,:"])
def test_a_decision_that_cant_be_read_gives_nothing(given: str) -> None:
    notes = {names.HAMI_NODE_ANNOTATION: "n", names.HAMI_DEVICES_ANNOTATION: given}
    assert the_node(hami({}), pod("theirs", {}, notes)).foreign_gpu_milli == (0,)


# NVIDIA's driver


def whole(minor: int, **more: Any) -> dict[str, Any]:
    return {
        "name": f"gpu-{minor}",
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{minor}"}},
        **more,
    }


def part(minor: int, start: int, **more: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "mig"}, "profile": {"string": "3g.40gb"}, "parentUUID": {"string": f"GPU-{minor}"}}
    return {"name": f"gpu-{minor}-mig-9-{start}-4", "attributes": attributes, **more}


def slices(*devices: Mapping[str, Any]) -> Any:
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": list(devices),
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}  # fmt: skip
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


SICK = {"taints": [{"key": "k", "effect": "NoSchedule"}]}


def test_devices_are_known_by_the_number_in_their_name() -> None:
    found = the_node(node(), slices(whole(0), whole(2), part(3, 0), part(3, 4, **SICK), whole(4, **SICK)))
    assert (found.gpus, found.lost_gpus) == (5, frozenset({1, 4}))
    assert found.uuids == ("GPU-0", "", "GPU-2", "GPU-3", "GPU-4")
    assert found.cut == {3: CutGpu(profile="3g.40gb", slices=1)}
    assert found.ways == frozenset({Way.NVIDIA_CLAIM})


def test_a_gpu_that_is_cut_on_demand_is_whole() -> None:
    assert the_node(node(), slices(whole(0), part(0, 0), part(0, 4))).cut == {}


def test_what_is_neither_gpu_nor_slice_is_passed_over() -> None:
    strange = {"name": "vfio-0", "attributes": {"type": {"string": "vfio"}, "uuid": {"string": "GPU-0"}}}
    nameless = {"name": "gpu-1", "attributes": {"type": {"string": "gpu"}}}
    assert the_node(node(), slices(strange, nameless)).gpus == 0


def claim(device: str) -> Any:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": device, "namespace": "theirs"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }  # fmt: skip


def test_what_claims_of_others_hold_is_taken() -> None:
    published = slices(whole(0), whole(1), part(2, 0), part(2, 4))
    found = the_node(node(), published, claim("gpu-1"), claim("gpu-2-mig-9-0-4"))
    assert found.foreign_gpu_milli == (0, 1000, 0)
    assert found.cut == {2: CutGpu(profile="3g.40gb", slices=2, taken=1)}


def test_counts_are_served_where_the_class_says_so_and_no_gpu_is_counted_twice() -> None:
    served = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"},
              "spec": {"extendedResourceName": "nvidia.com/gpu"}}  # fmt: skip
    found = the_node(node(), slices(whole(0), whole(1)), served, claim("gpu-1"), pod("x", {"nvidia.com/gpu": "1"}))
    assert found.ways == frozenset({Way.NVIDIA_CLAIM, Way.COUNT})
    assert found.foreign_gpu_milli == (0, 1000)


SERVED = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"},
          "spec": {"extendedResourceName": "nvidia.com/gpu"}}  # fmt: skip


def ours(job: str, gpu: int, limits: Mapping[str, str]) -> list[Any]:
    """A Job that was let go at a device, and its pod, which is called as the job."""
    placement = {names.PLACEMENT_ANNOTATION: f'[{{"node":"n","gpus":[{gpu}],"uuids":["GPU-{gpu}"]}}]'}
    notes = {**placement, names.CHARGE_ANNOTATION: '{"gpuMilli":1000,"cpuMilli":0,"memBytes":0}'}
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.PROJECT_LABEL: "a", names.JOB_LABEL: job}
    labels[names.RUN_LABEL] = "00000001"
    made = pod(job, limits, notes)
    name = names.run_name(job, RunDigest("00000001"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    made["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    meta = {"name": name, "namespace": "theirs", "uid": name, "labels": labels, "annotations": notes}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": made["spec"]}
    return [made, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}]


def given(device: str, to: str) -> Any:
    made = claim(device)
    made["status"]["reservedFor"] = [{"resource": "pods", "name": to}]
    return made


def places(*bodies: Any) -> list[tuple[int, ...]]:
    return [run.placement.workers[0].gpus for run in seen(*bodies).runs if run.placement]


def test_a_pod_planned_at_a_device_that_another_got_will_get_another() -> None:
    count = {"nvidia.com/gpu": "1"}
    jobs = [*ours("i", 0, count), *ours("j", 1, count)]
    assert places(node(), slices(whole(0), whole(1)), SERVED, *jobs, given("gpu-1", "i")) == [(1,), (0,)]


def test_devices_that_were_given_tell_the_place_before_the_pod_is_seen_bound() -> None:
    count = {"nvidia.com/gpu": "1"}
    jobs = [*ours("i", 0, count), *ours("j", 1, count)]
    del jobs[0]["spec"]["nodeName"]
    assert places(node(), slices(whole(0), whole(1)), SERVED, *jobs, given("gpu-1", "i"), given("gpu-0", "j")) == [
        (1,),
        (0,),
    ]


def test_a_claim_to_a_slice_of_a_gpu_that_another_has_a_slice_of_stays_there() -> None:
    jobs = [*ours("i", 1, {}), *ours("j", 1, {})]
    published = slices(whole(0), part(1, 0), part(1, 4))
    assert places(node(), published, SERVED, *jobs, given("gpu-1-mig-9-0-4", "i")) == [(1,), (1,)]
