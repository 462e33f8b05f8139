"""No tenant can harm another: each test tries it as the tenant's own user, on a real API server.

`place` is three servers: without `--guard`, with it, and with it on a server that is as Kubernetes 1.34 was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from controlplane.server import ControlPlane
from tenancy import POLICIES, RUNNING, Place, apps, guard_alone, job, jobs, pod, pods, template, workload
from tenant_tries import (
    BEYOND,
    CHANGES,
    FIRST,
    JSON_PATCH,
    MERGE,
    NUMBERS,
    PLAIN,
    STRATEGIC,
    TO_THE_NODE,
    UNCOUNTED,
    VISIBLE,
    VOID,
    averse,
    env,
)
from unattended import at_last

from gpuctl.install import guard
from gpuctl.install.installation import ACCOUNT
from gpuctl.k8s import kinds, names
from gpuctl.k8s.quantity import parse_whole
from gpuctl.render.bounds import AFFINITY_NAME, CLASSES_NAME
from gpuctl.render.quota import ROOM

GOLDEN = Path(__file__).parents[1] / "golden"
INVALID = 422
PLACES = {"without the guard": (False, ""), "with the guard": (True, ""), "with the guard on 1.34": (True, "1.34")}


@pytest.fixture(scope="module", params=PLACES.values(), ids=list(PLACES))
def place(request: pytest.FixtureRequest, new_control_plane: Callable[..., ControlPlane]) -> Iterator[Place]:
    guarded, emulated = request.param
    plane = new_control_plane(emulated=emulated)
    yield Place(plane, guarded)
    plane.stop()


@pytest.fixture
def tidied(place: Place) -> Iterator[Place]:
    """The place, for a test that makes things by hand."""
    yield place
    place.clear()


@pytest.mark.parametrize("case", TO_THE_NODE)
@pytest.mark.parametrize("user", ["ann", "adam"])
def test_pods_do_not_reach_their_node(case: str, user: str, place: Place) -> None:
    assert 'violates PodSecurity "baseline:latest"' in place.tries(user, "a", TO_THE_NODE[case])


@pytest.mark.parametrize("case", TO_THE_NODE)
def test_pods_of_a_privileged_project_reach_it_unless_there_is_a_guard(case: str, place: Place) -> None:
    said = place.tries("sam", "storage", TO_THE_NODE[case])
    assert ("gpuctl-gpu-pods" in said) if place.guarded else (said == "")


def test_a_job_of_a_privileged_project_mounts_what_the_cluster_lists(place: Place) -> None:
    (mounted,) = place.one(pods("storage"), "copy")["spec"]["volumes"]
    assert mounted["hostPath"]["path"] == "/mnt/data/in"


@pytest.mark.parametrize("case", FIRST)
@pytest.mark.parametrize("user", ["ann", "adam"])
def test_pods_evict_no_other_by_their_class(case: str, user: str, place: Place) -> None:
    assert f"exceeded quota: {CLASSES_NAME}" in place.tries(user, "a", pod(**FIRST[case]))


def test_pods_bound_to_a_node_have_no_class_for_its_kubelet_either(place: Place) -> None:
    """A kubelet evicts for a critical pod that is bound to it: past the scheduler, and by priority alone."""
    bound = place.tries("ann", "a", pod(priorityClassName="system-node-critical", nodeName="n1"))
    assert CLASSES_NAME in bound or "past the scheduler" in bound
    assert bool(place.tries("ann", "a", pod(nodeName="n1"))) is place.guarded


@pytest.mark.parametrize("case", NUMBERS)
def test_pods_state_no_priority_of_their_own(case: str, place: Place) -> None:
    assert "priority admission controller computed" in place.tries("ann", "a", pod(**NUMBERS[case]))


def test_pods_have_no_class_or_gpuctls_or_one_that_the_cluster_lists(place: Place) -> None:
    for allowed in ("", "gpuctl-no-preempt", "night-shift"):
        assert place.tries("ann", "a", pod(priorityClassName=allowed)) == ""


def test_a_pod_does_not_get_a_class_or_a_place_afterwards(tidied: Place) -> None:
    made = tidied.plane.call("POST", pods("a"), pod(), user="ann")
    path = f"{pods('a')}/{made['metadata']['name']}"
    for change in (
        {"priorityClassName": "high"},
        {"priority": 5000},
        {"preemptionPolicy": "Never"},
        {"nodeName": "n2"},
    ):
        said = tidied.attempt("PATCH", path, {"spec": change}, user="ann", media=MERGE, code=INVALID)
        assert "pod updates may not change fields" in said
    debug = {"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}}
    resized = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "70"}}}]}}
    binding = {"metadata": made["metadata"], "target": {"kind": "Node", "name": "n1"}}
    for method, part, body, media in (
        ("PATCH", "status", {"status": {"nominatedNodeName": "n1"}}, MERGE),
        ("PATCH", "ephemeralcontainers", debug, STRATEGIC),
        ("PATCH", "resize", resized, STRATEGIC),
        ("POST", "binding", binding, ""),
    ):
        for user in ("ann", "adam"):
            assert "cannot " in tidied.attempt(method, f"{path}/{part}", body, user=user, media=media)


def test_controllers_make_no_such_pods_for_people(tidied: Place) -> None:
    """And what runs is not disturbed: each asks for more CPU than team b's job leaves."""
    theirs = tidied.one(pods("b"), "train")["metadata"]["uid"]
    wants: dict[str, Any] = {"priorityClassName": "system-node-critical"}
    wants["container"] = {"resources": {"requests": {"cpu": "60"}}}
    for kind in ("deployments", "daemonsets", "replicasets"):
        tidied.plane.call("POST", apps("a", kind), workload(**wants), user="ann")
    tidied.plane.call("POST", apps("a", "statefulsets"), stateful(**wants), user="ann")
    tidied.plane.call("POST", jobs("a"), job(**wants), user="ann")

    def refused() -> set[str]:
        told = tidied.plane.call("GET", "/api/v1/namespaces/gpu-a/events")["items"]
        return {event["involvedObject"]["kind"] for event in told if CLASSES_NAME in event.get("message", "")}

    at_last(lambda: refused() >= {"ReplicaSet", "DaemonSet", "StatefulSet", "Job"}, refused)
    assert tidied.one(pods("b"), "train")["metadata"]["uid"] == theirs
    left = tidied.plane.call("GET", pods("a"))["items"]
    assert {each["metadata"]["labels"].get(names.JOB_LABEL) for each in left} == {"train", "serve"}


