"""Hands in a cluster that gpuctl keeps, where no guard policy stops them: ours is back soon, theirs is left alone.

One process of `gpuctl reconcile` goes through all of it; each test leaves everything as it found it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError

import pytest
from controlplane.server import ControlPlane
from town import GONE, MERGE
from unattended import Process, Site, at_last, install, job, project, typed, writes_of

from gpuctl.k8s import names

Figure = Callable[[str], None]
Tree = Mapping[str, Any]
INTERVAL = "10m"
"""Longer than any test waits: what is right again sooner is so because gpuctl watches."""
NAMESPACE = "/api/v1/namespaces/gpu-hands-a"
JOBS, BINDINGS = (
    "/apis/batch/v1/namespaces/gpu-hands-a/jobs",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-hands-a",
)
DEPLOYMENTS = "/apis/apps/v1/namespaces/gpu-hands-a/deployments"
BINDING, QUOTA = f"{BINDINGS}/rolebindings/gpuctl-edit", f"{NAMESPACE}/resourcequotas/gpuctl"
THEIRS = {"metadata": {"labels": {"example.com/owner": "me"}, "annotations": {"example.com/note": "mine"}}}
ACCESS = {"c/a.yaml": project("a", 16)["c/a.yaml"].replace("quota: 16", "quota: 16, access: [{group: g, role: edit}]")}


@dataclass
class Scene:
    """Project `a`: a training job, a gang of two with its Service, and an inference job of two replicas."""

    plane: ControlPlane
    site: Site
    process: Process

    def path(self, collection: str, job: str) -> str:
        """The one object of a job in a collection."""
        (found,) = self.plane.call("GET", f"{collection}?labelSelector=gpuctl.dev%2Fjob%3D{job}")["items"]
        return f"{collection}/{found['metadata']['name']}"

    def look(self, path: str) -> dict[str, Any]:
        """An object, or nothing while it is gone."""
        try:
            found: dict[str, Any] = self.plane.call("GET", path)
        except HTTPError as error:
            error.close()
            if error.code != GONE:
                raise
            return {}
        return found

    def change(self, path: str, edit: Tree) -> dict[str, Any]:
        """An administrator's edit; the object right after it."""
        changed: dict[str, Any] = self.plane.call("PATCH", f"{path}?fieldManager=hand", edit, media=MERGE)
        return changed

    def back_in(self, holds: Callable[[], object]) -> float:
        """Seconds until it holds, long before gpuctl would look by itself: see INTERVAL."""
        since = time.monotonic()
        at_last(holds, self.site.logs)
        return time.monotonic() - since

    def commit(self, *files: Mapping[str, str | None]) -> None:
        """Commit files, and have Git read."""
        self.site.commit(*files)
        assert typed(self.plane.kubeconfig, "sync").exit_code == 0


