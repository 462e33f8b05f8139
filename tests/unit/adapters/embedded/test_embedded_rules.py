"""The rules by which pods, devices and names are judged, one by one."""

from __future__ import annotations

from typing import Any

import pytest
from stories import EPOCH_MS, NAMESPACE, advance, job, job_id, opened, phases, true_conditions

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded.amounts import pod_asks
from gpuctl.adapters.embedded.bodies import key_of
from gpuctl.adapters.embedded.cel import Literal, selector
from gpuctl.adapters.embedded.defaults import filled
from gpuctl.adapters.embedded.devices import Device, DeviceBook, DeviceKey, allocate, consumption
from gpuctl.adapters.embedded.indexes import ranges
from gpuctl.adapters.embedded.jobs import failure_action
from gpuctl.adapters.embedded.quota import use_of
from gpuctl.adapters.embedded.scheduler import matches, named_nodes, unfit
from gpuctl.app.ports import Invalid
from gpuctl.k8s import kinds
from gpuctl.k8s.workloads import completed_indexes

NODE: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "a", "size": "8"}},
    "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}  # fmt: skip


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": NAMESPACE}, "spec": spec}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    term_list = {"nodeSelectorTerms": list(terms)}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term_list}})


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


BY_NAME: dict[str, Any] = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (label("zone", "In", "a", "b"), True),
        (label("zone", "In", "b"), False),
        (label("zone", "NotIn", "b"), True),
        (label("zone", "NotIn", "a"), False),
        (label("none", "NotIn", "a"), True),
        (label("zone", "Exists"), True),
        (label("none", "Exists"), False),
        (label("none", "DoesNotExist"), True),
        (label("zone", "DoesNotExist"), False),
        (label("size", "Gt", "7"), True),
        (label("size", "Gt", "8"), False),
        (label("size", "Lt", "9"), True),
        (label("zone", "Lt", "9"), False),
        (label("zone", "Like", "a"), False),
        (BY_NAME, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        ({**BY_NAME, **label("zone", "In", "b")}, False),
        ({}, False),
    ],
)
def test_terms_of_required_affinity(term: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert matches(required(term), NODE) is expected
    assert matches(required({}, term), NODE) is expected


def test_a_node_selector_must_match_whole() -> None:
    assert matches(pod(nodeSelector={"zone": "a", "size": "8"}), NODE)
    assert not matches(pod(nodeSelector={"zone": "a", "size": "9"}), NODE)


def test_named_nodes_are_those_every_term_names() -> None:
    assert named_nodes(required(BY_NAME)) == frozenset({"n1"})
    assert named_nodes(required(BY_NAME, label("zone", "In", "a"))) is None
    assert named_nodes(pod()) is None


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, Any], tolerated: bool) -> None:  # noqa: FBT001 - a table's column
    tainted = {**NODE, "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
    assert (unfit(pod(tolerations=[toleration]), tainted) == "") is tolerated


def test_a_preference_against_a_node_keeps_no_pod_off() -> None:
    assert unfit(pod(), {**NODE, "spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}) == ""


def test_a_pod_asks_for_its_containers_or_its_largest_start() -> None:
    containers = [
        {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        {"resources": {"requests": {"cpu": 1}}},
    ]
    start = [{"resources": {"requests": {"cpu": "4", "memory": "1Mi"}}}]
    asked = pod_asks(pod(containers=containers, initContainers=start))
    assert asked == {"cpu": 4_000, "memory": 1 << 30}


def test_selectors_compare_with_literals() -> None:
    attributes: dict[str, Literal] = {"d.example/minor": 1, "d.example/type": "gpu"}
    both = selector("device.driver == 'd.example' && device.attributes['d.example'].minor in [0, 1]")
    assert both("d.example", attributes)
    assert not both("e.example", attributes)
    assert not both("d.example", {})
    assert selector('device.attributes["d.example"].type == "gpu"')("d.example", attributes)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "true",
        "device.driver != 'd'",
        "device.driver == 'd' || device.driver == 'e'",
        "device.driver in 'd'",
        "device.driver == ['d']",
        "device.attributes['d'].minor in [0, ",
        "device.attributes['d'].minor == 1.5",
        "device.attributes['d'].minor.x == 1",
    ],
)
def test_other_expressions_are_refused_rather_than_misread(expression: str) -> None:
    with pytest.raises(ValueError, match="form of CEL"):
        selector(expression)


def device(**capacity: Any) -> Device:
    return Device(key=DeviceKey("d", "n1", "gpu-0"), shared=True, attributes={}, capacity=capacity)


def test_consumption_follows_the_policy_of_each_capacity() -> None:
    policy = {"default": "100", "validRange": {"min": "10", "max": "90", "step": "10"}}
    stepped = device(cores={"value": "100", "requestPolicy": policy}, memory={"value": "1Gi"})
    assert consumption(stepped, {"cores": "41"}) == {"cores": 50, "memory": 1 << 30}
    assert consumption(stepped, {"cores": "1", "memory": "1Mi"}) == {"cores": 10, "memory": 1 << 20}
    assert consumption(stepped, {"cores": "95"}) is None
    assert consumption(stepped, {"cores": "10", "memory": "2Gi"}) is None
    assert consumption(stepped, {"slots": "1"}) is None


def test_a_device_that_is_not_shared_is_held_whole() -> None:
    book = DeviceBook()
    listed = {
        "driver": "d",
        "nodeName": "n1",
        "pool": {"name": "n1"},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    api_version, kind = kinds.RESOURCE_SLICE
    stored = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "s"}, "spec": listed}
    book.note(key_of(stored), None, stored)
    claim = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "count": 1}}]}}}
    classes: dict[str, Any] = {"c": {"spec": {}}}
    shares = allocate(book, classes, [claim, claim], "n1")
    assert shares is not None
    assert [share.device.name for group in shares for share in group] == ["gpu-0", "gpu-1"]
    assert allocate(book, classes, [claim, claim, claim], "n1") is None
    assert allocate(book, classes, [claim], "n2") is None
    assert allocate(book, {}, [claim], "n1") is None