def stateful(**spec: Any) -> Any:
    made = workload(**spec)
    return {**made, "spec": {**made["spec"], "serviceName": "x"}}


@pytest.mark.parametrize("way", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("where", [{}, {"namespaceSelector": None, "namespaces": ["gpu-b"]}])
def test_pods_keep_no_other_teams_pods_off_their_node(way: str, where: Mapping[str, Any], place: Place) -> None:
    refused = place.tries("ann", "a", pod(affinity=averse(way, **where)))
    assert f"exceeded quota: {AFFINITY_NAME}" in refused
    assert place.tries("ann", "a", pod(affinity=averse(way, namespaceSelector=None))) == ""


def test_a_job_starts_beside_pods_that_are_averse_to_all_of_their_own(tidied: Place) -> None:
    tidied.plane.call("POST", pods("a"), pod(affinity=averse(namespaceSelector=None)), user="ann")
    more = "kind: Job\nmetadata: {name: more, project: b}\nspec: {image: x, gpus: 0}\n"
    tidied.run(RUNNING + 1, {"more.yaml": more})
    tidied.run(RUNNING)


@pytest.mark.parametrize("case", BEYOND)
@pytest.mark.parametrize("user", ["ann", "adam"])
def test_what_bounds_a_tenant_is_not_the_tenants(case: str, user: str, place: Place) -> None:
    method, path, body = BEYOND[case]
    said = place.attempt(method, path, body, user=user, media=MERGE if method == "PATCH" else "")
    assert "cannot " in said or "attempting to grant RBAC permissions not currently held" in said


def test_a_tenant_makes_only_so_many_objects(tidied: Place) -> None:
    """gpuctl holds each Job in memory, whosever it is. The ceiling is lowered here, and gpuctl puts it back."""
    quota, count = "/api/v1/namespaces/gpu-a/resourcequotas/gpuctl", "/spec/hard/count~1jobs.batch"
    lower = [{"op": "replace", "path": count, "value": "3"}]  # which is refused where there is no such ceiling
    tidied.plane.call("PATCH", quota, lower, media=JSON_PATCH)
    at_last(lambda: tidied.plane.call("GET", quota)["status"]["hard"]["count/jobs.batch"] == "3")

    def make() -> str:
        return tidied.attempt("POST", jobs("a"), job(more={"suspend": True}), user="ann")

    said = at_last(lambda: next(filter(None, (make() for _ in range(5))), ""))
    assert "exceeded quota: gpuctl, requested: count/jobs.batch=1" in said
    tidied.run(RUNNING)
    assert parse_whole(tidied.plane.call("GET", quota)["spec"]["hard"]["count/jobs.batch"]) >= ROOM
    at_last(lambda: make() == "")


def test_a_namespace_of_an_earlier_version_gets_its_level_and_nothing_is_written_after(place: Place) -> None:
    path, level = "/api/v1/namespaces/gpu-a", f"{names.POD_SECURITY_LABEL}enforce"
    before = {f"{names.POD_SECURITY_LABEL}{mode}": None for mode in ("enforce", "enforce-version", "warn")}
    place.plane.call("PATCH", path, {"metadata": {"labels": before}}, media=MERGE)
    place.plane.call("DELETE", f"{path}/resourcequotas/{CLASSES_NAME}")
    assert place.run(RUNNING) == ()
    assert place.plane.call("GET", path)["metadata"]["labels"][level] == "baseline"
    at_last(lambda: place.tries("ann", "a", pod(priorityClassName="high")))


@pytest.fixture(scope="module")
def levels(place: Place) -> Place:
    """Namespaces named and labelled as those of the golden manifests."""
    for case in GOLDEN.glob("*/expected.yaml"):
        for body in yaml.safe_load_all(case.read_text()):
            if body["kind"] == "Namespace":
                meta = {**body["metadata"], "name": f"{case.parent.name}-{body['metadata']['name']}"}
                place.plane.call("POST", "/api/v1/namespaces", {**body, "metadata": meta})
    return place


@pytest.mark.parametrize("place", [PLACES["without the guard"]], ids=["without the guard"], indirect=True)
@pytest.mark.parametrize("case", sorted(path.parent.name for path in GOLDEN.glob("*/expected.yaml")))
def test_all_that_gpuctl_renders_is_within_its_namespaces_level(case: str, levels: Place) -> None:
    """A dry run of every golden manifest, and of a pod of each template."""
    levels_seen = set()
    for body in yaml.safe_load_all((GOLDEN / case / "expected.yaml").read_text()):
        kind = (body["apiVersion"], body["kind"])
        if kind in kinds.CLUSTER_SCOPED:
            levels_seen.add(body["metadata"].get("labels", {}).get(f"{names.POD_SECURITY_LABEL}enforce"))
            continue
        there = f"{case}-{body['metadata']['namespace']}"
        meta = {**body["metadata"], "namespace": there}
        group = "api" if kind[0] == "v1" else "apis"
        base = f"/{group}/{kind[0]}/namespaces/{there}/{kinds.KINDS[kind].plural}"
        made = levels.plane.call("POST", f"{base}?dryRun=All&fieldValidation=Strict", {**body, "metadata": meta})
        spec = made["spec"].get("template", {}).get("spec") if "spec" in made else None
        if spec is not None:
            one = {"metadata": {"generateName": "x-"}, "spec": spec}
            levels.plane.call("POST", f"/api/v1/namespaces/{there}/pods?dryRun=All", one)
    assert levels_seen - {None}


# What only the guard stops


@pytest.mark.parametrize("case", UNCOUNTED)
def test_only_the_guard_stops_pods_with(case: str, place: Place) -> None:
    body, words = UNCOUNTED[case]
    if "runtimeClassName" in body["spec"] and not place.plane.call("GET", f"{RUNTIMES}")["items"]:
        place.plane.call("POST", RUNTIMES, {"metadata": {"name": "fast"}, "handler": "nvidia"})
    spec = body["spec"]
    beside = {**body, "spec": {**spec, "containers": [*spec["containers"], {"name": "second", "image": "x"}]}}
    for made in (body, beside):
        said = place.tries("ann", "a", made)
        assert (words in said) if place.guarded else (said == "")


def test_only_the_guard_stops_gpus_of_pods_that_controllers_make_for_people(place: Place) -> None:
    asks = pod({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    for maker in guard.CONTROLLERS[1:3]:
        said = place.tries(maker, "a", asks)
        assert ("GPUs are asked for in Git" in said) if place.guarded else (said == "")


RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.mark.parametrize("case", PLAIN)
def test_the_guard_lets_pods_with(case: str, place: Place) -> None:
    assert place.tries("ann", "a", PLAIN[case]) == ""


def marked(kind: str, labels: Mapping[str, str]) -> Any:
    if kind == "jobs":
        return job(labels)
    if kind == "cronjobs":
        return {
            "metadata": {"name": "x"},
            "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": job(labels)["spec"]}},
        }
    if kind == "replicationcontrollers":
        return {"metadata": {"name": "x"}, "spec": {"selector": {"app": "x"}, "template": template(labels)}}
    return stateful(labels=labels) if kind == "statefulsets" else workload(labels)


WORKLOADS = {
    **{kind: apps("a", kind) for kind in ("deployments", "replicasets", "statefulsets", "daemonsets")},
    **{kind: jobs("a", kind) for kind in ("jobs", "cronjobs")},
    "replicationcontrollers": "/api/v1/namespaces/gpu-a/replicationcontrollers",
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_only_the_guard_stops_gpuctls_labels_on(kind: str, place: Place) -> None:
    said = place.attempt("POST", f"{WORKLOADS[kind]}?dryRun=All", marked(kind, {names.JOB_LABEL: "train"}), user="ann")
    assert ("written by gpuctl only" in said) if place.guarded else (said == "")


NAMED = {
    "job": (jobs("a"), job()),
    "deployment": (apps("a", "deployments"), workload()),
    "service": ("/api/v1/namespaces/gpu-a/services", {"spec": {"ports": [{"port": 80}]}}),
}


@pytest.mark.parametrize("kind", NAMED)
def test_only_the_guard_stops_what_would_pass_for_gpuctls_own(kind: str, place: Place) -> None:
    url, body = NAMED[kind]
    labelled = {**body, "metadata": {"name": "x", "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}}
    said = place.attempt("POST", f"{url}?dryRun=All", labelled, user="ann")
    assert ("is written by gpuctl only" in said) if place.guarded else (said == "")
    labelled["metadata"]["labels"] = {names.MANAGED_BY_LABEL: "Helm"}
    assert place.attempt("POST", f"{url}?dryRun=All", labelled, user="ann") == ""


def claim(**meta: Any) -> Any:
    exactly = {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {"metadata": {"name": "x", **meta}, "spec": spec}


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/gpu-a/resourceclaims"


def test_only_the_guard_stops_forged_claims(place: Place) -> None:
    labels, train = {names.JOB_LABEL: "train"}, place.one(pods("a"), "train")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": train["name"], "uid": train["uid"]}
    made = {**claim(), "spec": {"metadata": {"labels": labels}, "spec": claim()["spec"]}}
    in_place = {**claim(name="train-0123abcd"), "spec": {"spec": claim()["spec"]}}
    for path, body in (
        (CLAIMS, claim(labels=labels)),
        (CLAIMS, claim(ownerReferences=[owner])),
        (CLAIMS.replace("claims", "claimtemplates"), made),
        (CLAIMS.replace("claims", "claimtemplates"), in_place),
    ):
        said = place.attempt("POST", f"{path}?dryRun=All", body, user="ann")
        assert ("gpuctl" in said or "only" in said) if place.guarded else (said == "")
    own = {**claim(name="mine"), "spec": {"spec": claim()["spec"]}}
    assert place.attempt("POST", f"{CLAIMS.replace('claims', 'claimtemplates')}?dryRun=All", own, user="ann") == ""
    place.plane.call("POST", CLAIMS, claim(), user="ann")
    change = {"metadata": {"labels": labels}}
    said = place.attempt("PATCH", f"{CLAIMS}/x?dryRun=All", change, user="ann", media=MERGE)
    place.plane.call("DELETE", f"{CLAIMS}/x", user="ann")
    assert ("only" in said) if place.guarded else (said == "")


def test_only_the_guard_stops_pods_with_a_runs_job_for_an_owner(tidied: Place) -> None:
    """By a reference, or by the labels by which the Job controller adopts a pod without one."""
    place = tidied
    run = place.one(jobs("a"), "train")["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": run["name"], "uid": run["uid"], "controller": True}
    uid = {"batch.kubernetes.io/controller-uid": run["uid"]}
    of_set = {**owner, "apiVersion": "apps/v1", "kind": "StatefulSet"}
    of_replicas = place.one(pods("a"), "serve")["metadata"]["ownerReferences"]
    made_by = place.plane.call("GET", f"{apps('a', 'replicasets')}/{of_replicas[0]['name']}")
    of_leader = {**owner, "apiVersion": "v1", "kind": "Pod"}
    led = stateful()
    led["metadata"]["ownerReferences"] = [of_leader]
    replicas = workload()
    replicas["metadata"]["ownerReferences"] = made_by["metadata"]["ownerReferences"]
    by_hand = {"manualSelector": True, "selector": {"matchLabels": {"app": "x"}}}
    forged = [
        (pods("a"), pod(meta={"ownerReferences": [owner]})),
        (pods("a"), pod(meta={"ownerReferences": [of_set]})),
        (apps("a", "statefulsets"), led),
        (pods("a"), pod(meta={"ownerReferences": of_replicas})),
        (apps("a", "replicasets"), replicas),
        (pods("a"), pod(meta={"labels": uid})),
        (pods("a"), pod(meta={"labels": {"controller-uid": run["uid"]}})),
        (jobs("a"), job({"app": "x", **uid}, by_hand)),
        *((WORKLOADS[kind], marked(kind, uid)) for kind in WORKLOADS if not WORKLOADS[kind].startswith("/apis/batch")),
    ]
    for path, body in forged:
        said = place.attempt("POST", f"{path}?dryRun=All", body, user="ann")
        assert (
            ("by Kubernetes' controllers only" in said or "its controller only" in said) if place.guarded else not said
        )
    assert place.attempt("POST", f"{jobs('a')}?dryRun=All", job(), user="ann") == ""
    made = place.plane.call("POST", pods("a"), pod(), user="ann")["metadata"]["name"]
    for change in ({"ownerReferences": [owner]}, {"labels": uid}):
        path = f"{pods('a')}/{made}?dryRun=All"
        said = place.attempt("PATCH", path, {"metadata": change}, user="ann", media=MERGE)
        assert ("controller" in said) if place.guarded else (said == "")


def test_only_the_guard_stops_what_kuberay_puts_before_a_runs_containers(place: Place) -> None:
    """It runs the job's image, which may say that it sees all GPUs; what the manifest has before them sees none."""
    labels = {names.JOB_LABEL: "train", "ray.io/cluster": "train"}
    maker = "system:serviceaccount:kube-system:statefulset-controller"  # any that is trusted with the labels
    for more, refused in (({}, True), (env(("OTHER", "void")), True), (env(VOID), False)):
        before = {"name": "wait-gcs-ready", "image": "x", **more}
        body = pod(meta={"labels": labels, "generateName": "ray-"}, initContainers=[before])
        said = place.attempt("POST", f"{pods('a')}?dryRun=All", body, user=maker)
        assert ("wait-gcs-ready" in said) if place.guarded and refused else (said == "")


@pytest.mark.parametrize("case", CHANGES)
def test_only_the_guard_stops_changes_of_a_runs_pod_to(case: str, place: Place) -> None:
    path = f"{pods('a')}/{place.one(pods('a'), 'train')['metadata']['name']}?dryRun=All"
    body, media = CHANGES[case]
    said = place.attempt("PATCH", path, body, user="ann", media=media)
    assert ("gpuctl" in said) if place.guarded else (said == "")


def test_a_pod_gets_no_gpus_by_a_change_and_what_gives_them_may_say_so(tidied: Place) -> None:
    made = tidied.plane.call("POST", pods("a"), pod(), user="ann")
    path = f"{pods('a')}/{made['metadata']['name']}"
    for case in ("HAMi's devices", "a toleration"):
        body, media = CHANGES[case]
        assert bool(tidied.attempt("PATCH", f"{path}?dryRun=All", body, user="ann", media=media)) is tidied.guarded
    tidied.plane.call("PATCH", path, CHANGES["HAMi's devices"][0], media=MERGE)  # as one who may patch nodes
    for value in ("less", None):
        body = {"metadata": {"annotations": {"hami.io/vgpu-devices-allocated": value}}}
        assert bool(tidied.attempt("PATCH", f"{path}?dryRun=All", body, user="ann", media=MERGE)) is tidied.guarded
    tidied.plane.call("PATCH", path, {"metadata": {"annotations": {"mine": "x"}}}, user="ann", media=MERGE)
    added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "x", **env((VISIBLE, "all"))}]}}
    said = tidied.attempt("PATCH", f"{path}/ephemeralcontainers?dryRun=All", added, media=STRATEGIC)
    assert (VISIBLE in said) if tidied.guarded else (said == "")


def test_only_the_guard_stops_changes_of_what_gpuctl_made(tidied: Place) -> None:
    """Or of what a controller made of it: a StatefulSet of a LeaderWorkerSet is known by its name alone."""
    place = tidied
    train, serve = place.one(jobs("a"), "train"), place.one(apps("a", "deployments"), "serve")
    made = stateful()
    made["metadata"] = {"name": "by-hand-0123abcd-0"}
    place.plane.call("POST", apps("a", "statefulsets"), {**made, "spec": {**made["spec"], "replicas": 0}})
    (replicas,) = place.one(pods("a"), "serve")["metadata"]["ownerReferences"]
    paths = f"{jobs('a')}/{train['metadata']['name']}", f"{apps('a', 'deployments')}/{serve['metadata']['name']}"
    for path, change in (
        (paths[0], {"spec": {"suspend": True}}),
        (paths[0], {"metadata": {"annotations": {names.QUEUED_AT_ANNOTATION: "2000-01-01T00:00:00Z"}}}),
        (paths[0], {"metadata": {"annotations": {names.QUEUED_AT_ANNOTATION: None}}}),
        (paths[1], {"spec": {"replicas": 3}}),
        (f"{paths[1]}/scale", {"spec": {"replicas": 3}}),
        (f"{apps('a', 'replicasets')}/{replicas['name']}/scale", {"spec": {"replicas": 3}}),
        (f"{apps('a', 'statefulsets')}/by-hand-0123abcd-0/scale", {"spec": {"replicas": 3}}),
    ):
        said = place.attempt("PATCH", f"{path}?dryRun=All", change, user="ann", media=MERGE)
        assert ("gpuctl" in said) if place.guarded else (said == "")


def test_only_the_guard_stops_a_new_size_of_a_runs_pod(place: Place) -> None:
    """By one with the right, which no tenant has. The server asks first whether the kubelet can, by what it told."""
    meta = place.one(pods("b"), "train")["metadata"]
    path = f"{pods('b')}/{meta['name']}"
    before = place.plane.call("GET", path)["status"].get("containerStatuses", [])
    can = {"status": {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "60"}}}]}}
    place.plane.call("PATCH", f"{path}/status", can, media=STRATEGIC)
    less = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    said = place.attempt("PATCH", f"{path}/resize?dryRun=All", less, media=STRATEGIC)
    place.plane.call("PATCH", f"{path}/status", {"status": {"containerStatuses": before}}, media=MERGE)
    assert ("this is gpuctl's" in said) if place.guarded else (said == "")