@pytest.fixture(scope="module")
def scene(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    install(control_plane, guard=False)
    site = Site(control_plane, tmp_path_factory.mktemp("hands"), "hands")
    try:
        site.commit(
            ACCESS,
            job("train", more=", maxDuration: 2h"),
            job("gang", more=", workers: 2"),
            job("web", more=", type: inference, workers: 2"),
        )
        process = site.start(interval=INTERVAL)
        site.await_pods("train", "gang", "web")
        yield Scene(control_plane, site, process)
    finally:
        site.leave()


def written(body: Tree) -> dict[str, Any]:
    """What people and gpuctl write in an object, without what the server and its controllers do."""
    meta = {key: body["metadata"].get(key, {}) for key in ("labels", "annotations")}
    notes = {key: note for key, note in meta["annotations"].items() if not key.startswith("deployment.kubernetes.io/")}
    parts = {key: body[key] for key in ("spec", "subjects", "roleRef") if key in body}
    return {**parts, "metadata": {**meta, "annotations": notes}}


def merged(body: Tree, patch: Tree) -> dict[str, Any]:
    """A tree with a merge patch in it."""
    found = dict(body)
    for key, value in patch.items():
        found[key] = merged(found.get(key, {}), value) if isinstance(value, Mapping) else value
        if value is None:
            del found[key]
    return found


@dataclass(frozen=True)
class Edit:
    """`ours` is changed and must come back; `theirs` is added in the same request and must stay, as `THEIRS` must."""

    collection: str
    job: str = ""
    ours: Tree = field(default_factory=dict)
    theirs: Tree = field(default_factory=dict)


EDITS = {
    "a time limit": Edit(JOBS, "train", {"spec": {"activeDeadlineSeconds": 60}}),
    "a label of a job": Edit(JOBS, "train", {"metadata": {"labels": {names.PROJECT_LABEL: "b"}}}),
    "a label taken from a job": Edit(JOBS, "gang", {"metadata": {"labels": {names.MANAGED_BY_LABEL: None}}}),
    "a note of a job": Edit(JOBS, "gang", {"metadata": {"annotations": {names.REASON_ANNOTATION: "{}"}}}),
    "a Service": Edit(
        f"{NAMESPACE}/services",
        "gang",
        {"spec": {"publishNotReadyAddresses": None}},
        {"spec": {"internalTrafficPolicy": "Local"}},
    ),
    "a Service that leads nowhere": Edit(f"{NAMESPACE}/services", "gang", {"spec": {"selector": {"app": "other"}}}),
    "a Service that is ours no more": Edit(
        f"{NAMESPACE}/services", "gang", {"metadata": {"labels": {names.MANAGED_BY_LABEL: "me"}}}
    ),
    "who may work in a project": Edit(
        BINDING, ours={"subjects": [{"kind": "User", "name": "me", "apiGroup": "rbac.authorization.k8s.io"}]}
    ),
    "a quota": Edit(
        QUOTA,
        ours={"spec": {"hard": {"requests.nvidia.com/gpu": "99"}}},
        theirs={"spec": {"hard": {"count/secrets": "50"}}},
    ),
    "a namespace": Edit(NAMESPACE, ours={"metadata": {"labels": {names.MANAGED_LABEL: None}}}),
    "how replicas are replaced": Edit(DEPLOYMENTS, "web", {"spec": {"strategy": {"type": "RollingUpdate"}}}),
    "how replicas are replaced, in parts": Edit(
        DEPLOYMENTS, "web", {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2}}}}
    ),
    "a Deployment": Edit(
        DEPLOYMENTS,
        "web",
        {"metadata": {"annotations": {names.PLACEMENT_ANNOTATION: None}}},
        {"spec": {"revisionHistoryLimit": 3}},
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_is_ours_is_back_and_what_is_theirs_stays(name: str, scene: Scene, figure: Figure) -> None:
    edit = EDITS[name]
    path = scene.path(edit.collection, edit.job) if edit.job else edit.collection
    pods, before = scene.site.pods(), scene.look(path)
    theirs = merged(THEIRS, edit.theirs)
    wanted = merged(written(before), theirs)
    edited = scene.change(path, merged(edit.ours, theirs))
    assert written(edited) != wanted
    took_s = scene.back_in(lambda: written(scene.look(path)) == wanted)
    assert scene.look(path)["metadata"]["uid"] == before["metadata"]["uid"]
    assert scene.site.pods() == pods
    figure(f"an edit by hand, {name}: right again after {took_s:.2f} s")


def test_what_is_only_theirs_costs_no_write(scene: Scene) -> None:
    paths = [scene.path(JOBS, "train"), scene.path(DEPLOYMENTS, "web"), scene.path(f"{NAMESPACE}/services", "gang")]
    for path in [*paths, NAMESPACE, BINDING, QUOTA]:
        scene.change(path, THEIRS)
    time.sleep(1.5)
    since = scene.plane.audit.count()
    more = {"metadata": {"labels": {"example.com/more": "yes"}, "finalizers": ["example.com/hold"]}}
    changed = [(path, written(scene.change(path, more))) for path in [*paths, NAMESPACE, BINDING, QUOTA]]
    time.sleep(3)
    assert [written(scene.look(path)) for path, _ in changed] == [body for _, body in changed]
    assert writes_of(scene.process.audited(since)) == []
    for path, _ in changed:
        assert scene.look(path)["metadata"]["finalizers"] == ["example.com/hold"]
        scene.change(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("kind", ["Service", "RoleBinding", "ResourceQuota"])
def test_a_deleted_object_is_made_again(kind: str, scene: Scene, figure: Figure) -> None:
    known = {"RoleBinding": BINDING, "ResourceQuota": QUOTA}
    path = known.get(kind) or scene.path(f"{NAMESPACE}/services", "gang")
    pods, before = scene.site.pods(), scene.look(path)
    scene.plane.call("DELETE", path)
    took_s = scene.back_in(
        lambda: scene.look(path).get("metadata", before["metadata"])["uid"] != before["metadata"]["uid"]
    )
    after = scene.look(path)
    labels = {key: label for key, label in before["metadata"]["labels"].items() if not key.startswith("example.com/")}
    assert after["metadata"]["labels"] == labels
    assert scene.site.pods() == pods
    figure(f"a {kind} deleted by hand: there again after {took_s:.2f} s")


def test_a_job_suspended_by_hand_runs_again(scene: Scene, figure: Figure) -> None:
    path, pods = scene.path(JOBS, "train"), scene.site.pods()
    assert scene.change(path, {"spec": {"suspend": True}})["spec"]["suspend"]
    took_s = scene.back_in(lambda: not scene.look(path)["spec"].get("suspend") and set(pods) == set(scene.site.pods()))
    now = scene.site.pods()
    assert {**now, "train": []} == {**pods, "train": []}
    assert not set(now["train"]) & set(pods["train"])
    figure(f"a job suspended by hand: it runs again after {took_s:.2f} s")


@pytest.mark.parametrize("replicas", [0, 1, 5])
def test_an_inference_job_scaled_by_hand_has_its_replicas_again(replicas: int, scene: Scene, figure: Figure) -> None:
    path, pods = scene.path(DEPLOYMENTS, "web"), scene.site.pods()
    template = scene.look(path)["spec"]["template"]
    scene.change(f"{path}/scale", {"spec": {"replicas": replicas}})
    took_s = scene.back_in(lambda: scene.look(path)["spec"]["replicas"] == 2)
    at_last(lambda: len(scene.site.pods().get("web", [])) == 2, scene.site.logs)
    now = scene.site.pods()
    assert {**now, "web": []} == {**pods, "web": []}
    assert scene.look(path)["spec"]["template"] == template
    figure(f"scaled by hand to {replicas}: scaled back after {took_s:.2f} s")


def test_replicas_are_back_though_the_strategy_was_changed_as_well(scene: Scene) -> None:
    """The server refuses the one for the other's sake."""
    path, pods = scene.path(DEPLOYMENTS, "web"), scene.site.pods()
    scene.change(path, {"spec": {"replicas": 1, "strategy": {"type": "RollingUpdate"}}})
    scene.back_in(lambda: scene.look(path)["spec"]["replicas"] == 2)
    assert scene.look(path)["spec"]["strategy"] == {"type": "Recreate"}
    at_last(lambda: len(scene.site.pods().get("web", [])) == 2, scene.site.logs)
    now = scene.site.pods()
    assert {**now, "web": []} == {**pods, "web": []}


def test_a_job_deleted_with_its_namespace_is_told_and_runs_only_when_it_is_asked_for(
    scene: Scene, figure: Figure
) -> None:
    site = scene.site
    scene.commit(project("b", 4), job("lost", project="b"))
    site.await_pods("lost", project="b")
    pods, path = site.pods(), "/api/v1/namespaces/gpu-hands-b"
    before = scene.look(path)["metadata"]["uid"]
    scene.plane.call("DELETE", path)
    since = time.monotonic()
    at_last(lambda: scene.look(path).get("metadata", {}).get("uid") != before, site.logs)
    gone = time.monotonic()
    took_s = scene.back_in(lambda: scene.look(path).get("status", {}).get("phase") == "Active")
    scene.back_in(lambda: scene.look(f"{path}/resourcequotas/gpuctl"))
    at_last(lambda: "b/lost has ended (Deleted), and its object is gone" in explained(scene, "lost"), site.logs)
    time.sleep(2)
    assert site.jobs("b") == []
    assert site.pods() == pods
    scene.commit(job("lost", project="b", more=", runIndex: 2"))
    site.await_pods("lost", project="b")
    assert site.pods() == pods
    figure(f"a namespace deleted by hand: gone after {gone - since:.2f} s, there again {took_s:.2f} s later")


def explained(scene: Scene, job: str) -> str:
    """What people are told of a job of project `b` that is no more."""
    return typed(scene.plane.kubeconfig, "explain", f"b/{job}", "--namespace", "gpu-hands-b").stderr
