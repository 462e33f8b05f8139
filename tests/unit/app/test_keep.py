"""What is kept of objects that people who mean harm have written: little, whatever they write."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.app.kept import LARGEST_WHOLE, MOST_PARTS, NOTES, Keep, KeepSmall
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import ref_of
from gpuctl.k8s.requests import requests_of
from gpuctl.model.ids import ProjectName
from gpuctl.model.shared import REMEMBERED, Shared
from gpuctl.model.state import Body, RawObjects
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe import observe
from gpuctl.plan.diff import drift

QUARTER_MIB = 1 << 18
OURS = {
    names.MANAGED_BY_LABEL: names.MANAGED_BY,
    names.CLUSTER_LABEL: "one",
    names.PROJECT_LABEL: "a",
    names.JOB_LABEL: "j",
    names.RUN_LABEL: "0123abcd",
}


def bytes_of(*values: object) -> int:
    """What values take together, each part once."""
    seen: dict[int, object] = {}
    open_ = list(values)
    while open_:
        value = open_.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            if isinstance(value, Mapping):
                open_ += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                open_ += value
    return sum(map(sys.getsizeof, seen.values()))


def job(name: str = "j-0123abcd", **meta: Any) -> dict[str, Any]:
    """A suspended Job as the server gives it out."""
    container = {"name": "main", "image": "x", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    metadata = {"name": name, "namespace": "tenant", "uid": "u", "resourceVersion": "7", **meta}
    template = {"metadata": {"labels": {"controller-uid": "u"}}, "spec": {"containers": [container]}}
    spec = {"suspend": True, "parallelism": 1, "selector": {"matchLabels": {"controller-uid": "u"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**spec, "template": template},
        "status": {"conditions": [{"type": "Suspended", "status": "True", "message": "m" * 1000}]},
    }


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "tenant", "uid": "u", "resourceVersion": "7"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "n1", "containers": list(containers), **spec},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{"name": "x" * 999}]},
    }


def applied(body: dict[str, Any], fields: dict[str, Any], manager: str = names.FIELD_MANAGER) -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Apply", "apiVersion": "batch/v1", "fieldsV1": fields, "time": "t"}
    return {**body, "metadata": {**body["metadata"], "managedFields": [entry]}}


def many(**of_each: str) -> dict[str, str]:
    (key, value), *_ = of_each.items()
    return {f"{key}-{number}": value for number in range(20_000)}


LARGE: dict[str, dict[str, Any]] = {
    "an annotation": job(annotations={"note": "x" * QUARTER_MIB}),
    "a forged annotation": job(annotations={names.PLACEMENT_ANNOTATION: "x" * QUARTER_MIB}),
    "an annotation of a run of ours": job(labels=OURS, annotations={"note": "x" * QUARTER_MIB}),
    "labels": job(labels=many(label="x")),
    "labels of a run of ours": job(labels={**OURS, **many(label="x")}),
    "owners": job(ownerReferences=[{"kind": "Pod", "name": f"p{n}", "uid": f"{n}"} for n in range(9_999)]),
    "an owner's name": job(ownerReferences=[{"kind": "Pod", "name": "x" * QUARTER_MIB, "uid": "u"}]),
    "finalizers": job(finalizers=[f"example.com/{n}" for n in range(9_999)]),
    "managers": job(managedFields=[{"manager": f"m{n}", "operation": "Apply", "time": "t"} for n in range(9_999)]),
    "fields of another": applied(job(), many(f="x"), manager="kubectl"),
    "fields in our name": applied(job(), {f"f:{key}": {} for key in many(f="x")}),
    "fields in our name of a run of ours": applied(job(labels=OURS), {f"f:{key}": {} for key in many(f="x")}),
    "a template of a run of ours": {
        **job(labels=OURS),
        "spec": {"template": {"spec": {"containers": [{"env": [{"name": f"v{n}"} for n in range(20_000)]}]}}},
    },
    "containers": pod(*({"name": f"c{n}", "resources": {"requests": {"cpu": f"{n}m"}}} for n in range(20_000))),
    "a pod's annotation": pod(nodeSelector={"x": "x" * QUARTER_MIB}),
}


@pytest.mark.parametrize("name", LARGE)
def test_of_an_object_of_others_little_is_kept_however_large_it_is(name: str) -> None:
    body = LARGE[name]
    assert bytes_of(body) > QUARTER_MIB
    kept = Keep()(body)
    assert bytes_of(kept) < 8_192
    assert kept["metadata"]["uid"] == "u"
    assert kept["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("name", LARGE)
def test_a_command_keeps_as_little_of_a_large_object_and_all_of_a_small_one(name: str) -> None:
    assert bytes_of(KeepSmall()(LARGE[name])) < 8_192
    small = applied(job(annotations={"note": "n"}), {"f:spec": {}}, manager="kubectl")
    assert KeepSmall()(small) is small


def test_a_command_keeps_what_is_published_however_large() -> None:
    meta = {"name": names.OVERVIEW_NAME, "namespace": names.SYSTEM_NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"overview.json": "x" * 900_000}}
    assert KeepSmall()(body) is body


def test_four_hundred_jobs_of_a_tenant_take_a_megabyte_and_not_a_hundred() -> None:
    keep = Keep()
    kept = [keep(job(f"j{n}", annotations={"note": chr(65 + n % 26) * 250_000})) for n in range(400)]
    assert bytes_of(kept, *kept) < 1 << 20


@pytest.mark.parametrize("note", NOTES[kinds.POD])
def test_a_note_on_a_pod_is_kept_unless_it_is_larger_than_any_that_means_something(note: str) -> None:
    def noted(text: str) -> Body:
        body = pod()
        return Keep()({**body, "metadata": {**body["metadata"], "annotations": {note: text}}})

    assert noted("2026-01-01T00:00:00Z")["metadata"]["annotations"] == {note: "2026-01-01T00:00:00Z"}
    assert noted("x" * QUARTER_MIB)["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    "body",
    [
        pod({"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {names.GPU_RESOURCE: "2"}}}),
        pod(*[{"resources": {"requests": {"cpu": "0.1", names.GPU_RESOURCE: 1}}}] * 3, overhead={"memory": "5M"}),
        pod(
            {"resources": {"requests": {"cpu": "1"}}},
            initContainers=[
                {"restartPolicy": "Always", "resources": {"requests": {"memory": "1G"}}},
                {"resources": {"requests": {"cpu": "3", "nvidia.com/mig-1g.5gb": "2"}}},
            ],
        ),
        pod({"resources": "damaged"}, {"resources": {"requests": {"cpu": "much", "memory": None}}}),
    ],
    ids=["limits", "several", "in turn", "damaged"],
)
def test_a_pod_requests_what_it_did(body: Body) -> None:
    assert requests_of(Keep()(body)["spec"]) == requests_of(body["spec"])


def test_what_gpuctl_applied_has_no_drift_and_what_a_tenant_changed_has() -> None:
    wanted = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j-0123abcd", "namespace": "tenant", "annotations": {"any.key/of-ours": "v"}},
        "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}},
    }  # fmt: skip
    fields = {"f:metadata": {"f:annotations": {"f:any.key/of-ours": {}}}, "f:spec": {"f:suspend": {}}}
    live = applied(job(labels=OURS, annotations={"any.key/of-ours": "v", "another": "x"}), fields)
    assert drift(wanted, Keep()(live)) == ()
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "y"
    live["metadata"]["annotations"] = {"another": "x"}
    paths = ("metadata.annotations.any.key/of-ours", "spec.template.spec.containers[main].image")
    assert drift(wanted, Keep()(live)) == drift(wanted, live) == paths


def test_of_other_writers_of_an_object_the_last_is_kept() -> None:
    entries = [
        {"manager": "one", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "two", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "status", "operation": "Update", "time": "2026-01-03T00:00:00Z", "subresource": "status"},
    ]
    (left,) = Keep()(job(labels=OURS, managedFields=entries))["metadata"]["managedFields"]
    assert left == {"manager": "two", "operation": "Update", "time": "2026-01-02T00:00:00Z"}


def test_equal_parts_of_objects_are_one_object() -> None:
    keep = Keep()
    fields = {"f:metadata": {"f:labels": {f"f:l{n}": {} for n in range(200)}}, "f:spec": {"f:suspend": {}}}
    one, two = (keep(applied(job(f"j{n}-0123abcd", labels=OURS), dict(fields))) for n in range(2))
    assert one["metadata"]["managedFields"][0] is two["metadata"]["managedFields"][0]
    assert one["spec"]["template"]["spec"]["containers"] is two["spec"]["template"]["spec"]["containers"]
    assert bytes_of(one, two) < bytes_of(one) + 3_000


def test_an_object_of_ours_has_room_for_all_that_gpuctl_makes() -> None:
    env = [{"name": f"V{n}", "value": f"{n}"} for n in range(MOST_PARTS // 4)]
    body = job(labels=OURS)
    body["spec"]["template"]["spec"]["containers"][0]["env"] = env
    assert Keep()(body)["spec"]["template"]["spec"] == body["spec"]["template"]["spec"]


def test_of_what_is_large_the_label_tells_that_it_is_ours_for_any_user_may_write_as_our_field_manager() -> None:
    body = job(labels=OURS)
    body["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 2 * LARGEST_WHOLE]
    body["metadata"]["managedFields"] = [
        {"manager": names.FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:a": {}}}
    ]
    assert Keep()(body)["spec"]["template"]["spec"] == body["spec"]["template"]["spec"]
    body["metadata"]["labels"] = {}
    assert "spec" not in Keep()(body)


@pytest.mark.parametrize("damaged", [None, 3, "text", [], {"metadata": 1}, {"metadata": {"labels": []}, "spec": []}])
@pytest.mark.parametrize("kind", sorted({*kinds.OBSERVED, ("apps/v1", "ReplicaSet"), ("", "")}))
def test_what_is_damaged_is_kept_as_far_as_it_can_be_read(kind: tuple[str, str], damaged: Any) -> None:
    body = {"apiVersion": kind[0], "kind": kind[1], "metadata": damaged, "spec": damaged, "status": damaged}
    if isinstance(damaged, dict):
        body = {**body, **damaged}
    kept = Keep()(body)
    assert (kept["apiVersion"], kept["kind"]) == kind
    assert kept["metadata"] == {} or kept["metadata"].keys() <= {"labels", "annotations", "managedFields"}


def test_what_is_remembered_of_parts_is_bounded() -> None:
    shared = Shared()
    for number in range(5 * REMEMBERED):
        part = {"a": f"value {number}", "b": [{"c": number}]}
        assert shared.part(part) == part
        assert shared.tree({"t": number}) == {"t": number}
    held = sum(len(getattr(shared, slot)) for slot in Shared.__slots__)
    assert held <= 4 * REMEMBERED + 64
    assert shared.part({"a": [{}, [], 0, True, None, 1.5]}) == {"a": [{}, [], 0, True, None, 1.5]}


TOWNS = Path(__file__).parents[2] / "fuzz" / "corpus" / "observe"


@pytest.mark.parametrize("town", ["all", "devices", "jobs"])
def test_of_a_town_with_each_way_of_sharing_the_same_is_seen(town: str) -> None:
    bodies: list[Body] = json.loads((TOWNS / town).read_text())
    tenancy = Tenancy(cluster="one", projects={"gpu-good": ProjectName("good"), "gpu-evil": ProjectName("evil")})
    whole, kept = (
        observe(RawObjects(objects={ref_of(body): keep(body) for body in bodies}), tenancy)
        for keep in (lambda body: body, Keep())
    )
    assert any(run.placement for run in whole.runs)
    assert replace(kept, live={}) == replace(whole, live={})
