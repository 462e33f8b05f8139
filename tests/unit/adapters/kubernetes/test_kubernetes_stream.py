"""A watch that is kept going: ends in order, cuts, silence, refusals, a history that is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire import QUICK, Answer, Then, Wire, answer, refusal, watched, wired

from gpuctl.adapters.kubernetes import KubernetesCluster
from gpuctl.app.ports import ClusterUnavailable, Forbidden, Gone, NotFound, RightDoubted, WatchEvent, WorldFault
from gpuctl.k8s import kinds

PATIENCE_S = 180
SLOW_AGAIN = replace(QUICK, longest_reconnect_ms=500)
"""What is lost again is put off for longer than a busy machine takes from one line of a test to the next."""


def within(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def change(version: int, kind: str = "ADDED") -> dict[str, Any]:
    meta = {"name": f"p{version}", "resourceVersion": str(version)}
    return {"type": kind, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": meta}}


def error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "too old resource version"}}


def at(version: int) -> Answer:
    """The server's version, which a watch asks for before it goes on."""
    listed = {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": []}
    return answer(200, listed, date="Mon, 02 Mar 2026 10:00:00 GMT")


@contextmanager
def cluster(folder: Path, *answers: Answer, **options: Any) -> Iterator[tuple[Wire, KubernetesCluster]]:
    with wired(folder, *answers) as (wire, connection):
        made = KubernetesCluster(connection, **{"timings": QUICK, **options})
        try:
            yield wire, made
        finally:
            made.close()


def heard(made: KubernetesCluster, version: str, until: Callable[[list[WatchEvent]], bool]) -> list[WatchEvent]:
    """What a watch hears until it is enough, over faults that pass."""
    events, end = list[WatchEvent](), time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            *news, bookmark = made.watch(kinds.POD, version, 10)
        except (ClusterUnavailable, Forbidden):
            time.sleep(0.005)
            continue
        version = bookmark.body["metadata"]["resourceVersion"]
        events += news
        if until(events):
            return events
    raise AssertionError(f"only {events} was heard")


def fault(made: KubernetesCluster, version: str, until: type[WorldFault], kind: kinds.Kind = kinds.POD) -> WorldFault:
    """The fault that a watch comes to."""
    found, end = None, time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            version = made.watch(kind, version, 5)[-1].body["metadata"]["resourceVersion"]
        except WorldFault as raised:
            if isinstance(raised, until):
                return raised
            found = raised
            time.sleep(0.005)
    raise AssertionError(f"the last fault was {found!r}")


def versions(events: list[WatchEvent]) -> list[int]:
    return [int(event.body["metadata"]["resourceVersion"]) for event in events]


def two(events: list[WatchEvent]) -> bool:
    return len(events) >= 2


@pytest.mark.parametrize("then", [Then.KEEP, Then.CUT, Then.STALL], ids=["in order", "cut", "in silence"])
def test_a_watch_that_ends_goes_on_from_the_last_version_seen(tmp_path: Path, then: Then) -> None:
    bookmark = change(7, "BOOKMARK")
    ended, next_one = watched(change(5), bookmark, then=then), watched(change(9), then=Then.STALL)
    with cluster(tmp_path, ended, at(7), next_one) as (wire, it):
        assert versions(heard(it, "4", two)) == [5, 9]
        assert ["resourceVersion=4&" in wire.asked[0], "resourceVersion=7&" in wire.asked[2]] == [True, True]


def test_half_an_event_is_not_taken_and_comes_again(tmp_path: Path) -> None:
    whole = watched(change(5), change(6), then=Then.CUT)
    half = Answer(whole.data[:-30], Then.CUT)
    with cluster(tmp_path, half, at(6), watched(change(6), then=Then.STALL)) as (_, it):
        assert versions(heard(it, "4", two)) == [5, 6]


@pytest.mark.parametrize(
    "line", [None, [], 7, {}, {"type": "ADDED"}, {"type": 7, "object": {}}, {"type": "ADDED", "object": []}]
)
def test_a_line_that_is_no_event_ends_no_watch(tmp_path: Path, line: Any) -> None:
    """Its thread ended, and the kind was never heard of again."""
    good = watched(change(6), then=Then.STALL)
    with cluster(tmp_path, watched(line), at(4), watched(change(5), line), at(5), good) as (_, it):
        assert heard(it, "4", lambda events: versions(events)[-1:] == [6])


@pytest.mark.parametrize(
    "first", [refusal(410), watched(error(410)), refusal(404)], ids=["in HTTP", "in the stream", "no such kind"]
)
def test_a_lost_history_is_told_once_and_a_new_list_goes_on(tmp_path: Path, first: Answer) -> None:
    with cluster(tmp_path, first, watched(change(12), then=Then.STALL)) as (_, it):
        fault(it, "4", Gone)
        assert versions(heard(it, "11", bool)) == [12]


def test_a_history_that_is_lost_again_and_again_is_listed_later_and_later(tmp_path: Path) -> None:
    with cluster(tmp_path, watched(error(410)), timings=SLOW_AGAIN) as (wire, it):
        fault(it, "4", Gone)
        put_off = fault(it, "5", ClusterUnavailable)
        assert put_off.code == "GPU7017"
        asked = len(wire.asked)
        with pytest.raises(ClusterUnavailable):
            it.watch(kinds.POD, "5", 0)
        assert len(wire.asked) == asked
        fault(it, "5", Gone)


def test_kinds_that_are_lost_together_are_listed_together(tmp_path: Path) -> None:
    lost, goes_on = refusal(410), watched(change(6, "BOOKMARK"), then=Then.STALL)
    timings = replace(SLOW_AGAIN, silence_ms=1_000)  # nodes are lost again only once it has looked
    with cluster(tmp_path, lost, lost, goes_on, at(6), lost, timings=timings) as (wire, it):
        for kind in (kinds.POD, kinds.NODE):
            with pytest.raises(Gone):
                it.watch(kind, "4", 0)
        it.watch(kinds.NODE, "5", 0)
        within(lambda: len(wire.asked) == 5)  # nodes are lost again
        assert fault(it, "5", ClusterUnavailable).code == "GPU7017"
        fault(it, "5", Gone)
        began = time.monotonic()
        fault(it, "6", Gone, kinds.NODE)  # the two were lost some milliseconds apart
        assert time.monotonic() - began < SLOW_AGAIN.longest_reconnect_ms / 1000


def test_a_server_that_was_away_and_answers_another_request_is_asked_at_once(tmp_path: Path) -> None:
    timings = replace(QUICK, first_retry_ms=5_000, longest_reconnect_ms=5_000, away_ms=20)
    with wired(tmp_path, at(4), Answer(b"", Then.CUT)) as (wire, connection):
        it = KubernetesCluster(connection, timings=timings)
        it.list(kinds.NODE)
        time.sleep(0.03)
        with pytest.raises(ClusterUnavailable):
            it.watch(kinds.POD, "4", 0)
        wire.answers[:] = [at(4), at(4), watched(change(5), then=Then.STALL)]
        it.list(kinds.NODE)
        assert versions(heard(it, "4", bool)) == [5]
        it.close()


def test_a_server_whose_data_went_back_in_time_is_listed_again(tmp_path: Path) -> None:
    with cluster(tmp_path, watched(change(3, "BOOKMARK"), then=Then.STALL)) as (_, it):
        assert "went back from version 4 to 3" in str(fault(it, "4", Gone))


@pytest.mark.parametrize("then", [Then.KEEP, Then.CUT, Then.STALL], ids=["in order", "cut", "in silence"])
def test_a_watch_that_ends_does_not_wait_for_a_version_that_was_lost(tmp_path: Path, then: Then) -> None:
    """A server takes a watch from a version ahead of its own, and would be silent until it comes to that again."""
    ended = watched(change(7, "BOOKMARK"), then=then)
    with cluster(tmp_path, ended, at(5), watched(then=Then.STALL)) as (_, it):
        assert "went back from version 7 to 5" in str(fault(it, "4", Gone))


@pytest.mark.parametrize(
    "first", [watched(change(5), then=Then.STALL), Answer(b"", Then.STALL)], ids=["open", "not yet"]
)
def test_all_that_is_watched_is_listed_again_when_it_is_told_to(tmp_path: Path, first: Answer) -> None:
    """And what was heard of the data before is dropped."""
    timings = replace(QUICK, silence_ms=60_000)
    with cluster(tmp_path, first, watched(change(9), then=Then.STALL), timings=timings) as (wire, it):
        version = "4"
        with suppress(ClusterUnavailable):
            version = it.watch(kinds.POD, version, 0)[-1].body["metadata"]["resourceVersion"]
        it.read_anew()
        assert "may have been restored" in str(fault(it, version, Gone))
        wire.answers[:] = [watched(change(9), then=Then.STALL)]
        assert versions(heard(it, "8", bool)) == [9]


def test_what_can_not_be_watched_now_is_told_until_it_can(tmp_path: Path) -> None:
    # Several of the first, for the watch goes on asking until the fault is looked at.
    refusals = (*[refusal(403)] * 20, refusal(503))
    with cluster(tmp_path, *refusals, at(4), watched(change(5), then=Then.STALL)) as (_, it):
        with pytest.raises(Forbidden):
            it.watch(kinds.POD, "4", 0)
        assert versions(heard(it, "4", bool)) == [5]


NO_RIGHT = refusal(403, 'pods is forbidden: User "g" cannot watch resource "pods" in API group "" at the cluster scope')


def test_a_right_that_was_there_is_missing_only_once_it_is_refused_for_a_while(tmp_path: Path) -> None:
    """A server that has just started refuses all until it has read its roles."""
    begun, again = watched(change(5)), watched(change(6), then=Then.STALL)
    with cluster(tmp_path, begun, *[NO_RIGHT] * 20, at(5), again) as (_, it):
        assert versions(heard(it, "4", bool)) == [5]
        assert "may not" not in str(fault(it, "5", RightDoubted))
        assert versions(heard(it, "5", bool)) == [6]
    with cluster(tmp_path, begun, NO_RIGHT, timings=replace(QUICK, doubt_ms=50)) as (_, it):
        heard(it, "4", bool)
        assert fault(it, "5", WorldFault).code == "GPU7001"
        assert fault(it, "5", Forbidden).code == "GPU7015"


def test_a_right_that_was_never_there_is_missing_at_once(tmp_path: Path) -> None:
    """Also where another is: a person may list a kind, and not watch it."""
    listed = answer(200, {"metadata": {"resourceVersion": "4"}, "items": []})
    with cluster(tmp_path, NO_RIGHT) as (_, it), pytest.raises(Forbidden, match="may not watch pods"):
        it.list(kinds.POD)
    with cluster(tmp_path, listed, NO_RIGHT) as (_, it):
        it.list(kinds.POD)
        with pytest.raises(Forbidden, match="may not watch pods"):
            it.watch(kinds.POD, "4", 0)


def test_a_list_is_doubted_as_a_watch_and_asked_for_again(tmp_path: Path) -> None:
    listed = answer(200, {"metadata": {"resourceVersion": "4"}, "items": []})
    with cluster(tmp_path, listed, NO_RIGHT, listed) as (_, it):
        it.list(kinds.POD)
        with pytest.raises(RightDoubted):
            it.list(kinds.POD)
        assert it.list(kinds.POD).resource_version == "4"


def test_a_watch_that_always_ends_at_once_is_no_storm(tmp_path: Path) -> None:
    with cluster(tmp_path, *[watched(), at(4)] * 100) as (wire, it):
        assert "ends it as soon as it begins" in str(fault(it, "4", ClusterUnavailable))
        time.sleep(0.1)  # by now it has come to the longest wait: 20 ms here
        asked, began = len(wire.asked), time.monotonic()
        time.sleep(0.2)
        assert len(wire.asked) - asked <= 2 * (6 + (time.monotonic() - began) / 0.02)


def test_news_is_rung_for_changes_and_not_for_bookmarks(tmp_path: Path) -> None:
    rung = threading.Event()
    with cluster(tmp_path, watched(change(5, "BOOKMARK"), then=Then.STALL), on_news=rung.set) as (_, it):
        heard(it, "4", lambda _: True)
        assert not rung.wait(0.05)
    with cluster(tmp_path, watched(change(5), then=Then.STALL), on_news=rung.set) as (_, it):
        it.watch(kinds.POD, "4", 0)
        assert rung.wait(PATIENCE_S)


def test_a_list_that_is_refused_is_not_asked_for_again_at_once(tmp_path: Path) -> None:
    for refused, kind in ((refusal(403), Forbidden), (refusal(404), NotFound)):
        with cluster(tmp_path, refused) as (wire, it):
            for _ in range(3):
                with pytest.raises(kind):
                    it.list(kinds.POD)
            assert len(wire.asked) == 1


def test_a_list_of_which_a_page_is_lost_is_asked_for_in_one_piece(tmp_path: Path) -> None:
    def page(name: str, token: str = "") -> Answer:
        meta = {"resourceVersion": "9", "continue": token}
        return answer(200, {"metadata": meta, "items": [{"metadata": {"name": name}}]})

    with cluster(tmp_path, page("a", "t"), refusal(410), page("a")) as (wire, it):
        listed = it.list(kinds.POD)
        assert [dict(body) for body in listed.items] == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}]
        assert [("limit=500" in line, "continue=t" in line) for line in wire.asked] == [
            (True, False), (True, True), (False, False)
        ]  # fmt: skip


def test_closing_ends_every_thread_at_once(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with wired(tmp_path, watched(change(5), then=Then.STALL)) as (_, connection):
        made = KubernetesCluster(connection)
        for kind in (kinds.POD, kinds.NODE, kinds.JOB):
            made.watch(kind, "4", 0)
        made.each(lambda number: number, range(20))
        began = time.monotonic()
        made.close()
        assert time.monotonic() - began < 10  # the watches would have been silent for 74 s
        names_left = {thread.name for thread in set(threading.enumerate()) - before}
        assert not {name for name in names_left if name.startswith(("watch", "write"))}


def test_work_is_done_several_at_once_in_the_items_order(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def work(number: int) -> int:
        together.wait(PATIENCE_S)
        return number * number

    with cluster(tmp_path, answer(200)) as (_, it):
        assert it.each(work, range(8)) == [number * number for number in range(8)]
        assert it.each(work, []) == []
