"""The adapter on a real API server: what is said over the wire means there what we think it means."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from controlplane.server import ADMIN, ControlPlane

from gpuctl.adapters.kubernetes import Connection, KubernetesCluster, Timings, WriteLimits, connect
from gpuctl.adapters.kubernetes.discovery import ServerReport, discover
from gpuctl.adapters.kubernetes.recorder import REPEAT_MS, EventRecorder
from gpuctl.adapters.kubernetes.requests import Request, Requests, encoded
from gpuctl.app.ports import ClusterUnavailable, Conflict, Forbidden, Gone, Invalid, Note, NotFound, ObjectList
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Scope
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import ObjectRef

NAMESPACE = "adapter"
PATIENCE_S = 180


@pytest.fixture(scope="module")
def connection(control_plane: ControlPlane) -> Iterator[Connection]:
    made = connect(str(control_plane.kubeconfig))
    there = KubernetesCluster(made)
    there.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    there.close()
    yield made
    made.close()


@pytest.fixture
def cluster(connection: Connection) -> Iterator[KubernetesCluster]:
    made = KubernetesCluster(connection, scopes={kinds.CONFIG_MAP: Scope(namespace=NAMESPACE)})
    for left in made.list(kinds.CONFIG_MAP).items:
        made.delete(ref_of(left), left["metadata"]["uid"], "")
    yield made
    made.close()


def config(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": NAMESPACE, "labels": {"test": "adapter"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def ours(listed: ObjectList) -> list[str]:
    return [made["metadata"]["name"] for made in listed.items if made["metadata"]["name"] != "kube-root-ca.crt"]


def eventually(holds: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "it did not come to hold in time"
        time.sleep(0.01)


def test_a_user_that_acts_as_another_has_that_ones_name_and_groups(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The server says whom it takes the request for."""
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] |= {"as": "ann", "as-groups": ["team", "all"], "as-user-extra": {"Why": ["a", "b"]}}
    (file := tmp_path / "kubeconfig").write_text(json.dumps(config))
    made, kind = connect(str(file)), ("authentication.k8s.io/v1", "SelfSubjectReview")
    asked = encoded({"apiVersion": kind[0], "kind": kind[1]})
    path = f"/apis/{kind[0]}/selfsubjectreviews"
    review = Request(verb="create", kind=kind, path=path, what="who", method="POST", body=asked)
    told = Requests(made).send(review)["status"]["userInfo"]
    made.close()
    assert (told["username"], told["groups"][:2], told["extra"]) == ("ann", ["team", "all"], {"why": ["a", "b"]})


def test_a_list_of_many_pages_is_whole_and_says_what_each_item_is(cluster: KubernetesCluster) -> None:
    wanted = [f"c{number:04}" for number in range(1_020)]
    cluster.each(lambda name: cluster.apply(config(name)), wanted)
    listed = cluster.list(kinds.CONFIG_MAP)
    assert ours(listed) == wanted
    assert {(made["apiVersion"], made["kind"]) for made in listed.items} == {kinds.CONFIG_MAP}


def test_a_watch_hears_what_others_do_and_rings(connection: Connection, cluster: KubernetesCluster) -> None:
    rung = threading.Event()
    listening = KubernetesCluster(connection, on_news=rung.set)
    version = cluster.list(kinds.NAMESPACE).resource_version
    try:
        listening.watch(kinds.NAMESPACE, version, 0)
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {"a": "b"}}})
        assert rung.wait(PATIENCE_S)
        events = listening.watch(kinds.NAMESPACE, version, 5_000)
        assert [event.type for event in events] == ["MODIFIED", "BOOKMARK"]
        assert events[0].body["metadata"]["labels"]["a"] == "b"
        assert [event.type for event in listening.watch(kinds.NAMESPACE, listening_version(events), 0)] == ["BOOKMARK"]
    finally:
        listening.close()


def listening_version(events: Any) -> str:
    version: str = events[-1].body["metadata"]["resourceVersion"]
    return version


def test_a_watch_of_short_lives_misses_and_repeats_nothing(connection: Connection) -> None:
    brief = Timings(shortest_watch_ms=1_000, longest_watch_ms=1_000, silence_ms=400)
    made = KubernetesCluster(connection, timings=brief, scopes={kinds.CONFIG_MAP: Scope(label_selector="test=adapter")})
    try:
        version = made.list(kinds.CONFIG_MAP).resource_version
        seen: list[str] = []

        def hear() -> bool:
            nonlocal version
            events = made.watch(kinds.CONFIG_MAP, version, 2_000)
            version = listening_version(events)
            seen.extend(event.body["data"]["number"] for event in events[:-1])
            return len(seen) == 30

        for number in range(30):
            made.apply(config("often", number=str(number)))
            hear()
            time.sleep(0.1)
        eventually(lambda: len(seen) == 30 or hear())
        assert seen == [str(number) for number in range(30)]
    finally:
        made.close()


