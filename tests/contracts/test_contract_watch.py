"""Lists and watches: versions, order, bookmarks, and versions that are too old or from the future."""

from __future__ import annotations

from contextlib import suppress

from labs import Lab, body, job, lab

from gpuctl.app.ports import ClusterUnavailable
from gpuctl.k8s import kinds


def test_a_watch_continues_where_a_list_ends(lab: Lab) -> None:
    lab.apply(body(kinds.CONFIG_MAP, "before"))
    listed = lab.cluster.list(kinds.CONFIG_MAP)
    made = lab.apply(body(kinds.CONFIG_MAP, "after", data={"a": "1"}))
    changed = lab.apply(body(kinds.CONFIG_MAP, "after", data={"a": "2"}))
    lab.delete(kinds.CONFIG_MAP, "after")
    events = lab.cluster.watch(kinds.CONFIG_MAP, listed.resource_version, 0)
    assert [event.type for event in events if event.type != "BOOKMARK"] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0].body == made
    assert events[1].body == changed
    assert events[2].body["metadata"]["name"] == "after"


def test_every_event_has_a_higher_version_than_the_one_before(lab: Lab) -> None:
    listed = lab.cluster.list(kinds.POD)
    lab.apply(job("j"))
    lab.running("j")
    lab.delete(kinds.JOB, "j")
    lab.eventually(lambda: not lab.pods("j"))
    events = lab.cluster.watch(kinds.POD, listed.resource_version, 0)
    versions = [int(listed.resource_version), *(int(event.body["metadata"]["resourceVersion"]) for event in events)]
    changes = [event.type for event in events if event.type != "BOOKMARK"]
    assert versions[: len(changes) + 1] == sorted(set(versions[: len(changes) + 1]))
    assert (changes[0], changes[-1]) == ("ADDED", "DELETED")


def test_a_watch_sees_its_kind_only(lab: Lab) -> None:
    version = lab.cluster.list(kinds.SERVICE).resource_version
    lab.apply(body(kinds.CONFIG_MAP, "c"))
    assert [e.type for e in lab.cluster.watch(kinds.SERVICE, version, 0) if e.type != "BOOKMARK"] == []


def test_what_loses_a_label_is_deleted_to_a_watch_of_the_label_and_what_gets_it_is_new(lab: Lab) -> None:
    kind = kinds.SERVICE_ACCOUNT
    version = lab.cluster.list(kind).resource_version
    wanted = body(kind, "s", metadata={"labels": {"test": "yes"}})
    made = lab.apply(wanted)
    lab.apply(body(kind, "other", metadata={"labels": {"test": "no"}}))
    lab.edit({**made, "metadata": {**made["metadata"], "labels": {}}}, "kubectl-edit")
    again = lab.apply(wanted)
    lab.apply(body(kind, "s", metadata={"labels": {"test": "yes", "more": "yes"}}))
    told = [event for event in lab.cluster.watch(kind, version, 0) if event.type != "BOOKMARK"]
    assert [event.type for event in told] == ["ADDED", "DELETED", "ADDED", "MODIFIED"]
    assert {event.body["metadata"]["name"] for event in told} == {"s"}
    gone = told[1].body["metadata"]
    assert gone["labels"] == {"test": "yes"}
    assert int(made["metadata"]["resourceVersion"]) < int(gone["resourceVersion"])
    assert int(gone["resourceVersion"]) < int(again["metadata"]["resourceVersion"])
    assert [item["metadata"]["name"] for item in lab.cluster.list(kind).items] == ["s"]


def test_a_bookmark_is_a_version_to_go_on_from(lab: Lab) -> None:
    version = lab.cluster.list(kinds.SERVICE).resource_version
    lab.apply(body(kinds.CONFIG_MAP, "c"))
    bookmark = lab.cluster.watch(kinds.SERVICE, version, 0)[-1]
    assert bookmark.type == "BOOKMARK"
    assert (bookmark.body["apiVersion"], bookmark.body["kind"]) == kinds.SERVICE
    from_there = bookmark.body["metadata"]["resourceVersion"]
    assert int(from_there) >= int(version)
    made = lab.apply(body(kinds.SERVICE, "s", spec={"ports": [{"port": 80}]}))
    assert [e.body for e in lab.cluster.watch(kinds.SERVICE, from_there, 0) if e.type == "ADDED"] == [made]


def test_replaying_the_events_on_the_list_gives_the_next_list(lab: Lab) -> None:
    first = lab.cluster.list(kinds.POD)
    copy = {item["metadata"]["uid"]: item for item in first.items}
    for name in ("a", "b", "c"):
        lab.apply(job(name))
    lab.running("a")
    lab.finish("b")
    lab.delete(kinds.JOB, "c")
    lab.later(30_000)
    versions = [first.resource_version]

    def is_the_list() -> bool:
        for event in lab.cluster.watch(kinds.POD, versions[-1], 0):
            if event.type == "DELETED":
                del copy[event.body["metadata"]["uid"]]
            elif event.type == "BOOKMARK":
                versions.append(event.body["metadata"]["resourceVersion"])
            else:
                copy[event.body["metadata"]["uid"]] = event.body
        return copy == {item["metadata"]["uid"]: item for item in lab.cluster.list(kinds.POD).items}

    lab.eventually(is_the_list)


def test_lists_are_by_namespace_and_name(lab: Lab) -> None:
    for name in ("b", "a", "c"):
        lab.apply(body(kinds.CONFIG_MAP, name))
    listed = [o["metadata"]["name"] for o in lab.cluster.list(kinds.CONFIG_MAP).items]
    assert listed == sorted(listed)


def test_a_version_from_the_future_is_refused_or_tells_nothing(lab: Lab) -> None:
    version = int(lab.cluster.list(kinds.POD).resource_version) + 1_000_000
    with suppress(ClusterUnavailable):
        assert [e.type for e in lab.cluster.watch(kinds.POD, str(version), 0)] == ["BOOKMARK"]


def test_bodies_handed_out_do_not_change_later(lab: Lab) -> None:
    lab.apply(job("j"))
    (before,) = lab.cluster.list(kinds.JOB).items
    as_it_was = str(before)
    lab.apply(job("j", suspend=True))
    (after,) = lab.cluster.list(kinds.JOB).items
    assert str(before) == as_it_was
    assert (before["spec"]["suspend"], after["spec"]["suspend"]) == (False, True)
