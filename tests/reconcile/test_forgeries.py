"""What a tenant can write in its own namespace counts against nobody else: attacks on the embedded cluster.

`tests/cluster/test_tenants.py` does the same as the tenant's own user of a real API server.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from neighbours import POOL, TOWN, Neighbours, cluster_of, job, pod, project

from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, labels_of, mapping, ref_of, text, uid
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, RawObjects, RunPhase
from gpuctl.observe import observe

MOST_BYTES = 256 * 1024
"""Of annotations, on the server."""
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": "2020-07-29T05:20:30Z"}


@pytest.fixture
def town() -> Neighbours:
    return Neighbours()


def copied(body: Body, namespace: str, **status: Any) -> Body:
    """The object as `kubectl get -o yaml | kubectl create -n NAMESPACE` makes it."""
    meta = {key: body["metadata"][key] for key in ("name", "labels", "annotations")}
    return {**copy.deepcopy(dict(body)), "metadata": {**meta, "namespace": namespace}, "status": status}


@pytest.mark.parametrize("name", ["g1", "g2"])
def test_a_copy_of_anothers_run_in_ones_own_namespace_is_nothing_of_it(town: Neighbours, name: str) -> None:
    before = town.life_of("good")
    made = town.cluster.create(copied(town.run_object(name, "good"), "gpu-evil"))
    town.live_s(5)
    town.cluster._api.replace({**made, "status": COMPLETE})
    town.live_s(5)
    assert town.life_of("good") == before


def test_a_copy_in_a_namespace_that_is_no_projects_is_nothing_of_it(town: Neighbours) -> None:
    before = town.life_of("good")
    town.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    for name in ("g1", "g2"):
        town.cluster.create(copied(town.run_object(name, "good"), "elsewhere"))
    town.live_s(5)
    assert town.life_of("good") == before


def test_a_pod_under_the_labels_of_anothers_run_hides_no_gpu(town: Neighbours) -> None:
    free = town.booked()
    ((_, theirs),) = [found for found in town.pods("gpu-good") if "g1" in found[0].name]
    for meta in ({}, {"ownerReferences": theirs["metadata"]["ownerReferences"]}):
        town.cluster.create(pod(f"thief-{len(meta)}", "gpu-evil", 1, "n2", labels=dict(labels_of(theirs)), **meta))
    town.enforce()
    assert sum(town.booked().values()) == sum(free.values()) + 2


def test_a_pod_that_says_it_holds_gpus_and_requests_none_holds_none(town: Neighbours) -> None:
    before, free = town.life_of("good"), town.booked()
    own = town.run_object("e1", "evil")
    notes = {
        names.PLACEMENT_ANNOTATION: '[{"node":"n1","gpus":[0,1,2,3]},{"node":"n2","gpus":[0,1,2,3]}]',
        names.CHARGE_ANNOTATION: '{"cpuMilli":80000,"gpuMilli":8000,"memBytes":9}',
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": own["metadata"]["name"], "uid": uid(own)}
    for number, owners in enumerate(([], [{**owner, "controller": True}])):
        labels = dict(labels_of(own))
        boaster = pod(f"boaster-{number}", "gpu-evil", labels=labels, annotations=notes, ownerReferences=owners)
        town.cluster.create(boaster)
    town.live_s(3)
    assert town.booked() == free
    assert town.life_of("good") == before


def test_more_gpus_than_a_run_is_charged_are_foreign_where_they_are(town: Neighbours) -> None:
    own = town.run_object("e1", "evil")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": own["metadata"]["name"], "uid": uid(own)}
    booked = town.booked()
    (place,) = [run.placement for run in town.state().runs if run.job.name == "e1"]
    town.cluster.create(
        pod("more", "gpu-evil", 3, "n2", labels=dict(labels_of(own)), ownerReferences=[{**owner, "controller": True}])
    )
    state = town.state()
    assert sum(town.booked().values()) == sum(booked.values()) + 2, "one GPU is charged to the run, two are beyond it"
    (found,) = [run for run in state.runs if run.job.name == "e1"]
    assert place is not None
    assert found.placement is not None
    assert set(place.workers) < set(found.placement.workers)


FORGED = {
    names.QUEUED_AT_ANNOTATION: "2019-01-01T00:00:00.000Z",
    names.STARTS_ANNOTATION: "0",
    names.RAN_ANNOTATION: "0",
    names.PAUSED_FOR_ANNOTATION: "good/g1",
    names.PLACEMENT_ANNOTATION: '[{"node":"n1","gpus":[0,1,2,3]}]',
    names.CHARGE_ANNOTATION: '{"cpuMilli":0,"gpuMilli":0,"memBytes":0}',
    names.REASON_ANNOTATION: '{"code":"GPU5080","params":{"pool":"p"}}',
}


@pytest.mark.parametrize("name", ["e1", "e2"])
def test_what_a_runs_object_says_of_itself_is_not_believed_and_put_back(town: Neighbours, name: str) -> None:
    before, mine = town.life_of("good"), town.life_of("evil")["runs"]
    body = town.run_object(name, "evil")
    town.edit(body, lambda new: new["metadata"]["annotations"].update(FORGED))
    town.live_s(3)
    assert town.life_of("good") == before
    assert town.life_of("evil")["runs"] == mine
    notes = town.run_object(name, "evil")["metadata"]["annotations"]
    assert {key: notes[key] for key in body["metadata"]["annotations"]} == body["metadata"]["annotations"]


WAITING = {
    **TOWN,
    "cluster.yaml": cluster_of("  scheduling: {starvationGuard: 1m}\n"),
    "g3.yaml": job("g3", "good", 4),
    "e3.yaml": job("e3", "evil", 4),
}


def test_a_forged_wait_gains_no_place_in_the_queue_and_has_none_kept() -> None:
    honest, forged = Neighbours(WAITING), Neighbours(WAITING)
    for town in (honest, forged):
        if town is forged:
            body = town.run_object("e3", "evil")
            town.edit(body, lambda new: new["metadata"]["annotations"].update(FORGED))
        town.live_s(180)
    assert forged.life_of("good")["runs"] == honest.life_of("good")["runs"]
    assert forged.decisions_about("good") == honest.decisions_about("good")
    assert forged.decisions_about("evil") == honest.decisions_about("evil")


def test_labels_taken_off_a_run_are_put_back_and_change_nothing(town: Neighbours) -> None:
    before, mine = town.life_of("good"), town.life_of("evil")["runs"]
    for name in ("e1", "e2"):
        body = town.run_object(name, "evil")
        town.edit(body, lambda new: new["metadata"].update(labels={}))
        town.live_s(2)
        assert labels_of(town.run_object(name, "evil")) == labels_of(body)
    assert town.life_of("evil")["runs"] == mine
    assert town.life_of("good") == before


def test_an_object_made_again_under_the_name_of_a_run_is_not_the_run(town: Neighbours) -> None:
    before = town.life_of("good")
    body = town.run_object("e1", "evil")
    town.cluster.delete(ref_of(body), "", "")
    town.clock.advance_to(town.clock.now_ms() + 60_000)
    town.cluster.settle()
    town.cluster.create(copied(body, "gpu-evil"), names.FIELD_MANAGER)
    town.live_s(3)
    state = town.state()
    assert ref_of(body) in state.foreign
    assert "e1" not in {run.job.name for run in state.runs}
    assert sum(town.booked().values()) == 1, "its pod holds what it requests"
    assert town.life_of("good") == before


def test_a_strangers_object_in_the_place_of_a_run_is_left_alone_and_told(town: Neighbours) -> None:
    """Made before gpuctl makes the run: an object of that name is not taken over."""
    coming = {**TOWN, "e4.yaml": job("e4", "evil")}
    twin = Neighbours(coming)
    body = copied(twin.run_object("e4", "evil"), "gpu-evil")
    town.cluster.create({**body, "spec": {**body["spec"], "suspend": True}})
    town.declare(coming)
    town.live_s(3)
    assert town.decisions_about("evil")["e4"] == ("Pending", "GPU5072")
    notices = [notice for notice in town.reports[-1].plan.notices if notice.code == "GPU7057"]
    told = "was not created by gpuctl and has the name of the run of evil/e4, which waits"
    assert [notice.message for notice in notices] == [f"Job gpu-evil/{body['metadata']['name']} {told}"]
    before = town.run_object("e4", "evil")
    town.live_s(3)
    assert town.run_object("e4", "evil") == before
    town.cluster.delete(ref_of(before), "", "")
    town.live_s(5)
    assert {run.job.name: run.phase for run in town.state().runs}["e4"] is RunPhase.RUNNING


BORROWED = {
    "cluster.yaml": cluster_of(),
    "good.yaml": project("good", 8),
    "evil.yaml": project("evil", 0),
    "e1.yaml": job("e1", "evil", 4, ", workers: 2"),
}
"""A gang of evil's runs on all GPUs, which are within good's quota."""


def test_a_run_whose_service_its_owner_replaces_makes_way_for_others_all_the_same() -> None:
    """The server refuses to make a Service with an address headless, and the run has the same name as the Service."""
    town = Neighbours(BORROWED)
    service = ObjectRef("v1", "Service", "gpu-evil", text(town.run_object("e1", "evil"), "metadata", "name"))
    town.cluster.delete(service, "", "")
    meta = {"name": service.name, "namespace": service.namespace}
    ports = [{"port": 1, "name": "other"}]
    town.cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports}})
    town.live_s(5)
    (refused,) = town.reports[-1].rejected.values()
    assert str(refused.ref) == str(service)
    town.declare({**BORROWED, "g1.yaml": job("g1", "good", 4)})
    town.live_s(3)
    phases = {run.job.name: run.phase for run in town.state().runs}
    assert phases == {"e1": RunPhase.QUEUED, "g1": RunPhase.RUNNING}


def test_a_run_of_which_its_owner_fills_the_annotations_makes_way_for_others_all_the_same() -> None:
    """Each longer write was refused: it kept its GPUs from a job within its project's quota, for ever."""
    town = Neighbours(BORROWED)
    town.live_s(5)
    body = town.run_object("e1", "evil")
    own = sum(len(key) + len(value) for key, value in annotations_of(body).items())
    filler = {"theirs": "x" * (MOST_BYTES - own - len("theirs"))}
    town.edit(body, lambda new: new["metadata"]["annotations"].update(filler))
    town.live_s(5)
    assert annotations_of(town.run_object("e1", "evil")).items() >= filler.items()
    town.declare({**BORROWED, "g1.yaml": job("g1", "good", 4)})
    town.live_s(3)
    phases = {run.job.name: run.phase for run in town.state().runs}
    assert phases == {"e1": RunPhase.QUEUED, "g1": RunPhase.RUNNING}


