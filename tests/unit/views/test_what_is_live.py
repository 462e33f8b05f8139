"""Nodes, projects and drift as people see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s import kinds, names
from gpuctl.model.change import Action
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import ClusterState, Node, Run, RunPhase
from gpuctl.views.drift import DriftReport, FieldDrift, ObjectDrift, document, text
from gpuctl.views.events import event_table, event_views
from gpuctl.views.nodes import device_table, node_form, node_table, node_views
from gpuctl.views.projects import project_table, project_views
from gpuctl.views.styled import plain

GIB = 1 << 30


def run(name: str, gpu_milli: int, *gpus: int, phase: RunPhase = RunPhase.RUNNING) -> Run:
    return Run(
        job=JobId(ProjectName("team-a"), name),
        digest=RunDigest("0badcafe"),
        phase=phase,
        placement=Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=gpus),)),
        gpu_milli=gpu_milli,
        cpu_milli=4000,
        mem_bytes=GIB,
    )


def node(**facts: Any) -> Node:
    whole: dict[str, Any] = {
        "name": NodeName("n1"), "labels": {}, "gpus": 4, "cpu_milli": 16_000, "mem_bytes": 64 * GIB,
        "foreign_gpu_milli": (0, 0, 0, 1000), "foreign_cpu_milli": 500, "foreign_mem_bytes": GIB // 2,
    }  # fmt: skip
    return Node(**{**whole, **facts})


def live_node(**spec: object) -> dict[ObjectRef, Any]:
    addresses = [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.7"}]
    conditions = [{"type": "Ready", "status": "True"}]
    body = {"spec": spec, "status": {"addresses": addresses, "conditions": conditions}}
    return {ObjectRef(*kinds.NODE, "", "n1"): body}


def test_a_node_shows_what_is_taken_by_whom() -> None:
    runs = (run("half", 500, 0), run("two", 2000, 1, 2), run("waits", 1000, 0, phase=RunPhase.QUEUED))
    labels = {"node-role.kubernetes.io/worker": ""}
    views = node_views(
        ClusterState(nodes=(node(labels=labels, lost_gpus=frozenset({3})),), runs=runs, live=live_node())
    )
    form = node_form(views[0])
    assert (form["gpus"], form["allocatedGpuMilli"], form["foreignGpuMilli"]) == (3, 3500, 1000)
    assert node_table(views, wide=True).splitlines()[1].split() == [
        "n1", "10.0.0.7", "worker", "Ready", "3", "3.5", "1", "8.5/16", "(53%)", "2.5Gi/64Gi", "(3%)",
    ]  # fmt: skip
    assert [line.split(maxsplit=4) for line in device_table(views, wide=True).splitlines()[1:]] == [
        ["n1", "0", "0.5", "Healthy", "team-a/half (0.5)"],
        ["n1", "1", "1", "Healthy", "team-a/two"],
        ["n1", "2", "1", "Healthy", "team-a/two"],
        ["n1", "3", "1", "Lost", "<others> (1)"],
    ]


def test_gpus_that_a_node_has_no_more_are_lost_and_not_its_own() -> None:
    """The node was made anew with half of them, and the pods on it go on."""
    (view,) = node_views(
        ClusterState(nodes=(node(gpus=2, foreign_gpu_milli=(0, 0)),), runs=(run("j", 4000, 0, 1, 2, 3),))
    )
    assert (view.gpus, view.allocated_milli) == (2, 4000)
    assert [device.lost for device in view.devices] == [False, False, True, True]


def test_a_node_shows_workers_that_leave_until_they_are_gone_and_none_that_has_ended() -> None:
    """One of three workers has ended, and another job has its GPU; a fourth was given up, and its pod is there."""
    first, second, third, fourth = (WorkerPlacement(node=NodeName("n1"), gpus=(gpu,)) for gpu in range(4))
    wide = replace(
        run("wide", 1000),
        placement=Placement(workers=(first, second, third)),
        ended=frozenset({1}),
        leaving=Placement(workers=(fourth,)),
    )
    runs = (run("next", 1000, 1), wide)
    (view,) = node_views(ClusterState(nodes=(node(foreign_gpu_milli=(0, 0, 0, 0)),), runs=runs))
    assert view.allocated_milli == 4000
    assert view.cpu_requested_milli == 4 * 4000 + 500
    assert [[str(job) for job, _ in device.shares] for device in view.devices] == [
        ["team-a/wide"], ["team-a/next"], ["team-a/wide"], ["team-a/wide"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "facts", "status"),
    [
        ({}, {}, "Ready"),
        ({"unschedulable": True}, {"usable": False}, "Ready,SchedulingDisabled"),
        ({}, {"usable": False}, "Ready,Unusable"),
    ],
)
def test_a_node_says_why_nothing_is_placed_there(spec: dict[str, Any], facts: dict[str, Any], status: str) -> None:
    (view,) = node_views(ClusterState(nodes=(node(**facts),), live=live_node(**spec)))
    assert view.status == status


def test_a_node_without_a_status_is_not_ready() -> None:
    (view,) = node_views(ClusterState(nodes=(node(gpus=0, cpu_milli=0, mem_bytes=0, usable=False),)))
    assert (view.status, view.address) == ("NotReady", "")
    assert node_table((view,), wide=True).endswith("Allocated/Total GPUs In Cluster:\n0/0\n")


def namespace(name: str, **notes: str) -> tuple[ObjectRef, Any]:
    meta = {"name": name, "labels": {names.PROJECT_LABEL: name.removeprefix("gpu-")}, "annotations": notes}
    return ObjectRef(*kinds.NAMESPACE, "", name), {"metadata": meta}


def test_projects_tell_quotas_by_pool_and_nothing_where_nothing_is_said() -> None:
    by_pool = '{"dgx1":{"quotaMilli":4000,"weight":1},"h100":{"limitMilli":2000,"quotaMilli":500,"weight":1}}'
    live = dict([namespace("gpu-a", **{names.QUOTA_ANNOTATION: by_pool}), namespace("gpu-b")])
    lines = project_table(project_views(ClusterState(live=live), ()), wide=True).splitlines()
    assert lines[1].split() == ["a", "-", "dgx1:4,h100:0.5", "dgx1:none,h100:2", "0", "0", "0", "gpu-a"]
    assert lines[2].split() == ["b", "-", "-", "-", "0", "0", "0", "gpu-b"]


def drifted(action: Action, *fields: FieldDrift, reason: str = "drift") -> ObjectDrift:
    ref = ObjectRef("batch/v1", "Job", "gpu-a", "train-1")
    return ObjectDrift(
        action=action, ref=ref, project=ProjectName("a"), reason=reason, source="a.yaml:3", fields=fields
    )


def test_drift_reads_like_a_diff() -> None:
    changed = drifted(
        Action.UPDATE,
        FieldDrift("spec.suspend", False, True),  # noqa: FBT003 - values of a field
        FieldDrift("spec.template", {"b": 1, "a": [2]}, None),
        FieldDrift("metadata.labels.x", None, "one\ntwo\x1b"),
    )
    gone = drifted(Action.DELETE, reason="no longer declared")
    report = DriftReport(objects=(changed, gone), unchanged=1)
    assert "\n".join(plain(line) for line in text(report)).splitlines() == [
        "--- Job gpu-a/train-1", "+++ Job gpu-a/train-1  a.yaml:3",
        "@@ spec.suspend @@", "-false", "+true",
        "@@ spec.template @@", "-{", '-  "a": [', "-    2", "-  ],", '-  "b": 1', "-}",
        "@@ metadata.labels.x @@", "+one", "+two\\x1b",
        "--- Job gpu-a/train-1", "+++ nothing", "@@ no longer declared @@",
        "2 objects differ: 1 changed, 1 not declared; 1 is as declared",
    ]  # fmt: skip
    assert document(report)["objects"][0]["fields"][0] == {"path": "spec.suspend", "live": False, "wanted": True}


def test_no_drift_is_no_text_and_a_refusal_is_drift() -> None:
    assert list(text(DriftReport(objects=(), unchanged=9))) == []
    refusal = Diagnostic(code="GPU6002", message="m", span=SourceSpan(file="a.yaml"), help="h")
    refused = DriftReport(objects=(), unchanged=9, refusals=(refusal,))
    assert not refused.empty
    assert document(refused)["refusals"] == [{"code": "GPU6002", "message": "m", "help": "h"}]


def event(text: str, **times: object) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "p"}
    meta = {"creationTimestamp": "1970-01-01T00:00:09Z"}
    return {"involvedObject": about, "type": "Normal", "reason": "R", "message": text, "metadata": meta, **times}


def test_events_are_in_the_order_they_were_last_seen() -> None:
    found = event_views([
        event(
            "second\nline", lastTimestamp="1970-01-01T00:00:05Z", series={"lastObservedTime": "1970-01-01T00:00:08Z"}
        ),
        event("first", lastTimestamp=None, eventTime="1970-01-01T00:00:07.5Z"),
        event("third"),
    ])
    assert event_table(found, 10_000).splitlines() == [
        "SOURCE  TYPE    AGE  MESSAGE",
        "pod/p   Normal  2s   [R] first",
        "pod/p   Normal  2s   [R] second line",
        "pod/p   Normal  1s   [R] third",
    ]
    assert event_table((), 0) == "none\n"