ANCHOR = {"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor", "uid": "anchor"}


def test_only_the_guard_stops_pods_that_outlive_their_run(place: Place) -> None:
    """As orphans, behind a finalizer, with years to end, with another owner, or without what their controller knows
    them by, they would hold GPUs."""
    train, serve = place.one(jobs("a"), "train"), place.one(apps("a", "deployments"), "serve")
    running = place.one(pods("a"), "serve")["metadata"]
    workloads = [
        f"{path}/{meta['name']}?dryRun=All"
        for path, meta in (
            (jobs("a"), train["metadata"]),
            (apps("a", "deployments"), serve["metadata"]),
            (apps("a", "replicasets"), running["ownerReferences"][0]),
        )
    ]
    served = f"{pods('a')}/{running['name']}?dryRun=All"
    evicted, eviction = served.replace("?", "/eviction?"), {"metadata": {"name": running["name"]}}
    for path in workloads:
        assert place.attempt("DELETE", f"{path}&propagationPolicy=Background", user="ann") == ""
    for seconds in (1, 30):
        soon = {"gracePeriodSeconds": seconds, "dryRun": ["All"]}
        assert place.attempt("DELETE", served, soon, user="ann") == ""
        assert place.attempt("POST", evicted, {**eviction, "deleteOptions": soon}, user="ann") == ""
    ways: list[dict[str, Any]] = [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}]
    orphaning = [{**way, "dryRun": ["All"]} for way in ways]  # beside a body the server reads no parameters
    left: list[tuple[str, str, Any]] = [
        ("DELETE", path, body) for path in (*workloads, jobs("a")) for body in orphaning
    ]
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    left += [("PATCH", path, held) for path in (*workloads, served)]
    left.append(("PATCH", workloads[0], {"metadata": {"finalizers": ["orphan"]}}))
    slow = {"gracePeriodSeconds": 601, "dryRun": ["All"]}
    left += [("DELETE", path, slow) for path in (served, pods("a"))]
    left.append(("POST", evicted, {**eviction, "deleteOptions": slow}))
    left.append(("PATCH", served, {"metadata": {"ownerReferences": None}}))
    owned = {"metadata": {"ownerReferences": [*running["ownerReferences"], ANCHOR]}}
    left.append(("PATCH", served, owned))
    left.append(("PATCH", served, {"metadata": {"labels": {"pod-template-hash": "x"}}}))
    trained = f"{pods('a')}/{place.one(pods('a'), 'train')['metadata']['name']}?dryRun=All"
    left.append(("PATCH", trained, {"metadata": {"labels": {"job-name": None}}}))
    for method, path, body in left:
        said = place.attempt(method, path, body, user="ann", media=MERGE if method == "PATCH" else "")
        assert ("this is gpuctl's" in said) if place.guarded else (said == ""), (method, path, body)
    for body in (held, owned, {"metadata": {"labels": {"pod-template-hash": "x"}}}):  # as one who may patch nodes
        assert place.attempt("PATCH", served, body, media=MERGE) == ""
    assert place.attempt("DELETE", served, slow) == ""
    assert place.attempt("PATCH", served, {"metadata": {"labels": {"mine": "x"}}}, user="ann", media=MERGE) == ""


