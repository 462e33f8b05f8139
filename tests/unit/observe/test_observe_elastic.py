"""Elastic runs: which pods stay is told by the indexes, and those that go hold their places until they are gone."""

from __future__ import annotations

from typing import Any

import pytest
from objects_by_hand import (
    NAMESPACE,
    NOON,
    NOON_MS,
    RUN_LABELS,
    RUN_NAME,
    UID,
    decided_on,
    deployment,
    job,
    on_record,
    only_run,
    pod,
)

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_placement
from gpuctl.model.decision import Placement, RunRecord, WorkerPlacement
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body, Charge, RunEntry, RunPhase


def place(*workers: tuple[str, int]) -> Placement:
    return Placement(workers=tuple(WorkerPlacement(node=NodeName(node), gpus=(gpu,)) for node, gpu in workers))


STARTED_WITH = place(("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))


def elastic(now: Placement, least: int = 1) -> Body:
    notes = {names.MIN_WORKERS_ANNOTATION: str(least), names.PLACEMENT_ANNOTATION: encode_placement(now)}
    body: dict[str, Any] = {**job(parallelism=len(now.workers), annotations=notes)}
    template = {"metadata": {"annotations": {names.PLACEMENT_ANNOTATION: encode_placement(STARTED_WITH)}}}
    return {**body, "spec": {**body["spec"], "template": template}}


def worker(index: int, on: str | None, **fields: Any) -> Body:
    return pod(f"w-{index}", on=on, labels={**RUN_LABELS, names.WORKER_INDEX_LABEL: str(index)}, **fields)


def test_workers_stand_in_the_order_of_their_indexes_wherever_they_were_dealt() -> None:
    dealt = [worker(0, "n1"), worker(1, "n2"), worker(2, "n1"), worker(3, "n2")]
    run = only_run(elastic(STARTED_WITH), *dealt)
    assert run.placement is not None
    assert [w.node for w in run.placement.workers] == ["n1", "n2", "n1", "n2"]
    assert sorted((w.node, w.gpus) for w in run.placement.workers) == sorted(
        (w.node, w.gpus) for w in STARTED_WITH.workers
    )
    assert run.made_with == STARTED_WITH
    assert run.leaving is None


def test_those_it_gave_up_hold_their_places_until_they_are_gone() -> None:
    there = [worker(0, "n1"), worker(1, "n1"), worker(2, "n2", deletionTimestamp="2020-07-29T12:00:00Z")]
    run = only_run(elastic(place(("n1", 0), ("n1", 1))), *there)
    assert run.phase is RunPhase.RUNNING
    assert run.placement == place(("n1", 0), ("n1", 1))
    assert run.leaving == place(("n2", 0))
    assert only_run(elastic(place(("n1", 0), ("n1", 1))), *there[:2]).leaving is None


def test_a_worker_goes_by_its_index_and_not_because_its_pod_is_being_deleted() -> None:
    """Another pod of its index will be made in the place of one that was evicted."""
    evicted = [worker(0, "n1"), worker(1, "n1", deletionTimestamp=NOON)]
    run = only_run(elastic(place(("n1", 0), ("n1", 1))), *evicted)
    assert (run.placement, run.leaving) == (place(("n1", 0), ("n1", 1)), None)
    run = only_run(elastic(place(("n1", 0))), worker(0, "n1"), worker(1, "n2"), worker(2, None, phase="Pending"))
    assert (run.placement, run.leaving) == (place(("n1", 0)), place(("n2", 0)))


def test_an_ended_pod_beyond_its_workers_holds_no_place() -> None:
    for phase in ("Succeeded", "Failed"):
        run = only_run(elastic(place(("n1", 0))), worker(0, "n1"), worker(1, "n2", phase=phase))
        assert (run.placement, run.leaving) == (place(("n1", 0)), None)


def test_one_without_a_place_on_record_is_where_its_pods_are() -> None:
    """A person resumed its object: gpuctl never let it go."""
    entry = RunEntry(uid=UID, record=RunRecord(queued_at_ms=NOON_MS), charge=Charge(gpu_milli=1000), min_workers=1)
    state = decided_on(on_record(entry), elastic(place(("n1", 0))), worker(0, "n1"), worker(1, "n2"))
    (run,) = state.runs
    assert run.placement is not None
    assert [each.node for each in run.placement.workers] == ["n1", "n2"]
    assert (run.leaving, state.unreadable) == (None, ())


def test_one_without_the_places_it_was_made_with_leaves_where_its_pods_are() -> None:
    entry = RunEntry(
        uid=UID, record=RunRecord(queued_at_ms=NOON_MS, starts=1), is_let_go=True, placement=place(("n1", 0)),
        charge=Charge(gpu_milli=1000), min_workers=1,
    )  # fmt: skip
    (run,) = decided_on(on_record(entry), elastic(place(("n1", 0))), worker(0, "n1"), worker(1, "n2")).runs
    assert run.placement == place(("n1", 0))
    assert run.leaving is not None
    assert [each.node for each in run.leaving.workers] == ["n2"]


def test_places_that_no_pod_is_bound_to_are_of_the_other_indexes() -> None:
    run = only_run(elastic(STARTED_WITH), worker(0, "n1"), worker(3, "n2"))
    assert run.placement == STARTED_WITH


def test_what_its_status_still_counts_is_no_place_of_a_run_that_goes_on() -> None:
    body = elastic(place(("n1", 0)))
    run = only_run({**body, "status": {"active": 3}}, worker(0, "n1"))
    assert (run.phase, run.placement) == (RunPhase.RUNNING, place(("n1", 0)))


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        pytest.param(
            [worker(0, "n1"), worker(1, "n1", phase="Pending")], RunPhase.RUNNING, id="one more is on its way"
        ),
        pytest.param([worker(0, "n1"), worker(1, None, phase="Pending")], RunPhase.STARTING, id="and may go anywhere"),
        pytest.param([worker(0, "n1")], RunPhase.STARTING, id="and is not there yet"),
    ],
)
def test_it_is_at_work_with_its_fewest_once_every_pod_has_a_node(pods: list[Body], phase: RunPhase) -> None:
    assert only_run(elastic(place(("n1", 0), ("n1", 1))), *pods).phase is phase


