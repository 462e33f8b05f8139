"""Which deleted runs are told to stay: those that still hold something, for long, by finalizers of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from workbench import example

from gpuctl.diag.diagnostic import Severity
from gpuctl.k8s import kinds, names
from gpuctl.model.decision import Placement
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, ClusterState, OwnObject, Run, RunPhase
from gpuctl.plan.slow_ends import STAYS_MS, slow_ends

DECLARED = example()
JOB, PROJECT = DECLARED.jobs[0], DECLARED.project(DECLARED.jobs[0].id.project)
REF = ObjectRef(*kinds.JOB, PROJECT.namespace, "j")
SPACE = ObjectRef(*kinds.NAMESPACE, "", PROJECT.namespace)
DELETED: dict[str, Any] = {"deletionTimestamp": "1970-01-01T00:00:01Z"}
HELD = {**DELETED, "finalizers": ["orphan", "example.com/hold", "foregroundDeletion"]}


def told(
    meta: Body, *, phase: RunPhase = RunPhase.STOPPING, ms: int = STAYS_MS, space: Body | None = None
) -> list[str]:
    run = Run(job=JOB.id, digest=JOB.digest, phase=phase)
    other = Run(job=DECLARED.jobs[1].id, digest=DECLARED.jobs[1].digest, phase=RunPhase.STOPPING)
    own = {REF: OwnObject((JOB.id, JOB.digest), "u")}
    state = ClusterState(runs=(run, other), own=own, live={REF: {"metadata": meta}})
    return [found.code for found in slow_ends(DECLARED, state, {SPACE: {"metadata": space or {}}}, 1000 + ms)]


@pytest.mark.parametrize(
    ("meta", "more"),
    [
        (HELD, {"ms": STAYS_MS - 1}),
        ({"finalizers": HELD["finalizers"]}, {}),
        (DELETED, {}),
        ({**HELD, "finalizers": ["orphan", "foregroundDeletion"]}, {}),
        (HELD, {"phase": RunPhase.SUCCEEDED}),
    ],
    ids=["not for long", "not deleted", "held by none", "held by the server's own", "it has ended"],
)
def test_a_run_that_goes_or_holds_nothing_is_not_told(meta: Body, more: dict[str, Any]) -> None:
    assert told(HELD) == ["GPU7024"]
    assert told(meta, **more) == []


def test_of_a_namespace_that_stays_with_its_runs_the_namespace_alone_is_told() -> None:
    assert told(HELD, space=DELETED) == ["GPU7023"]


POD = ObjectRef(*kinds.POD, PROJECT.namespace, "j-0")


def of_pod(meta: Body, *, run: Run, node: str = "n1", phase: str = "Running", ms: int = STAYS_MS) -> list[str]:
    body = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}
    state = ClusterState(runs=(run,), pods={POD: (JOB.id, JOB.digest)}, live={POD: body})
    return [found.code for found in slow_ends(DECLARED, state, {}, 1000 + ms)]


def test_a_pod_that_does_not_end_in_time_is_told_of_a_run_that_stops_or_gave_up_workers() -> None:
    """The job that waits for its GPUs waits for good."""
    stops = Run(job=JOB.id, digest=JOB.digest, phase=RunPhase.STOPPING)
    shrinks = replace(stops, phase=RunPhase.RUNNING, leaving=Placement(workers=()))
    assert of_pod(DELETED, run=stops) == of_pod(DELETED, run=shrinks) == ["GPU7027"]
    assert of_pod(DELETED, run=stops, ms=STAYS_MS - 1) == []
    assert of_pod({}, run=stops) == []
    assert of_pod(DELETED, run=stops, phase="Failed") == []
    assert of_pod(DELETED, run=stops, node="") == []
    assert of_pod(DELETED, run=replace(stops, phase=RunPhase.RUNNING)) == []


@pytest.mark.parametrize(
    ("labels", "ms", "found"),
    [({}, STAYS_MS, ["GPU7023"]), ({}, STAYS_MS - 1, []), ({names.CLUSTER_LABEL: "another"}, STAYS_MS, [])],
    ids=["ours", "not for long", "another cluster's"],
)
def test_the_namespace_of_a_removed_project_that_stays_is_told(labels: Body, ms: int, found: list[str]) -> None:
    """Nothing told of it before the project was declared again, and could not be made."""
    ours = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.CLUSTER_LABEL: DECLARED.cluster.name,
        names.PROJECT_LABEL: "gone",
    }
    spaces = {ObjectRef(*kinds.NAMESPACE, "", "gpu-gone"): {"metadata": {**DELETED, "labels": {**ours, **labels}}}}
    told = [*slow_ends(DECLARED, ClusterState(), spaces, 1000 + ms)]
    assert [each.code for each in told] == found
    assert {each.severity for each in told} <= {Severity.WARNING}