def test_only_the_guard_stops_pods_that_are_gone_before_their_processes(tidied: Place) -> None:
    """The kubelet counts GPUs as free that a forced pod had, and ends it in its own time: another job gets them."""
    place = tidied
    name = place.one(pods("a"), "train")["metadata"]["name"]
    running, at_once = f"{pods('a')}/{name}?dryRun=All", {"gracePeriodSeconds": 0, "dryRun": ["All"]}
    evicted, eviction = f"{pods('a')}/{name}/eviction?dryRun=All", {"metadata": {"name": name}}
    ways: list[tuple[str, str, Any]] = [
        ("DELETE", running, at_once),
        ("DELETE", f"{running}&gracePeriodSeconds=0", None),
        ("DELETE", pods("a"), at_once),
        ("POST", evicted, {**eviction, "deleteOptions": at_once}),
    ]
    for method, path, body in ways:
        said = place.attempt(method, path, body, user="ann")
        assert ("its GPUs" in said) if place.guarded else (said == ""), (method, path)
    assert place.attempt("DELETE", running, at_once) == ""  # as one who may patch nodes: of one that is lost
    mine = place.plane.call("POST", pods("a"), pod(), user="ann")["metadata"]["name"]
    assert place.attempt("DELETE", f"{pods('a')}/{mine}?dryRun=All", at_once, user="ann") == ""


