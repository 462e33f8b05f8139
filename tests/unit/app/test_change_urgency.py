"""Which changes are worth a cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuctl.app.change_urgency import ChangeUrgency, alters, urgency_of
from gpuctl.k8s.kinds import JOB, POD
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import ClusterState, Node, Run, RunPhase

REF = ObjectRef(*JOB, "a", "j")
LIVE: dict[str, Any] = {
    "apiVersion": JOB[0],
    "kind": JOB[1],
    "metadata": {"name": "j", "namespace": "a", "resourceVersion": "7", "labels": {"x": "y"}},
    "spec": {"suspend": True},
}


def changed(**parts: Any) -> dict[str, Any]:
    meta = {**LIVE["metadata"], "resourceVersion": "8", **parts.pop("metadata", {})}
    return {**LIVE, "metadata": meta, **parts}


def test_counters_are_no_news_and_labels_fields_and_owners_are() -> None:
    owners = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
    status = [{"manager": "controllers", "operation": "Update", "subresource": "status", "fieldsV1": {}}]
    runs = changed(spec={"suspend": False})
    assert not alters(REF, runs, {**runs, "status": {"active": 1}}, BUILT_IN)
    assert not alters(REF, LIVE, changed(metadata={"managedFields": status}), BUILT_IN)
    assert alters(REF, LIVE, changed(metadata={"labels": {}}), BUILT_IN)
    assert alters(REF, LIVE, changed(metadata={"managedFields": owners}), BUILT_IN)
    assert alters(REF, LIVE, changed(spec={"suspend": False}), BUILT_IN)
    assert alters(REF, None, LIVE, BUILT_IN)
    assert alters(REF, LIVE, None, BUILT_IN)


def test_a_workload_that_comes_to_rest_is_news() -> None:
    assert alters(REF, changed(status={"startTime": "2026-01-01T00:00:00Z"}), LIVE, BUILT_IN)
    assert alters(REF, changed(status={"active": 1}), LIVE, BUILT_IN)


def test_of_pods_only_what_is_observed_matters() -> None:
    assert not alters(ObjectRef(*POD, "a", "p"), None, {"kind": "Pod"}, BUILT_IN)
    node = Node(name=NodeName("n"), labels={}, gpus=8, cpu_milli=0, mem_bytes=0)
    before = ClusterState(nodes=(node,))
    assert urgency_of(before, ClusterState(nodes=(replace(node),), live={REF: LIVE})) is ChangeUrgency.NONE
    assert urgency_of(before, ClusterState(nodes=(replace(node, gpus=7),))) is ChangeUrgency.NOW


def test_a_start_and_the_end_of_a_run_without_gpus_are_not_urgent_and_freed_gpus_are() -> None:
    place = Placement(workers=(WorkerPlacement(node=NodeName("n"), gpus=(0,)),))
    job = JobId(ProjectName("a"), "j")
    sent = Run(job=job, digest=RunDigest("1"), phase=RunPhase.STARTING, placement=place, unstarted=True)
    up = replace(sent, phase=RunPhase.RUNNING, started_at_ms=5, unstarted=False)
    elsewhere = replace(up, placement=Placement(workers=(WorkerPlacement(node=NodeName("m"), gpus=(0,)),)))
    ended = replace(up, phase=RunPhase.SUCCEEDED, placement=None)

    def found(old: Run, new: Run) -> ChangeUrgency:
        return urgency_of(ClusterState(runs=(old,)), ClusterState(runs=(new,)))

    assert found(sent, replace(sent)) is ChangeUrgency.NONE
    assert found(sent, up) is ChangeUrgency.SOON
    assert [found(sent, elsewhere), found(up, sent), found(up, ended)] == [ChangeUrgency.NOW] * 3
    over = replace(up, phase=RunPhase.STOPPING, placement=None, ends_as=RunPhase.SUCCEEDED)
    assert found(up, over) is ChangeUrgency.NOW, "its GPUs are free"
    assert found(over, ended) is ChangeUrgency.SOON, "its Job tells what its pods have told"
    assert found(ended, replace(ended, finished_at_ms=9)) is ChangeUrgency.SOON
    assert found(over, replace(ended, phase=RunPhase.FAILED)) is ChangeUrgency.NOW
    assert found(replace(over, placement=place), ended) is ChangeUrgency.NOW
    assert urgency_of(ClusterState(), ClusterState(runs=(sent,))) is ChangeUrgency.NOW
