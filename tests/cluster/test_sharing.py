"""How GPUs are handed out, on a real API server with its own scheduler: devices as each driver publishes them, by hand.

There is no HAMi on it: a test says what its scheduler would, and KWOK lets the pod run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from controlplane.server import ControlPlane
from town import MERGE, Account, Town, account_on, town_on
from unattended import install

from gpuctl.adapters.kubernetes.paths import item
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, items, ref_of, text
from gpuctl.model.decision import Pending

GOLDEN = Path(__file__).parents[1] / "golden"
RESOURCES = "/apis/resource.k8s.io/v1"
TYPES = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig"}
HALVES = "dra, driver: nvidia, mig: {3g.40gb: 1}"


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[[], ControlPlane]) -> ControlPlane:
    """One of its own: device classes are everybody's."""
    made = new_control_plane()
    install(made, guard=False)  # some tests play a driver's part in the project's namespace
    for name, kind in TYPES.items():
        selector = f"device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == '{kind}'"
        spec: dict[str, Any] = {"selectors": [{"cel": {"expression": selector}}]}
        if kind == "gpu":
            spec["extendedResourceName"] = "nvidia.com/gpu"
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        made.call("POST", f"{RESOURCES}/deviceclasses", body)
    return made


@pytest.fixture(scope="module")
def account(plane: ControlPlane) -> Iterator[Account]:
    with account_on(plane) as made:
        yield made


@pytest.fixture
def town(plane: ControlPlane, account: Account, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane, request.node.name, account) as made:
        made.gpu_memory = "81559Mi"
        yield made


def uuid(town: Town, node: str, minor: int) -> str:
    return f"GPU-{town.name}-{node}-000{minor}"


def whole(town: Town, node: str, minor: int) -> dict[str, Any]:
    """A GPU as NVIDIA's driver publishes it."""
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": uuid(town, node, minor)},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{minor:02x}:00.0"},
    }
    return {"name": f"gpu-{minor}", "attributes": attributes, "capacity": {"memory": {"value": "81559Mi"}}}


def half(town: Town, node: str, minor: int, start: int) -> dict[str, Any]:
    """A slice of one."""
    attributes = {
        "type": {"string": "mig"},
        "uuid": {"string": f"MIG-{town.name}-{node}-{minor}-{start}"},
        "parentUUID": {"string": uuid(town, node, minor)},
        "profile": {"string": "3g.40gb"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
    }
    name = f"gpu-{minor}-mig-9-{start}-4"
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "40448Mi"}}}