def test_only_the_guard_stops_pods_that_have_no_room_for_their_end(tidied: Place) -> None:
    """The server takes no more than 1.5 MB, and so no status by which the kubelet tells that a pod has ended."""
    name = tidied.one(pods("a"), "train")["metadata"]["name"]
    path = f"{pods('a')}/{name}"
    few = {"labels": {f"mine-{number}": "x" for number in range(20)}, "annotations": {"mine": "x" * 4_000}}
    assert tidied.attempt("PATCH", path, {"metadata": few}, user="ann", media=MERGE) == ""
    ways = [{field: {f"mine-{number}": "x" for number in range(100)}} for field in ("labels", "annotations")]
    ways.append({"annotations": {"mine": "x" * 5_000}})
    said = [tidied.attempt("PATCH", path, {"metadata": way}, user="ann", media=MERGE) for way in ways]
    own = {"metadata": {"name": name, "labels": {"mine-1": "x"}}, "apiVersion": "v1", "kind": "Pod"}
    applied = [f"{path}?fieldManager=mine-{number}" for number in range(20)]
    said += [tidied.attempt("PATCH", each, own, user="ann") for each in applied][-1:]
    assert all(("could not be" in each) if tidied.guarded else (each == "") for each in said), said


def test_only_the_guard_stops_what_others_made_of_a_run_from_outliving_it(tidied: Place) -> None:
    """Such as a StatefulSet of a LeaderWorkerSet, or the launcher of an MPIJob: the labels are on its pods alone."""
    name = "by-hand-0123abcd-launcher"
    made = {**job({names.JOB_LABEL: "train"}), "metadata": {"name": name, "labels": {"app": "train"}}}
    made["spec"]["suspend"] = True
    tidied.plane.call("POST", jobs("a"), made, user=ACCOUNT)
    path = f"{jobs('a')}/{name}?dryRun=All"
    left: list[tuple[str, Any]] = [
        ("DELETE", {"propagationPolicy": "Orphan", "dryRun": ["All"]}),
        ("PATCH", {"metadata": {"finalizers": ["example.com/hold"]}}),
        ("PATCH", {"metadata": {"ownerReferences": [ANCHOR]}}),
    ]
    said = [tidied.attempt(way, path, body, user="ann", media=MERGE if way == "PATCH" else "") for way, body in left]
    assert all(("this is gpuctl's" in each) if tidied.guarded else (each == "") for each in said), said
    plain = f"{path}&propagationPolicy=Background"
    assert tidied.attempt("DELETE", plain, user="ann") == ""


