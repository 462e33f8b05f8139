"""One exchange, and what is sent again: answers late, cut, refused for now, refused for good."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from wire import QUICK, Answer, Then, answer, kubeconfig, refusal, wired

from gpuctl.adapters.kubernetes import connect
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.requests import Request, Requests
from gpuctl.app.ports import ClusterUnavailable, Conflict, Forbidden, Gone, Invalid, NotFound, WebhookAway, WorldFault
from gpuctl.k8s import kinds

GET = Request(verb="list", kind=kinds.POD, path="/api/v1/pods", what="list Pod")
POST = Request(verb="create", kind=kinds.POD, path="/api/v1/pods", what="create Pod", method="POST", body=b"{}")
HALF = Answer(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"kind": "Po', Then.CUT)
NOTHING = Answer(b"", Then.CUT)


def sent(folder: Path, *answers: Answer, request: Request = GET) -> tuple[Any, int]:
    """The answer or the fault of one request, and how often it was asked."""
    with wired(folder, *answers) as (wire, connection):
        try:
            return Requests(connection, QUICK).send(request), len(wire.asked)
        except WorldFault as fault:
            return fault, len(wire.asked)


@pytest.mark.parametrize(
    "first",
    [
        *(refusal(429), refusal(500), refusal(503), answer(502, "<html>"), HALF, NOTHING, Answer(b"", Then.STALL)),
        refusal(403, 'pods "x" is forbidden: not yet ready to handle request'),
    ],
    ids=["429", "500", "503", "a proxy's 502", "half an answer", "a reset", "silence", "a server that starts"],
)
def test_what_fails_for_the_moment_is_sent_again(tmp_path: Path, first: Answer) -> None:
    assert sent(tmp_path, first, answer(200, {"kind": "PodList"})) == ({"kind": "PodList"}, 2)


@pytest.mark.parametrize("body", ["[]", "7", "null", "[null]"])
def test_an_answer_that_is_no_object_is_none(tmp_path: Path, body: str) -> None:
    said = answer(200, body, content_type="application/json")
    assert sent(tmp_path, said, answer(200, {"kind": "PodList"})) == ({"kind": "PodList"}, 2)


@pytest.mark.parametrize("wait", ["9" * 5_000, "\u00b2", "soon"])
def test_a_wait_that_is_no_number_is_none(tmp_path: Path, wait: str) -> None:
    first = Answer(refusal(429, retry_after=wait).data.decode().encode("latin-1"))
    assert sent(tmp_path, first, answer(200, {"kind": "PodList"})) == ({"kind": "PodList"}, 2)


def test_it_is_given_up_after_a_few_times(tmp_path: Path) -> None:
    fault, times = sent(tmp_path, refusal(503, "draining"))
    assert (type(fault).__mro__[1], fault.code, times) == (ClusterUnavailable, "GPU7001", QUICK.tries)
    assert "draining" in str(fault)


def test_a_create_that_may_have_happened_is_not_sent_again(tmp_path: Path) -> None:
    assert sent(tmp_path, HALF, answer(201), request=POST)[1] == 1
    assert sent(tmp_path, refusal(429), answer(201, {"kind": "Pod"}), request=POST) == ({"kind": "Pod"}, 2)


def test_retry_after_is_honoured_and_a_long_one_is_left_to_the_caller(tmp_path: Path) -> None:
    with wired(tmp_path, refusal(429, retry_after="1"), answer(200)) as (wire, connection):
        durations: list[int] = []
        waits = Requests(connection, QUICK, lambda *request: durations.append(request[2]))
        assert waits.send(GET) == {}
        assert durations == [429, 200]
    fault, times = sent(tmp_path, refusal(429, retry_after="60"))
    assert (fault.wait_ms, times) == (60_000, 1)
    del wire


def test_every_request_is_told_of(tmp_path: Path) -> None:
    told: list[tuple[str, str, int]] = []
    with wired(tmp_path, NOTHING, refusal(409)) as (_, connection), pytest.raises(Conflict):
        Requests(connection, QUICK, lambda verb, kind, code, _: told.append((verb, kind, code))).send(GET)
    assert told == [("list", "Pod", 0), ("list", "Pod", 409)]


@pytest.mark.parametrize(
    ("code", "fault"),
    [(403, Forbidden), (404, NotFound), (409, Conflict), (410, Gone), (400, Invalid), (413, Invalid), (422, Invalid)],
)
def test_what_is_refused_for_good_is_told_once(tmp_path: Path, code: int, fault: type[WorldFault]) -> None:
    found, times = sent(tmp_path, refusal(code, "because"))
    assert (type(found), times) == (fault, 1)
    assert str(found) == "list Pod: because"


@pytest.mark.parametrize(
    ("why", "fault", "times"),
    [
        ("failed to allocate a serviceIP: range is full", Invalid, 1),
        ("resource quota evaluation timed out", Invalid, 1),
        ('failed calling webhook "a.example.com": connection refused', WebhookAway, QUICK.tries),
    ],
    ids=["no address left", "a busy quota", "a dead webhook"],
)
def test_what_fails_for_one_object_is_no_server_that_is_away(
    tmp_path: Path, why: str, fault: type[WorldFault], times: int
) -> None:
    """Else nothing more was written in that cycle, nor in any later one: one team could use up all addresses."""
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "namespace": "a"}}
    answers = refusal(500, f"Internal error occurred: {why}")
    with wired(tmp_path, answers) as (wire, connection), closing(KubernetesCluster(connection, timings=QUICK)) as made:
        with pytest.raises(fault, match=re.escape(why)) as found:
            made.apply(body)
        assert (type(found.value), found.value.code, len(wire.asked)) == (fault, "GPU7006", times)


def test_a_path_that_is_not_there_is_not_found_though_it_is_told_in_plain_text(tmp_path: Path) -> None:
    found, _ = sent(tmp_path, answer(404, "404 page not found"))
    assert isinstance(found, NotFound)


def test_what_is_no_api_server_is_told_as_that(tmp_path: Path) -> None:
    for page in (answer(200, "<html>Log in"), answer(302, "moved", location="http://127.0.0.1:1/")):
        found, times = sent(tmp_path, page)
        assert (found.code, times) == ("GPU7020", 1)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    connection = connect(kubeconfig(tmp_path, "http://127.0.0.1:1"))
    with pytest.raises(ClusterUnavailable, match=r"127\.0\.0\.1:1: Connection refused"):
        Requests(connection, QUICK).send(GET)
    connection.close()


def test_without_permit_nothing_is_sent(tmp_path: Path) -> None:
    permits = [True, False]
    with wired(tmp_path, refusal(503), answer(200)) as (wire, connection):
        with pytest.raises(ClusterUnavailable) as found:
            Requests(connection, QUICK).send(GET, lambda: permits.pop(0))
        assert (found.value.code, len(wire.asked)) == ("GPU7016", 1)


def test_a_right_that_is_missing_is_told_with_its_rule(tmp_path: Path) -> None:
    said = 'jobs.batch is forbidden: User "ann" cannot create resource "jobs" in API group "batch" in the namespace "a"'
    found, _ = sent(tmp_path, refusal(403, said))
    assert found.code == "GPU7015"
    assert "ann may not create jobs.batch in namespace a" in str(found)
    assert "{apiGroups: ['batch'], resources: [jobs], verbs: [create]}" in str(found)


def test_a_quota_is_told_in_the_servers_words(tmp_path: Path) -> None:
    said = 'pods "a" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 4, limited: 4'
    found, _ = sent(tmp_path, refusal(403, said))
    assert (found.code, str(found)) == ("GPU7002", f"list Pod: {said}")


def test_a_token_that_has_expired_is_read_anew_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with wired(tmp_path, refusal(401), answer(200), user={"tokenFile": str(token)}) as (wire, connection):
        token.write_text("new")
        assert Requests(connection, QUICK).send(GET) == {}
        assert ["Bearer old" in head for head in wire.headers] == [True, False]
        assert "Bearer new" in wire.headers[1]


def test_credentials_that_are_not_believed_are_told_with_their_place(tmp_path: Path) -> None:
    with wired(tmp_path, refusal(401, "Unauthorized"), user={"token": "t"}) as (wire, connection):
        with pytest.raises(ClusterUnavailable, match=r"does not accept the credentials of .*config: U") as it:
            Requests(connection, QUICK).send(GET)
        assert (it.value.code, len(wire.asked)) == ("GPU7014", 1)
