"""Live pods that name a run's object as their controller and were not made from its template: they are foreign."""

from __future__ import annotations

from typing import Any

import pytest
from objects_by_hand import NOON, decided_on, job, node, on_record, pod, seen

from gpuctl.k8s import names
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body, Charge, Run, RunPhase

GPU: dict[str, Any] = {"resources": {"limits": {names.GPU_RESOURCE: "2"}}}
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "a-1-0badcafe"}
SLICE = {"resources": {"limits": {"nvidia.com/mig-3g.40gb": "1"}}}
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