def test_only_what_is_in_scope_is_read(connection: Connection, cluster: KubernetesCluster) -> None:
    cluster.apply(config("in"))
    other = KubernetesCluster(connection, scopes={kinds.CONFIG_MAP: Scope(label_selector="test=other")})
    assert ours(other.list(kinds.CONFIG_MAP)) == []
    other.close()


def test_a_body_of_another_object_is_a_conflict_whether_it_is_there_or_not(cluster: KubernetesCluster) -> None:
    elsewhere = "00000000-0000-4000-8000-000000000000"
    cluster.apply(config("there"))
    for name in ("there", "gone"):
        wanted = config(name)
        wanted["metadata"]["uid"] = elsewhere
        with pytest.raises(Conflict):
            cluster.apply(wanted)


def test_what_is_too_large_for_the_store_is_refused_for_good(cluster: KubernetesCluster) -> None:
    for size in (1 << 20, 3 << 19, 4 << 20):
        with pytest.raises(Invalid):
            cluster.apply(config("big", a="x" * (size + 1)))


def test_a_delete_says_what_is_left(cluster: KubernetesCluster) -> None:
    held = config("held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    for wanted, lingers in ((config("free"), False), (held, True)):
        live = cluster.apply(wanted)
        left = cluster.delete(ref_of(live), live["metadata"]["uid"], live["metadata"]["resourceVersion"])
        assert (left is not None) == lingers
    del held["metadata"]["finalizers"]
    cluster.apply(held)
    with pytest.raises(NotFound):
        cluster.delete(ObjectRef("v1", "ConfigMap", NAMESPACE, "held"), "", "")


def test_a_permit_that_is_taken_back_stops_writes_only(connection: Connection, cluster: KubernetesCluster) -> None:
    before = ours(cluster.list(kinds.CONFIG_MAP))
    follower = KubernetesCluster(connection, permit=lambda: False)
    with pytest.raises(ClusterUnavailable) as found:
        follower.apply(config("forbidden"))
    assert found.value.code == "GPU7016"
    follower.close()
    assert ours(cluster.list(kinds.CONFIG_MAP)) == before


def test_writes_keep_to_their_budget(connection: Connection) -> None:
    slow = KubernetesCluster(connection, writes=WriteLimits(per_second=20, burst=2, at_once=4))
    began = time.monotonic()
    slow.each(lambda number: slow.apply(config(f"slow-{number}")), range(8))
    assert time.monotonic() - began >= 6 / 20
    slow.close()


def test_a_token_that_the_server_does_not_know(control_plane: ControlPlane, tmp_path: Path) -> None:
    unknown = connect(str(control_plane.write_kubeconfig(tmp_path / "config", "expired")))
    made = KubernetesCluster(unknown)
    with pytest.raises(ClusterUnavailable) as found:
        made.list(kinds.POD)
    assert found.value.code == "GPU7014"
    made.close()
    unknown.close()


@pytest.mark.usefixtures("connection")
def test_a_right_that_an_account_lacks_is_told_with_its_rule(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    eventually(lambda: control_plane.refused("GET", path.removesuffix("/token")) is None)  # a controller makes it
    token = control_plane.call("POST", path, request)["status"]["token"]
    connection = connect(str(control_plane.write_kubeconfig(tmp_path / "config", token)))
    made = KubernetesCluster(connection)
    with pytest.raises(Forbidden) as listing:
        made.list(kinds.POD)
    with pytest.raises(Forbidden) as writing:
        made.apply(config("forbidden"))
    assert "may not list pods in the cluster" in str(listing.value)
    assert "{apiGroups: [''], resources: [pods], verbs: [list]}" in str(listing.value)
    assert f"may not patch configmaps in namespace {NAMESPACE}" in str(writing.value)
    made.close()
    connection.close()


def test_a_certificate_of_somebody_else(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = control_plane.write_kubeconfig(tmp_path / "config", "t", url=control_plane.url.replace("127.0.0.1", "[::1]"))
    text = path.read_text().replace(str(control_plane.ca_file), "")
    path.write_text(text.replace('"certificate-authority": ""', '"tls-server-name": "other.example"'))
    path.write_text(path.read_text().replace("[::1]", "127.0.0.1"))
    stranger = connect(str(path))
    made = KubernetesCluster(stranger)
    with pytest.raises(ClusterUnavailable) as found:
        made.list(kinds.POD)
    assert found.value.code == "GPU7018"
    made.close()
    stranger.close()


def test_a_new_certificate_authority_is_read_off_the_kubeconfig(control_plane: ControlPlane, tmp_path: Path) -> None:
    """It was taken up by a restart alone where the kubeconfig has the authority itself, and not a file's name."""
    path = control_plane.write_kubeconfig(tmp_path / "config", ADMIN)
    config = json.loads(path.read_text())
    key, stranger = tmp_path / "key", tmp_path / "crt"
    made = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run([*made, "-subj", "/CN=x", "-keyout", key, "-out", stranger], check=True, capture_output=True)

    def trusting(authority: Path) -> str:
        data = base64.b64encode(authority.read_bytes()).decode()
        config["clusters"][0]["cluster"] = {"server": control_plane.url, "certificate-authority-data": data}
        path.write_text(json.dumps(config))
        return str(path)

    connection = connect(trusting(stranger))
    cluster = KubernetesCluster(connection)
    trusting(control_plane.ca_file)
    assert cluster.list(kinds.NAMESPACE).items
    cluster.close()
    connection.close()


def test_a_version_that_the_server_has_forgotten_is_gone(
    control_plane: ControlPlane, cluster: KubernetesCluster
) -> None:
    version = cluster.list(kinds.EVENT).resource_version  # of Events the server keeps no history beside etcd's
    for number in range(3):
        cluster.apply(config("newer", number=str(number)))
    compact(control_plane, cluster.list(kinds.EVENT).resource_version)

    def gone() -> bool:
        try:
            cluster.watch(kinds.EVENT, version, 0)
        except Gone:
            return True
        return False

    eventually(gone)
    listed = cluster.list(kinds.EVENT)
    cluster.watch(kinds.EVENT, listed.resource_version, 0)


def compact(plane: ControlPlane, revision: str) -> None:
    """Make etcd forget everything before a revision."""
    command = Path(f"/proc/{plane.pid('kube-apiserver')}/cmdline").read_text().split("\0")
    etcd = next(part.partition("=")[2] for part in command if part.startswith("--etcd-servers="))
    data = json.dumps({"revision": revision, "physical": True}).encode()
    urllib.request.urlopen(f"{etcd}/v3/kv/compaction", data=data, timeout=10).close()


def test_this_server_has_everything(cluster: KubernetesCluster) -> None:
    report = discover(cluster.requests)
    assert (report.version.startswith("v1."), report.absent, report.told) == (True, (), None)


def test_what_an_older_server_lacks_is_told_with_what_needs_it() -> None:
    report = ServerReport(version="v1.33.4", absent=(kinds.CLAIM_TEMPLATE, kinds.RESOURCE_SLICE, kinds.INGRESS))
    assert report.told is not None
    assert report.told[0] == "GPU7019"
    assert "v1.33.4 and does not serve ResourceClaimTemplate, ResourceSlice and Ingress" in report.told[1]
    assert "pools with `sharing: dra` and ports exposed `via: ingress`" in report.told[1]


def test_notes_become_events_and_repeats_a_series(
    control_plane: ControlPlane, connection: Connection, cluster: KubernetesCluster
) -> None:
    live = cluster.apply(config("noted"))
    at_ms = time.time_ns() // 1_000_000

    def note(later_ms: int, ref: ObjectRef) -> Note:
        uid = live["metadata"]["uid"] if ref.namespace else ""
        return Note(
            regarding=ref, uid=uid, type="Normal", reason="Placed", message="on plain-1", at_ms=at_ms + later_ms
        )

    recorder = EventRecorder(connection, "gpuctl-0")
    recorder.record([note(later_ms, ref_of(live)) for later_ms in (0, 10, 20, REPEAT_MS)])
    recorder.record([note(0, ObjectRef("v1", "Namespace", "", NAMESPACE))])
    recorder.record([note(0, ObjectRef("v1", "ConfigMap", "nowhere", "lost"))])

    def placed(namespace: str) -> list[Any]:
        told = control_plane.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return [event for event in told if event["reason"] == "Placed"]

    eventually(lambda: placed("default"))  # the last; what takes long to be told is dropped at the end
    recorder.close()
    (found,) = placed(NAMESPACE)
    assert (found["regarding"]["name"], found["note"], found["series"]["count"]) == ("noted", "on plain-1", 4)
    assert [event["regarding"]["name"] for event in placed("default")] == [NAMESPACE]


def test_words_in_any_script_become_an_event(
    control_plane: ControlPlane, connection: Connection, cluster: KubernetesCluster
) -> None:
    """The server counts bytes: a tenant's last words in another script would keep its run's event away."""
    live = cluster.apply(config("worded"))
    at_ms = time.time_ns() // 1_000_000
    note = Note(
        regarding=ref_of(live), uid=live["metadata"]["uid"], type="Warning", reason="Worded", message="漢" * 1000,
        at_ms=at_ms,
    )  # fmt: skip
    recorder = EventRecorder(connection, "gpuctl-0")
    recorder.record([note])

    def worded() -> list[str]:
        told = control_plane.call("GET", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        return [event["note"] for event in told if event["reason"] == "Worded"]

    eventually(worded)
    recorder.close()
    assert worded() == ["漢" * 333]
