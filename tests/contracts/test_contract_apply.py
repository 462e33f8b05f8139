"""Server-side apply: ownership, what leaving a field out does, no-ops, preconditions and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from labs import Lab, body, claim_template, job, lab

from gpuctl.app.ports import Conflict, Invalid, NotFound, Taken
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.names import FIELD_MANAGER
from gpuctl.k8s.objects import labels_of, uid
from gpuctl.model.ids import ObjectRef
from gpuctl.plan import drift


def config(**data: str) -> dict[str, Any]:
    return body(kinds.CONFIG_MAP, "c", data=data)


def owned(live: Any, manager: str = FIELD_MANAGER) -> dict[str, Any]:
    """The fieldsV1 of a manager."""
    entries = [entry for entry in live["metadata"]["managedFields"] if entry["manager"] == manager]
    return dict(entries[0]["fieldsV1"]) if entries else {}


def test_a_created_object_has_an_identity(lab: Lab) -> None:
    live = lab.apply(config(a="1"))
    meta = live["metadata"]
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    assert owned(live) == {"f:data": {"f:a": {}}}
    (entry,) = meta["managedFields"]
    assert (entry["operation"], entry["apiVersion"], entry["fieldsType"]) == ("Apply", "v1", "FieldsV1")


def test_a_field_left_out_is_removed_and_the_rest_stays(lab: Lab) -> None:
    lab.apply(config(a="1", b="2"))
    live = lab.apply(config(b="2", c="3"))
    assert live["data"] == {"b": "2", "c": "3"}


def test_applying_the_same_again_writes_nothing(lab: Lab) -> None:
    first = lab.apply(job("j", suspend=True))
    lab.eventually(lambda: lab.condition("j", "Suspended"))
    live = lab.there(kinds.JOB, "j")
    version = lab.cluster.list(kinds.JOB).resource_version
    assert lab.apply(job("j", suspend=True)) == live
    assert live["metadata"]["uid"] == first["metadata"]["uid"]
    assert [e.type for e in lab.cluster.watch(kinds.JOB, version, 0)] == ["BOOKMARK"]


def test_defaults_of_the_server_are_not_the_managers(lab: Lab) -> None:
    live = lab.apply(job("j", suspend=True))
    assert live["spec"]["completionMode"] == "NonIndexed"
    assert live["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": live["metadata"]["uid"]}
    assert live["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    fields = owned(live)
    assert "f:completionMode" not in fields["f:spec"]
    assert "f:selector" not in fields["f:spec"]


def test_containers_are_told_apart_by_name_and_arguments_are_one_piece(lab: Lab) -> None:
    wanted = job("j", suspend=True, pod={"containers": [{"name": "main", "image": "i:1", "args": ["a", "b"]}]})
    containers = owned(lab.apply(wanted))["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert containers == {'k:{"name":"main"}': {".": {}, "f:args": {}, "f:image": {}, "f:name": {}}}


def test_required_affinity_is_one_piece(lab: Lab) -> None:
    fields = owned(lab.apply(job("j", suspend=True, nodes=("plain-1", "plain-2"))))
    affinity = fields["f:spec"]["f:template"]["f:spec"]["f:affinity"]
    assert affinity == {"f:nodeAffinity": {"f:requiredDuringSchedulingIgnoredDuringExecution": {}}}


def test_affinity_left_out_of_a_suspended_job_is_gone(lab: Lab) -> None:
    lab.apply(job("j", suspend=True, nodes=("plain-1",)))
    live = lab.apply(job("j", suspend=True))
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in str(live["spec"]["template"]["spec"])


def test_a_job_whose_suspend_is_left_out_starts(lab: Lab) -> None:
    lab.apply(job("j", suspend=True))
    without = job("j")
    del without["spec"]["suspend"]
    assert lab.apply(without)["spec"]["suspend"] is False
    lab.running("j")


def test_a_list_with_a_key_twice_is_refused(lab: Lab) -> None:
    lab.apply(job("j", suspend=True))
    twice = [{"name": "main", "image": "i:1"}, {"name": "main", "image": "i:2"}]
    for name in ("j", "k"):
        with pytest.raises(Invalid):
            lab.apply(job(name, suspend=True, pod={"containers": twice}))


def test_an_object_over_a_megabyte_and_a_half_is_refused(lab: Lab) -> None:
    large = [{"name": "main", "image": "i:1", "args": ["x" * (3 << 19)]}]
    with pytest.raises(Invalid):
        lab.apply(job("j", suspend=True, pod={"containers": large}))


def test_ports_are_told_apart_by_number_and_protocol(lab: Lab) -> None:
    def service(*ports: dict[str, Any]) -> dict[str, Any]:
        return body(kinds.SERVICE, "s", spec={"selector": {"a": "b"}, "ports": list(ports)})

    live = lab.apply(service({"name": "web", "port": 80}, {"name": "more", "port": 81}))
    assert 'k:{"port":80,"protocol":"TCP"}' in owned(live)["f:spec"]["f:ports"]
    live = lab.apply(service({"name": "web", "port": 80}))
    assert [port["port"] for port in live["spec"]["ports"]] == [80]


def test_keyed_lists_take_the_order_of_the_apply(lab: Lab) -> None:
    def quiet(*variables: str) -> dict[str, Any]:
        env = [{"name": name, "value": "x"} for name in variables]
        template = {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "main", "image": "i:1", "env": env}]},
        }
        return body(kinds.DEPLOYMENT, "d", spec={
            "replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template})  # fmt: skip

    lab.apply(quiet("A", "B"))
    live = lab.apply(quiet("C", "B", "A"))
    env = live["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in env] == ["C", "B", "A"]


def test_what_another_manager_set_stays_until_it_is_taken_over(lab: Lab) -> None:
    live = lab.apply(config(mine="1"))
    edited = lab.edit({**live, "data": {"mine": "1", "theirs": "2"}}, "kubectl-edit")
    assert owned(edited, "kubectl-edit") == {"f:data": {"f:theirs": {}}}
    live = lab.apply(config(mine="3"))
    assert live["data"] == {"mine": "3", "theirs": "2"}
    live = lab.apply(config(mine="3", theirs="4"))
    assert live["data"] == {"mine": "3", "theirs": "4"}
    assert owned(live, "kubectl-edit") == {}
    assert lab.apply(config(mine="3"))["data"] == {"mine": "3"}


def test_a_value_changed_by_another_manager_is_theirs_until_applied_again(lab: Lab) -> None:
    live = lab.apply(config(a="1", b="2"))
    drifted = lab.edit({**live, "data": {"a": "changed", "b": "2"}}, "kubectl-edit")
    assert owned(drifted) == {"f:data": {"f:b": {}}}
    live = lab.apply(config(a="1", b="2"))
    assert live["data"] == {"a": "1", "b": "2"}
    assert owned(live) == {"f:data": {"f:a": {}, "f:b": {}}}
    assert owned(live, "kubectl-edit") == {}


POLICY = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]}
BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
RULES = {
    "ingressClassName": "x",
    "rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}}],
}
PIECES: Mapping[str, tuple[Kind, dict[str, Any], tuple[str | int, ...], str]] = {
    "a selector of a Service": (
        kinds.SERVICE, {"selector": {"a": "b"}, "ports": [{"port": 80}]}, ("selector", "c"), "spec.selector",
    ),
    "a selector of labels": (
        kinds.NETWORK_POLICY, POLICY, ("podSelector", "matchLabels"), "spec.podSelector",
    ),
    "a list in a list": (
        kinds.NETWORK_POLICY, POLICY, ("ingress", 0, "from", 0, "namespaceSelector"), "spec.ingress",
    ),
    "a rule of an Ingress": (kinds.INGRESS, RULES, ("rules", 0, "host"), "spec.rules"),
}  # fmt: skip
"""A kind, a spec that gpuctl wants, where somebody adds something, and the part that is one piece."""


@pytest.mark.parametrize("what", PIECES)
def test_what_others_add_to_one_piece_takes_it_and_goes_when_it_is_applied_again(lab: Lab, what: str) -> None:
    """Each value that is wanted is still there, and the Service leads nowhere, or the policy lets all in."""
    kind, spec, path, piece = PIECES[what]
    wanted = body(kind, "s", metadata={"labels": {"a": "b"}}, spec=spec)
    live = lab.apply(wanted)
    assert drift(wanted, live) == ()
    changed = deepcopy(dict(live))
    at = changed["spec"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = "d.example.com" if path[-1] in {"c", "host"} else {"a": "b"} if path[-1] == "matchLabels" else {}
    lab.edit(changed, "kubectl-edit")
    edited = lab.there(kind, "s")
    assert drift(wanted, edited) == (piece,)
    again = lab.apply(wanted)
    assert again["spec"] == live["spec"]
    assert drift(wanted, again) == ()


def test_a_field_two_managers_own_stays_when_one_leaves_it_out(lab: Lab) -> None:
    live = lab.apply(config(shared="1"))
    theirs = lab.edit({**live, "data": {"shared": "2"}}, "kubectl-edit")
    assert owned(theirs, "kubectl-edit") == {"f:data": {"f:shared": {}}}
    live = lab.apply(config(shared="2"))
    assert owned(live, "kubectl-edit") == {"f:data": {"f:shared": {}}}
    assert lab.apply(config(other="x"))["data"] == {"shared": "2", "other": "x"}


def test_an_update_of_a_version_that_has_passed_is_a_conflict(lab: Lab) -> None:
    live = lab.apply(config(a="1"))
    lab.apply(config(a="2"))
    with pytest.raises(Conflict):
        lab.edit({**live, "data": {"a": "3"}}, "kubectl-edit")


def test_status_in_an_apply_is_ignored(lab: Lab) -> None:
    live = lab.apply({**job("j", suspend=True), "status": {"succeeded": 5}})
    assert "succeeded" not in live["status"]
    assert "f:status" not in owned(live)


def test_uid_and_version_in_the_body_are_preconditions(lab: Lab) -> None:
    live = lab.apply(config(a="1"))

    def at(field: str, value: str) -> dict[str, Any]:
        return body(kinds.CONFIG_MAP, "c", metadata={field: value}, data={"a": "2"})

    with pytest.raises(Conflict):
        lab.apply(at("uid", "00000000-0000-4000-8000-000000000000"))
    with pytest.raises(Conflict):
        lab.apply(at("resourceVersion", str(int(live["metadata"]["resourceVersion"]) - 1)))
    assert lab.apply(at("uid", live["metadata"]["uid"]))["data"] == {"a": "2"}


def test_a_version_of_an_object_that_is_gone_is_a_conflict(lab: Lab) -> None:
    with pytest.raises(Conflict):
        lab.apply(body(kinds.CONFIG_MAP, "c", metadata={"uid": "00000000-0000-4000-8000-000000000000"}, data={}))


def test_a_delete_is_of_that_object_at_that_version(lab: Lab) -> None:
    live = lab.apply(config(a="1"))
    uid, version = live["metadata"]["uid"], live["metadata"]["resourceVersion"]
    ref = ObjectRef("v1", "ConfigMap", lab.namespace, "c")
    lab.apply(config(a="2"))
    with pytest.raises(Conflict):
        lab.cluster.delete(ref, uid, version)
    with pytest.raises(Conflict):
        lab.cluster.delete(ref, "00000000-0000-4000-8000-000000000000", "")
    lab.delete(kinds.CONFIG_MAP, "c")
    with pytest.raises(NotFound):
        lab.cluster.delete(ref, uid, version)


def test_a_deleted_and_recreated_object_is_another(lab: Lab) -> None:
    first = lab.apply(config(a="1"))
    lab.delete(kinds.CONFIG_MAP, "c")
    second = lab.apply(config(a="1"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


def test_a_kind_that_is_not_served_is_not_found(lab: Lab) -> None:
    with pytest.raises(NotFound):
        lab.apply(body(("example.com/v1", "Widget"), "w"))
    with pytest.raises(NotFound):
        lab.cluster.list(("example.com/v1", "Widget"))


def deployment(**template_labels: str) -> dict[str, Any]:
    template = {"metadata": {"labels": template_labels}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}}
    return body(kinds.DEPLOYMENT, "d", spec={"selector": {"matchLabels": {"app": "d"}}, "template": template})


INVALID: dict[str, dict[str, Any]] = {
    "a name that is no DNS name": body(kinds.CONFIG_MAP, "Not_A_Name"),
    "a label value with spaces": body(kinds.CONFIG_MAP, "c", metadata={"labels": {"a": "b c"}}),
    "a label key of two prefixes": body(kinds.CONFIG_MAP, "c", metadata={"labels": {"a/b/c": "d"}}),
    "a job without containers": job("j", pod={"containers": []}),
    "a job that restarts always": job("j", pod={"restartPolicy": "Always"}),
    "an indexed job without a count": job("j", completionMode="Indexed", parallelism=2),
    "a negative limit": job("j", activeDeadlineSeconds=-1),
    "a job name over 63": job("j" * 64),
    "two nodes in one field requirement": job("j", pod={"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["plain-1", "plain-2"]}]}]}}}}),
    "a mount of no volume": job("j", pod={"containers": [
        {"name": "main", "image": "i:1", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]}),
    "a claim the pod has not": job("j", pod={"containers": [
        {"name": "main", "image": "i:1", "resources": {"claims": [{"name": "none"}]}}]}),
    "half a GPU": job("j", pod={"containers": [
        {"name": "main", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": "500m"}}}]}),
    "a deployment that does not select its pods": deployment(app="other"),
    "a service without ports": body(kinds.SERVICE, "s", spec={"selector": {"a": "b"}}),
    "a storage claim without a size": body(kinds.CLAIM, "p", spec={"accessModes": ["ReadWriteOnce"]}),
    "a quota of words": body(kinds.RESOURCE_QUOTA, "q", spec={"hard": {"pods": "many"}}),
    "a quota of a scope without values": body(kinds.RESOURCE_QUOTA, "q", spec={"hard": {"pods": "0"}, "scopeSelector": {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn"}]}}),
    "a quota of a scope with another's operator": body(kinds.RESOURCE_QUOTA, "q", spec={
        "hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "CrossNamespacePodAffinity", "operator": "In", "values": ["x"]}]}}),
    "a binding to nothing": body(kinds.ROLE_BINDING, "r", roleRef={"kind": "ClusterRole"}),
    "an ingress path without a type": body(kinds.INGRESS, "i", spec={"rules": [{"http": {"paths": [
        {"path": "/a", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}),
    "a map of numbers": body(kinds.CONFIG_MAP, "c", data={"a": 1}),
    "a map over 1 MiB": body(kinds.CONFIG_MAP, "c", data={"a": "x" * ((1 << 20) + 1)}),
    "a priority that is the system's": body(kinds.PRIORITY_CLASS, "p", namespace=None, value=2_000_000_000),
}  # fmt: skip


@pytest.mark.parametrize("wanted", INVALID.values(), ids=INVALID.keys())
def test_what_the_server_refuses(lab: Lab, wanted: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        lab.apply(wanted)
    assert lab.get((wanted["apiVersion"], wanted["kind"]), wanted["metadata"]["name"]) is None


def storage(size: str, **spec: Any) -> dict[str, Any]:
    fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return body(kinds.CLAIM, "p", spec=fields)


def binding(role: str) -> dict[str, Any]:
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    return body(kinds.ROLE_BINDING, "r", roleRef=role_ref, subjects=[{"kind": "Group", "name": "team-a"}])


def test_a_right_is_taken_away_however_full_its_binding_is(lab: Lab) -> None:
    """Who may write on it could keep it, by annotations up to the last byte that the server takes."""
    marked = {**binding("view"), "metadata": {**binding("view")["metadata"], "labels": {"own": "x"}}}
    live = lab.apply({**marked, "subjects": [*marked["subjects"], {"kind": "User", "name": "eve"}]})
    meta = {**live["metadata"], "annotations": {"theirs": "x" * (256 * 1024 - len("theirs"))}}
    lab.edit({**live, "metadata": meta}, "eve")
    wanted = {**marked, "metadata": {**marked["metadata"], "annotations": {"gpuctl.dev/source": "a.yaml:3"}}}
    stored = lab.apply(wanted)
    assert [subject["name"] for subject in stored["subjects"]] == ["team-a"]
    assert stored["metadata"]["annotations"] == {"gpuctl.dev/source": "a.yaml:3"}
    assert stored["metadata"]["labels"] == {"own": "x"}


IMMUTABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a claim template's spec": (claim_template("t", (0,)), claim_template("t", (1,))),
    "a storage claim's access": (storage("1Gi"), storage("1Gi", accessModes=["ReadWriteMany"])),
    "a storage claim's size, downwards": (storage("2Gi"), storage("1Gi")),
    "a binding's role": (binding("view"), binding("edit")),
    "a priority's value": (
        body(kinds.PRIORITY_CLASS, "p", namespace=None, value=1),
        body(kinds.PRIORITY_CLASS, "p", namespace=None, value=2),
    ),
}


@pytest.mark.parametrize(("first", "second"), IMMUTABLE.values(), ids=IMMUTABLE.keys())
def test_what_never_changes(lab: Lab, first: dict[str, Any], second: dict[str, Any]) -> None:
    lab.apply(first)
    lab.later(0)
    with pytest.raises(Invalid):
        lab.apply(second)


def test_a_storage_claim_is_bound_and_may_grow(lab: Lab) -> None:
    lab.apply(storage("1Gi"))
    lab.eventually(lambda: lab.there(kinds.CLAIM, "p")["status"]["phase"] == "Bound")
    live = lab.apply(storage("2Gi"))
    assert live["spec"]["resources"]["requests"]["storage"] == "2Gi"
    bigger = {**live["spec"], "resources": {"requests": {"storage": "3Gi"}}}
    lab.edit({**live, "spec": bigger}, "resizer")
    live = lab.there(kinds.CLAIM, "p")
    assert "f:storage" not in str(owned(live))
    with pytest.raises(Invalid):
        lab.apply(storage("2Gi"))


OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.PROJECT_LABEL: "a"}


def service(port: int, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    spec = {"selector": {"a": "b"}, "ports": [{"name": "web", "port": port}]}
    return body(kinds.SERVICE, "s", metadata={"labels": dict(OURS if labels is None else labels)}, spec=spec)


def test_a_new_object_is_made_whole(lab: Lab) -> None:
    assert owned(lab.apply(service(80), is_new=True))["f:metadata"]


@pytest.mark.parametrize("port", [80, 81], ids=["alike", "otherwise"])
@pytest.mark.parametrize("labels", [{}, {**OURS, names.PROJECT_LABEL: "b"}], ids=["bare", "of another project"])
def test_an_object_that_others_made_is_not_changed_as_a_new_one(port: int, labels: Mapping[str, str], lab: Lab) -> None:
    made = lab.make(service(port, labels))
    with pytest.raises(Taken):
        lab.apply(service(80), is_new=True)
    assert lab.there(kinds.SERVICE, "s") == made


def test_an_object_that_others_hand_over_is_taken(lab: Lab) -> None:
    theirs = service(80, {**OURS, "theirs": "yes"})
    made = lab.make({**theirs, "spec": {**theirs["spec"], "selector": {"c": "d"}}})
    live = lab.apply(service(80), is_new=True)
    assert (uid(live), {*labels_of(live)}) == (uid(made), {*OURS, "theirs"})
    assert live["spec"]["selector"] == {"a": "b"}


def test_an_object_of_ours_without_its_labels_is_still_ours(lab: Lab) -> None:
    first = lab.apply(service(80))
    lab.edit({**first, "metadata": {**first["metadata"], "labels": {"theirs": "yes"}}}, "person")
    live = lab.apply(service(80), is_new=True)
    assert (uid(live), {*labels_of(live)}) == (uid(first), {*OURS, "theirs"})


def test_a_runs_object_that_others_made_is_not_changed_as_a_new_one(lab: Lab) -> None:
    made = lab.make(job("j", suspend=True))
    with pytest.raises(Conflict):
        lab.apply(job("j", suspend=True, pod={"containers": [{"name": "main", "image": "i:1"}]}), is_new=True)
    assert lab.there(kinds.JOB, "j")["spec"]["template"] == made["spec"]["template"]


def test_a_check_says_what_an_apply_would_and_changes_nothing(lab: Lab) -> None:
    lab.apply(job("j", suspend=True))
    lab.eventually(lambda: lab.condition("j", "Suspended"))
    before = lab.there(kinds.JOB, "j")
    lab.cluster.check(job("j"))
    lab.cluster.check(job("k"))
    with pytest.raises(Invalid):
        lab.cluster.check(job("j", completions=3))
    gone = job("j")
    with pytest.raises(Conflict):
        lab.cluster.check({**gone, "metadata": {**gone["metadata"], "uid": "another"}})
    lab.later(2_000)
    assert (lab.there(kinds.JOB, "j"), lab.get(kinds.JOB, "k")) == (before, None)
