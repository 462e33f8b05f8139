"""Runs and workers whose pods have ended before their Job says so: what they hold, and when a retry still needs it."""

from collections.abc import Callable
from typing import Any

import pytest
from objects_by_hand import NOON, NOON_MS, condition, decided_on, job, node, on_record, only_run, pod

from gpuctl.k8s import names
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body, Charge, RunPhase

CLAIM = {"name": "gpu", "resourceClaimTemplateName": "a-1-0badcafe"}
ANOTHER = {"name": "other", "resourceClaimTemplateName": "other"}
DELETED = {"deletionTimestamp": NOON}
LATER = NOON.replace("T12:", "T13:")
FAILED = RunPhase.FAILED
SUCCEEDED = RunPhase.SUCCEEDED


def of(retries: int = 0, workers: int = 1, *conditions: Any, **status: Any) -> Body:
    """A Job that runs with so many workers; a gang is indexed."""
    planned = ",".join(f'{{"node":"dgx1-{1 + at % 2}","gpus":[{at}]}}' for at in range(workers))
    notes = {
        names.PLACEMENT_ANNOTATION: f"[{planned}]",
        names.CHARGE_ANNOTATION: '{"cpuMilli":0,"gpuMilli":1000,"memBytes":0}',
    }
    body = job(*conditions, parallelism=workers, annotations=notes, startTime=NOON, **{"active": workers, **status})
    mode = {"completionMode": "Indexed"} if workers > 1 else {}
    return {**body, "spec": {**body["spec"], "completions": workers, "backoffLimit": retries, **mode}}


def asking(body: Body) -> Body:
    """The Job, whose template asks for a GPU."""
    limits = {"limits": {names.GPU_RESOURCE: "1"}}
    return {**body, "spec": {**body["spec"], "template": {"spec": {"containers": [{"resources": limits}]}}}}


def claiming(body: Body) -> Body:
    """The Job, whose template claims a device."""
    return {**body, "spec": {**body["spec"], "template": {"spec": {"resourceClaims": [CLAIM]}}}}


def cut(body: Body) -> Body:
    """The Job, whose template asks for a MIG slice."""
    limits = {"limits": {"nvidia.com/mig-3g.40gb": "1"}}
    return {**body, "spec": {**body["spec"], "template": {"spec": {"containers": [{"resources": limits}]}}}}