def publish(town: Town, node: str, *devices: dict[str, Any], generation: int = 1) -> None:
    """The slice of a node's driver; again, with another generation, as it is now."""
    name = f"{town.name}-{node}"
    pool = {"name": name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": list(devices)}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    town.plane.call("PATCH", f"{RESOURCES}/resourceslices/{name}?fieldManager=driver&force=true", body)


def nvidia(town: Town, *, cut: bool = True) -> None:
    """Both nodes behind NVIDIA's driver, without a device plugin; the second GPU of each is cut, or is not."""
    for node in ("n1", "n2"):
        without(town, node, "nvidia.com/gpu")
        others = [half(town, node, 1, 0), half(town, node, 1, 4)] if cut else [whole(town, node, 1)]
        publish(town, node, whole(town, node, 0), *others)


def without(town: Town, node: str, *resources: str, **there: str) -> None:
    """A node's status without some resources, and with others."""
    amounts = {**dict.fromkeys(resources), **{name.replace("__", "/"): amount for name, amount in there.items()}}
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    town.plane.call("PATCH", f"/api/v1/nodes/{town.name}-{node}/status", body, media=MERGE)


def devices(town: Town, job: str) -> list[tuple[str, str]]:
    """(node, device) that kube-scheduler gave a job's claims."""
    pods = {ref.name for ref, _ in town.live("Pod", job)}
    found = []
    for ref, body in town.state().live.items():
        owners = {owner["name"] for owner in items(body, "metadata", "ownerReferences")}
        if ref.kind == "ResourceClaim" and owners & pods:
            results = items(body, "status", "allocation", "devices", "results")
            found += [(result["pool"].rpartition("-")[2], result["device"]) for result in results]
    return sorted(found)


def places(town: Town, job: str) -> list[tuple[str, tuple[int, ...]]]:
    """(node, indexes) where gpuctl sees a job."""
    (run,) = [run for run in town.state().runs if run.job.name == job]
    workers = run.placement.workers if run.placement else ()
    return [(worker.node.rpartition("-")[2], worker.gpus) for worker in workers]


def why(town: Town, job: str) -> str:
    (decision,) = [d for d in town.cycle().schedule.decisions if d.job.name == job]
    assert isinstance(decision, Pending)
    return decision.reason.code


def test_whole_gpus_and_slices_by_claims_are_those_that_were_chosen(town: Town) -> None:
    nvidia(town)
    town.sharing = HALVES
    town.jobs = {f"h{i}": ", gpus: 0.5" for i in range(5)} | {f"w{i}": ", gpus: 1" for i in range(3)}
    started = {name: "Running" for name in town.jobs if name not in {"h4", "w2"}}
    town.comes_to(**started, h4="Queued", w2="Queued")
    for job in started:
        ((node, (gpu,)),) = places(town, job)
        ((on, device),) = devices(town, job)
        assert (node, gpu) == (on, 1 if job.startswith("h") else 0)
        assert device.startswith(f"gpu-{gpu}-mig-" if job.startswith("h") else f"gpu-{gpu}")
    assert len({tuple(devices(town, job)) for job in started}) == len(started)
    assert (why(town, "h4"), why(town, "w2")) == ("GPU5011", "GPU5011")


def test_a_paused_job_gets_a_claim_for_the_gpu_of_another_node(town: Town) -> None:
    nvidia(town)
    town.sharing = HALVES
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    ((first, _),) = places(town, "j")
    other = {"n1": "n2", "n2": "n1"}[first]
    town.jobs["j"] = ", gpus: 1, suspend: true"
    town.comes_to(j="Queued")
    town.plane.call("PATCH", f"/api/v1/nodes/{town.name}-{first}", {"spec": {"unschedulable": True}}, media=MERGE)
    town.until(lambda: [node.name for node in town.state().nodes if not node.usable] == [f"{town.name}-{first}"])
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    assert (places(town, "j"), devices(town, "j")) == ([(other, (0,))], [(other, "gpu-0")])


def test_a_device_that_is_tainted_or_no_longer_published_gets_nothing_new(town: Town) -> None:
    nvidia(town, cut=False)
    town.sharing = "dra, driver: nvidia"
    tainted = {**whole(town, "n1", 0), "taints": [{"key": "gpu.nvidia.com/sick", "value": "x", "effect": "NoSchedule"}]}
    publish(town, "n1", tainted, whole(town, "n1", 1), generation=2)
    publish(town, "n2", whole(town, "n2", 1), generation=2)
    town.jobs = dict.fromkeys(("i", "j", "k"), ", gpus: 1")
    town.comes_to(i="Running", j="Running", k="Queued")
    assert sorted([*places(town, "i"), *places(town, "j")]) == [("n1", (1,)), ("n2", (1,))]
    publish(town, "n1", whole(town, "n1", 0), whole(town, "n1", 1), generation=3)
    town.comes_to(i="Running", j="Running", k="Running")
    assert devices(town, "k") == [("n1", "gpu-0")]


def test_whole_gpus_by_count_are_served_by_the_driver_where_its_class_says_so(town: Town) -> None:
    nvidia(town)
    town.jobs = {"i": ", gpus: 1", "j": ", gpus: 1", "k": ", gpus: 1", "l": ", gpus: 2"}
    town.comes_to(i="Running", j="Running", k="Queued", l="Queued")
    for job in ("i", "j"):
        assert text(town.one("Pod", job), "spec", "resourceClaims") == ""
        assert devices(town, job) == [(places(town, job)[0][0], "gpu-0")]
    assert why(town, "l") == "GPU5014"


def test_counts_that_the_driver_serves_with_other_devices_than_planned_move_no_pod(town: Town) -> None:
    nvidia(town, cut=False)
    town.jobs = dict.fromkeys("ijkl", ", gpus: 1")
    town.comes_to(i="Running", j="Running", k="Running", l="Running")
    assert {run.starts for run in town.state().runs} == {1}
    for job in town.jobs:
        ((node, (gpu,)),) = places(town, job)
        assert devices(town, job) == [(node, f"gpu-{gpu}")]
    town.until(lambda: town.cycle().settled)
    assert {run.starts for run in town.state().runs} == {1}


def test_a_driver_that_is_not_at_work_is_told(town: Town) -> None:
    nvidia(town)
    town.sharing = "dra"
    town.jobs = {"j": ", gpus: 0.1"}
    town.comes_to(j="Queued")
    assert why(town, "j") == "GPU5061"
    town.sharing = "dra, driver: nvidia, mig: {1g.10gb: 1}"
    town.until(lambda: why(town, "j") == "GPU5060")


def test_counted_slices_are_given_out_by_profile(town: Town) -> None:
    labels = {"metadata": {"labels": {"nvidia.com/gpu.memory": "81559"}}}
    for node in ("n1", "n2"):
        town.plane.call("PATCH", f"/api/v1/nodes/{town.name}-{node}", labels, media=MERGE)
        without(town, node, **{"nvidia.com__gpu": "1", "nvidia.com__mig-3g.40gb": "2"})
    town.sharing = "mig, mig: {3g.40gb: 1}"
    town.jobs = {f"h{i}": ", gpus: 0.4" for i in range(5)} | {"w": ", gpus: 1", "two": ", gpus: 1"}
    started = {name: "Running" for name in town.jobs if name != "h4"}
    town.comes_to(**started, h4="Queued")
    assert {places(town, f"h{i}")[0][1] for i in range(4)} == {(1,)}
    assert {places(town, job)[0][1] for job in ("w", "two")} == {(0,)}
    assert why(town, "h4") == "GPU5011"


def test_hami_is_told_the_gpu_and_its_decision_is_read_back(town: Town) -> None:
    for node in ("n1", "n2"):
        register(town, node)
    town.sharing = "hami"
    town.jobs = {"j": ", gpus: 0.6", "k": ", gpus: 1"}
    town.until(lambda: town.live("Pod", "j") and town.live("Pod", "k"))
    for job, mem, cores in (("j", 48935, 60), ("k", 81559, 100)):
        pod = town.one("Pod", job)
        ((node, (gpu,)),) = places(town, job)
        assert annotations_of(pod)[names.HAMI_USE_ANNOTATION] == uuid(town, node, gpu)
        assert pod["spec"]["schedulerName"] == "hami-scheduler"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == str(cores)
        hami_decides(town, pod, node, f"{uuid(town, node, gpu)},NVIDIA,{mem},{cores}:;")
    town.comes_to(j="Running", k="Running")
    town.jobs |= {"l": ", gpus: 0.4"}
    town.until(lambda: town.live("Pod", "l"))
    assert places(town, "l") == places(town, "j")
    elsewhere = next(node for node in ("n1", "n2") if node != places(town, "l")[0][0])
    hami_decides(town, town.one("Pod", "l"), elsewhere, f"{uuid(town, elsewhere, 1)},NVIDIA,32623,40:;")
    town.until(lambda: town.phases()["l"] == "Running" and places(town, "l") == [(elsewhere, (1,))])


def test_gpus_that_hami_calls_sick_or_that_are_cordoned_get_nothing_new(town: Town) -> None:
    register(town, "n1", sick={0}, cordoned=[1])
    register(town, "n2", sick={1})
    town.sharing = "hami"
    town.jobs = {"j": ", gpus: 0.6", "k": ", gpus: 0.6"}
    town.until(lambda: "Starting" in town.phases().values())
    assert sorted(town.phases().values()) == ["Queued", "Starting"]
    job = next(job for job, phase in town.phases().items() if phase == "Starting")
    assert places(town, job) == [("n2", (0,))]


def register(town: Town, node: str, sick: frozenset[int] | set[int] = frozenset(), cordoned: Any = ()) -> None:
    """What HAMi's device plugin writes on a node."""
    entries = [
        {"id": uuid(town, node, index), "index": index, "count": 10, "devmem": 81559, "devcore": 100, "numa": 0,
         "type": "NVIDIA-NVIDIA H100 80GB HBM3", "mode": "hami-core", "health": index not in sick}
        for index in range(2)
    ]  # fmt: skip
    notes = {
        names.HAMI_REGISTER_ANNOTATION: json.dumps(entries),
        names.HAMI_CORDON_ANNOTATION: ",".join(uuid(town, node, index) for index in cordoned),
    }
    town.plane.call("PATCH", f"/api/v1/nodes/{town.name}-{node}", {"metadata": {"annotations": notes}}, media=MERGE)
    without(town, node, **{"nvidia.com__gpu": "20"})


def hami_decides(town: Town, pod: Any, node: str, given: str) -> None:
    """What HAMi's scheduler does: its decision on the pod, then the node."""
    notes = {names.HAMI_NODE_ANNOTATION: f"{town.name}-{node}", names.HAMI_DEVICES_ANNOTATION: given}
    path = f"/api/v1/namespaces/{town.namespace}/pods/{pod['metadata']['name']}"
    town.plane.call("PATCH", path, {"metadata": {"annotations": notes}}, media=MERGE)
    target = {"apiVersion": "v1", "kind": "Node", "name": f"{town.name}-{node}"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": target}
    town.plane.call("POST", f"{path}/binding", body)


def test_kube_scheduler_gives_no_slice_twice_when_gpuctl_is_passed_by(town: Town) -> None:
    nvidia(town)
    town.sharing = HALVES
    town.jobs = {f"h{i}": ", gpus: 0.5" for i in range(4)}
    town.comes_to(**dict.fromkeys(town.jobs, "Running"))
    claims = [body for ref, body in town.state().live.items() if ref.kind == "ResourceClaimTemplate"]
    spec = next(body for body in claims if text(body, "metadata", "namespace") == town.namespace)["spec"]["spec"]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "more"}, "spec": spec}
    town.plane.call("POST", f"{RESOURCES}/namespaces/{town.namespace}/resourceclaims", claim)
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {"metadata": {"name": "more"}, "spec": {
        "containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": "more"}]}}  # fmt: skip
    town.plane.call("POST", f"/api/v1/namespaces/{town.namespace}/pods", pod)

    def told() -> list[str]:
        seen = town.plane.call("GET", f"/api/v1/namespaces/{town.namespace}/pods/more")
        return [c["message"] for c in items(seen, "status", "conditions") if c.get("reason") == "Unschedulable"]

    (message,) = town.until(told)
    assert "cannot allocate all claims" in message


