"""Live pods that name a run's object as their controller and were not made from its template: they are foreign."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from objects_by_hand import DIGEST, JOB_ID, NAMESPACE, NOON, decided_on, job, node, on_record, pod, seen

from gpuctl.k8s import names
from gpuctl.k8s.requests import Requests
from gpuctl.model.decision import RunRecord
from gpuctl.model.ids import JobId, NodeName, ObjectRef, RunKey
from gpuctl.model.state import Body, Charge, Run, RunEntry, RunPhase
from gpuctl.observe.pods import Devices, Pod, read_pod, unreadable_pod, without_helpers, without_strangers

GPU: dict[str, Any] = {"resources": {"limits": {names.GPU_RESOURCE: "2"}}}
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "a-1-0badcafe"}
SLICE: dict[str, Any] = {"resources": {"limits": {"nvidia.com/mig-3g.40gb": "1"}}}
CLAIMS: dict[str, Any] = {"resourceClaims": [CLAIM]}


def of(template: Body, *, suspend: bool = False) -> Body:
    """A Job of one worker that was let go, with a template that asks for devices."""
    status: dict[str, Any] = {} if suspend else {"active": 1, "startTime": NOON}
    body = job(suspend=suspend, **status)
    return {**body, "spec": {**body["spec"], "template": {"spec": template}}}


def run_of(*bodies: Body) -> Run:
    (run,) = seen(node(), *bodies).runs
    return run


TEMPLATES = {
    "GPUs by count": ({"containers": [GPU]}, GPU),
    "a slice": ({"containers": [SLICE]}, SLICE),
    "claims": ({"containers": [{}], **CLAIMS}, {"spec": CLAIMS}),
}


@pytest.mark.parametrize("devices", TEMPLATES)
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_starting_run_looks_bound_by_no_pod_without_its_devices(devices: str, phase: str) -> None:
    template, own = TEMPLATES[devices]
    start = run_of(of(template))
    assert (start.phase, start.unstarted, start.unbound) == (RunPhase.STARTING, True, (NodeName("dgx1-1"),))
    stray = pod("stray", phase=phase)
    assert run_of(of(template), stray) == start
    made = run_of(of(template), pod(phase=phase, **own), stray)
    assert (made.unstarted, made.unbound) == (False, ())
    assert made == run_of(of(template), pod(phase=phase, **own))


def test_a_stray_keeps_no_run_from_having_stopped() -> None:
    template = {"containers": [GPU]}
    assert run_of(of(template, suspend=True), pod("stray")).phase is RunPhase.QUEUED
    assert run_of(of(template, suspend=True), pod("own", **GPU)).phase is RunPhase.STOPPING


def test_what_a_stray_requests_is_booked_as_foreign() -> None:
    one = pod("stray", resources={"limits": {names.GPU_RESOURCE: "1", "cpu": "3"}})
    (there,) = seen(node(), of({"containers": [GPU]}), one).nodes
    assert sum(there.foreign_gpu_milli) == 1000
    assert there.foreign_cpu_milli == 3000
    (alone,) = seen(node(), of({"containers": [GPU]}), pod("own", **GPU)).nodes
    assert sum(alone.foreign_gpu_milli) == 0


def test_with_more_devices_than_its_template_asks_for_a_pod_is_the_runs() -> None:
    more = pod(resources={"limits": {names.GPU_RESOURCE: "4"}})
    assert run_of(of({"containers": [GPU]}), more).phase is RunPhase.RUNNING


def test_the_pods_of_an_object_that_is_gone_are_the_runs_whatever_they_ask_for() -> None:
    """There is no template to compare them with; Kubernetes removes them soon."""
    (run,) = decided_on(node(), on_record(), pod()).runs
    assert run.phase is RunPhase.STOPPING


def test_a_live_stray_makes_no_room_for_an_ended_one_in_the_jobs_status() -> None:
    """Its Job counts it as active: were it left out, a pod of the run would be missing, and the ended one believed."""
    ended = pod("ended", phase="Succeeded", **GPU)
    stray = pod("stray", annotations={names.WORKER_INDEX_LABEL: "7"})
    assert run_of(of({"containers": [GPU]}), ended).ends_as is RunPhase.SUCCEEDED
    assert run_of(of({"containers": [GPU]}), stray, ended).ends_as is None


def test_a_helper_that_outlives_the_object_of_its_run_holds_none_of_its_gpus() -> None:
    """It has none, and the template that would tell it from a worker is gone: booked is what it requests."""
    helper = pod("a-1-driver", resources={"requests": {"cpu": "3"}})
    state = decided_on(node(), pod(**GPU), helper, on_record(charge=Charge(gpu_milli=2000)))
    (run,), (there,) = state.runs, state.nodes
    assert run.phase is RunPhase.STOPPING
    assert run.placement is not None
    assert len(run.placement.workers) == 1
    assert (there.excess_gpus, there.foreign_cpu_milli) == (0, 3000)


# helpers: pods without GPUs that the same object makes beside its workers

REF = ObjectRef("v1", "Pod", NAMESPACE, "a-1-x")
RUN = (JOB_ID, DIGEST)
ASKED = Devices(gpus=2, beside=Requests(cpu_milli=1000, mem_bytes=2048))
TEMPLATE = {"resourceClaims": [CLAIM]}


def read(body: Body, asked: Devices = ASKED) -> Pod:
    return read_pod(REF, body, RUN, (), asked)


@pytest.mark.parametrize(
    ("body", "run", "helper"),
    [
        (pod(**GPU), RUN, False),
        (pod(), RUN, True),
        (pod(phase="Succeeded"), RUN, True),
        (pod(resources={"limits": {names.GPU_RESOURCE: "1"}}), None, False),
        (pod(**SLICE), None, False),
        (pod(spec=TEMPLATE), None, False),
    ],
    ids=["a worker", "a helper", "one that ended", "fewer GPUs", "a slice", "a claim"],
)
def test_a_helper_has_no_device_at_all(body: Body, run: RunKey | None, *, helper: bool) -> None:
    found = read(body)
    assert (found.run, found.helper, found.controller) == (run, helper, RUN)


def test_where_no_pods_stand_beside_workers_one_without_devices_is_a_strangers() -> None:
    alone = Devices(gpus=2)
    assert (read(pod(), alone).run, read(pod(), alone).helper) == (None, False)
    assert read(pod(phase="Failed"), alone).run == RUN, "its run's ends are told by its Job"


def asking(cpu: str = "0", memory: str = "0", **fields: Any) -> Pod:
    return read(pod(resources={"requests": {"cpu": cpu, "memory": memory}}, **fields))


@pytest.mark.parametrize(
    ("pods", "over"),
    [
        ([asking("1"), asking("0", "2048")], False),
        ([asking("600m"), asking("600m")], True),
        ([asking("0", "1024"), asking("0", "1025")], True),
        ([asking("600m"), asking("600m", phase="Succeeded")], False),
    ],
    ids=["as much as they may", "CPU", "memory", "one that ended"],
)
def test_helpers_that_request_more_than_they_may_together_are_strangers(pods: list[Pod], *, over: bool) -> None:
    worker = read(pod(**GPU))
    found = without_strangers([worker, *pods], {RUN: ASKED})
    assert found[0] == worker
    assert [(each.run, each.helper) for each in found[1:]] == [(None, False) if over else (RUN, True)] * len(pods)


def test_one_that_ended_stays_its_runs_where_the_others_request_too_much() -> None:
    ended = asking(phase="Succeeded")
    other = replace(asking(), run=(JobId(JOB_ID.project, "a-2"), DIGEST))
    found = without_strangers([ended, other, asking("2")], {RUN: ASKED, other.run: ASKED})
    assert [each.run for each in found] == [RUN, other.run, None]


@pytest.mark.parametrize(("gpu_milli", "left"), [(1000, 1), (999, 2)])
def test_a_pod_without_a_device_is_no_worker_of_a_run_with_a_whole_gpu(gpu_milli: int, left: int) -> None:
    pods = [asking(), read(pod(**GPU))]
    entry = RunEntry(record=RunRecord(queued_at_ms=0), charge=Charge(gpu_milli=gpu_milli))
    found = without_helpers(pods, {RUN}, {RUN: entry})
    assert len([each for each in found if each.run == RUN]) == left
    assert without_helpers(pods, {RUN}, {}) == pods


def test_a_pod_that_can_not_be_read_is_a_strangers_and_there_until_it_is_gone() -> None:
    found = unreadable_pod(REF, pod(phase="Succeeded", **GPU))
    assert (found.run, found.node, found.bound, found.requests.gpus) == (None, "dgx1-1", True, 2)
    assert (found.live, found.running, found.succeeded) == (True, False, False)
    assert unreadable_pod(REF, pod(on=None)).node is None
