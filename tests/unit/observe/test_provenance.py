"""Which objects are a run's: by who made them and where they are, as the ledgers know it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from objects_by_hand import (
    DIGEST,
    JOB_ID,
    NAMESPACE,
    NOON,
    NOON_MS,
    OWNER,
    RUN_LABELS,
    RUN_NAME,
    TENANCY,
    UID,
    condition,
    decided_on,
    deployment,
    job,
    node,
    on_record,
    pod,
    seen,
)

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.objects import ref_of
from gpuctl.model.decision import Placement, RunRecord, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName
from gpuctl.model.state import Body, Charge, ClusterState, Ledger, RunEntry, RunPhase

APPLIED = {"manager": names.FIELD_MANAGER, "operation": "Apply"}
UPDATED = {"manager": "kubectl", "operation": "Update"}
PLACE = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0, 1)),))
OURS = {**RUN_LABELS, names.CLUSTER_LABEL: TENANCY.cluster}


def changed(body: Body, **metadata: Any) -> Body:
    new = copy.deepcopy(dict(body))
    new["metadata"] |= metadata
    return new


def own(*bodies: Body) -> list[str]:
    return [ref.name for ref in decided_on(*bodies).own]


def test_the_object_with_the_uid_on_record_is_the_runs_whatever_its_labels_say() -> None:
    state = decided_on(on_record(), changed(job(), labels={"app.kubernetes.io/managed-by": "helm"}))
    assert {ref: each.run for ref, each in state.own.items()} == {
        ObjectRef(*kinds.JOB, NAMESPACE, RUN_NAME): (JOB_ID, DIGEST)
    }
    assert [(run.job, run.digest) for run in state.runs] == [(JOB_ID, DIGEST)]


@pytest.mark.parametrize(
    "metadata",
    [
        {"uid": "another"},
        {"namespace": "gpu-team-b"},
        {"namespace": "default"},
        {"name": f"{RUN_NAME}-copy"},
        {"name": f"a-2-{DIGEST}", "labels": {**OURS, names.JOB_LABEL: "a-2"}},
        {"name": "theirs", "labels": {}},
    ],
)
def test_no_other_object_is(metadata: dict[str, Any]) -> None:
    other = changed(job(), **{"labels": OURS, "managedFields": [APPLIED], **metadata})
    for state in (decided_on(on_record(), other), seen(on_record(), other)):
        assert state.own == {}
        assert state.runs == ()
        assert state.foreign == {ref_of(other)}
        assert state.unreadable == ()


def test_an_object_that_was_not_seen_yet_is_the_runs_if_gpuctl_applied_it() -> None:
    """gpuctl was killed right after it made the object: its inventory names it, no uid is on record."""
    unseen = RunEntry(record=RunRecord(queued_at_ms=NOON_MS))
    for fields, found in (([APPLIED, UPDATED], [RUN_NAME]), ([UPDATED], []), ([], [RUN_NAME])):
        body = changed(job(suspend=True), labels=OURS, managedFields=fields)
        assert own(on_record(unseen), body) == found, fields
    only_status = [{**APPLIED, "subresource": "status"}]
    assert own(on_record(unseen), changed(job(), labels=OURS, managedFields=only_status)) == []


def test_where_the_ledger_is_lost_the_namespace_that_git_gives_the_project_proves_it() -> None:
    made = changed(job(startTime=NOON), labels=OURS, managedFields=[APPLIED])
    assert own(made) == [RUN_NAME]
    assert own(changed(made, namespace="elsewhere")) == []
    assert own(changed(made, managedFields=[UPDATED])) == []
    assert own(changed(made, labels={**OURS, names.CLUSTER_LABEL: "west"})) == []
    theirs = {**OURS, names.PROJECT_LABEL: "team-b"}
    assert own(changed(made, labels=theirs)) == [], "not the project of that namespace"
    head = on_record()
    damaged = {**head, "data": {**head["data"], "runs": "{"}}
    assert own(damaged, made) == [RUN_NAME]


def test_a_run_whose_ledger_is_lost_goes_on_as_its_pods_show_it() -> None:
    gpu = {"limits": {names.GPU_RESOURCE: "2"}}
    body = changed(job(startTime=NOON), labels=OURS, managedFields=[APPLIED])
    (run,) = decided_on(node(), body, pod(resources=gpu)).runs
    assert (run.phase, run.starts, run.gpu_milli) == (RunPhase.RUNNING, 1, 2000)
    assert run.placement == Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(6, 7)),))


def test_a_run_whose_ledgers_part_is_damaged_was_started_as_its_object_shows() -> None:
    head = on_record()
    damaged = {**head, "data": {**head["data"], "runs": "{"}}
    running = changed(job(startTime=NOON), labels=OURS, managedFields=[APPLIED])
    assert [run.starts for run in decided_on(damaged, running, pod()).runs] == [1]


@pytest.mark.parametrize(
    ("told", "queued_at_ms"),
    [
        ("2020-07-29T12:00:00.345Z", NOON_MS + 345),
        ("2020-07-29T11:59:58.000Z", NOON_MS - 2000),
        ("2019-07-29T12:00:00.000Z", NOON_MS),
        ("2020-07-29T12:00:01.000Z", NOON_MS),
        ("soon", NOON_MS),
    ],
)
def test_a_run_that_was_never_seen_waits_since_it_was_made(told: str, queued_at_ms: int) -> None:
    body = job(suspend=True, annotations={names.QUEUED_AT_ANNOTATION: told})
    body = changed(body, labels=OURS, managedFields=[APPLIED])
    unseen = on_record()
    bare = {**unseen, "data": {**unseen["data"], "runs": "{}"}}
    (run,) = decided_on(bare, body).runs
    assert (run.queued_at_ms, run.starts, run.placement, run.reason) == (queued_at_ms, 0, None, None)


def test_a_run_that_gpuctl_never_let_go_is_told_by_that() -> None:
    running = changed(job(startTime=NOON), labels=OURS, managedFields=[APPLIED])
    head = on_record()
    bare = {**head, "data": {**head["data"], "runs": "{}"}}
    assert [run.starts for run in decided_on(bare, running).runs] == [0]
    assert [run.starts for run in decided_on(head, running).runs] == [0]


def test_a_ledger_of_an_older_version_is_believed_with_the_objects_it_has_on_record() -> None:
    head = on_record()
    old = {**head, "data": {key: text for key, text in head["data"].items() if key != "runs"}}
    running = changed(job(startTime=NOON), labels=OURS, managedFields=[APPLIED])
    (run,) = decided_on(old, running, pod()).runs
    assert (run.starts, run.gpu_milli, run.placement) == (1, 2000, PLACE)
    unknown = {**old, "data": {**old["data"], "seen": "{}"}}
    (run,) = decided_on(unknown, running, pod()).runs
    assert (run.starts, run.gpu_milli) == (0, 0), "one that was not on record says nothing of itself"


def test_facts_are_the_ledgers_and_not_the_objects() -> None:
    entry = RunEntry(
        uid=UID,
        record=RunRecord(queued_at_ms=NOON_MS - 5000, starts=3, ran_ms=7000, paused_for=JobId(ProjectName("b"), "x")),
        is_let_go=True,
        let_go_at_ms=NOON_MS,
        placement=PLACE,
        started_with=PLACE,
        charge=Charge(gpu_milli=2000),
    )
    forged = {
        names.QUEUED_AT_ANNOTATION: "2019-01-01T00:00:00Z",
        names.STARTS_ANNOTATION: "0",
        names.RAN_ANNOTATION: "999999",
        names.PAUSED_FOR_ANNOTATION: "team-c/c-1",
        names.PLACEMENT_ANNOTATION: '[{"node":"dgx1-2","gpus":[7]}]',
        names.CHARGE_ANNOTATION: '{"cpuMilli":0,"gpuMilli":0,"memBytes":0}',
        names.REASON_ANNOTATION: '{"code":"GPU5001","params":{}}',
        names.MIN_WORKERS_ANNOTATION: "0",
    }
    (run,) = decided_on(on_record(entry), job(startTime=NOON, annotations=forged), pod()).runs
    assert run.record == entry.record
    assert (run.placement, run.gpu_milli, run.reason, run.made_with) == (PLACE, 2000, None, None)


def started(**fields: Any) -> RunEntry:
    return RunEntry(
        uid=UID, record=RunRecord(queued_at_ms=NOON_MS, starts=1, ran_ms=60_000), started_with=PLACE, **fields
    )


def test_a_start_on_record_that_has_not_happened_counts_no_more() -> None:
    entry = started(is_let_go=True, let_go_at_ms=NOON_MS, placement=PLACE)
    (run,) = decided_on(on_record(entry), job(suspend=True)).runs
    assert (run.phase, run.starts, run.ran_ms, run.placement) == (RunPhase.QUEUED, 0, 60_000, PLACE)


def test_a_start_that_a_person_undid_counts_no_more_but_the_time_it_ran_does() -> None:
    entry = started(is_let_go=True, let_go_at_ms=NOON_MS - 30_000, placement=PLACE)
    suspended = job(condition("Suspended"), suspend=True)
    (run,) = decided_on(on_record(entry), suspended).runs
    assert (run.starts, run.ran_ms) == (0, 90_000)


def test_a_pause_on_record_that_has_not_happened_is_not_counted_as_time_ran_twice() -> None:
    """The pause was to be at noon, after a minute; the run goes on since 11:59."""
    (run,) = decided_on(on_record(started()), job(startTime="2020-07-29T11:59:00Z"), pod()).runs
    assert (run.phase, run.starts, run.ran_ms, run.placement) == (RunPhase.RUNNING, 1, 0, PLACE)


def test_a_run_is_as_old_as_its_start_on_record() -> None:
    entry = started(is_let_go=True, let_go_at_ms=NOON_MS - 600_000, placement=PLACE)
    (run,) = decided_on(on_record(entry), job(startTime=NOON), pod()).runs
    assert run.started_at_ms == NOON_MS - 600_000
    soon = started(is_let_go=True, let_go_at_ms=NOON_MS - 3000, placement=PLACE)
    (run,) = decided_on(on_record(soon), job(startTime=NOON), pod()).runs
    assert run.started_at_ms == NOON_MS


# pods


def replica_set(name: str, owner: str = UID) -> Body:
    owners = [{**OWNER, "apiVersion": "apps/v1", "kind": "Deployment", "uid": owner}]
    meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}", "ownerReferences": owners}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta}


def of_set(name: str, **fields: Any) -> Body:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-of-{name}", "controller": True}
    return pod(**{"owners": [owner], **fields})


@pytest.mark.parametrize(
    ("inventory", "look"),
    [
        (frozenset(), decided_on),
        (frozenset({ObjectRef(*kinds.NAMESPACE, "", NAMESPACE)}), seen),
        (frozenset({ObjectRef(*kinds.JOB, NAMESPACE, "another-0badcafe")}), seen),
    ],
    ids=["by Git", "by the namespace on record", "by an object on record"],
)
def test_a_pod_whose_object_is_gone_is_its_runs_in_the_projects_namespace(
    inventory: frozenset[ObjectRef], look: Callable[..., ClusterState]
) -> None:
    """Also where the namespace was adopted, so that no inventory has it."""
    entry = RunEntry(uid=UID, record=RunRecord(queued_at_ms=NOON_MS, starts=1))
    ledger = Ledger(project=JOB_ID.project, inventory=inventory, runs={(JOB_ID, DIGEST): entry})
    left = pod()
    elsewhere = changed(left, namespace="elsewhere")
    state = look(node(), encode_ledger(TENANCY.cluster, ledger).head, left, elsewhere)
    assert state.pods == {ref_of(left): (JOB_ID, DIGEST)}


def test_pods_of_a_deployment_are_its_runs_through_their_replica_set() -> None:
    theirs = of_set(f"{RUN_NAME}-5d8f")
    for sets in ([replica_set(f"{RUN_NAME}-5d8f")], []):
        assert decided_on(on_record(), deployment(1), *sets, theirs).pods == {ref_of(theirs): (JOB_ID, DIGEST)}, sets
    of_another = replica_set(f"{RUN_NAME}-5d8f", owner="another")
    assert decided_on(on_record(), deployment(1), of_another, theirs).pods == {}
    elsewhere = changed(theirs, namespace="gpu-team-b")
    assert decided_on(on_record(), deployment(1), elsewhere).pods == {}


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{**OWNER, "uid": "another"}],
        [{**OWNER, "controller": False}],
        [{**OWNER, "kind": "ReplicaSet", "name": "another-5d8f", "uid": "1"}],
    ],
)
def test_a_pod_under_a_runs_labels_is_foreign_without_its_owner(owners: list[dict[str, Any]]) -> None:
    gpu = {"limits": {names.GPU_RESOURCE: "2"}}
    state = decided_on(node(), on_record(), job(), pod("b", owners=owners, labels=OURS, resources=gpu))
    assert state.pods == {}
    assert sum(state.nodes[0].foreign_gpu_milli) == 2000
    assert state.occupied == {NAMESPACE}


def test_pods_are_their_runs_by_the_uid_on_record_when_their_object_is_gone() -> None:
    state = decided_on(on_record(started()), pod())
    assert [(run.phase, run.placement) for run in state.runs] == [(RunPhase.STOPPING, PLACE)]
    assert decided_on(on_record(), pod(owners=[{**OWNER, "uid": "another"}])).runs == ()


def test_people_who_may_read_no_ledger_see_what_labels_say() -> None:
    assert [run.job for run in seen(job(), pod()).runs] == [JOB_ID]
    assert seen(on_record(), changed(job(), uid="another")).runs == (), (
        "where the ledger can be read, it says otherwise"
    )


def space(name: str, **labels: str) -> Body:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


@pytest.mark.parametrize("labels", [{names.PROJECT_LABEL: "team-b"}, {}])
def test_who_reads_no_ledger_is_shown_no_object_of_another_namespace_in_the_place_of_a_run(
    labels: dict[str, str],
) -> None:
    """The last by name would be shown. No tenant can label a namespace."""
    forged = changed(job(), namespace="gpu-zzz", uid="forged")
    ours = space(NAMESPACE, **{names.PROJECT_LABEL: JOB_ID.project})
    state = seen(job(), forged, ours, space("gpu-zzz", **labels))
    assert {ref.namespace: each.uid for ref, each in state.own.items()} == {NAMESPACE: UID}
    assert ref_of(forged) in state.foreign


def test_who_reads_no_namespace_either_is_shown_what_labels_say() -> None:
    assert [ref.namespace for ref in seen(job()).own] == [NAMESPACE]