@pytest.mark.parametrize("case", ["sharing-mig", "sharing-hami", "sharing-dra-nvidia"])
def test_the_server_takes_every_manifest(plane: ControlPlane, case: str) -> None:
    bodies = list(yaml.safe_load_all((GOLDEN / case / "expected.yaml").read_text()))
    namespaces = {body["metadata"]["namespace"] for body in bodies if "namespace" in body["metadata"]}
    for namespace in namespaces:
        with suppress(HTTPError):
            plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for body in bodies:
        path = f"{item(ref_of(body))}?fieldManager=gpuctl&force=true&dryRun=All&fieldValidation=Strict"
        assert plane.call("PATCH", path, body)["metadata"]["name"] == body["metadata"]["name"]


def test_the_server_takes_a_selector_of_as_many_uuids_as_are_written(plane: ControlPlane) -> None:
    documents = yaml.safe_load_all((GOLDEN / "sharing-dra-nvidia" / "expected.yaml").read_text())
    template = next(body for body in documents if body["kind"] == "ResourceClaimTemplate")
    exactly = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    uuids = [f"GPU-11111111-0000-4000-8000-{index:012x}" for index in range(192)]
    exactly["selectors"] = [{"cel": {"expression": f"device.attributes['gpu.nvidia.com'].uuid in {uuids}"}}]
    template["metadata"]["namespace"] = "default"
    plane.call("PATCH", f"{item(ref_of(template))}?fieldManager=gpuctl&force=true&dryRun=All", template)
