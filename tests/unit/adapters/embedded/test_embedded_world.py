"""The World and Machines ports: run times, ends, lost nodes, idle GPUs, and the declared inventory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stories import EPOCH_MS, NAMESPACE, advance, job, job_id, opened, phases, pool, true_conditions

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster, EmbeddedTimings
from gpuctl.app.ports import NotFound
from gpuctl.k8s import kinds, names
from gpuctl.model.declared import Driver, Sharing
from gpuctl.model.ids import NodeName


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(EPOCH_MS)


@pytest.fixture
def cluster(clock: VirtualClock) -> EmbeddedCluster:
    return opened(clock)


def test_a_pod_runs_a_second_after_it_is_bound(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.apply(job("j"))
    assert cluster.next_event_ms() == EPOCH_MS + 1_000
    advance(clock, cluster, 999)
    assert phases(cluster) == {"j": "Pending"}
    advance(clock, cluster, 1)
    assert phases(cluster) == {"j": "Running"}


def test_everything_happens_at_its_own_instant_however_far_the_clock_jumps(
    clock: VirtualClock, cluster: EmbeddedCluster
) -> None:
    cluster.run_for(job_id("j"), 10_000)
    cluster.apply(job("j"))
    advance(clock, cluster, 3_600_000)
    (done,) = cluster.list(kinds.JOB).items
    assert done["status"]["startTime"] == "2020-07-29T05:20:00Z"
    assert done["status"]["completionTime"] == "2020-07-29T05:20:11Z"
    assert cluster.next_event_ms() is None


def test_a_run_time_counts_what_was_run_before_a_pause(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.apply(job("j"))
    cluster.run_for(job_id("j"), 60_000)
    advance(clock, cluster, 41_000)
    cluster.apply(job("j", suspend=True))
    advance(clock, cluster, 500_000)
    cluster.apply(job("j"))
    advance(clock, cluster, 1_000 + 19_999)
    assert phases(cluster) == {"j": "Running"}
    advance(clock, cluster, 1)
    assert phases(cluster) == {"j": "Succeeded"}
    assert "Complete" in true_conditions(cluster, "j")


def test_a_new_object_of_the_job_runs_its_whole_time(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.run_for(job_id("j"), 10_000)
    cluster.apply(job("j"))
    advance(clock, cluster, 20_000)
    again = job("j")
    again["metadata"]["name"] = "j-2"
    cluster.apply(again)
    advance(clock, cluster, 10_999)
    assert "Complete" not in true_conditions(cluster, "j-2")
    advance(clock, cluster, 1)
    assert "Complete" in true_conditions(cluster, "j-2")


def test_finish_ends_running_pods_only(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.apply(job("j"))
    cluster.finish(job_id("j"), 0)
    assert phases(cluster) == {"j": "Pending"}
    advance(clock, cluster, 1_000)
    cluster.finish(job_id("j"), 0)
    assert phases(cluster) == {"j": "Succeeded"}
    cluster.finish(job_id("nobody"), 0)


def test_a_policy_to_restart_starts_a_failed_container_again(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    wanted = job("j")
    wanted["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    cluster.apply(wanted)
    advance(clock, cluster, 1_000)
    cluster.finish(job_id("j"), 1)
    (pod,) = cluster.list(kinds.POD).items
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    cluster.finish(job_id("j"), 0)
    assert phases(cluster) == {"j": "Succeeded"}


def test_a_lost_node_stops_time_for_its_pods(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.run_for(job_id("j"), 60_000)
    cluster.apply(job("j", node="n1"))
    advance(clock, cluster, 31_000)
    cluster.set_node_ready(NodeName("n1"), ready=False)
    (found,) = cluster.list(kinds.JOB).items
    assert found["status"]["ready"] == 0
    advance(clock, cluster, 200_000)
    cluster.set_node_ready(NodeName("n1"), ready=True)
    advance(clock, cluster, 29_999)
    assert phases(cluster) == {"j": "Running"}
    advance(clock, cluster, 1)
    assert phases(cluster) == {"j": "Succeeded"}


def test_a_node_that_stays_lost_loses_its_pods_and_takes_no_new_ones(
    clock: VirtualClock, cluster: EmbeddedCluster
) -> None:
    cluster.apply(job("j", node="n1"))
    advance(clock, cluster, 1_000)
    cluster.set_node_ready(NodeName("n1"), ready=False)
    cluster.apply(job("k", node="n1"))
    advance(clock, cluster, 299_999)
    assert phases(cluster) == {"j": "Running", "k": "Pending"}
    advance(clock, cluster, 1)
    (evicted,) = (p for p in cluster.list(kinds.POD).items if p["metadata"]["labels"][names.JOB_LABEL] == "j")
    assert "deletionTimestamp" in evicted["metadata"]
    assert {c["type"] for c in evicted["status"]["conditions"] if c["status"] == "True"} >= {"DisruptionTarget"}
    advance(clock, cluster, 30_000)
    assert phases(cluster) == {"k": "Pending"}
    assert "Failed" in true_conditions(cluster, "j")


def test_a_disruption_costs_no_retry_where_the_policy_says_so(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    cluster.apply(job("j", podFailurePolicy={"rules": [rule]}))
    advance(clock, cluster, 1_000)
    (pod,) = cluster.list(kinds.POD).items
    cluster.set_node_ready(NodeName(pod["spec"]["nodeName"]), ready=False)
    advance(clock, cluster, 300_000 + 30_000 + 1_000)
    (again,) = cluster.list(kinds.POD).items
    assert (again["status"]["phase"], again["spec"]["nodeName"]) == ("Running", "n2")
    (found,) = cluster.list(kinds.JOB).items
    assert "failed" not in found["status"]


def test_a_node_that_is_not_there_can_not_be_lost(cluster: EmbeddedCluster) -> None:
    with pytest.raises(NotFound):
        cluster.set_node_ready(NodeName("n9"), ready=False)


def test_strangers_take_what_is_free_and_what_comes_free_and_go_again(
    clock: VirtualClock, cluster: EmbeddedCluster
) -> None:
    cluster.apply(job("j", node="n1"))
    advance(clock, cluster, 1_000)
    cluster.set_strangers(NodeName("n1"), 8)
    advance(clock, cluster, 1_000)
    others = [pod for pod in cluster.list(kinds.POD).items if pod["metadata"]["namespace"] == "strangers"]
    bound = [pod for pod in others if pod["spec"].get("nodeName") == "n1"]
    assert (len(others), len(bound)) == (8, 7)
    cluster.finish(job_id("j"), 0)
    advance(clock, cluster, 1_000)
    found = cluster.list(kinds.POD).items
    assert sum(pod["spec"].get("nodeName") == "n1" and pod["status"]["phase"] == "Running" for pod in found) == 8
    cluster.set_strangers(NodeName("n1"), 2)
    cluster.set_strangers(NodeName("n1"), 3)
    advance(clock, cluster, 60_000)
    left = [pod["metadata"]["name"] for pod in cluster.list(kinds.POD).items if "job-name" not in str(pod["metadata"])]
    assert len(left) == 3
    with pytest.raises(NotFound):
        cluster.set_strangers(NodeName("n9"), 1)


def test_idle_since_is_written_on_the_pods_and_taken_off(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.apply(job("j"))
    advance(clock, cluster, 1_000)
    cluster.set_idle(job_id("j"), EPOCH_MS + 500)
    (pod,) = cluster.list(kinds.POD).items
    assert pod["metadata"]["annotations"][names.IDLE_SINCE_ANNOTATION] == "2020-07-29T05:20:00.500Z"
    cluster.set_idle(job_id("j"), None)
    (pod,) = cluster.list(kinds.POD).items
    assert names.IDLE_SINCE_ANNOTATION not in pod["metadata"]["annotations"]


def test_providing_again_changes_nothing(cluster: EmbeddedCluster) -> None:
    version = cluster.list(kinds.NODE).resource_version
    cluster.provide([pool("n1", "n2")])
    assert cluster.list(kinds.NODE).resource_version == version


def test_nodes_carry_their_pools_labels_and_room(cluster: EmbeddedCluster) -> None:
    node = cluster.list(kinds.NODE).items[0]
    assert node["metadata"]["labels"]["gpuctl.dev/pool"] == "pool"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert node["status"]["allocatable"] == {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


def test_a_node_declared_larger_takes_more(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.apply(job("big", gpus=12))
    advance(clock, cluster, 1_000)
    assert phases(cluster) == {"big": "Pending"}
    cluster.provide([pool("n1", "n2", gpus=16)])
    advance(clock, cluster, 1_000)
    assert phases(cluster) == {"big": "Running"}


def test_a_node_no_longer_declared_is_gone_and_its_pods_fail(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    cluster.apply(job("j", node="n2"))
    advance(clock, cluster, 1_000)
    cluster.provide([pool("n1")])
    assert [node["metadata"]["name"] for node in cluster.list(kinds.NODE).items] == ["n1"]
    assert "Failed" in true_conditions(cluster, "j")


def test_a_pool_with_dra_has_a_device_class_and_a_slice_a_node_and_no_plugin(clock: VirtualClock) -> None:
    cluster = opened(clock)
    cluster.provide([pool("n1", gpus=2, sharing=Sharing.DRA)])
    (node,) = cluster.list(kinds.NODE).items
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    (resource_slice,) = cluster.list(kinds.RESOURCE_SLICE).items
    devices = resource_slice["spec"]["devices"]
    assert [device["attributes"]["minor"]["int"] for device in devices] == [0, 1]
    assert devices[0]["capacity"]["memory"]["value"] == "32510Mi"
    assert [c["metadata"]["name"] for c in cluster.list(kinds.DEVICE_CLASS).items] == [names.DRA_DEVICE_CLASS]
    cluster.provide([pool("n2")])
    assert cluster.list(kinds.RESOURCE_SLICE).items == ()


def test_a_node_has_what_its_pools_sharing_needs_and_nothing_of_what_it_needed_before(clock: VirtualClock) -> None:
    cluster = opened(clock)
    plain = pool("n1", gpus=2, sharing=Sharing.DRA)
    claims = replace(plain, driver=Driver.NVIDIA)
    for of, drivers, counted, registers in (
        (plain, [names.DRA_DRIVER], None, False),
        (claims, [names.NVIDIA_DRIVER], None, False),
        (replace(plain, sharing=Sharing.HAMI), [], "20", True),
        (replace(plain, sharing=Sharing.DEVICE_PLUGIN), [], "2", False),
    ):
        cluster.provide([of])
        (node,) = cluster.list(kinds.NODE).items
        assert [body["spec"]["driver"] for body in cluster.list(kinds.RESOURCE_SLICE).items] == drivers
        assert node["status"]["allocatable"].get("nvidia.com/gpu") == counted
        assert (names.HAMI_REGISTER_ANNOTATION in node["metadata"].get("annotations", {})) is registers


def test_what_a_quota_refuses_is_due_at_no_time_by_itself(clock: VirtualClock, cluster: EmbeddedCluster) -> None:
    hard = {"requests.nvidia.com/gpu": "1"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": NAMESPACE}}
    cluster.apply({**quota, "spec": {"hard": hard}})
    cluster.apply(job("j", gpus=2))
    assert cluster.next_event_ms() is None
    cluster.apply({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}})
    advance(clock, cluster, 1_000)
    assert phases(cluster) == {"j": "Running"}


def test_timings_are_a_choice(clock: VirtualClock) -> None:
    cluster = opened(clock, timings=EmbeddedTimings(start_ms=5, termination_ms=7))
    cluster.apply(job("j"))
    advance(clock, cluster, 5)
    assert phases(cluster) == {"j": "Running"}
    cluster.apply(job("j", suspend=True))
    advance(clock, cluster, 6)
    assert phases(cluster) == {"j": "Running"}
    advance(clock, cluster, 1)
    assert phases(cluster) == {}
