"""Which changes are worth a cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuctl.app.stir import alters, differs
from gpuctl.k8s.names import JOB, POD
from gpuctl.model.ids import NodeName, ObjectRef
from gpuctl.model.state import ClusterState, Node

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
    assert not alters(REF, LIVE, changed(status={"active": 1}))
    assert not alters(REF, LIVE, changed(metadata={"managedFields": status}))
    assert alters(REF, LIVE, changed(metadata={"labels": {}}))
    assert alters(REF, LIVE, changed(metadata={"managedFields": owners}))
    assert alters(REF, LIVE, changed(spec={"suspend": False}))
    assert alters(REF, None, LIVE)
    assert alters(REF, LIVE, None)


def test_a_workload_that_comes_to_rest_is_news() -> None:
    assert alters(REF, changed(status={"startTime": "2026-01-01T00:00:00Z"}), LIVE)


def test_of_pods_only_what_is_observed_matters() -> None:
    assert not alters(ObjectRef(*POD, "a", "p"), None, {"kind": "Pod"})
    node = Node(name=NodeName("n"), labels={}, gpus=8, cpu_milli=0, mem_bytes=0)
    before = ClusterState(nodes=(node,))
    assert not differs(before, ClusterState(nodes=(replace(node),), live={REF: LIVE}))
    assert differs(before, ClusterState(nodes=(replace(node, gpus=7),)))
