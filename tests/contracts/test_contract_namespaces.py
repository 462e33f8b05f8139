"""Namespaces, quotas, owners: where objects may be, how many, and what goes when something goes."""

from __future__ import annotations

from typing import Any

import pytest
from labs import DRIVER, Lab, body, claim_template, dra_job, job, lab

from gpuctl.app.ports import Forbidden, NotFound
from gpuctl.k8s import kinds


def hard(amounts: dict[str, str]) -> dict[str, Any]:
    return body(kinds.RESOURCE_QUOTA, "q", spec={"hard": amounts})


def used(lab: Lab) -> dict[str, str]:
    return dict(lab.there(kinds.RESOURCE_QUOTA, "q").get("status", {}).get("used", {}))


def holds(lab: Lab) -> None:
    """Wait until the quota holds: it is counted, and whatever lets objects in has heard so."""
    lab.eventually(lambda: used(lab))
    lab.await_quotas()


def test_a_namespace_that_is_not_there_is_not_found(lab: Lab) -> None:
    with pytest.raises(NotFound):
        lab.apply(body(kinds.CONFIG_MAP, "c", namespace="gpu-nowhere"))


def test_a_new_namespace_is_active_and_labelled(lab: Lab) -> None:
    live = lab.there(kinds.NAMESPACE, lab.namespace)
    assert live["status"]["phase"] == "Active"
    assert live["metadata"]["labels"]["kubernetes.io/metadata.name"] == lab.namespace


def test_deleting_a_namespace_ends_all_in_it_and_takes_nothing_new(lab: Lab) -> None:
    lab.apply(body(kinds.CONFIG_MAP, "c"))
    lab.apply(job("j"))
    lab.running("j")
    lab.delete(kinds.NAMESPACE, lab.namespace)
    assert lab.there(kinds.NAMESPACE, lab.namespace)["status"]["phase"] == "Terminating"
    with pytest.raises(Forbidden, match="terminated"):
        lab.apply(body(kinds.CONFIG_MAP, "late"))
    lab.eventually(lambda: lab.get(kinds.NAMESPACE, lab.namespace) is None)
    for kind in (kinds.CONFIG_MAP, kinds.JOB, kinds.POD):
        assert [o for o in lab.cluster.list(kind).items if o["metadata"]["namespace"] == lab.namespace] == []
    with pytest.raises(NotFound):
        lab.apply(body(kinds.CONFIG_MAP, "later"))


