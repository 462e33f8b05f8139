"""Fractions of one device by DRA: gpuctl and kube-scheduler count the same, each by itself.

The slices are made by hand, as HAMi's driver would publish them; nothing of a driver is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from controlplane.server import ControlPlane
from town import MERGE, Town, town_on
from unattended import typed

from gpuctl.adapters.kubernetes.paths import item
from gpuctl.k8s import names
from gpuctl.k8s.annotations import decode_reason
from gpuctl.k8s.objects import annotations_of, ref_of
from gpuctl.model.decision import Pending
from gpuctl.model.state import Body

DRIVER = names.DRA_DRIVER
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CORES = {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}}
MEMORY = {
    "value": "32Gi",
    "requestPolicy": {"default": "32Gi", "validRange": {"min": "1Mi", "max": "32Gi", "step": "1Mi"}},
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": names.DRA_DEVICE_CLASS},
    "spec": {
        "selectors": [
            {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'hami-gpu'"}}
        ]
    },
}


def device(minor: int) -> dict[str, Any]:
    return {
        "name": f"hami-gpu-{minor}",
        "allowMultipleAllocations": True,
        "attributes": {"type": {"string": "hami-gpu"}, "minor": {"int": minor}},
        "capacity": {"cores": CORES, "memory": MEMORY},
    }


@pytest.fixture
def town(plane_with_gpuctl: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    """One node with two devices can be used; a whole job has one of them."""
    plane_with_gpuctl.call("PATCH", f"{item(ref_of(CLASS))}?fieldManager=test&force=true", CLASS)
    with town_on(plane_with_gpuctl, request.node.name) as made:
        node = f"{made.name}-n1"
        made.plane.call("PATCH", f"/api/v1/nodes/{made.name}-n2", {"spec": {"unschedulable": True}}, media=MERGE)
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [device(0), device(1)]}
        plane_with_gpuctl.call("POST", SLICES, {"metadata": {"name": node}, "spec": spec})
        made.sharing = "dra"
        made.jobs["whole"] = ", gpus: 1"
        made.comes_to(whole="Running")
        yield made
        plane_with_gpuctl.call("DELETE", f"{SLICES}/{node}")


def allocated(town: Town, job: str) -> tuple[str, str, str]:
    """What kube-scheduler gave a job's only worker: the device, the part of its cores and of its memory."""
    pod = town.one("Pod", job)["metadata"]["name"]
    claims = town.plane.call("GET", f"/apis/resource.k8s.io/v1/namespaces/{town.namespace}/resourceclaims")["items"]
    (claim,) = [each for each in claims if each["metadata"]["ownerReferences"][0]["name"] == pod]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    consumed = result["consumedCapacity"]
    return f"{result['pool']} {result['device']}", consumed["cores"], consumed["memory"]


def force(town: Town, job: str, like: str) -> str:
    """A waiting job past gpuctl: its Job as it is, but not suspended, with a claim for half of the device `like` has.

    In a namespace of its own, where no quota stops it. The path of its pods.
    """
    namespace = f"{town.name}-forced"
    town.plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    asked, body = town.one("ResourceClaimTemplate", like), town.one("Job", job)
    (request,) = asked["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"]["requests"] = {"cores": "50", "memory": "16Gi"}
    name = body["metadata"]["name"]
    claim = {"metadata": {"name": name}, "spec": {"spec": asked["spec"]["spec"]}}
    town.plane.call("POST", f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates", claim)
    spec = {key: value for key, value in body["spec"].items() if key != "selector"}
    template = {"metadata": {"labels": {"forced": "yes"}}, "spec": spec["template"]["spec"]}
    forced = {"metadata": {"name": name}, "spec": {**spec, "suspend": False, "template": template}}
    town.plane.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", forced)
    return f"/api/v1/namespaces/{namespace}/pods"


def refusals(pods: list[Body]) -> list[str]:
    """What kube-scheduler says of pods that it can't place."""
    told = [each for pod in pods for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"]
    return [each["message"] for each in told if (each["status"], each["reason"]) == ("False", "Unschedulable")]


def test_what_fits_one_device_shares_it_and_what_does_not_waits(town: Town) -> None:
    town.jobs |= {"most": ", gpus: 0.6", "rest": ", gpus: 0.4"}
    town.comes_to(whole="Running", most="Running", rest="Running")
    shared, cores, memory = allocated(town, "most")
    assert (cores, memory) == ("60", "19660Mi")
    assert allocated(town, "rest") == (shared, "40", "13107Mi")
    assert allocated(town, "whole")[0] != shared
    town.jobs["half"] = ", gpus: 0.5"
    town.comes_to(whole="Running", most="Running", rest="Running", half="Queued")
    (decision,) = [each for each in town.cycle().schedule.decisions if each.job.name == "half"]
    assert isinstance(decision, Pending)
    assert decision.reason.code == "GPU5011"
    assert decode_reason(annotations_of(town.one("Job", "half"))[names.REASON_ANNOTATION]) == decision.reason
    assert "0.5 GPUs more would put a above its fair share, and too few GPUs are idle" in explained(town, "half")
    pods = force(town, "half", like="most")
    (refusal,) = town.until(lambda: refusals(town.plane.call("GET", pods)["items"]))
    assert "cannot allocate all claims" in refusal
    town.plane.call("DELETE", f"/api/v1/namespaces/{town.name}-forced")
    town.jobs["most"] += ", suspend: true"
    town.comes_to(whole="Running", most="Queued", rest="Running", half="Running")
    assert allocated(town, "half") == (shared, "50", "16Gi")


def explained(town: Town, job: str) -> str:
    done = typed(town.plane.kubeconfig, "explain", f"a/{job}", "--namespace", town.namespace)
    assert done.exit_code == 0, done.stderr
    return done.stdout