def needing_worker_0(body: Body) -> Body:
    """The Job, of which worker 0 alone has to succeed."""
    return {**body, "spec": {**body["spec"], "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}}


def in_turns(body: Body) -> Body:
    """The Job, of which one worker runs at a time."""
    return {**body, "spec": {**body["spec"], "parallelism": 1}}


def worker(index: int, phase: str = "Running", on: str | None = None, **fields: Any) -> Body:
    notes = {names.WORKER_INDEX_LABEL: str(index)}
    return pod(f"w{index}-{phase.lower()}", on=on or f"dgx1-{1 + index % 2}", phase=phase, annotations=notes, **fields)


def disrupted(body: Body) -> Body:
    return {**body, "status": {**body["status"], "conditions": [condition("DisruptionTarget")]}}


@pytest.mark.parametrize(
    ("outcome", "bodies"),
    [
        (SUCCEEDED, [of(), pod(phase="Succeeded")]),
        (SUCCEEDED, [of(3), pod(phase="Succeeded")]),
        (SUCCEEDED, [asking(of()), pod(phase="Succeeded", resources={"limits": {names.GPU_RESOURCE: "1"}})]),
        (SUCCEEDED, [of(3), pod("first", phase="Failed"), pod("second", phase="Succeeded")]),
        (FAILED, [of(), pod(phase="Failed")]),
        (SUCCEEDED, [of(0, 2), worker(0, "Succeeded"), worker(1, "Succeeded")]),
        (FAILED, [of(0, 2), worker(0, "Succeeded"), worker(1, "Failed")]),
        (SUCCEEDED, [of(0, 3, completedIndexes="0,2", active=1), worker(1, "Succeeded")]),
        (SUCCEEDED, [claiming(of()), pod(phase="Succeeded", spec={"resourceClaims": [CLAIM, ANOTHER]})]),
        (SUCCEEDED, [cut(of()), pod(phase="Succeeded", resources={"limits": {"nvidia.com/mig-3g.40gb": "1"}})]),
        (SUCCEEDED, [of(active=0, uncountedTerminatedPods={"succeeded": ["u7"]}), pod(phase="Succeeded", uid="u7")]),
        (FAILED, [of(active=0, uncountedTerminatedPods={"failed": ["u7"]}), pod(phase="Failed", uid="u7")]),
    ],
)
def test_a_run_whose_pods_have_all_ended_for_good_holds_nothing(outcome: RunPhase, bodies: list[Body]) -> None:
    run = only_run(node(), node("dgx1-2"), *bodies)
    assert (run.phase, run.ends_as, run.placement, run.reserved) == (RunPhase.STOPPING, outcome, None, None)
    assert run.finished_at_ms is None


BACKOFF = condition("Failed", reason="BackoffLimitExceeded")


def any_of(body: Body) -> Body:
    """The Job, of which any worker has to succeed."""
    return {**body, "spec": {**body["spec"], "successPolicy": {"rules": [{"succeededCount": 1}]}}}


@pytest.mark.parametrize(
    ("phase", "policy", "completed", "bodies"),
    [
        (SUCCEEDED, needing_worker_0, "0", [worker(0, "Succeeded")]),
        (SUCCEEDED, needing_worker_0, "0,2", [worker(0, "Succeeded"), worker(1, "Failed"), worker(2, "Succeeded")]),
        (SUCCEEDED, any_of, "1", [worker(1, "Succeeded")]),
        (FAILED, needing_worker_0, "2", [worker(2, "Succeeded")]),
        (FAILED, needing_worker_0, "0", [worker(0, "Succeeded", **DELETED)]),  # stopped, as another one had failed
        (FAILED, needing_worker_0, "", [worker(0, "Succeeded")]),  # by a person, who can't write the status
        (FAILED, needing_worker_0, "0", []),
        (FAILED, needing_worker_0, "0", [{**worker(0, "Succeeded"), "spec": {}}]),
        (FAILED, any_of, "", [worker(1, "Failed")]),
        (FAILED, dict, "0", [worker(0, "Succeeded"), worker(1, "Failed")]),
    ],
)  # fmt: skip
def test_a_job_that_tells_a_failure_after_its_policy_was_met_has_succeeded(
    phase: RunPhase, policy: Callable[[Body], Body], completed: str, bodies: list[Body]
) -> None:
    """Where somebody writes on it while its controller stops the others, the controller takes these for failures."""
    told = of(0, 3, BACKOFF, active=0, completedIndexes=completed)
    run = only_run(node(), node("dgx1-2"), policy(told), *bodies)
    assert run.phase is phase
    leaves = worker(1, "Running", **DELETED)
    stopping = only_run(node(), node("dgx1-2"), policy(told), *bodies, leaves)
    assert (stopping.phase, stopping.ends_as) == (RunPhase.STOPPING, phase)


@pytest.mark.parametrize(
    "bodies",
    [
        [of(1), pod(phase="Failed")],
        [asking(of()), pod(phase="Succeeded")],
        [claiming(of()), pod(phase="Succeeded")],
        [claiming(of()), pod(phase="Succeeded", spec={"resourceClaims": [ANOTHER]})],
        [cut(of()), pod(phase="Succeeded")],
        [cut(of()), pod(phase="Succeeded", resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}})],
        [of(active=0), pod(phase="Succeeded", uid="u7")],
        [of(active=0), pod(phase="Failed", uid="u7")],
        [of(active=0, uncountedTerminatedPods={"succeeded": ["u8"]}), pod(phase="Succeeded", uid="u7")],
        [of(0, 3, active=2), worker(0), worker(1, "Succeeded"), worker(2, "Succeeded")],
        [of(), pod(on=None, phase="Succeeded")],
        [of(), disrupted(pod(phase="Failed"))],
        [of(), pod(phase="Failed", **DELETED)],
        [of(), pod(phase="Succeeded", **DELETED)],
        [of(), pod("first", phase="Failed"), pod("second", phase="Pending")],
        [of(0, 2), worker(0, "Succeeded"), worker(1)],
        [of(0, 2), worker(0, "Failed")],
        [of(0, 2, completedIndexes="0")],
        [of(0, 2, completedIndexes="0,x,7-3,5-"), worker(1, "Pending")],
        [of(0, 2, completedIndexes="0,2"), worker(1)],
        [of(0, 2, completedIndexes="0,1"), worker(1)],
        [in_turns(of(0, 2, active=1)), worker(0, "Succeeded")],
    ],
)
def test_a_run_of_which_a_pod_is_left_or_will_be_made_goes_on(bodies: list[Body]) -> None:
    run = only_run(node(), node("dgx1-2"), *bodies)
    assert run.phase in {RunPhase.STARTING, RunPhase.RUNNING}
    assert run.ends_as is None
    assert run.placement is not None


def test_how_a_run_with_a_success_policy_ends_is_its_jobs_to_tell() -> None:
    ended = [worker(0, "Succeeded"), worker(1, "Failed")]
    assert only_run(of(0, 2), *ended).ends_as is FAILED
    assert only_run(needing_worker_0(of(0, 2)), *ended).ends_as is None
    told = needing_worker_0(of(0, 2, condition("SuccessCriteriaMet"), active=0))
    assert only_run(told, *ended).phase is SUCCEEDED


def test_the_gpu_of_a_failed_pod_is_held_while_its_job_may_make_another() -> None:
    run = only_run(node(), of(1), pod(phase="Failed"))
    assert run.placement == Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),))
    assert run.ended == frozenset()


