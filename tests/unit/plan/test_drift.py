from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench import Workbench, admitted, example, on

from gpuctl.k8s.objects import mapping
from gpuctl.model.ids import JobId
from gpuctl.model.state import Body
from gpuctl.plan import drift

Json = Any


def owned(body: Body) -> dict[str, Json]:
    """`fieldsV1` of having applied the body; lists are one value, but for containers and env."""
    fields: dict[str, Json] = {}
    for key, value in body.items():
        if isinstance(value, Mapping) and value:
            fields[f"f:{key}"] = owned(value)
        elif key in {"containers", "env"} and isinstance(value, list):
            items = {f"k:{json.dumps({'name': item['name']})}": {".": {}, **owned(item)} for item in value}
            fields[f"f:{key}"] = items
        else:
            fields[f"f:{key}"] = {}
    return fields


def stored(body: Body) -> dict[str, Json]:
    """As a server would keep it: with its own fields, and whose the applied ones are."""
    meta = {
        **mapping(body, "metadata"),
        "uid": "u",
        "managedFields": [{"manager": "gpuctl", "operation": "Apply", "fieldsV1": owned(body)}],
    }
    return {**body, "metadata": meta, "status": {"phase": "x"}}


def pod(**spec: Json) -> dict[str, Json]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


_NAMES = st.sampled_from(["a", "b", "c", "image", "cpu"])
_SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text("xyz1", min_size=1, max_size=3))
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_an_object_has_no_drift_from_what_applying_it_gave(spec: dict[str, Json]) -> None:
    body = pod(**spec)
    assert drift(body, body) == ()
    assert drift(body, stored(body)) == ()


@given(st.dictionaries(_NAMES, _SCALARS, max_size=4), st.dictionaries(_NAMES, _SCALARS, max_size=4))
def test_what_is_changed_added_or_taken_away_is_drift(wanted: dict[str, Json], applied: dict[str, Json]) -> None:
    differing = {key for key in wanted.keys() | applied.keys() if wanted.get(key, "-") != applied.get(key, "-")}
    assert set(drift(pod(**wanted), stored(pod(**applied)))) == {f"spec.{key}" for key in differing}


@pytest.mark.parametrize(("wanted", "live"), [("500m", 0.5), ("1", 1), ("1Gi", "1024Mi"), ("16255Mi", "17044602880")])
def test_quantities_are_compared_by_value(wanted: Json, live: Json) -> None:
    def body(amount: Json) -> dict[str, Json]:
        return pod(containers=[{"name": "main", "resources": {"requests": {"cpu": amount}}}])

    assert drift(body(wanted), body(live)) == ()
    assert drift(body("3"), body(live)) == ("spec.containers[main].resources.requests.cpu",)


def test_elsewhere_equal_numbers_of_another_form_are_drift() -> None:
    assert drift(pod(env="1.0"), pod(env="1")) == ("spec.env",)


