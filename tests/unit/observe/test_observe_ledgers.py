"""Ledgers, and objects nobody could have meant."""

from objects_by_hand import DIGEST, JOB_ID, NOON_MS, OWNER, RUN_NAME, TENANCY, UID, job, node, pod, seen

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.objects import ref_of
from gpuctl.model.decision import RunRecord
from gpuctl.model.ids import ObjectRef, ProjectName, Revision
from gpuctl.model.state import Body, Ledger, RawObjects, RunEntry
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
    ours, theirs = ledger_of("tr4858"), ledger_of("west")
    books = [encode_ledger("tr4858", ours).head, encode_ledger("west", theirs).head]
    work = [running(cluster) for cluster in ("tr4858", "west")]
    bodies = {ref_of(body): body for body in (*books, node("n1"), *(body for pair in work for body in pair))}
    state = observe(RawObjects(objects=bodies), TENANCY)
    assert state.ledgers == {LEDGER.project: ours}
    assert state.claimed == {"west-team-a": "west"}
    (run,) = state.runs
    assert run.placement is not None
    (only,) = state.nodes
    assert sum(only.foreign_gpu_milli) == 1000


def ledger_of(cluster: str) -> Ledger:
    """The project's ledger in either cluster, with its run on record."""
    space = f"{cluster}-team-a"
    refs = {ObjectRef(*kinds.NAMESPACE, "", space), ObjectRef(*kinds.JOB, space, RUN_NAME)}
    entry = RunEntry(uid=f"{UID}-{cluster}", record=RunRecord(queued_at_ms=NOON_MS))
    return Ledger(project=LEDGER.project, inventory=frozenset(refs), runs={(JOB_ID, DIGEST): entry})


def running(cluster: str) -> tuple[Body, Body]:
    """The same job of the same project, running in either cluster."""
    found = []
    for body in (job(suspend=False), pod(on="n1", resources={"limits": {names.GPU_RESOURCE: "1"}})):
        meta = body["metadata"]
        labels = {**meta["labels"], names.CLUSTER_LABEL: cluster}
        identity = {"uid": f"{UID}-{cluster}"} if body["kind"] == "Job" else {}
        owners = {"ownerReferences": [{**OWNER, "uid": f"{UID}-{cluster}"}]} if body["kind"] == "Pod" else {}
        whole = {**meta, "namespace": f"{cluster}-team-a", "labels": labels, **identity, **owners}
        found.append({**body, "metadata": whole})
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
