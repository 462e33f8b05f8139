"""What tenants write on objects is not believed: each test writes it as the tenant's own user, on a real API server.

Without the guard, which refuses most of this. The other team's job must not notice, and gpuctl must go on.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any
from urllib.error import HTTPError

import pytest
from controlplane.server import ControlPlane
from tenancy import FILES, RUNNING, Place, apps, declared, job, jobs, pod, pods, workload
from unattended import at_last

from gpuctl.app.cycle import CycleReport, converge
from gpuctl.k8s import names
from gpuctl.model.decision import Pending

MERGE = "application/merge-patch+json"
DIGITS = "9" * 5000
ALL_OF_IT = '[{"node":"n1","gpus":[0,1,2,3,4,5,6,7]}]'
WITH_ROOM = {"a.yaml": "kind: Project\nmetadata: {name: a}\nspec: {quota: 4, access: [{user: ann, role: edit}]}\n"}
LEDGERS = "/api/v1/namespaces/gpuctl-system/configmaps"
CYCLES = 12
BETWEEN_S = 0.15


@pytest.fixture(scope="module")
def town(new_control_plane: Callable[..., ControlPlane]) -> Place:
    return Place(new_control_plane(), guarded=False)


@pytest.fixture
def place(town: Place) -> Iterator[Place]:
    """The place, where team b's job must be as it was before the test."""
    before = life_of_b(town)
    yield town
    assert life_of_b(town) == before
    town.clear()
    with town.context() as context:
        at_last(lambda: at_ease(converge(declared(), context)[-1]))


def at_ease(report: CycleReport) -> bool:
    return not report.plan.changes and not report.state.unreadable


def life_of_b(place: Place) -> object:
    """Team b's pod, its job and what is on record of it."""
    (running,) = place.plane.call("GET", pods("b"))["items"]
    ledger = place.plane.call("GET", f"{LEDGERS}/ledger.one.b")["data"]
    suspended = place.one(jobs("b"), "train")["spec"]["suspend"]
    return running["metadata"]["uid"], running["status"]["phase"], suspended, ledger["finished"], ledger["runs"]


def cycles_for_a_while(place: Place, more: Mapping[str, str] | None = None) -> CycleReport:
    """A gpuctl that goes on, then one that has just begun; controllers act on what they do between the cycles."""
    with place.context() as context:
        for _ in range(CYCLES):
            converge(declared(more), context)
            time.sleep(BETWEEN_S)
    return place.cycles(more)


def booked(report: CycleReport) -> int:
    """GPUs that pods hold which are no run's."""
    return sum(sum(node.foreign_gpu_milli) for node in report.state.nodes) // 1000


def queued_at_ms(report: CycleReport, job: str) -> int:
    (found,) = [run.queued_at_ms for run in report.state.runs if run.job.name == job]
    return found


def notes(place: Place, path: str, name: str, user: str, **annotations: str) -> None:
    notes_at(place, f"{path}/{name}", user, **annotations)


def notes_at(place: Place, path: str, user: str, **annotations: str) -> None:
    place.plane.call("PATCH", path, {"metadata": {"annotations": annotations}}, user=user, media=MERGE)


def twin(body: Mapping[str, Any], **spec: Any) -> Any:
    """An object of the same name and labels, as a tenant makes it who knows them."""
    meta = {key: copy.deepcopy(body["metadata"][key]) for key in ("name", "labels", "annotations")}
    template = copy.deepcopy(body["spec"]["template"])
    drop = {key for key in template["metadata"]["labels"] if "controller-uid" in key}
    for labels in (meta["labels"], template["metadata"]["labels"]):
        for key in drop & labels.keys():
            del labels[key]
    template["spec"]["containers"][0]["resources"] = {}
    return {"metadata": meta, "spec": {"template": template, **spec}}


def test_a_job_under_the_name_and_labels_of_another_teams_is_nothing_of_it(place: Place) -> None:
    theirs = place.one(jobs("b"), "train")
    place.plane.call("POST", jobs("a"), twin(theirs, backoffLimit=0), user="ann")
    cycles_for_a_while(place)
    place.plane.call("DELETE", f"{jobs('a')}/{theirs['metadata']['name']}?propagationPolicy=Background", user="ann")
    cycles_for_a_while(place)


def test_a_removed_job_is_deleted_however_often_its_owner_writes_on_it(place: Place) -> None:
    """Forty writes a second kept it, and its GPUs, for as long as they went on."""
    path = f"{jobs('a')}/{place.one(jobs('a'), 'train')['metadata']['name']}"
    removed = {"a-train.yaml": "kind: Department\nmetadata: {name: unused}\nspec: {quota: 1}\n"}
    is_over = Event()

    def writes(annotation: str) -> int:
        count = 0
        while not is_over.wait(0):
            count += 1
            with suppress(HTTPError):
                notes_at(place, path, "ann", **{annotation: str(count)})
        return count

    with ThreadPoolExecutor(4) as pool, place.context() as context:
        busy = [pool.submit(writes, f"ann{number}") for number in range(4)]
        try:
            reports = [converge(declared(removed), context)[-1] for _ in range(CYCLES)]
            at_last(lambda: not place.plane.call("GET", f"{jobs('a')}?labelSelector={names.JOB_LABEL}=train")["items"])
        finally:
            is_over.set()
    assert min(each.result() for each in busy) > 0
    assert reports[-1].faults == ()


