"""Ledgers, and objects nobody could have meant."""

from objects_by_hand import job, node, pod, seen

from gpuctl.k8s import names
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import ObjectRef, ProjectName, Revision
from gpuctl.model.state import Body, Ledger, RawObjects
from gpuctl.observe import observe

LEDGER = Ledger(project=ProjectName("team-a"), revision=Revision("c" * 40))
BODY = encode_ledger("tr4858", LEDGER).head


def test_ledgers_are_found() -> None:
    assert seen(BODY).ledgers == {LEDGER.project: LEDGER}


def test_a_ledger_elsewhere_is_nobodys() -> None:
    assert seen({**BODY, "metadata": {**BODY["metadata"], "namespace": "default"}}).ledgers == {}


def test_damage_is_told() -> None:
    body = {**BODY, "data": {**BODY["data"], "seen": "{"}}
    state = seen(body)
    assert state.damaged == ((ref_of(body), "seen"),)
    assert state.ledgers == {LEDGER.project: LEDGER}


def test_a_ledger_is_known_by_its_name_whatever_somebody_did_to_its_labels() -> None:
    body = {**BODY, "metadata": {**BODY["metadata"], "labels": {"gpuctl.dev/project": 7}}}
    assert seen(body).ledgers == {LEDGER.project: LEDGER}


def test_another_cluster_on_the_same_server_is_foreign() -> None:
    inventory = frozenset({ObjectRef(*names.NAMESPACE, "", "west-team-a")})
    theirs = encode_ledger("west", Ledger(project=LEDGER.project, inventory=inventory)).head
    work = [running(cluster) for cluster in ("tr4858", "west")]
    bodies = {ref_of(body): body for body in (BODY, theirs, node("n1"), *(body for pair in work for body in pair))}
    state = observe(RawObjects(objects=bodies), "tr4858")
    assert state.ledgers == {LEDGER.project: LEDGER}
    assert state.claimed == {"west-team-a": "west"}
    (run,) = state.runs
    assert run.placement is not None
    (only,) = state.nodes
    assert sum(only.foreign_gpu_milli) == 1000


def running(cluster: str) -> tuple[Body, Body]:
    """The same job of the same project, running in either cluster."""
    found = []
    for body in (job(suspend=False), pod(on="n1", resources={"limits": {names.GPU_RESOURCE: "1"}})):
        meta = body["metadata"]
        labels = {**meta["labels"], names.CLUSTER_LABEL: cluster}
        found.append({**body, "metadata": {**meta, "namespace": f"{cluster}-team-a", "labels": labels}})
    return found[0], found[1]


def test_odd_objects_stop_nothing() -> None:
    odd = [
        {**node("a"), "spec": None, "status": []},
        {**pod("b"), "spec": {"containers": 7, "nodeName": "a"}, "status": {"phase": 3, "startTime": 5}},
        {**job(), "spec": "x", "status": {"conditions": [None, "x"]}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {}},
    ]
    state = observe(RawObjects(objects={ref_of(body): body for body in odd}))
    assert len(state.nodes) == 1
    assert len(state.runs) == 1
    assert state.live.keys() == {ref_of(body) for body in odd}