def test_a_namespace_can_be_made_again(lab: Lab) -> None:
    first = lab.there(kinds.NAMESPACE, lab.namespace)
    lab.delete(kinds.NAMESPACE, lab.namespace)
    lab.eventually(lambda: lab.get(kinds.NAMESPACE, lab.namespace) is None)
    second = lab.apply(body(kinds.NAMESPACE, lab.namespace, namespace=None))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_what_is_owned_goes_with_its_owner(lab: Lab) -> None:
    owner = lab.apply(body(kinds.CONFIG_MAP, "owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    lab.apply(body(kinds.CONFIG_MAP, "owned", metadata={"ownerReferences": [reference]}))
    lab.apply(body(kinds.CONFIG_MAP, "free"))
    lab.delete(kinds.CONFIG_MAP, "owner")
    lab.eventually(lambda: lab.get(kinds.CONFIG_MAP, "owned") is None)
    assert lab.get(kinds.CONFIG_MAP, "free") is not None


def test_an_owner_of_another_uid_is_no_owner(lab: Lab) -> None:
    lab.apply(body(kinds.CONFIG_MAP, "owner"))
    stale = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-4000-8000-000000000000"}
    lab.apply(body(kinds.CONFIG_MAP, "orphan", metadata={"ownerReferences": [stale]}))
    lab.eventually(lambda: lab.get(kinds.CONFIG_MAP, "orphan") is None)


def told(lab: Lab, job: str) -> list[str]:
    """What events say of a Job."""
    events = lab.cluster.list(("v1", "Event")).items
    return [event["message"] for event in events if event["involvedObject"]["name"] == job]


def test_a_quota_refuses_the_pod_that_is_too_much_and_lets_it_in_later(lab: Lab) -> None:
    lab.apply(hard({"requests.nvidia.com/gpu": "2"}))
    holds(lab)
    lab.apply(job("first", gpus=2))
    lab.running("first")
    assert used(lab) == {"requests.nvidia.com/gpu": "2"}
    lab.apply(job("second", gpus=1))
    lab.eventually(lambda: any("exceeded quota" in message for message in told(lab, "second")))
    assert lab.pods("second") == []
    assert not lab.status("second").get("active")
    lab.finish("first")
    lab.running("second")
    lab.eventually(lambda: used(lab) == {"requests.nvidia.com/gpu": "1"})


def test_a_quota_of_compute_wants_to_know_what_a_pod_asks_for(lab: Lab) -> None:
    lab.apply(hard({"requests.memory": "1Ti"}))
    holds(lab)
    lab.apply(job("j"))
    lab.eventually(lambda: any("must specify" in message for message in told(lab, "j")))
    assert lab.pods("j") == []


def test_a_quota_counts_objects(lab: Lab) -> None:
    lab.apply(hard({"count/jobs.batch": "1"}))
    holds(lab)
    lab.apply(job("first", suspend=True))
    with pytest.raises(Forbidden, match="exceeded quota"):
        lab.apply(job("second", suspend=True))
    lab.apply(job("first", suspend=False))
    lab.delete(kinds.JOB, "first")
    lab.eventually(lambda: used(lab) == {"count/jobs.batch": "0"})
    lab.eventually(lambda: taken(lab, job("second", suspend=True)))


def taken(lab: Lab, wanted: dict[str, Any]) -> bool:
    """Whether the quotas let it in. What a quota's status says already, its admission may hear a moment later."""
    try:
        lab.apply(wanted)
    except Forbidden:
        return False
    return True


def none_of(*expressions: tuple[str, ...]) -> dict[str, Any]:
    """A quota of no pod for which these hold: (scope, operator, value...)."""
    wanted = [
        {"scopeName": scope, "operator": operator, **({"values": values} if values else {})}
        for scope, operator, *values in expressions
    ]
    return body(kinds.RESOURCE_QUOTA, "q", spec={"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": wanted}})


def priority(name: str) -> dict[str, Any]:
    return body(kinds.PRIORITY_CLASS, name, namespace=None, value=7)


def test_a_quota_of_a_scope_is_about_pods_that_all_its_expressions_hold_for(lab: Lab) -> None:
    lab.apply(none_of(("PriorityClass", "Exists"), ("PriorityClass", "NotIn", "ours")))
    holds(lab)
    for name in ("ours", "theirs"):
        lab.apply(priority(name))
    lab.apply(job("plain"))
    lab.apply(job("own", pod={"priorityClassName": "ours"}))
    lab.apply(job("other", pod={"priorityClassName": "theirs"}))
    lab.running("plain")
    lab.running("own")
    lab.eventually(lambda: any("exceeded quota: q" in message for message in told(lab, "other")))
    assert lab.pods("other") == []
    assert used(lab) == {"pods": "0"}


@pytest.mark.parametrize(
    ("operator", "refused"),
    [("Exists", {"own"}), ("DoesNotExist", {"plain"}), ("In", {"own"}), ("NotIn", {"plain"})],
)
def test_operators_of_a_scope(lab: Lab, operator: str, refused: set[str]) -> None:
    values = ("ours",) if operator.endswith("In") else ()
    lab.apply(none_of(("PriorityClass", operator, *values)))
    holds(lab)
    lab.apply(priority("ours"))
    lab.apply(job("plain"))
    lab.apply(job("own", pod={"priorityClassName": "ours"}))
    for name in refused:
        lab.eventually(lambda: told(lab, name))  # noqa: B023 - ends in this turn
    for name in {"plain", "own"} - refused:
        lab.running(name)
    assert not any(lab.pods(name) for name in refused)


@pytest.mark.parametrize("way", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("where", [{"namespaces": ["gpu-team-b"]}, {"namespaceSelector": {}}, {}])
def test_a_quota_of_pods_with_affinity_across_namespaces(lab: Lab, way: str, where: dict[str, Any]) -> None:
    lab.apply(none_of(("CrossNamespacePodAffinity", "Exists")))
    holds(lab)
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname", **where}
    prefers = "preferredDuringSchedulingIgnoredDuringExecution"
    lab.apply(job("near", pod={"affinity": {way: {prefers: [{"weight": 1, "podAffinityTerm": term}]}}}))
    if where:
        lab.eventually(lambda: any("exceeded quota: q" in message for message in told(lab, "near")))
        assert lab.pods("near") == []
    else:
        lab.eventually(lambda: lab.pods("near"))


def test_a_quota_counts_devices_of_claims(lab: Lab) -> None:
    lab.apply(hard({f"{DRIVER}.deviceclass.resource.k8s.io/devices": "2"}))
    holds(lab)
    for name, minors in (("first", (0, 1)), ("second", (2,))):
        lab.apply(claim_template(name, minors, count=len(minors)))
        lab.apply(dra_job(name, name, nodes=("shared-1",)))
        if name == "first":  # Jobs made at once would get their claims in any order
            lab.running(name)
    lab.eventually(lambda: lab.pods("second"))
    lab.later(30_000)
    assert [pod["status"]["phase"] for pod in lab.pods("second")] == ["Pending"]
    lab.finish("first")
    lab.running("second")


def test_a_storage_claim_stays_while_a_pod_of_it_is_there_even_one_that_ended(lab: Lab) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    lab.apply(body(kinds.CLAIM, "p", spec=spec))
    container = {"name": "main", "image": "i:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "p"}}]
    lab.apply(job("j", pod={"containers": [container], "volumes": volumes}))
    lab.running("j")
    lab.delete(kinds.CLAIM, "p")
    lab.later(10_000)
    assert lab.there(kinds.CLAIM, "p")["metadata"]["deletionTimestamp"]
    lab.finish("j")
    lab.later(10_000)
    assert lab.there(kinds.CLAIM, "p")["metadata"]["deletionTimestamp"]
    lab.delete(kinds.JOB, "j")
    lab.eventually(lambda: lab.get(kinds.CLAIM, "p") is None)