def test_an_endless_number_on_a_pod_or_a_job_ends_no_cycle(place: Place) -> None:
    endless = dict.fromkeys((names.WORKER_INDEX_LABEL, names.MIN_WORKERS_ANNOTATION), DIGITS)
    given = {names.HAMI_DEVICES_ANNOTATION: f"GPU-0,NVIDIA,{DIGITS},100:;", names.IDLE_SINCE_ANNOTATION: DIGITS}
    place.plane.call("POST", pods("a"), pod(meta={"annotations": {**endless, **given}}), user="ann")
    for path, own in ((pods("a"), "train"), (jobs("a"), "train"), (apps("a", "deployments"), "serve")):
        notes(place, path, place.one(path, own)["metadata"]["name"], "ann", **endless, **given)
    assert not cycles_for_a_while(place).faults


@pytest.mark.parametrize("value", ["[" * 4000 + "]" * 4000, '[{"a":' * 600 + "9" * 300 + "}]" * 600], ids=["[", "{"])
def test_json_that_python_does_not_decode_ends_no_cycle(value: str, place: Place) -> None:
    """Where any JSON may stand, the server keeps it as it came."""
    opaque = {"driver": "x", "parameters": {"a": "VALUE"}}
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}], "config": [{"opaque": opaque}]}
    made = json.dumps({"metadata": {"name": "by-hand"}, "spec": {"devices": devices}}).replace('"VALUE"', value)
    claims = "/apis/resource.k8s.io/v1/namespaces/gpu-a/resourceclaims"
    place.plane.call("POST", claims, made.encode(), user="ann")
    assert not cycles_for_a_while(place).faults
    place.plane.call("DELETE", f"{claims}/by-hand", user="ann")