def test_a_run_that_its_owner_keeps_suspending_is_no_younger_by_that() -> None:
    """Work younger than minRuntime is not reclaimed: it must not be possible to stay young."""
    shared = {
        "cluster.yaml": cluster_of("  scheduling: {minRuntime: 2m}\n"),
        "good.yaml": project("good", 8),
        "evil.yaml": project("evil", 0),
        "e1.yaml": job("e1", "evil", 8).replace("gpus: 8", "gpus: 4, workers: 2"),
    }
    town = Neighbours(shared)
    for _ in range(2):
        body = town.run_object("e1", "evil")
        town.edit(body, lambda new: new["spec"].update(suspend=True))
        town.live_s(70)
    assert [run.phase for run in town.state().runs] == [RunPhase.RUNNING]
    town.declare({**shared, "g1.yaml": job("g1", "good", 4)})
    town.live_s(40)
    assert {run.job.name: run.phase for run in town.state().runs}["g1"] is RunPhase.RUNNING


def test_pods_removed_over_and_over_hold_no_more_than_the_run_is_charged(town: Neighbours) -> None:
    before, booked = town.life_of("good"), town.booked()
    for _ in range(20):
        for ref, _body in town.pods("gpu-evil"):
            if "e2" in ref.name:
                town.cluster.delete(ref, "", "")
        town.live_s(1)
    assert town.life_of("good") == before
    town.live_s(60)
    assert town.booked() == booked