def test_only_the_guard_stops_services_that_take_addresses_of_others(place: Place) -> None:
    """Every node sends what any pod sends to an external IP of a Service to the Service: the API server's, a peer's."""
    path = "/api/v1/namespaces/gpu-a/services"
    plain: dict[str, Any] = {"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 443}]}}
    taken = {**plain, "spec": {**plain["spec"], "externalIPs": ["192.0.2.1"]}}
    said = [place.attempt("POST", f"{path}?dryRun=All", taken, user="ann")]
    assert place.attempt("POST", f"{path}?dryRun=All", taken) == ""  # as one who may patch nodes
    place.plane.call("POST", path, plain, user="ann")
    more = {"spec": {"externalIPs": ["192.0.2.1"]}}
    said.append(place.attempt("PATCH", f"{path}/mine?dryRun=All", more, user="ann", media=MERGE))
    place.plane.call("PATCH", f"{path}/mine", more, media=MERGE)
    other = {"metadata": {"labels": {"a": "b"}}}
    assert place.attempt("PATCH", f"{path}/mine?dryRun=All", other, user="ann", media=MERGE) == ""
    place.plane.call("DELETE", f"{path}/mine", user="ann")
    assert all(("externalIPs" in each) if place.guarded else (each == "") for each in said), said


def test_only_the_guard_stops_autoscalers_of_what_gpuctl_made(place: Place) -> None:
    serve = place.one(apps("a", "deployments"), "serve")["metadata"]
    path = f"/apis/autoscaling/v2/namespaces/{serve['namespace']}/horizontalpodautoscalers?dryRun=All"

    def of(target: str) -> dict[str, Any]:
        metric = {
            "type": "Pods",
            "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": 1}},
        }
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
        spec = {"scaleTargetRef": reference, "maxReplicas": 100, "metrics": [metric]}
        kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        return {**kind, "metadata": {"name": "more"}, "spec": spec}

    assert place.attempt("POST", path, of("mine"), user="ann") == ""
    said = [place.attempt("POST", path, of(serve["name"]), user="ann")]
    place.plane.call("POST", path.partition("?")[0], of("mine"), user="ann")
    mine = path.replace("?", "/more?")
    said.append(place.attempt("PUT", mine, of(serve["name"]), user="ann"))
    place.plane.call("DELETE", mine.partition("?")[0], user="ann")
    place.plane.call("POST", path.partition("?")[0], of(serve["name"]), user=ACCOUNT)
    told = {"status": {"desiredReplicas": 100}}  # as one who may write it, which no tenant may
    said.append(place.attempt("PATCH", mine.replace("?", "/status?"), told, media=MERGE))
    place.plane.call("DELETE", mine.partition("?")[0])
    assert all(("declare its scaling in Git" in each) if place.guarded else (each == "") for each in said), said


def test_the_guard_lets_kubernetes_autoscaler_scale_what_git_says(place: Place) -> None:
    serve = place.one(apps("a", "deployments"), "serve")["metadata"]
    path = f"{apps('a', 'deployments')}/{serve['name']}/scale"
    scale = place.plane.call("GET", path)
    more = {**scale, "spec": {"replicas": scale["spec"]["replicas"] + 1}}
    assert place.attempt("PUT", f"{path}?dryRun=All", more, user=guard.AUTOSCALER) == ""


def test_the_server_finds_no_mistake_in_the_guards_policies(place: Place) -> None:
    def judged() -> dict[str, Any]:
        found = {item["metadata"]["name"]: item for item in place.plane.call("GET", POLICIES)["items"]}
        return found if all("typeChecking" in item.get("status", {}) for item in found.values()) else {}

    found = at_last(judged)
    assert set(found) == {"gpuctl-stays-home", *(guard_alone() if place.guarded else ())}
    assert [name for name, item in found.items() if item["status"]["typeChecking"] != {}] == []
