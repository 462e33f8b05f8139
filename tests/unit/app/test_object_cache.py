from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.kept import Keep
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import ClusterUnavailable, Forbidden, Gone, ObjectList, RightDoubted, WatchEvent
from gpuctl.k8s.kinds import CONFIG_MAP, JOB, JOB_SET, NAMESPACE, OBSERVED, Kind
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.k8s.objects import ref_of, resource_version, uid
from gpuctl.model.decision import Reason, RunRecord
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import Body, Ledger, RunEntry

WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", None]), st.booleans()), max_size=30)


def config(name: str, value: str) -> Body:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": value}}


def cluster_of(history: int = 20_000) -> EmbeddedCluster:
    cluster = EmbeddedCluster(VirtualClock(0), history=history)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    return cluster


def listed(cluster: EmbeddedCluster) -> dict[object, Body]:
    keep = Keep()
    return {ref_of(body): keep(body) for kind in (NAMESPACE, CONFIG_MAP) for body in cluster.list(kind).items}


@given(WRITES, st.sampled_from([2, 20_000]))
def test_after_a_refresh_it_is_what_a_list_says_however_old_the_watch(
    writes: list[tuple[str, str | None, bool]], history: int
) -> None:
    cluster = cluster_of(history)
    object_cache = ObjectCache(cluster, (NAMESPACE, CONFIG_MAP))
    object_cache.refresh()
    for name, value, refresh in writes:
        if value is not None:
            cluster.apply(config(name, value))
        for body in cluster.list(CONFIG_MAP).items if value is None else ():
            if body["metadata"]["name"] == name:
                cluster.delete(ref_of(body), uid(body), resource_version(body))
        if refresh:
            object_cache.refresh()
            assert object_cache.objects().objects == listed(cluster)
    object_cache.refresh()
    assert object_cache.objects().objects == listed(cluster)
    assert object_cache.refresh() == 0


def test_it_counts_what_changed_and_keeps_what_it_gave_out() -> None:
    cluster = cluster_of()
    object_cache = ObjectCache(cluster, OBSERVED)
    assert object_cache.refresh() > 0
    before = object_cache.objects()
    cluster.apply(config("a", "x"))
    cluster.apply(config("b", "x"))
    assert object_cache.refresh() == 2
    assert len(object_cache.objects().objects) == len(before.objects) + 2


def test_a_kind_the_server_does_not_have_is_empty() -> None:
    object_cache = ObjectCache(cluster_of(), (("example.com/v1", "Nothing"), NAMESPACE))
    assert not object_cache.synced
    assert object_cache.refresh() == len(object_cache.objects().objects) > 0
    assert object_cache.synced
    assert object_cache.refresh() == 0


class AllSucceeded(EmbeddedCluster):
    """Says of all its Jobs that they have succeeded."""

    def list(self, kind: Kind) -> ObjectList:
        found = super().list(kind)
        return replace(found, items=tuple({**body, "status": SUCCEEDED} for body in found.items))

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        events = super().watch(kind, resource_version, timeout_ms)
        return [replace(event, body={**event.body, "status": SUCCEEDED}) for event in events]


SUCCEEDED = {"conditions": [{"type": "Complete", "status": "True"}]}


