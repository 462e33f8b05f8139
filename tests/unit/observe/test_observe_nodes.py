"""What nodes can hold, and what others take of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from objects_by_hand import NOON, TENANCY, claim, job, node, only_node, pod, resource_slice, seen

from gpuctl.k8s import names
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body, RawObjects
from gpuctl.model.taints import Toleration
from gpuctl.model.tenancy import PoolTolerations
from gpuctl.observe import ObserveCache, observe


def taint(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": effect}]}


def test_a_nodes_amounts() -> None:
    found = only_node(node())
    assert (found.gpus, found.cpu_milli, found.mem_bytes) == (8, 80_000, 512 * 2**30)
    assert found.labels == {"gpuctl.dev/pool": "dgx1"}
    assert found.usable
    assert found.ready
    assert found.foreign_gpu_milli == (0,) * 8


@pytest.mark.parametrize(
    "bodies",
    [
        [node(gpus=2**31)],
        [node(gpus=8, healthy=10**15)],
        [{**node(gpus=0), "status": {"capacity": {f"{names.MIG_RESOURCE_PREFIX}1g.5gb": str(2**31)}}}],
    ],
)
def test_a_node_that_says_it_has_more_gpus_than_there_can_be_has_none_to_give(bodies: list[Body]) -> None:
    found = only_node(*bodies)
    assert (found.gpus, found.usable, found.foreign_gpu_milli) == (0, False, ())
    assert [each.usable for each in seen(*bodies, node("dgx1-2")).nodes] == [False, True]


def test_a_device_that_can_not_be_is_none() -> None:
    found = only_node(node(), resource_slice(minors=(0, 2**31)))
    assert (found.gpus, found.usable) == (1, True)


@pytest.mark.parametrize(
    ("body", "usable", "ready"),
    [
        (node(unschedulable=True), False, True),
        (node(**taint("nvidia.com/gpu")), True, True),
        (node(**taint("gpuctl.dev/managed")), True, True),
        (node(**taint("dedicated")), False, True),
        (node(**taint("dedicated", "PreferNoSchedule")), True, True),
        (node(metadata={"deletionTimestamp": NOON}), False, False),
        ({**node(), "status": {"allocatable": {}}}, False, False),
    ],
)
def test_a_node_may_be_used_or_at_least_kept(body: Body, *, usable: bool, ready: bool) -> None:
    found = only_node(body)
    assert (found.usable, found.ready) == (usable, ready)


POOLS = (
    PoolTolerations(match_labels={"zone": "b"}, tolerations=(Toleration(key="other"),)),
    PoolTolerations(
        match_labels={"gpuctl.dev/pool": "dgx1"},
        tolerations=(
            Toleration(key="dedicated", value="ml", effect="NoSchedule"),
            Toleration(key="drain", effect="NoExecute"),
            Toleration(key="spot"),
        ),
    ),
    PoolTolerations(match_labels={}, tolerations=(Toleration(key="other"),)),
)


@pytest.mark.parametrize(
    ("key", "value", "effect", "usable"),
    [
        ("dedicated", "ml", "NoSchedule", True),
        ("dedicated", "web", "NoSchedule", False),
        ("dedicated", "ml", "NoExecute", False),
        ("spot", "any", "NoSchedule", True),
        ("spot", "", "NoExecute", True),
        ("drain", "now", "NoExecute", True),
        ("drain", "now", "NoSchedule", False),
        ("other", "", "NoSchedule", False),
    ],
)
def test_a_taint_that_the_nodes_own_pool_tolerates_keeps_no_job_away(
    key: str, value: str, effect: str, *, usable: bool
) -> None:
    body = node(taints=[{"key": key, "value": value, "effect": effect}])
    raw = RawObjects(objects={ref_of(body): body})
    cache = ObserveCache()
    assert not observe(raw, TENANCY, cache).nodes[0].usable
    (found,) = observe(raw, replace(TENANCY, pools=POOLS), cache).nodes
    assert (found.usable, found.ready) == (usable, usable or effect == "NoSchedule")
    assert not observe(raw, TENANCY, cache).nodes[0].usable, "what a pool tolerates may be declared, and taken back"


def test_others_pods_count_until_they_end() -> None:
    amounts = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    theirs = pod("b", labels={}, resources=amounts)
    ended = pod("c", labels={}, resources=amounts, phase="Succeeded")
    waiting = pod("d", labels={}, resources=amounts, on=None)
    found = only_node(node(), theirs, ended, waiting, pod("e", labels={}, resources={"limits": {"cpu": "2"}}))
    assert (found.foreign_cpu_milli, found.foreign_mem_bytes) == (2500, 2**30)


def test_gpuctls_pods_are_runs_and_not_others() -> None:
    charged = job(annotations={names.CHARGE_ANNOTATION: '{"cpuMilli":4000,"gpuMilli":2000,"memBytes":0}'})
    found = seen(node(), charged, pod(resources={"requests": {"cpu": "4"}, "limits": {names.GPU_RESOURCE: "2"}}))
    assert found.nodes[0].foreign_cpu_milli == 0
    assert found.nodes[0].foreign_gpu_milli == (0,) * 8


def test_init_containers_and_sidecars_count_as_the_scheduler_counts_them() -> None:
    init = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "setup", "resources": {"requests": {"cpu": "7"}}},
    ]
    theirs = pod("b", labels={}, resources={"requests": {"cpu": "2"}}, spec={"initContainers": init})
    assert only_node(node(), theirs).foreign_cpu_milli == 8000


def test_others_gpus_take_the_highest_slots_no_run_holds() -> None:
    theirs = pod("b", owners=[], resources={"limits": {names.GPU_RESOURCE: "2"}})
    ours = job(annotations={names.PLACEMENT_ANNOTATION: '[{"node":"dgx1-1","gpus":[7]}]'})
    (found,) = seen(node(), theirs, ours, pod()).nodes
    assert found.foreign_gpu_milli == (0, 0, 0, 0, 0, 1000, 1000, 0)


def test_a_gpu_the_plugin_lost_is_one_no_run_holds() -> None:
    ours = job(annotations={names.PLACEMENT_ANNOTATION: '[{"node":"dgx1-1","gpus":[7]}]'})
    (found,) = seen(node(healthy=7), ours, pod()).nodes
    assert found.gpus == 8
    assert found.lost_gpus == {6}


def test_published_devices_are_the_nodes_gpus() -> None:
    found = only_node(node(gpus=0), resource_slice(minors=(0, 1, 3)))
    assert found.gpus == 4
    assert found.lost_gpus == {2}
    assert found.usable


def test_a_tainted_device_is_lost() -> None:
    body = resource_slice(minors=(0, 1))
    body["spec"]["devices"][1]["taints"] = [{"key": "unhealthy", "effect": "NoExecute"}]
    assert only_node(node(), body).lost_gpus == {1}


def test_only_the_newest_generation_counts() -> None:
    old, new = resource_slice(minors=(0, 1, 2)), resource_slice(minors=(0, 1), generation=2)
    assert only_node(node(), old, new).gpus == 2


def test_a_node_whose_devices_are_not_all_published_takes_nothing_new() -> None:
    half = resource_slice(minors=(0, 1), resourceSliceCount=2)
    assert not only_node(node(), half).usable
    assert only_node(node(), half, resource_slice(minors=(2, 3), resourceSliceCount=2)).usable


def test_others_claims_take_their_share_of_their_device() -> None:
    theirs = [claim("x", "hami-gpu-3", pod_name="p", cores="50"), claim("y", "hami-gpu-3", cores="20")]
    found = only_node(node(gpus=0), resource_slice(), *theirs)
    assert found.foreign_gpu_milli == (0, 0, 0, 700, 0, 0, 0, 0)


@pytest.mark.parametrize("liar", ["a", "zz"])
def test_no_node_says_that_claims_of_another_nodes_devices_are_of_its_own(liar: str) -> None:
    """A node writes its own slices alone, but calls their pool as it likes: drivers call it after the node."""
    forged = resource_slice(liar, minors=(3,))
    forged["spec"]["pool"] = {"name": "dgx1-1", "generation": 9, "resourceSliceCount": 1}
    theirs = claim("x", "hami-gpu-3", pod_name="p")
    nodes = {each.name: each for each in seen(node(gpus=0), resource_slice(), forged, theirs).nodes}
    assert nodes[NodeName("dgx1-1")].foreign_gpu_milli == (0, 0, 0, 1000, 0, 0, 0, 0)


def left_behind(**metadata: Any) -> Body:
    """A claim whose pod is gone."""
    body = claim("x", "hami-gpu-3", pod_name="gone")
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "1", "controller": True}]
    return {**body, "metadata": {**body["metadata"], "ownerReferences": owners, **metadata}}


def test_a_claim_that_goes_with_its_pod_holds_nothing_once_the_pod_is_gone() -> None:
    body = left_behind(finalizers=["resource.kubernetes.io/delete-protection"])
    assert only_node(node(gpus=0), resource_slice(), body).foreign_gpu_milli == (0,) * 8


@pytest.mark.parametrize(
    "kept",
    [
        {"finalizers": ["example.com/hold"]},
        {"ownerReferences": []},
        {"ownerReferences": [], "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}},
    ],
)
def test_a_claim_that_somebody_keeps_holds_its_device_whatever_its_labels_say(kept: dict[str, Any]) -> None:
    found = only_node(node(gpus=0), resource_slice(), left_behind(**kept))
    assert found.foreign_gpu_milli == (0, 0, 0, 1000, 0, 0, 0, 0)


def test_what_is_no_device_of_the_driver_is_passed_over() -> None:
    body = resource_slice(minors=(0, 1))
    body["spec"]["devices"].append({"name": "no-minor", "attributes": {}})
    elsewhere = claim("x", "hami-gpu-0", pool="other")
    waiting = {**claim("y", "hami-gpu-0"), "status": {}}
    found = only_node(node(gpus=0), body, elsewhere, waiting)
    assert found.gpus == 2
    assert found.foreign_gpu_milli == (0, 0)


def test_nodes_are_sorted() -> None:
    assert [found.name for found in seen(node("b"), node("a")).nodes] == ["a", "b"]


def test_others_gpus_take_slots_that_are_only_planned_where_no_others_are_left() -> None:
    """kube-scheduler gave a pod of a higher PriorityClass the GPUs of a run, whose pod is made again and finds none."""
    theirs = pod("b", labels={}, owners=[], resources={"limits": {names.GPU_RESOURCE: "7"}})
    state = seen(node(), theirs, job(), pod(on=None, phase="Pending"))
    assert state.runs[0].placement is not None
    assert state.runs[0].placement.workers[0].gpus == (0, 1)
    assert state.nodes[0].foreign_gpu_milli == (0, *[1000] * 7)
    ran = seen(node(), theirs, job(), pod())
    assert ran.nodes[0].foreign_gpu_milli == (0, 0, *[1000] * 6), "what a pod of a run has is the run's"


def test_a_gpu_that_the_plugin_lost_may_be_one_that_is_only_planned() -> None:
    waits = [job(), pod(on=None, phase="Pending")]
    assert only_node(node(healthy=1), *waits).lost_gpus == set(range(1, 8))
    assert only_node(node(healthy=1), job(), pod()).lost_gpus == set(range(2, 8))


@pytest.mark.parametrize(
    ("status", "key", "ready"),
    [
        ("False", "node.kubernetes.io/not-ready", True),
        ("Unknown", "node.kubernetes.io/unreachable", False),
        ("Unknown", "", True),
        ("False", "example.com/broken", False),
    ],
)
def test_a_kubelet_that_says_that_it_is_not_ready_keeps_its_pods(status: str, key: str, *, ready: bool) -> None:
    """As each kubelet says for some seconds when it is restarted. One that says nothing any more is lost if Kubernetes
    says so."""
    body = node("n1", taints=[{"key": key, "effect": "NoExecute"}] if key else [])
    body["status"]["conditions"] = [is_ready(status, "12:00:00")]
    found = next(each for each in seen(body, heard("11:00:00")).nodes if each.name == "n1")
    assert (found.ready, found.usable) == (ready, False)


@pytest.mark.parametrize(
    ("others", "status", "is_lost"),
    [
        ([], "Unknown", False),
        (["11:59:59"], "Unknown", True),
        (["12:01:00"], "Unknown", False),
        (["12:01:00", "11:59:59"], "Unknown", True),
        (["11:59:59"], "True", False),
    ],
    ids=["alone", "another was heard", "another is heard again", "one of two was heard", "heard again"],
)
def test_a_silent_node_is_lost_if_another_was_heard_all_the_while(
    others: Sequence[str], status: str, *, is_lost: bool
) -> None:
    """If none was, the control plane was cut off. The node controller may have tainted a first node by then."""
    effects = ["NoExecute"] if status == "True" else ["NoSchedule", "NoExecute"]
    body = node("n1", taints=[{"key": "node.kubernetes.io/unreachable", "effect": each} for each in effects])
    body["status"]["conditions"] = [is_ready(status, "12:00:00")]
    bodies = [heard(since, f"n{at + 2}") for at, since in enumerate(others)]
    found = next(each for each in seen(body, *bodies).nodes if each.name == "n1")
    assert found.ready is not is_lost


def is_ready(status: str, since: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "lastTransitionTime": f"2026-07-29T{since}Z"}


def heard(since: str, name: str = "n2") -> Body:
    """A node that has been ready since that time of the day."""
    body = node(name)
    body["status"]["conditions"] = [is_ready("True", since)]
    return body