@pytest.mark.parametrize("sharing", ["device-plugin", "dra"])
def test_an_ended_pod_that_a_person_adds_to_a_run_frees_none_of_its_gpus(sharing: str) -> None:
    """The person also removes the run's own pod by force: until its Job has made another, there is none."""
    town = Neighbours({**TOWN, "cluster.yaml": cluster_of(pool=POOL.replace("device-plugin", sharing))})
    own = town.run_object("e1", "evil")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": own["metadata"]["name"], "uid": uid(own)}
    marks: dict[str, Any] = {"labels": dict(labels_of(own)), "ownerReferences": [{**owner, "controller": True}]}
    ((ref, theirs),) = [found for found in town.pods("gpu-evil") if "e1" in found[0].name]
    (before,) = [run for run in town.state().runs if run.job.name == "e1"]
    forged = {**pod("ended", "gpu-evil", node=theirs["spec"]["nodeName"], **marks), "status": {"phase": "Succeeded"}}
    objects = {**town.objects(), ref_of(forged): forged}
    del objects[ref]
    (now,) = [run for run in observe(RawObjects(objects=objects), town.declared.tenancy).runs if run.job.name == "e1"]
    assert before.placement is not None
    assert (now.placement, now.ended, now.ends_as) == (before.placement, frozenset(), None)


def test_a_namespace_that_somebody_else_made_under_a_projects_labels_has_no_runs_of_it(town: Neighbours) -> None:
    before = town.life_of("good")
    (space,) = [body for ref, body in town.state().live.items() if ref == ObjectRef("v1", "Namespace", "", "gpu-good")]
    made = {
        "name": "gpu-good-2",
        "labels": dict(labels_of(space)),
        "annotations": mapping(space, "metadata", "annotations"),
    }
    town.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": made})
    for name in ("g1", "g2"):
        town.cluster.create(copied(town.run_object(name, "good"), "gpu-good-2"))
    town.live_s(3)
    assert town.life_of("good") == before
