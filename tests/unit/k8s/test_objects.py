from gpuctl.k8s import names, objects

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main"}, "odd"], "n": True},
    "status": {"startTime": "2020-07-29T05:20:00Z", "conditions": [{"type": "Ready", "status": "True"}]},
}


def test_reading_what_is_there() -> None:
    assert str(objects.ref_of(POD)) == "Pod n/p"
    assert objects.uid(POD) == "u"
    assert objects.resource_version(POD) == "7"
    assert objects.labels_of(POD) == {"a": "b"}
    assert [c["name"] for c in objects.items(POD, "spec", "containers")] == ["main"]
    assert objects.instant(POD, "status", "startTime") == 1_596_000_000_000
    assert objects.condition(POD, "Ready")
    assert objects.flag(POD, "spec", "n")


def test_what_is_absent_or_odd_reads_as_empty() -> None:
    assert objects.text(POD, "status", "startTime", "deeper") == ""
    assert objects.number(POD, "spec", "n") == 0
    assert objects.instant(POD, "metadata", "name") is None
    assert list(objects.items(POD, "spec", "volumes")) == []
    assert not objects.condition(POD, "Complete")
    assert not objects.is_deleting(POD)
    assert objects.milli({"cpu": "much"}, "cpu") == 0
    assert objects.whole({}, names.GPU_RESOURCE) == 0
    assert objects.annotations_of({"metadata": None}) == {}


def test_names() -> None:
    assert names.run_name("a-1-g", "0badcafe") == "a-1-g-0badcafe"
    assert names.run_name("x" * 47 + "-" + "y" * 15, "0badcafe") == "x" * 47 + "-0badcafe"
    assert len(names.run_name("x" * 63, "0badcafe") + "-99999") <= 63
    assert names.claim_name("a-1-g", 0) == "pvc-a-1-g-0"