@pytest.mark.parametrize(
    "ended",
    [
        [of(0, 4), worker(2, "Succeeded")],
        [of(0, 4), worker(2, "Failed")],
        [of(0, 4, completedIndexes="2")],
    ],
    ids=["succeeded", "failed", "gone"],
)
def test_a_worker_that_has_ended_holds_no_gpu_and_the_others_go_on(ended: list[Body]) -> None:
    run = only_run(node(), node("dgx1-2"), *ended, worker(0), worker(1), worker(3))
    assert (run.phase, run.ended, run.unbound) == (RunPhase.RUNNING, frozenset({2}), ())
    assert run.placement is not None
    assert [worker.gpus for worker in run.placement.workers] == [(0,), (1,), (), (3,)]


U2 = {"succeeded": ["u2"]}


@pytest.mark.parametrize(
    ("gone", "bodies"),
    [
        ({0, 2}, [of(0, 4, completedIndexes="0", active=3), worker(0, "Succeeded"), worker(2, "Succeeded")]),
        ({2}, [of(0, 4), worker(0), worker(0, "Succeeded"), worker(2, "Succeeded")]),
        (
            {0, 2},
            [of(0, 4, active=3, uncountedTerminatedPods=U2), worker(0, "Succeeded"), worker(2, "Failed", uid="u2")],
        ),
        ({2}, [of(0, 4, active=2, uncountedTerminatedPods=U2), worker(0, "Succeeded"), worker(2, "Failed", uid="u2")]),
        ({2}, [of(0, 4, active=3, terminating=1), worker(0, **DELETED), worker(2, "Succeeded")]),
    ],
    ids=["one is counted", "one lives", "one is told", "one is forged", "one is being deleted"],
)
def test_each_worker_is_believed_by_itself_to_have_ended(gone: set[int], bodies: list[Body]) -> None:
    run = only_run(node(), node("dgx1-2"), *bodies, worker(1), worker(3))
    assert run.placement is not None
    assert {at for at, held in enumerate(run.placement.workers) if not held.gpus} == run.ended == gone


def test_a_place_is_without_a_pod_where_no_worker_ended_and_none_is_bound() -> None:
    run = only_run(node(), node("dgx1-2"), of(0, 3), worker(0, "Succeeded"), worker(1, "Pending"))
    assert (run.ended, run.unbound) == (frozenset({0}), (NodeName("dgx1-1"),))


def test_workers_without_an_index_end_together() -> None:
    """Which worker an ended pod was is not known."""
    gang = of(0, 2)
    gang = {**gang, "spec": {key: value for key, value in gang["spec"].items() if key != "completionMode"}}
    run = only_run(node(), node("dgx1-2"), gang, worker(0, "Succeeded"), worker(1))
    assert run.placement is not None
    assert (run.ended, [held.gpus for held in run.placement.workers]) == (frozenset(), [(0,), (1,)])


def test_a_worker_that_ended_on_another_node_than_planned_leaves_its_gpu_there() -> None:
    """Planned are two workers a node. Three were dealt to the first, and the one that has ended was there."""
    pods = [worker(0), worker(1, on="dgx1-1"), worker(2, "Succeeded"), worker(3)]
    run = only_run(node(gpus=4), node("dgx1-2", gpus=4), of(0, 4), *pods)
    assert run.placement is not None
    held = [(each.node, each.gpus) for each in run.placement.workers]
    assert sorted(where for where, gpus in held if gpus) == ["dgx1-1", "dgx1-1", "dgx1-2"]
    assert len({(where, gpus) for where, gpus in held if gpus}) == 3
    assert len(run.ended) == 1


def test_what_is_remembered_of_a_run_that_is_over_stays_as_it_is() -> None:
    """It was not paused and does not start again."""
    place = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),))
    entry = on_record(is_let_go=True, placement=place, started_with=place, charge=Charge(gpu_milli=1000))
    (before,) = decided_on(node(), entry, of(), pod()).runs
    (after,) = decided_on(node(), entry, of(), pod(phase="Succeeded")).runs
    assert (before.phase, after.phase) == (RunPhase.RUNNING, RunPhase.STOPPING)
    assert after.record == before.record
    assert after.placement is None


def test_a_run_without_pods_may_have_run_and_one_whose_pod_was_made_long_after_its_start_has() -> None:
    """An evicted pod is made again only after some seconds, and its Job need not count it."""
    place = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),))
    entry = on_record(
        is_let_go=True, let_go_at_ms=NOON_MS, placement=place, started_with=place, charge=Charge(gpu_milli=1000)
    )
    begun = [
        decided_on(node(), entry, of(), *pods).runs[0].begun
        for pods in (
            [], [pod(phase="Pending", creationTimestamp=NOON)], [pod(phase="Pending", creationTimestamp=LATER)]
        )
    ]  # fmt: skip
    assert begun == [None, False, True]
    assert decided_on(node(), entry, of(failed=1)).runs[0].begun is True


@pytest.mark.parametrize("suspend", [True, False])
def test_the_end_of_a_run_is_still_its_jobs_to_tell(*, suspend: bool) -> None:
    complete = of(0, 1, condition("Complete"))
    complete = {**complete, "spec": {**complete["spec"], "suspend": suspend}, "status": {**complete["status"]}}
    complete["status"].pop("active")
    assert only_run(complete, pod(phase="Succeeded")).phase is SUCCEEDED