def service(now: Placement) -> Body:
    body: dict[str, Any] = dict(deployment(len(now.workers)))
    meta = body["metadata"]
    notes = {names.MIN_WORKERS_ANNOTATION: "1", names.PLACEMENT_ANNOTATION: encode_placement(now)}
    template = {"metadata": {"annotations": {names.PLACEMENT_ANNOTATION: encode_placement(STARTED_WITH)}}}
    meta = {**meta, "annotations": {**meta.get("annotations", {}), **notes}}
    return {**body, "metadata": meta, "spec": {**body["spec"], "template": template}}


def replicas(*on: str, **fields: Any) -> list[Body]:
    return [pod(f"web-{node}-{at}-{len(fields)}", on=node, **fields) for at, node in enumerate(on)]


def test_replicas_of_a_lost_node_hold_their_places_until_they_are_gone() -> None:
    """Its kubelet does not answer, so they are being deleted for as long as the node is lost."""
    lost = replicas("n2", "n2", deletionTimestamp=NOON)
    run = only_run(service(place(("n1", 0), ("n1", 1))), *replicas("n1", "n1"), *lost)
    assert run.phase is RunPhase.RUNNING
    assert run.placement == place(("n1", 0), ("n1", 1))
    assert run.leaving == place(("n2", 0), ("n2", 1))


def test_a_replica_that_is_replaced_on_its_node_keeps_its_place() -> None:
    run = only_run(service(STARTED_WITH), *replicas("n1", "n1", "n2"), *replicas("n2", deletionTimestamp=NOON))
    assert (run.placement, run.leaving) == (STARTED_WITH, None)


def test_each_replica_that_is_replaced_on_its_node_keeps_a_place() -> None:
    run = only_run(service(STARTED_WITH), *replicas("n1", "n1"), *replicas("n2", "n2", deletionTimestamp=NOON))
    assert (run.placement, run.leaving) == (STARTED_WITH, None)


def test_a_replica_that_goes_leaves_the_place_that_it_was_made_with() -> None:
    run = only_run(service(place(("n1", 0))), *replicas("n1"), *replicas("n1", deletionTimestamp=NOON))
    assert (run.placement, run.leaving) == (place(("n1", 0)), place(("n1", 1)))