@pytest.mark.parametrize("told", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", DIGITS])
def test_a_time_that_is_none_ends_no_cycle_and_is_put_back(told: str, place: Place) -> None:
    own = place.one(jobs("a"), "train")["metadata"]
    notes(place, jobs("a"), own["name"], "ann", **{names.QUEUED_AT_ANNOTATION: told})
    assert not place.cycles().faults
    kept = place.one(jobs("a"), "train")["metadata"]["annotations"]
    assert kept[names.QUEUED_AT_ANNOTATION] == own["annotations"][names.QUEUED_AT_ANNOTATION]


def test_gpus_of_a_pod_under_another_teams_labels_are_booked(place: Place) -> None:
    at_last(lambda: not place.cycles(WITH_ROOM).plan.changes)
    labels = place.one(pods("b"), "train")["metadata"]["labels"]
    limits = {"resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    stolen = pod(limits, {"labels": labels}, tolerations=[{"operator": "Exists"}])
    at_last(lambda: place.attempt("POST", pods("a"), stolen, user="ann") == "")
    at_last(lambda: booked(place.cycles(WITH_ROOM)) == 1)


def test_a_pod_that_says_it_has_all_gpus_and_requests_none_has_none(place: Place) -> None:
    own = place.one(jobs("a"), "train")["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": own["name"], "uid": own["uid"]}
    boast = {names.PLACEMENT_ANNOTATION: ALL_OF_IT, names.CHARGE_ANNOTATION: '{"gpuMilli":8000}'}
    for owners in ([], [owner]):
        meta = {"labels": own["labels"], "annotations": boast, "ownerReferences": owners}
        place.plane.call("POST", pods("a"), pod(meta=meta, nodeName="n1"), user="ann")
    report = cycles_for_a_while(place)
    assert booked(report) == 0
    (node,) = report.state.nodes
    assert len(node.foreign_gpu_milli) == 8


def test_a_live_pod_under_a_runs_labels_and_owner_is_no_worker_of_it(place: Place) -> None:
    """It requests no GPU, so it was not made for the run: a start would look bound by it.

    The Job controller deletes it, as one worker too many: it is kept as one that does not end.
    """
    before = {run.job: run for run in place.cycles().state.runs}
    own = place.one(jobs("a"), "train")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": own["metadata"]["name"], "uid": own["metadata"]["uid"]}
    labels, owners = own["spec"]["template"]["metadata"]["labels"], [{**owner, "controller": True}]
    stays = {"annotations": {"test/leave-after": "1h"}, "finalizers": ["example.com/hold"]}
    meta = {"labels": labels, "ownerReferences": owners, **stays}
    forged = pod({"resources": {"requests": {"cpu": "3"}}}, meta, nodeName="n1")
    made = place.plane.call("POST", pods("a"), forged, user="ann")
    report = place.cycles()
    assert {run.job: run for run in report.state.runs} == before
    assert [node.foreign_cpu_milli for node in report.state.nodes] == [3000]
    path = f"{pods('a')}/{made['metadata']['name']}"
    place.plane.call("PATCH", path, {"metadata": {"finalizers": None}}, user="ann", media=MERGE)
    with suppress(HTTPError):
        place.plane.call("DELETE", f"{path}?gracePeriodSeconds=0", user="ann")


def test_forged_facts_of_a_running_job_are_put_back_and_move_nothing(place: Place) -> None:
    before = {run.job: (run.placement, run.queued_at_ms, run.starts) for run in place.cycles().state.runs}
    forged = {
        names.QUEUED_AT_ANNOTATION: "2019-01-01T00:00:00.000Z",
        names.STARTS_ANNOTATION: "0",
        names.PLACEMENT_ANNOTATION: ALL_OF_IT,
        names.CHARGE_ANNOTATION: '{"cpuMilli":0,"gpuMilli":0,"memBytes":0}',
        names.PAUSED_FOR_ANNOTATION: "b/train",
    }
    for path, own in ((jobs("a"), "train"), (apps("a", "deployments"), "serve")):
        meta = place.one(path, own)["metadata"]
        notes(place, path, meta["name"], "ann", **forged)
        report = place.cycles()
        assert {run.job: (run.placement, run.queued_at_ms, run.starts) for run in report.state.runs} == before
        kept = place.one(path, own)["metadata"]["annotations"]
        ours = forged.keys() & meta["annotations"].keys()
        assert {key: kept[key] for key in ours} == {key: meta["annotations"][key] for key in ours}


def test_a_forged_wait_has_no_place_kept(place: Place) -> None:
    """It waits for more than is free: were its time believed, no other job would start there."""
    guarded = FILES["cluster.yaml"] + "  scheduling: {starvationGuard: 1m}\n"
    large = "kind: Job\nmetadata: {name: large, project: a}\nspec: {image: x, gpus: 4}\n"
    small = "kind: Job\nmetadata: {name: small, project: b}\nspec: {image: x, gpus: 1}\n"
    more = {"cluster.yaml": guarded, "large.yaml": large}
    place.cycles(more)
    waited_since_ms = queued_at_ms(place.cycles(more), "large")
    meta = place.one(jobs("a"), "large")["metadata"]
    forged = {names.QUEUED_AT_ANNOTATION: "2019-01-01T00:00:00.000Z", names.STARTS_ANNOTATION: "9"}
    notes(place, jobs("a"), meta["name"], "ann", **forged)
    report = cycles_for_a_while(place, {**more, "small.yaml": small})
    decided = {decision.job.name: decision for decision in report.schedule.decisions}
    assert isinstance(decided["large"], Pending)
    assert not isinstance(decided["small"], Pending)
    assert queued_at_ms(report, "large") == waited_since_ms
    at_last(lambda: not place.cycles().plan.changes)


def test_pods_deleted_over_and_over_hold_no_more_than_their_job(place: Place) -> None:
    for _ in range(5):
        for each in place.plane.call("GET", pods("a"))["items"]:
            if each["metadata"]["labels"].get(names.JOB_LABEL) == "serve":
                name = each["metadata"]["name"]
                place.plane.call("DELETE", f"{pods('a')}/{name}?gracePeriodSeconds=0", user="ann")
        place.cycles()
    at_last(lambda: booked(place.cycles()) == 0)
    place.run(RUNNING)


@pytest.mark.parametrize("kind", ["deployments", "jobs"])
def test_what_controllers_make_for_people_is_booked_and_no_more(kind: str, place: Place) -> None:
    at_last(lambda: not place.cycles(WITH_ROOM).plan.changes)
    theirs = place.one(pods("b"), "train")["metadata"]["labels"]
    labels = {key: value for key, value in theirs.items() if key.startswith("gpuctl.dev/")}
    wants: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
    wants["container"] = {"resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    path = jobs("a") if kind == "jobs" else apps("a", kind)
    made = place.plane.call("POST", path, (job if kind == "jobs" else workload)(labels, **wants), user="ann")
    at_last(lambda: booked(place.cycles(WITH_ROOM)) == 1)
    place.plane.call("DELETE", f"{path}/{made['metadata']['name']}?propagationPolicy=Background", user="ann")


def test_a_namespace_of_others_is_not_taken_by_a_merged_project(place: Place) -> None:
    """It is named as a project's would be, and holds what is not gpuctl's."""
    space = {"metadata": {"name": "gpu-operator"}}
    place.plane.call("POST", "/api/v1/namespaces", space)
    place.plane.call("POST", pods("operator"), pod(nodeName="n1"))
    project = "kind: Project\nmetadata: {name: operator}\nspec: {adopt: true, access: [{user: ann, role: admin}]}\n"
    merged = {"operator.yaml": project}
    for labels in ({}, {names.ADOPT_LABEL: "operator"}):
        place.plane.call("PATCH", "/api/v1/namespaces/gpu-operator", {"metadata": {"labels": labels}}, media=MERGE)
        place.cycles(merged)
        roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-operator/rolebindings"
        assert place.plane.call("GET", roles)["items"] == []
        kept = place.plane.call("GET", "/api/v1/namespaces/gpu-operator")["metadata"]["labels"]
        assert names.MANAGED_LABEL not in kept
    place.plane.call("DELETE", "/api/v1/namespaces/gpu-operator")