def test_the_many_jobs_that_end_in_one_namespace_forget_no_other_that_has_succeeded() -> None:
    """The oldest of all was forgotten: a job that succeeded and was deleted at once was taken for deleted by hand."""
    cluster = AllSucceeded(VirtualClock(0))
    for name in ("good", "evil"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    object_cache = ObjectCache(cluster, (NAMESPACE, JOB))
    pod = {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}
    for namespace, name in [("good", "j"), *(("evil", f"j{number}") for number in range(1_100))]:
        metadata, spec = {"namespace": namespace, "name": name}, {"suspend": True, "template": {"spec": pod}}
        cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    object_cache.refresh()
    live = {ref_of(body): body for body in cluster.list(JOB).items}
    good = ObjectRef(*JOB, "good", "j")
    for ref in (good, *(live.keys() - {good})):
        cluster.delete(ref, uid(live[ref]), resource_version(live[ref]))
    object_cache.refresh()
    kept = [ref for ref in object_cache.objects().objects if ref.kind == "Job"]
    assert (len(kept), good in kept) == (1_000, True)


class Restored(EmbeddedCluster):
    """A server whose data comes from a backup: it is at an older version than its watches, which it says."""

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        try:
            return super().watch(kind, resource_version, timeout_ms)
        except ClusterUnavailable as fault:
            raise Gone("GPU7005", str(fault)) from fault


def test_what_is_newer_than_the_backup_that_a_server_was_restored_from_is_gone() -> None:
    cluster, backup = Restored(VirtualClock(0)), cluster_of()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    object_cache = ObjectCache(cluster, (NAMESPACE, CONFIG_MAP))
    for name in "abcd":
        cluster.apply(config(name, "x"))
    object_cache.refresh()
    backup.apply(config("a", "y"))
    cluster.__dict__ = backup.__dict__
    object_cache.refresh()
    assert object_cache.objects().objects == listed(backup)


class Starting(EmbeddedCluster):
    """A server that has read no roles yet."""

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        if kind == JOB_SET:
            raise RightDoubted("GPU7001", "refused what was allowed before")
        return super().watch(kind, resource_version, timeout_ms)


def test_of_a_right_that_is_only_doubted_nothing_follows_for_the_objects() -> None:
    """Else runs of that kind would be left as they are, and waiting ones lose their place, for a moment."""
    object_cache = ObjectCache(Starting(VirtualClock(0)), OBSERVED)
    object_cache.refresh()
    with pytest.raises(RightDoubted):
        object_cache.refresh()
    assert (object_cache.lacking, object_cache.objects().unseen) == (frozenset(), frozenset())


class OlderRole(EmbeddedCluster):
    """Gives gpuctl the rights of a version that knew no JobSets."""

    def list(self, kind: Kind) -> ObjectList:
        if kind == JOB_SET:
            raise Forbidden("GPU7002", "jobsets is forbidden")
        return super().list(kind)


def test_without_a_right_to_jobsets_the_rest_is_read_until_a_ledger_names_one() -> None:
    cluster = OlderRole(VirtualClock(0))
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
    object_cache = ObjectCache(cluster, OBSERVED)
    assert object_cache.refresh() > 0
    assert object_cache.synced
    owned = frozenset({ObjectRef(*JOB_SET, "a", "x")})
    ledger = Ledger(project=ProjectName("a"), inventory=owned)
    cluster.apply(encode_ledger("prod", ledger).head)
    with pytest.raises(Forbidden, match="jobsets is forbidden") as caught:
        object_cache.refresh()
    assert caught.value.code == "GPU7026"


def test_what_a_tenant_has_in_a_ledger_is_no_object_of_a_kind_that_can_not_be_read() -> None:
    """The server's words for an image that can't be pulled hold up no other team."""
    cluster = OlderRole(VirtualClock(0))
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
    words = 'ImagePullBackOff: Back-off pulling image "x:JobSet"'
    entry = RunEntry(record=RunRecord(queued_at_ms=1), reason=Reason(code="GPU5092", params=(("problem", words),)))
    job = JobId(ProjectName("a"), "x")
    owned = frozenset({ObjectRef("batch/v1", "Job", "a", "x-12345678")})
    ledger = Ledger(project=ProjectName("a"), inventory=owned, runs={(job, RunDigest("12345678")): entry})
    head = encode_ledger("prod", ledger).head
    assert "JobSet" in head["data"]["runs"]
    cluster.apply(head)
    object_cache = ObjectCache(cluster, OBSERVED)
    assert object_cache.refresh() > 0