def test_completed_indexes_are_written_as_ranges() -> None:
    assert ranges({0, 2, 3, 4, 9}) == "0,2-4,9"
    assert completed_indexes({"status": {"completedIndexes": "0,2-4,9"}}) == {0, 2, 3, 4, 9}
    assert completed_indexes({}) == set()


def ended(code: int) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]}}


def test_a_failure_policy_takes_the_first_rule_that_matches() -> None:
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
    ]
    strict = {"spec": {"podFailurePolicy": {"rules": rules}}}
    assert [failure_action(strict, ended(code)) for code in (42, 1, 7)] == ["FailJob", "Count", "Ignore"]
    assert failure_action({}, ended(1)) == "Count"


def test_an_exit_code_may_end_the_whole_job() -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock)
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    cluster.apply(job("j", backoffLimit=5, podFailurePolicy={"rules": [rule]}))
    advance(clock, cluster, 1_000)
    cluster.finish(job_id("j"), 42)
    assert true_conditions(cluster, "j") == {"FailureTarget", "Failed"}


def test_a_job_without_completions_is_done_with_its_first_success() -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock)
    cluster.apply(job("j", parallelism=2))
    advance(clock, cluster, 1_000)
    cluster.finish(job_id("j"), 0)
    assert "Complete" in true_conditions(cluster, "j")
    assert set(phases(cluster).values()) == {"Succeeded"}


def test_what_counts_against_quotas() -> None:
    spec = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
    use = use_of({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec})
    assert use["requests.storage"] == use["fast.storageclass.storage.k8s.io/requests.storage"] == 1 << 30
    assert use["persistentvolumeclaims"] == use["count/persistentvolumeclaims"] == 1
    running = pod(containers=[{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}])
    assert {name: value for name, value in use_of(running).items() if "cpu" in name} == {
        "cpu": 1_000, "requests.cpu": 1_000, "limits.cpu": 2_000,
    }  # fmt: skip
    assert use_of({**running, "status": {"phase": "Failed"}}) == {}
    assert use_of(NODE) == {}


FILLED = (kinds.POD, kinds.JOB, kinds.DEPLOYMENT, kinds.SERVICE, kinds.NAMESPACE, kinds.ROLE_BINDING)


@pytest.mark.parametrize("kind", FILLED)
def test_filling_in_twice_is_filling_in_once(kind: kinds.Kind) -> None:
    containers = [
        {"name": "main", "image": "i", "ports": [{"containerPort": 1}], "resources": {"limits": {"cpu": "1"}}}
    ]
    volumes = [{"name": "s", "secret": {"secretName": "s"}}, {"name": "h", "hostPath": {"path": "/"}}, {"name": "e"}]
    podded = {"containers": containers, "volumes": volumes}
    spec = podded if kind == kinds.POD else {"template": {"spec": podded}, "ports": [{"port": 1}]}
    subjects = [{"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s"}]
    meta = {"name": "x", "uid": "00000001-0000-4000-8000-000000000001"}
    bare = {"apiVersion": kind[0], "kind": kind[1], "metadata": meta, "spec": spec, "subjects": subjects}
    once = filled(bare)
    assert once != bare
    assert filled(once) == once


REFUSED: dict[str, dict[str, Any]] = {
    "two names": {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]},
    "no image": {"containers": [{"name": "a"}]},
    "a bad name": {"containers": [{"name": "A_", "image": "i"}]},
    "an unknown pull policy": {"containers": [{"name": "a", "image": "i", "imagePullPolicy": "Sometimes"}]},
    "no mount path": {"volumes": [{"name": "v"}], "containers": [
        {"name": "a", "image": "i", "volumeMounts": [{"name": "v"}]}]},
    "a bad variable": {"containers": [{"name": "a", "image": "i", "env": [{"name": "A=B"}]}]},
    "a number as value": {"containers": [{"name": "a", "image": "i", "env": [{"name": "A", "value": 1}]}]},
    "a port over the end": {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 65536}]}]},
    "a word as amount": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "some"}}}]},
    "more asked than allowed": {"containers": [
        {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}]},
    "devices without a limit": {"containers": [
        {"name": "a", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
    "no terms": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
    "a field that is no field": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]}]}}}},
    "an operator that is none": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [label("zone", "Like", "a")]}}}},
    "a toleration of another sort": {"tolerations": [{"key": "a", "operator": "Maybe"}]},
    "a claim of nothing": {"resourceClaims": [{"name": "gpu"}]},
}  # fmt: skip


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
def test_pods_the_server_refuses(fields: dict[str, Any]) -> None:
    wanted = job("j", suspend=True)
    wanted["spec"]["template"]["spec"].update(fields)
    with pytest.raises(Invalid):
        opened(VirtualClock(EPOCH_MS)).apply(wanted)
