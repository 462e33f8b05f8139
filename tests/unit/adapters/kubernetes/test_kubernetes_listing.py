"""Lists as they come, object by object; and how much of answers is in memory, whatever tenants have written."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import QUICK, Answer, Then, answer, refusal, watched, wired

from gpuctl.adapters.kubernetes import KubernetesCluster
from gpuctl.adapters.kubernetes.listing import Page, read_page
from gpuctl.adapters.kubernetes.reader import OnceCluster, PartCluster
from gpuctl.app.kept import Keep
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.model.state import Body

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=6)
    | st.sampled_from(['"\\', "]}", "😀", "é", "\n"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=8,
)
MIB = 1 << 20


def whole(body: Body) -> Body:
    return body


def in_chunks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    while data:
        size = sizes[len(data) % len(sizes)]
        yield data[:size]
        data = data[size:]


@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), max_size=5),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}]),
)
def test_it_reads_what_decoding_the_whole_does_however_it_is_cut(
    bodies: list[dict[str, Any]], sizes: list[int], form: dict[str, Any]
) -> None:
    facts = {"kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "t"}, "items": bodies, "more": [1, {}]}
    data = json.dumps(facts, **form).encode()
    page = read_page(kinds.POD, in_chunks(data, sizes), whole)
    assert page.items == [{**body, "apiVersion": "v1", "kind": "Pod"} for body in bodies]
    assert (page.resource_version, page.token) == ("7", "t")
    for until in {0, 1, len(data) // 3, len(data) // 2, len(data) - 1}:
        with pytest.raises(ValueError, match=r"."):
            read_page(kinds.POD, [data[:until]], whole)


EVIL = '{"metadata":{"name":"evil"},"spec":{"x":!,"y":"]"},"z":[{"\\"}":2}]}'
DEEP, HUGE = EVIL.replace("!", '[{"a":' * 5000 + "1" + "}]" * 5000), EVIL.replace("!", "9" * 5000)


@pytest.mark.parametrize("evil", [DEEP, HUGE])
@pytest.mark.parametrize("size", [1 << 20, 777])
def test_one_object_that_python_can_not_decode_is_one_object(evil: str, size: int) -> None:
    """An API server takes both where any JSON may stand."""
    listed = f'{{"items":[{{"metadata":{{"name":"a"}}}},{evil},{{"metadata":{{"name":"b"}}}}]}}'.encode()
    first, found, last = read_page(kinds.POD, in_chunks(listed, [size]), whole).items
    assert [body["metadata"]["name"] for body in (first, found, last)] == ["a", "evil", "b"]
    assert (found["spec"]["y"], found["z"]) == ("]", [{'"}': 2}])
    with pytest.raises(ValueError, match=r"."):
        read_page(kinds.POD, [listed[:-10]], whole)


@pytest.mark.parametrize("text", ["", "[]", "12", '"x"', '{"items":[1]}', '{"items":[{}{}]}', '{"a":1 "b":2}', "{,}"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_page(kinds.POD, [text.encode()], whole)


@pytest.mark.parametrize("text", ["{}", '{"items":null}', '{"items":[]}', ' {"items" : [ ] } \n'])
def test_an_empty_list_is_one(text: str) -> None:
    assert read_page(kinds.POD, [text.encode()], whole) == Page()


def large(count: int, size: int) -> Iterator[bytes]:
    """A page of Jobs with an annotation of that size each, as it comes from the server."""
    yield b'{"kind":"JobList","metadata":{"resourceVersion":"7"},"items":['
    for number in range(count):
        meta = {"name": f"j{number}", "annotations": {"note": "x" * size}}
        yield (b"," if number else b"") + json.dumps({"metadata": meta, "spec": {"suspend": True}}).encode()
    yield b"]}"


def peak_of(chunks: Iterable[bytes]) -> tuple[Page, int]:
    tracemalloc.start()
    try:
        page = read_page(kinds.JOB, chunks, Keep())
        return page, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_four_hundred_jobs_with_large_annotations_take_a_few_megabytes_to_read() -> None:
    page, peak = peak_of(large(400, 250_000))
    assert len(page.items) == 400
    assert peak < 4 * MIB


def test_a_list_that_is_cut_is_asked_for_again_and_taken_once(tmp_path: Path) -> None:
    def page(*of: str, token: str = "") -> Answer:
        items = [{"metadata": {"name": name}} for name in of]
        return answer(200, {"metadata": {"resourceVersion": "9", "continue": token}, "items": items})

    first, second = page("a", "b", token="t"), page("c")
    cuts = [
        Answer(first.data[:-30], Then.CUT),
        Answer(first.data[:-30], Then.STALL),
        refusal(503),
        answer(502, "<html>"),
    ]
    for cut in cuts:
        with wired(tmp_path, cut, first, cut, second) as (wire, connection):
            made = KubernetesCluster(connection, timings=QUICK)
            listed = [body["metadata"]["name"] for body in made.list(kinds.POD).items]
            made.close()
            assert (listed, len(wire.asked)) == (["a", "b", "c"], 4)


def test_what_is_no_list_at_all_is_a_fault_of_the_world(tmp_path: Path) -> None:
    with wired(tmp_path, Answer(answer(200, "<html>").data)) as (_, connection):
        made = KubernetesCluster(connection, timings=QUICK)
        with pytest.raises(WorldFault) as raised:
            made.list(kinds.POD)
        made.close()
        assert raised.value.code == "GPU7020"


def test_what_a_watch_hears_is_cut_down_before_it_waits_for_a_reader(tmp_path: Path) -> None:
    def change(version: int) -> dict[str, Any]:
        meta = {"name": "j", "resourceVersion": str(version), "annotations": {"note": "x" * 100_000}}
        return {"type": "MODIFIED", "object": {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}}

    with wired(tmp_path, watched(*map(change, range(5, 9)), then=Then.STALL)) as (_, connection):
        made = KubernetesCluster(connection, timings=QUICK, keep=Keep())
        version, heard = "4", list[Body]()
        while len(heard) < 4:
            *events, bookmark = made.watch(kinds.JOB, version, 1_000)
            version = bookmark.body["metadata"]["resourceVersion"]
            heard += [event.body for event in events]
        made.close()
    assert [body["metadata"] for body in heard] == [{"name": "j", "resourceVersion": str(n)} for n in range(5, 9)]


@pytest.mark.parametrize("namespace", [None, "mine"])
def test_what_a_person_lists_is_cut_down_where_a_tenant_made_it_large(tmp_path: Path, namespace: str | None) -> None:
    """In the whole cluster, and in a namespace."""
    meta = {"name": "j", "annotations": {"note": "x" * 100_000}}
    listed = answer(200, {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": meta}]})
    before = [] if namespace is None else [refusal(403), answer(200, {"metadata": {}, "items": []})]
    with wired(tmp_path, *before, listed) as (_, connection):
        made = PartCluster(connection, namespace)
        (found,) = made.list(kinds.JOB).items
        made.close()
    assert found["metadata"] == {"name": "j"}


def test_a_command_that_reads_once_asks_for_a_kind_once(tmp_path: Path) -> None:
    page = answer(200, {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "j"}}]})
    with wired(tmp_path, page, refusal(500)) as (wire, connection):
        made = OnceCluster(connection)
        assert [made.list(kinds.JOB).resource_version for _ in range(3)] == ["9"] * 3
        made.close()
        assert len(wire.asked) == 1


def test_work_is_done_a_few_at_a_time_in_order_and_the_first_failure_is_told_when_all_is_done(tmp_path: Path) -> None:
    lock, at_work, most, done = threading.Lock(), 0, 0, set[int]()

    def work(number: int) -> int:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.001)
        with lock:
            at_work -= 1
            done.add(number)
        if number in {30, 70}:
            raise IndexError(number)
        return -number

    with wired(tmp_path, refusal(500)) as (_, connection):
        made = KubernetesCluster(connection, timings=QUICK)
        assert list(made.each(work, range(30))) == [-number for number in range(30)]
        with pytest.raises(IndexError, match="30"):
            made.each(work, range(100))
        made.close()
    assert done == set(range(100))
    assert 1 < most <= 8


def test_work_that_has_work_done_by_others_ends_when_all_of_them_do_so(tmp_path: Path) -> None:
    lock = threading.Lock()

    with wired(tmp_path, refusal(500)) as (_, connection):
        made = KubernetesCluster(connection, timings=QUICK)

        def work(number: int) -> int:
            with lock:  # as one thread finds a person's namespaces while all others wait for them
                return sum(made.each(lambda each: each * number, range(20)))

        assert list(made.each(work, range(20))) == [190 * number for number in range(20)]
        made.close()
