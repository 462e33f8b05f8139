"""Pods find nodes: affinity, room, taints, readiness; and Deployments keep theirs."""

from __future__ import annotations

from typing import Any

from labs import Lab, body, job, lab

from gpuctl.app.ports import Conflict
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.workload_table import BUILT_IN


def nodes_of(lab: Lab, job_name: str) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in lab.pods(job_name)}


def edit_node(lab: Lab, name: str, **spec: Any) -> None:
    def edited() -> bool:
        node = lab.there(kinds.NODE, name)
        try:
            lab.edit({**node, "spec": {**node["spec"], **spec}}, "kubectl")
        except Conflict:  # a controller wrote it in between
            return False
        return True

    lab.eventually(edited)


def inference(replicas: int, image: str = "i:1") -> dict[str, Any]:
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    fields = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return body(kinds.DEPLOYMENT, "serve", spec=fields)


def serving(lab: Lab) -> list[str]:
    """Images of the running pods of the Deployment."""
    pods = [p for p in lab.cluster.list(kinds.POD).items if p["metadata"]["labels"].get("app") == "serve"]
    return [p["spec"]["containers"][0]["image"] for p in pods if p["status"]["phase"] == "Running"]


def test_terms_for_two_nodes_are_alternatives(lab: Lab) -> None:
    two: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    lab.apply(job("gang", nodes=("plain-1", "plain-2"), gpus=8, **two))
    lab.running("gang", 2)
    assert nodes_of(lab, "gang") == {"plain-1", "plain-2"}


def test_affinity_to_a_full_node_waits_there(lab: Lab) -> None:
    lab.apply(job("first", nodes=("plain-1",), gpus=8))
    lab.running("first")
    lab.apply(job("second", nodes=("plain-1",), gpus=1))
    lab.eventually(lambda: "Insufficient nvidia.com/gpu" in lab.unschedulable("second"))
    lab.later(60_000)
    assert nodes_of(lab, "second") == {""}
    lab.finish("first")
    lab.running("second")
    assert nodes_of(lab, "second") == {"plain-1"}


def test_a_pod_that_ends_slowly_holds_its_place_until_its_containers_have_ended(lab: Lab) -> None:
    first = job("first", nodes=("plain-1",), gpus=8)
    first["spec"]["template"]["metadata"]["annotations"] = {"test/leave-after": "3s"}
    lab.apply(first)
    lab.running("first")
    lab.apply({**first, "spec": {**first["spec"], "suspend": True}})
    lab.apply(job("second", nodes=("plain-1",), gpus=8))

    def has_a_node() -> bool:
        there = nodes_of(lab, "second") - {""}  # looked at first: what has ended then has ended afterwards
        assert not there or all(pod["status"]["phase"] == "Failed" for pod in lab.pods("first"))
        return bool(there)

    lab.eventually(has_a_node)


def test_what_asks_for_more_than_any_node_has_stays_pending(lab: Lab) -> None:
    lab.apply(job("huge", gpus=9))
    lab.eventually(lambda: "0/4 nodes are available" in lab.unschedulable("huge"))


