"""Phases, places and times of runs."""

from collections.abc import Mapping
from typing import Any

import pytest
from objects_by_hand import (
    DIGEST,
    JOB_ID,
    NAMESPACE,
    NOON,
    NOON_MS,
    PLACEMENT,
    claim,
    condition,
    deployment,
    job,
    node,
    on_record,
    only_run,
    pod,
    resource_slice,
    seen,
)

from gpuctl.k8s import names
from gpuctl.model.decision import Placement, Reason, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.state import Body, Charge, RunPhase

DELETED = {"deletionTimestamp": NOON}
OURS = {names.PROJECT_LABEL: JOB_ID.project}
LEAVING = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": OURS, **DELETED}}
COMPLETE = condition("Complete")


def place(*workers: tuple[str, tuple[int, ...]]) -> Placement:
    return Placement(workers=tuple(WorkerPlacement(node=NodeName(n), gpus=gpus) for n, gpus in workers))


@pytest.mark.parametrize(
    ("phase", "bodies"),
    [
        (RunPhase.QUEUED, [job(suspend=True)]),
        (RunPhase.QUEUED, [job(suspend=True), pod(phase="Failed")]),
        (RunPhase.STOPPING, [job(suspend=True), pod()]),
        (RunPhase.STOPPING, [job(suspend=True), pod(**DELETED)]),
        (RunPhase.STARTING, [job()]),
        (RunPhase.STARTING, [job(), pod(phase="Pending")]),
        (RunPhase.STARTING, [job(), pod(on=None, phase="Pending")]),
        (RunPhase.STARTING, [job(parallelism=2), pod()]),
        (RunPhase.RUNNING, [job(), pod()]),
        (RunPhase.RUNNING, [job(parallelism=2), pod("a"), pod("b")]),
        (RunPhase.RUNNING, [job(parallelism=2), pod("a"), pod("b", phase="Succeeded")]),
        (RunPhase.STOPPING, [job(metadata=DELETED), pod()]),
        (RunPhase.STOPPING, [job(), pod(), LEAVING]),
        (RunPhase.STOPPING, [job(suspend=True), LEAVING]),
        (RunPhase.STOPPING, [job(condition("FailureTarget")), pod(**DELETED)]),
        (RunPhase.STOPPING, [job(condition("Failed")), pod(**DELETED)]),
        (RunPhase.SUCCEEDED, [job(COMPLETE), pod(phase="Succeeded")]),
        (RunPhase.SUCCEEDED, [job(condition("SuccessCriteriaMet")), pod(phase="Succeeded")]),
        (RunPhase.TIMED_OUT, [job(condition("FailureTarget", "DeadlineExceeded")), LEAVING]),
        (RunPhase.FAILED, [job(condition("Failed", "BackoffLimitExceeded"))]),
        (RunPhase.TIMED_OUT, [job(condition("Failed", "DeadlineExceeded"))]),
        (RunPhase.STOPPING, [on_record(), pod()]),
        (RunPhase.QUEUED, [deployment(0)]),
        (RunPhase.STOPPING, [deployment(0), pod()]),
        (RunPhase.STARTING, [deployment(2), pod("a")]),
        (RunPhase.RUNNING, [deployment(2), pod("a"), pod("b")]),
        (RunPhase.STARTING, [deployment(2), pod("a"), pod("b", phase="Succeeded")]),
    ],
)
def test_phase(phase: RunPhase, bodies: list[Body]) -> None:
    assert only_run(*bodies).phase is phase


TWO = {names.PLACEMENT_ANNOTATION: '[{"node":"dgx1-1","gpus":[0]},{"node":"dgx1-2","gpus":[0]}]'}


