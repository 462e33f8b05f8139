"""Ledgers, and objects nobody could have meant."""

from objects_by_hand import job, node, pod, seen

from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import ProjectName, Revision
from gpuctl.model.state import Ledger, RawObjects
from gpuctl.observe import observe

LEDGER = Ledger(project=ProjectName("team-a"), revision=Revision("c" * 40))
BODY = encode_ledger("tr4858", LEDGER)


def test_ledgers_are_found() -> None:
    assert seen(BODY).ledgers == {LEDGER.project: LEDGER}


def test_a_ledger_elsewhere_is_nobodys() -> None:
    assert seen({**BODY, "metadata": {**BODY["metadata"], "namespace": "default"}}).ledgers == {}


def test_damage_is_told() -> None:
    body = {**BODY, "data": {**BODY["data"], "seen": "{"}}
    state = seen(body)
    assert state.damaged == ((ref_of(body), "seen"),)
    assert state.ledgers == {LEDGER.project: LEDGER}


def test_a_ledger_of_nobody_is_damaged() -> None:
    labels = {**BODY["metadata"]["labels"], "gpuctl.dev/project": 7}
    body = {**BODY, "metadata": {**BODY["metadata"], "labels": labels}}
    assert seen(body).damaged == ((ref_of(body), "metadata"),)


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