def test_where_the_controller_removed_a_healthy_replica_the_lost_one_is_still_a_worker() -> None:
    """The engine gives it up next."""
    going = replicas("n1", deletionTimestamp=NOON)
    run = only_run(service(place(("n1", 0), ("n1", 1))), *replicas("n1", "n2"), *going)
    assert run.placement is not None
    assert [worker.node for worker in run.placement.workers] == ["n1", "n1", "n2"]


@pytest.mark.parametrize(("is_let_go", "kept"), [(True, place(("n2", 0))), (False, None)])
def test_places_reserved_for_workers_that_it_lacks_are_read_off_the_ledger(
    *, is_let_go: bool, kept: Placement | None
) -> None:
    now = place(("n1", 0), ("n1", 1))
    entry = RunEntry(
        uid=UID, record=RunRecord(queued_at_ms=NOON_MS, starts=1), is_let_go=is_let_go, placement=now,
        started_with=STARTED_WITH, charge=Charge(gpu_milli=1000), min_workers=1, reserved=place(("n2", 0)),
    )  # fmt: skip
    (run,) = decided_on(on_record(entry), elastic(now), worker(0, "n1"), worker(1, "n1")).runs
    assert run.phase is RunPhase.RUNNING
    assert run.reserved == kept


def test_an_elastic_run_has_an_open_place_where_a_taint_evicts_a_worker() -> None:
    leaving = worker(3, "n2", deletionTimestamp=NOON)
    leaving["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    ]
    run = only_run(elastic(STARTED_WITH), *(worker(index, f"n{1 + index % 2}") for index in range(3)), leaving)
    assert (run.phase, run.unbound) == (RunPhase.STARTING, ("n2",))
    assert run.begun


def autoscaler(*, at_zero: bool = False, more: bool = False) -> Body:
    """Of the run's service. It wants one more than it may have, or no replica at all."""
    conditions = [
        {"type": "ScalingActive", "status": "True"},
        {"type": "ScalingLimited", "status": str(more), "reason": "TooManyReplicas" if more else "DesiredWithinRange"},
        {"type": "ScaledToZero", "status": str(at_zero)},
    ]
    return {
        "apiVersion": kinds.AUTOSCALER[0],
        "kind": kinds.AUTOSCALER[1],
        "metadata": {"name": RUN_NAME, "namespace": NAMESPACE, "uid": "of-the-autoscaler"},
        "spec": {"minReplicas": 0},
        "status": {"conditions": conditions, "desiredReplicas": 0 if at_zero else 2},
    }


@pytest.mark.parametrize(
    ("here", "body", "pods", "asked"),
    [
        (autoscaler(), service(place(("n1", 0), ("n1", 1))), replicas("n1", "n1"), None),
        (autoscaler(more=True), service(place(("n1", 0), ("n1", 1))), replicas("n1", "n1"), 3),
        (autoscaler(at_zero=True), service(place()), [], 0),
    ],
    ids=["what it has", "one more", "none"],
)
def test_what_a_service_is_to_have_by_its_load(here: Body, body: Body, pods: list[Body], asked: int | None) -> None:
    now = place(*((node, gpu) for gpu, node in enumerate(each["spec"]["nodeName"] for each in pods))) if pods else None
    entry = RunEntry(
        uid=UID, record=RunRecord(queued_at_ms=NOON_MS, starts=1), is_let_go=True, placement=now, started_with=now,
        charge=Charge(gpu_milli=1000), min_workers=1,
    )  # fmt: skip
    (run,) = decided_on(on_record(entry), body, here, *pods).runs
    assert run.asked_workers == asked


@pytest.mark.parametrize(
    ("suspend", "is_let_go", "told"), [(False, True, NOON_MS), (False, False, None), (True, True, None)]
)
def test_when_it_was_let_go_is_told_of_a_run_that_is_at_work(
    *, suspend: bool, is_let_go: bool, told: int | None
) -> None:
    entry = RunEntry(
        uid=UID, record=RunRecord(queued_at_ms=NOON_MS, starts=1), is_let_go=is_let_go, let_go_at_ms=NOON_MS,
        placement=place(("n1", 0)), started_with=place(("n1", 0)), charge=Charge(gpu_milli=1000),
    )  # fmt: skip
    (run,) = decided_on(on_record(entry), job(suspend=suspend), *([] if suspend else [pod(on="n1")])).runs
    assert run.let_go_at_ms == told