def test_what_the_server_or_others_added_is_no_drift() -> None:
    wanted = pod(containers=[{"name": "main", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}])
    live = pod(
        dnsPolicy="ClusterFirst",
        containers=[
            {"name": "sidecar", "image": "other"},
            {
                "name": "main",
                "terminationMessagePath": "/dev/x",
                "env": [{"name": "INJECTED", "value": "2"}, {"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            },
        ],
    )
    assert drift(wanted, live) == ()


def test_a_keyed_item_that_is_missing_or_differs() -> None:
    wanted = pod(containers=[{"name": "main", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}])
    live = pod(containers=[{"name": "main", "env": [{"name": "A", "value": "2"}]}])
    assert drift(wanted, live) == ("spec.containers[main].env[A].value", "spec.containers[main].env[B]")


def test_a_list_that_is_one_value_has_its_order_and_length() -> None:
    assert drift(pod(args=["a", "b"]), pod(args=["b", "a"])) == ("spec.args[0]", "spec.args[1]")
    assert drift(pod(args=["a"]), pod(args=["a", "b"])) == ("spec.args",)


@pytest.mark.parametrize("other", ["text", 1, None, [1], {"b": 1}])
def test_a_value_of_another_kind_is_drift_but_nothing_and_empty_are_the_same(other: Json) -> None:
    values: list[Json] = [{"a": 1}, [{"a": 1}], 5]
    assert all(drift(pod(x=wanted), pod(x=other))[0].startswith("spec.x") for wanted in values)
    nothing: list[Json] = [{}, [], None]
    assert all(drift(pod(x=wanted), pod()) == () for wanted in nothing)


def test_an_item_of_a_set_that_is_no_longer_wanted_is_drift() -> None:
    live = stored(pod(finalizers=["a", "b"]))
    live["metadata"]["managedFields"][0]["fieldsV1"] = {"f:spec": {"f:finalizers": {'v:"a"': {}, 'v:"b"': {}}}}
    assert drift(pod(finalizers=["a", "b"]), live) == ()
    kept = {**live, "spec": {"finalizers": ["a"]}}
    assert drift(pod(finalizers=["a"]), kept) == ('spec.finalizers["b"]',)


def test_a_field_gpuctl_applied_and_no_longer_wants_is_drift_and_one_of_others_is_not() -> None:
    before = pod(containers=[{"name": "main", "image": "x", "env": [{"name": "A", "value": "1"}]}], nodeName="n")
    live = stored(before)
    live["spec"] = {**live["spec"], "schedulerName": "somebody"}
    assert drift(before, live) == ()
    wanted = pod(containers=[{"name": "main", "image": "x"}])
    assert drift(wanted, live) == ("spec.containers[main].env", "spec.nodeName")
    emptied = pod(containers=[{"name": "main", "image": "x", "env": []}], nodeName="n")
    assert drift(emptied, live) == ("spec.containers[main].env[A]",)


def test_what_gpuctl_updated_otherwise_does_not_count_as_applied() -> None:
    live = stored(pod(nodeName="n"))
    for other in ({"operation": "Update"}, {"manager": "kubectl"}, {"subresource": "status"}):
        entry = {**live["metadata"]["managedFields"][0], **other}
        changed = {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}
        assert drift(pod(), changed) == ()


@pytest.mark.parametrize("element", ["k:{broken", "k:[1]", "k:{}"])
def test_an_unreadable_key_is_drift_and_no_crash(element: str) -> None:
    live = stored(pod(containers=[{"name": "main"}]))
    live["metadata"]["managedFields"][0]["fieldsV1"] = {"f:spec": {"f:containers": {element: {"f:image": {}}}}}
    assert len(drift(pod(containers=[{"name": "main"}]), live)) == 1


def test_provenance_alone_is_never_drift() -> None:
    wanted: Body = {
        "metadata": {"name": "x", "annotations": {"gpuctl.dev/source": "a:1@b", "gpuctl.dev/revision": "2"}}
    }
    live = stored({"metadata": {"name": "x", "annotations": {"gpuctl.dev/source": "a:9@c"}}})
    assert drift(wanted, live) == ()
    assert drift({"metadata": {"name": "x", "annotations": {"other": ""}}}, live) == ("metadata.annotations.other",)


def test_every_rendered_object_equals_what_the_cluster_stores_of_it() -> None:
    bench = Workbench(example())
    bench.decisions = {
        "team-a/a-2-gg": admitted(JobId.parse("team-a/a-2-gg"), on("dgx1-1", 0, 1)),
        "team-b/b-1-g06": admitted(JobId.parse("team-b/b-1-g06"), on("dgx1-2", 3)),
    }
    bench.converge()
    bench.pass_ms(60_000)
    live = bench.state().live
    manifests = bench.manifests().items
    assert len(manifests) > 20
    assert {item.ref: drift(item.body, live[item.ref]) for item in manifests if drift(item.body, live[item.ref])} == {}