def test_affinity_by_label(lab: Lab) -> None:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["plain-2"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    lab.apply(job("j", pod={"affinity": affinity}))
    lab.running("j")
    assert nodes_of(lab, "j") == {"plain-2"}


def test_a_cordoned_node_takes_nothing_new_and_keeps_what_it_has(lab: Lab) -> None:
    lab.apply(job("old", nodes=("plain-1",)))
    lab.running("old")
    edit_node(lab, "plain-1", unschedulable=True)
    lab.passes(5_000)  # a scheduler hears of nodes and of pods apart
    lab.apply(job("new", nodes=("plain-1",)))
    lab.eventually(lambda: lab.unschedulable("new"))
    assert nodes_of(lab, "new") == {""}
    assert [pod["status"]["phase"] for pod in lab.pods("old")] == ["Running"]
    edit_node(lab, "plain-1", unschedulable=False)
    lab.running("new")


def test_a_taint_keeps_out_what_does_not_tolerate_it(lab: Lab) -> None:
    edit_node(lab, "plain-1", taints=[{"key": "gpuctl.dev/managed", "value": "yes", "effect": "NoSchedule"}])
    lab.passes(5_000)
    lab.apply(job("bare", nodes=("plain-1",)))
    toleration = {"key": "gpuctl.dev/managed", "operator": "Exists", "effect": "NoSchedule"}
    lab.apply(job("tolerant", nodes=("plain-1",), pod={"tolerations": [toleration]}))
    lab.running("tolerant")
    assert nodes_of(lab, "bare") == {""}


def test_a_pod_has_the_priority_of_its_class_and_waits_for_the_class(lab: Lab) -> None:
    lab.apply(job("j", pod={"priorityClassName": names.PRIORITY_CLASS}))
    lab.later(30_000)
    assert lab.pods("j") == []
    fields = {"value": 5, "preemptionPolicy": "Never"}
    lab.apply(body(kinds.PRIORITY_CLASS, names.PRIORITY_CLASS, namespace=None, **fields))
    (pod,) = lab.running("j")
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (5, "Never")


def test_a_deployment_keeps_its_pods(lab: Lab) -> None:
    lab.apply(inference(2))
    lab.eventually(lambda: len(serving(lab)) == 2)
    lab.eventually(lambda: lab.there(kinds.DEPLOYMENT, "serve")["status"].get("readyReplicas") == 2)
    pod = next(p for p in lab.cluster.list(kinds.POD).items if p["metadata"]["labels"].get("app") == "serve")
    lab.delete(kinds.POD, pod["metadata"]["name"])
    lab.eventually(lambda: len(serving(lab)) == 2 and lab.get(kinds.POD, pod["metadata"]["name"]) is None)


def test_a_deployment_scales_to_nothing(lab: Lab) -> None:
    lab.apply(inference(2))
    lab.eventually(lambda: len(serving(lab)) == 2)
    lab.apply(inference(0))
    lab.eventually(lambda: not lab.cluster.list(kinds.POD).items)
    lab.eventually(lambda: not lab.there(kinds.DEPLOYMENT, "serve")["status"].get("replicas"))


def test_a_deployments_new_template_replaces_its_pods(lab: Lab) -> None:
    lab.apply(inference(2))
    lab.eventually(lambda: len(serving(lab)) == 2)
    lab.apply(inference(2, image="i:2"))
    lab.eventually(lambda: serving(lab) == ["i:2", "i:2"])


def test_a_deployments_strategy_that_somebody_changed_is_put_back_and_its_pods_stay(lab: Lab) -> None:
    wanted = inference(1)
    wanted["spec"]["strategy"] = {"type": "Recreate"}
    lab.apply(wanted)
    lab.eventually(lambda: serving(lab) == ["i:1"])
    before = uids(lab)

    def changed() -> bool:
        live = lab.there(kinds.DEPLOYMENT, "serve")
        try:
            lab.edit({**live, "spec": {**live["spec"], "strategy": {"type": "RollingUpdate"}}}, "somebody")
        except Conflict:  # its controllers wrote it in between
            return False
        return True

    lab.eventually(changed)
    assert "rollingUpdate" in lab.there(kinds.DEPLOYMENT, "serve")["spec"]["strategy"]
    assert lab.apply(wanted)["spec"]["strategy"] == {"type": "Recreate"}
    assert lab.apply(wanted)["spec"]["strategy"] == {"type": "Recreate"}
    assert uids(lab) == before


def uids(lab: Lab) -> set[str]:
    return {pod["metadata"]["uid"] for pod in lab.cluster.list(kinds.POD).items}


def test_all_that_gpuctl_reads_can_be_listed(lab: Lab) -> None:
    for kind in set(kinds.OBSERVED) - set(kinds.OF_OTHERS):  # these: tests/jobset
        assert int(lab.cluster.list(kind).resource_version) > 0