@pytest.mark.parametrize(("reason", "unbound"), [("DeletionByTaintManager", 1), ("EvictionByEvictionAPI", 0)])
def test_a_pod_that_a_taint_evicts_leaves_its_place_open(reason: str, unbound: int) -> None:
    """A node that has failed may never end it, and takes no other."""
    leaving = pod(**DELETED)
    leaving["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    run = only_run(node(), job(), leaving)
    assert (run.phase, len(run.unbound)) == (RunPhase.STARTING, unbound)
    assert run.placement == place(("dgx1-1", (0, 1)))


@pytest.mark.parametrize(
    ("unbound", "unstarted", "bodies"),
    [
        (["dgx1-1"], True, [job()]),
        (["dgx1-1"], True, [job(), pod(on=None, phase="Pending")]),
        (["dgx1-1"], True, [deployment(1), pod(on=None, phase="Pending")]),
        ([], False, [job(), pod(phase="Pending")]),
        ([], False, [job(), pod()]),
        (["dgx1-1"], False, [job(), pod("a", phase="Failed"), pod("b", on=None, phase="Pending")]),
        (["dgx1-1", "dgx1-2"], True, [job(parallelism=2, annotations=TWO)]),
        (["dgx1-2"], False, [job(parallelism=2, annotations=TWO), pod()]),
        (["dgx1-2"], False, [job(parallelism=2, annotations=TWO), pod(phase="Succeeded")]),
        (["dgx1-2"], False, [job(parallelism=2, annotations=TWO), pod(on="dgx1-3")]),
        ([], False, [job(suspend=True)]),
    ],
)
def test_places_of_a_starting_run_that_no_pod_is_bound_to(unbound: list[str], bodies: Any, *, unstarted: bool) -> None:
    run = only_run(*bodies)
    assert (list(run.unbound), run.unstarted) == (unbound, unstarted)


def test_a_runs_facts_are_read_from_its_object() -> None:
    notes = {
        names.RAN_ANNOTATION: "5000",
        names.PAUSED_FOR_ANNOTATION: "team-d/d-1",
        names.REASON_ANNOTATION: '{"code":"GPU5000","params":{}}',
        names.IDLE_SINCE_ANNOTATION: NOON,
    }
    run = only_run(job(annotations=notes, startTime=NOON), pod())
    assert (run.job, run.digest) == (JOB_ID, DIGEST)
    assert (run.queued_at_ms, run.started_at_ms, run.idle_since_ms) == (NOON_MS, NOON_MS, NOON_MS)
    assert (run.starts, run.ran_ms, run.gpu_milli) == (1, 5000, 2000)
    assert run.paused_for == JobId(ProjectName("team-d"), "d-1")
    assert run.reason == Reason(code="GPU5000")


def test_a_run_without_notes_waits_since_it_was_made() -> None:
    bare = dict.fromkeys((names.QUEUED_AT_ANNOTATION, names.PLACEMENT_ANNOTATION, names.CHARGE_ANNOTATION))
    run = only_run(job(suspend=True, annotations=bare))
    assert run.queued_at_ms == NOON_MS
    assert run.placement is None


def test_what_is_not_gpuctls_or_only_looks_like_it_is_no_run() -> None:
    other = job(metadata={"labels": {}})
    copied = job(metadata={"name": "by-hand"})
    assert seen(other, copied).runs == ()


def test_a_queued_run_keeps_its_reservation() -> None:
    assert only_run(job(suspend=True)).placement == place(("dgx1-1", (0, 1)))


def test_a_final_run_holds_nothing_and_says_when_it_ended() -> None:
    run = only_run(job(condition("Failed", "DeadlineExceeded"), startTime=NOON))
    assert run.placement is None
    assert run.finished_at_ms == NOON_MS


def test_the_node_of_the_pod_is_the_truth() -> None:
    """The devices that were planned on the other node mean nothing there."""
    assert only_run(node("dgx1-2"), job(), pod(on="dgx1-2")).placement == place(("dgx1-2", (6, 7)))
    assert only_run(job(), pod(on="dgx1-2")).placement == place(("dgx1-2", ()))


def test_a_gang_dealt_out_in_another_order_is_where_it_was_planned() -> None:
    planned = '[{"node":"dgx1-1","gpus":[0]},{"node":"dgx1-2","gpus":[5]}]'
    gang = job(parallelism=2, annotations={names.PLACEMENT_ANNOTATION: planned})
    first = pod("a", on="dgx1-2", annotations={names.WORKER_INDEX_LABEL: "0"})
    second = pod("b", on="dgx1-1", annotations={names.WORKER_INDEX_LABEL: "1"})
    assert only_run(gang, first, second).placement == place(("dgx1-1", (0,)), ("dgx1-2", (5,)))


def test_a_worker_that_is_not_bound_yet_still_has_its_place() -> None:
    planned = '[{"node":"dgx1-1","gpus":[0]},{"node":"dgx1-2","gpus":[5]}]'
    gang = job(parallelism=2, annotations={names.PLACEMENT_ANNOTATION: planned})
    bound = pod("b", on="dgx1-2", annotations={names.WORKER_INDEX_LABEL: "1"})
    waiting = pod("a", on=None, phase="Pending")
    assert only_run(gang, bound, waiting).placement == place(("dgx1-1", (0,)), ("dgx1-2", (5,)))


ONE_GPU = '{"cpuMilli":0,"gpuMilli":1000,"memBytes":0}'


def test_two_workers_on_one_node_where_one_was_planned_hold_two_places() -> None:
    planned = '[{"node":"dgx1-1","gpus":[0]},{"node":"dgx1-2","gpus":[5]}]'
    gang = job(parallelism=2, annotations={names.PLACEMENT_ANNOTATION: planned, names.CHARGE_ANNOTATION: ONE_GPU})
    assert only_run(node(), gang, pod("a"), pod("b")).placement == place(("dgx1-1", (0,)), ("dgx1-1", (7,)))


def test_a_worker_on_another_node_than_planned_gets_a_slot_that_no_other_is_to_have() -> None:
    """Three workers of a gang, planned at three slots of one node and one of the other, and dealt two and one."""
    planned = '[{"node":"dgx1-1","gpus":[2]},{"node":"dgx1-1","gpus":[3]},{"node":"dgx1-2","gpus":[3]}]'
    notes = {names.PLACEMENT_ANNOTATION: planned, names.CHARGE_ANNOTATION: ONE_GPU}
    gang = job(parallelism=3, annotations=notes)
    pods = [pod("a"), pod("b", on="dgx1-2"), pod("c", on="dgx1-2")]
    run = only_run(node(gpus=4), node("dgx1-2", gpus=4), gang, *pods)
    assert run.placement == place(("dgx1-1", (2,)), ("dgx1-2", (2,)), ("dgx1-2", (3,)))


def test_pods_that_hold_more_gpus_than_their_node_has_hold_numbers_beyond_it() -> None:
    gang = job(parallelism=3, annotations={names.PLACEMENT_ANNOTATION: None, names.CHARGE_ANNOTATION: ONE_GPU})
    state = seen(node(gpus=2), gang, pod("a"), pod("b"), pod("c"))
    assert state.runs[0].placement == place(("dgx1-1", (1,)), ("dgx1-1", (0,)), ("dgx1-1", (2,)))
    assert state.nodes[0].excess_gpus == 1


def test_two_workers_on_record_at_one_slot_are_told_apart() -> None:
    """As an older version of gpuctl has left it in a ledger."""
    planned = '[{"node":"dgx1-1","gpus":[0]},{"node":"dgx1-1","gpus":[0]}]'
    gang = job(parallelism=2, annotations={names.PLACEMENT_ANNOTATION: planned, names.CHARGE_ANNOTATION: ONE_GPU})
    assert only_run(node(), gang, pod("a"), pod("b")).placement == place(("dgx1-1", (0,)), ("dgx1-1", (7,)))


def test_claims_say_which_devices() -> None:
    state = seen(node(), resource_slice(), job(), pod(), claim("c", "hami-gpu-6", pod_name="a-1-x"))
    assert state.runs[0].placement == place(("dgx1-1", (6,)))
    assert state.nodes[0].foreign_gpu_milli == (0,) * 8


STARTED = place(("dgx1-1", (0, 1)))


def test_a_stopping_run_holds_what_its_pods_were_started_with() -> None:
    run = only_run(on_record(started_with=STARTED), job(suspend=True), pod(deletionTimestamp=NOON))
    assert run.phase is RunPhase.STOPPING
    assert run.placement == place(("dgx1-1", (0, 1)))
    assert run.started_at_ms is None


def test_a_stopping_run_holds_only_what_its_live_pods_hold() -> None:
    entry = on_record(started_with=place(("dgx1-1", (0,)), ("dgx1-2", (5,))))
    gone = pod("a", phase="Failed")
    left = pod("b", on="dgx1-2", annotations={names.WORKER_INDEX_LABEL: "1"})
    assert only_run(entry, job(suspend=True, parallelism=2), gone, left).placement == place(("dgx1-2", (5,)))


def test_pods_that_outlive_their_job_hold_their_place_and_say_their_charge() -> None:
    charge = Charge(gpu_milli=2, cpu_milli=1, mem_bytes=3)
    run = only_run(on_record(started_with=STARTED, charge=charge), pod())
    assert run.phase is RunPhase.STOPPING
    assert run.placement == place(("dgx1-1", (0, 1)))
    assert (run.gpu_milli, run.cpu_milli, run.mem_bytes) == (2, 1, 3)


def test_pods_that_have_ended_keep_no_run_whose_object_is_gone() -> None:
    assert seen(on_record(started_with=STARTED), pod(phase="Succeeded"), pod("b", phase="Failed")).runs == ()


def test_a_service_runs_since_its_first_pod_that_lives_was_started() -> None:
    evicted, waiting = pod("a", phase="Failed"), pod("c", phase="Pending")
    evicted = {**evicted, "status": {**evicted["status"], "startTime": "2020-07-29T11:00:00Z"}}
    waiting = {**waiting, "status": {"phase": "Pending"}}
    assert only_run(deployment(2), evicted, pod("b"), waiting).started_at_ms == NOON_MS
    assert only_run(deployment(1), waiting).started_at_ms is None


def test_a_workers_uuids_are_known_only_where_it_was_planned() -> None:
    planned = '[{"node":"dgx1-1","gpus":[0,1],"uuids":["GPU-a","GPU-b"]}]'
    for on, uuids in (("dgx1-1", ("GPU-a", "GPU-b")), ("dgx1-2", ())):
        run = only_run(node(), node("dgx1-2"), job(annotations={names.PLACEMENT_ANNOTATION: planned}), pod(on=on))
        assert run.placement is not None
        assert run.placement.workers[0].uuids == uuids


def test_a_run_let_go_by_hand_holds_the_highest_free_slots() -> None:
    by_hand = job(annotations={names.PLACEMENT_ANNOTATION: None})
    assert only_run(node(), by_hand, pod()).placement == place(("dgx1-1", (6, 7)))


def test_the_last_checkpoint_that_a_worker_tells_is_the_runs_and_decides_nothing() -> None:
    notes = {names.CHECKPOINTED_ANNOTATION: NOON}
    run = only_run(job(startTime=NOON), pod(annotations=notes))
    assert run.checkpointed_at_ms == NOON_MS
    assert run == only_run(job(startTime=NOON), pod())
    assert only_run(job(startTime=NOON), pod(annotations={names.CHECKPOINTED_ANNOTATION: "9" * 400})) == run


def test_a_gang_is_idle_since_its_last_worker_is() -> None:
    earlier, later = "2020-07-29T11:00:00Z", "2020-07-29T12:00:00Z"
    gang = job(parallelism=2)
    first = pod("a", annotations={names.IDLE_SINCE_ANNOTATION: earlier})
    assert only_run(gang, first, pod("b", annotations={names.IDLE_SINCE_ANNOTATION: later})).idle_since_ms == NOON_MS
    assert only_run(gang, first, pod("b")).idle_since_ms is None


def test_a_run_is_idle_no_longer_than_it_runs() -> None:
    notes = {names.IDLE_SINCE_ANNOTATION: "2020-07-29T11:00:00Z"}
    assert only_run(job(annotations=notes, startTime=NOON), pod()).idle_since_ms == NOON_MS
    assert only_run(job(annotations=notes, suspend=True)).idle_since_ms is None


STARTED_WITH = {"metadata": {"annotations": {names.PLACEMENT_ANNOTATION: PLACEMENT}}}


def paused(**status: Any) -> Body:
    """A Job that was just suspended; it was made to run at PLACEMENT and is not reserved a place any more."""
    body = job(suspend=True, annotations={names.PLACEMENT_ANNOTATION: None}, **status)
    return {**body, "spec": {**body["spec"], "template": STARTED_WITH}}


@pytest.mark.parametrize("status", [{"active": 1}, {"terminating": 1}, {"active": 1, "startTime": NOON}])
def test_a_paused_run_holds_its_place_while_its_status_says_that_pods_are_left(status: Mapping[str, Any]) -> None:
    """Jobs and pods are watched apart. GPUs freed by a pause are free when the pods are gone, not before."""
    run = only_run(paused(**status))
    assert run.phase is RunPhase.STOPPING
    assert run.placement is not None
    assert run.placement.workers[0].gpus == (0, 1)


def test_a_paused_run_that_the_job_controller_has_not_looked_at_yet_is_stopping() -> None:
    assert only_run(paused(startTime=NOON)).phase is RunPhase.STOPPING


def test_a_paused_run_waits_once_pods_are_gone_and_its_status_says_so() -> None:
    run = only_run(paused(active=0, terminating=0))
    assert (run.phase, run.placement) == (RunPhase.QUEUED, None)


def test_a_failed_run_is_stopping_while_its_status_says_that_pods_are_left() -> None:
    assert only_run(job(condition("FailureTarget"), terminating=1)).phase is RunPhase.STOPPING
    assert only_run(job(condition("Failed"), terminating=0)).phase is RunPhase.FAILED


def test_a_run_whose_pods_were_killed_with_their_namespace_has_not_failed() -> None:
    """Seen on a real server: the Job fails for its killed pods before it is itself removed."""
    assert seen(job(condition("Failed")), LEAVING).runs[0].phase is RunPhase.STOPPING
    assert seen(job(condition("Complete")), LEAVING).runs[0].phase is RunPhase.SUCCEEDED
