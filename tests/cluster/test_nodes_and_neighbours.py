"""Nodes that come, go and fail, and others on the same API server: people's pods, and another cluster of gpuctl."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from controlplane.known import await_policies, await_quotas, write_policy
from controlplane.server import node
from town import MERGE, Town, town_on

from gpuctl.adapters.clock import SystemClock
from gpuctl.app.fights import Fights
from gpuctl.app.rejections import RETRY_MS
from gpuctl.diag.wording import reason_text
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of, labels_of, text, uid
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.decision import Pending
from gpuctl.model.ids import ObjectRef


def where(town: Town, job: str) -> str:
    """The node of a job's pod; "" between two pods, which may be none or both."""
    nodes = [text(pod, "spec", "nodeName") for _, pod in town.live("Pod", job)]
    return nodes[0].rpartition("-")[2] if len(nodes) == 1 else ""


def change_node(town: Town, node_name: str, body: object) -> None:
    town.plane.call("PATCH", f"/api/v1/nodes/{town.name}-{node_name}", body, media=MERGE)


def notices(town: Town) -> list[str]:
    return [found.code for found in town.cycle().plan.notices]


def other(node_name: str) -> str:
    return {"n1": "n2", "n2": "n1"}[node_name]


def test_a_job_leaves_a_node_that_is_lost_and_goes_on_elsewhere(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    first = where(town, "j")
    change_node(town, first, {"metadata": {"annotations": {"test/not-ready": "yes"}}})
    town.until(lambda: town.phases() == {"j": "Running"} and where(town, "j") == other(first))
    assert notices(town) == []


KUBELET_NOT_READY = {"metadata": {"annotations": {"test/not-ready": "kubelet"}}}


def tainted_as_not_ready(town: Town, node_name: str) -> bool:
    """Whether the node controller has seen what the kubelet says."""
    taints = town.plane.call("GET", f"/api/v1/nodes/{town.name}-{node_name}")["spec"].get("taints", ())
    return ("node.kubernetes.io/not-ready", "NoExecute") in {(each["key"], each["effect"]) for each in taints}


def test_a_run_goes_on_while_the_kubelet_of_its_node_is_not_ready(town: Town) -> None:
    """As a kubelet says for some seconds when it is restarted: its pods go on, and no new one comes."""
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    first, ((_, pod),) = where(town, "j"), town.live("Pod", "j")
    change_node(town, first, KUBELET_NOT_READY)
    town.until(lambda: tainted_as_not_ready(town, first))
    town.jobs["k"] = ", gpus: 1"
    town.comes_to(j="Running", k="Running")
    assert where(town, "k") == other(first)
    change_node(town, first, {"metadata": {"annotations": {"test/not-ready": None}}})
    town.until(lambda: not tainted_as_not_ready(town, first))
    town.comes_to(j="Running", k="Running")
    ((_, now),) = town.live("Pod", "j")
    assert uid(now) == uid(pod)
    assert {run.job.name: run.starts for run in town.state().runs} == {"j": 1, "k": 1}


def test_a_run_leaves_a_node_that_stays_not_ready_once_kubernetes_evicts_it(town: Town) -> None:
    """As the node controller does it after five minutes; on a node whose container runtime has failed no pod ends.

    The condition has its time: another controller takes back one that is older than two minutes.
    """
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    first, ((pod, _),) = where(town, "j"), town.live("Pod", "j")
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    town.plane.call("PATCH", path, {"metadata": {"annotations": {"test/leave-after": "1h"}}}, media=MERGE)
    change_node(town, first, KUBELET_NOT_READY)
    town.until(lambda: tainted_as_not_ready(town, first))
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    evicted["lastTransitionTime"] = format_timestamp(SystemClock().now_ms())
    conditions = [*town.plane.call("GET", path)["status"]["conditions"], evicted]
    town.plane.call("PATCH", f"{path}/status", {"status": {"conditions": conditions}}, media=MERGE)
    town.plane.call("DELETE", path)
    town.comes_to(j="Stopping")
    town.collect(pod)
    town.until(lambda: town.phases() == {"j": "Running"} and where(town, "j") == other(first))


def test_a_removed_node_is_told_and_what_ran_there_starts_elsewhere(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    first = where(town, "j")
    ((pod, _),) = town.live("Pod", "j")
    town.plane.call("DELETE", f"/api/v1/nodes/{town.name}-{first}")
    town.comes_to(j="Stopping")
    town.collect(pod)
    town.until(lambda: town.phases() == {"j": "Running"} and where(town, "j") == other(first))
    assert notices(town) == ["GPU7050"]


def test_a_cordoned_node_keeps_what_runs_and_gets_nothing_new(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    first = where(town, "j")
    change_node(town, first, {"spec": {"unschedulable": True}})
    town.jobs |= {"k": ", gpus: 1", "l": ", gpus: 2"}
    town.comes_to(j="Running", k="Running", l="Queued")
    assert (where(town, "j"), where(town, "k")) == (first, other(first))
    change_node(town, first, {"spec": {"unschedulable": None}})
    town.jobs["j"] += ", suspend: true"
    town.comes_to(j="Queued", k="Running", l="Running")


TAINTED = {"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}}


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_a_tainted_node_takes_jobs_once_its_pool_tolerates_the_taint(town: Town, kind: str) -> None:
    for node_name in ("n1", "n2"):
        change_node(town, node_name, TAINTED)
    town.jobs["j"] = f", gpus: 2, type: {kind}"
    town.jobs["k"] = f", gpus: 2, type: {kind}"
    town.comes_to(j="Queued", k="Queued")
    town.more_of_pool = ", tolerations: [{key: dedicated, operator: Equal, value: ml, effect: NoSchedule}]"
    town.comes_to(j="Running", k="Running")
    town.more_of_pool = ""
    town.jobs["k"] += ", suspend: true"
    town.comes_to(j="Running", k="Queued")
    town.jobs["k"] = f", gpus: 2, type: {kind}"
    town.comes_to(j="Running", k="Queued")


CORDONED = {"spec": {"unschedulable": True}}
LOST = {"metadata": {"annotations": {"test/not-ready": "yes"}}}


@pytest.mark.parametrize(
    ("spec", "change"),
    [(", gpus: 1", CORDONED), (", gpus: 1", LOST), (", gpus: 1, type: inference", CORDONED)],
    ids=["cordoned", "lost", "a service"],
)
def test_what_was_let_go_to_a_node_that_closes_before_its_pod_is_there_starts_elsewhere(
    town: Town, spec: str, change: object
) -> None:
    """The scheduler stands still meanwhile; else it might have bound the pod in time."""
    scheduler = town.plane.pid("kube-scheduler")
    os.kill(scheduler, signal.SIGSTOP)
    try:
        town.jobs["j"] = spec
        town.until(lambda: town.live("Pod", "j"))
        first, queued_at_ms = planned(town)
        change_node(town, first, change)
        town.until(lambda: town.phases() == {"j": "Starting"} and planned(town) == (other(first), queued_at_ms))
    finally:
        os.kill(scheduler, signal.SIGCONT)
    town.comes_to(j="Running")
    assert where(town, "j") == other(first)
    assert [run.starts for run in town.state().runs] == [1]


def planned(town: Town) -> tuple[str, int]:
    """On which node the one run is to be, and since when it waits or waited."""
    (run,) = town.state().runs
    assert run.placement is not None
    return str(run.placement.workers[0].node).rpartition("-")[2], run.queued_at_ms


def test_a_node_that_was_not_declared_is_used_and_told(town: Town) -> None:
    town.plane.call("POST", "/api/v1/nodes", node(f"{town.name}-n3", gpus=4, labels={"town": town.name}))
    town.jobs["j"] = ", gpus: 2"
    town.jobs["k"] = ", gpus: 2, workers: 1"
    town.comes_to(j="Running", k="Running")
    assert notices(town) == ["GPU7052"]
    change_node(town, "n3", {"metadata": {"labels": {"town": None}}})
    town.until(lambda: notices(town) == [])


def test_gpus_that_other_peoples_pods_have_are_not_given_out(town: Town) -> None:
    pod = {
        "metadata": {"name": f"{town.name}-theirs"},
        "spec": {
            "nodeName": f"{town.name}-n1",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }
    made = town.plane.call("POST", "/api/v1/namespaces/default/pods", pod)
    town.until(lambda: ObjectRef(*kinds.POD, "default", made["metadata"]["name"]) in town.state().live)
    town.jobs |= {"j": ", gpus: 2", "k": ", gpus: 1", "l": ", gpus: 1, priority: -1"}
    town.comes_to(j="Running", k="Running", l="Queued")
    assert (where(town, "j"), where(town, "k")) == ("n2", "n1")
    town.plane.call("DELETE", f"/api/v1/namespaces/default/pods/{made['metadata']['name']}")
    town.comes_to(j="Running", k="Running", l="Running")


def test_a_run_whose_gpus_kube_scheduler_gives_to_a_pod_of_a_higher_class_goes_on_elsewhere(town: Town) -> None:
    """The pod is of another namespace, where gpuctl's quotas don't hold. It does not count as a failed start."""
    town.jobs["j"] = ", gpus: 2"
    town.comes_to(j="Running")
    first = where(town, "j")
    meta = {"name": f"{town.name}-higher"}
    town.plane.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": meta, "value": 1_000_000})
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    there = {"kubernetes.io/hostname": f"{town.name}-{first}"}
    spec = {"priorityClassName": meta["name"], "nodeSelector": there, "containers": [container]}
    pod = {"metadata": meta, "spec": spec}
    pods = "/api/v1/namespaces/default/pods"
    # The server refuses the pod until its admission has seen the class.
    town.until(lambda: town.plane.refused("POST", pods, pod) is None)
    try:
        town.until(lambda: town.phases() == {"j": "Running"} and where(town, "j") == other(first))
        (run,) = town.state().runs
        assert (run.starts, run.failed_starts) == (2, 0)
    finally:
        town.plane.call("DELETE", f"{pods}/{meta['name']}")
        town.plane.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{meta['name']}")


def wishes(town: Town) -> dict[ObjectRef, tuple[object, object, object]]:
    """What gpuctl wrote in the town's namespace; what controllers add to it is left out."""
    return {
        ref: (labels_of(body), annotations_of(body), body.get("spec"))
        for ref, body in town.state().live.items()
        if town.namespace in {ref.namespace, ref.name}
    }


def test_a_gang_that_could_take_the_gpu_of_a_job_beside_it_starts_after_it(town: Town) -> None:
    town.jobs = {"gang": ", gpus: 1, workers: 3", "single": ", gpus: 1"}
    town.comes_to(gang="Running", single="Running")
    town.until(lambda: town.cycle().settled)
    assert {run.job.name: run.starts for run in town.state().runs} == {"gang": 1, "single": 1}


def test_two_clusters_never_share_a_namespace_and_share_the_rest_in_peace(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    town.until(lambda: town.cycle().settled)
    ours = wishes(town)
    with town_on(town.plane, "somebody else") as theirs:
        theirs.prefix, theirs.more_of_a = town.prefix, ", adopt: true"
        theirs.jobs["j"] = ", gpus: 1"
        report = theirs.cycle()
        (refusal,) = report.plan.refusals
        assert refusal.code == "GPU6006"
        assert f"belongs to cluster {town.name}" in refusal.message
        assert theirs.until(lambda: theirs.cycle().settled)
        assert wishes(town) == ours
        theirs.prefix = f"gpu-{theirs.name}-"
        theirs.comes_to(j="Running")
        assert town.cycle().settled
        theirs.until(lambda: theirs.cycle().settled)
        system = town.state().live[ObjectRef(*kinds.NAMESPACE, "", names.SYSTEM_NAMESPACE)]
        assert names.CLUSTER_LABEL not in labels_of(system)


def test_a_job_the_server_refuses_keeps_no_place_from_others(town: Town) -> None:
    """A quota of the namespace that somebody set lets no Deployment in. `web` is first in line, and would fit."""
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    quota = {"metadata": {"name": "theirs"}, "spec": {"hard": {"count/deployments.apps": "0"}}}
    town.plane.call("POST", f"/api/v1/namespaces/{town.namespace}/resourcequotas", quota)
    path = f"/api/v1/namespaces/{town.namespace}/resourcequotas/theirs"
    town.until(lambda: "hard" in town.plane.call("GET", path)["status"])
    await_quotas(town.plane, town.namespace)
    town.jobs |= {"web": ", gpus: 1, workers: 3, type: inference", "k": ", gpus: 2", "l": ", gpus: 1"}
    town.comes_to(j="Running", k="Running", l="Running")
    (decision,) = [each for each in town.cycle().schedule.decisions if each.job.name == "web"]
    assert isinstance(decision, Pending)
    assert decision.reason.code == "GPU5070"
    town.until(lambda: town.cycle().settled)


def refuse_updates(town: Town, job: str, unless: str, said: str) -> tuple[str, ...]:
    """Have a policy of the cluster refuse changes of a job's objects, with a message; the paths of its objects."""
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}]
    ours = f"request.namespace == '{town.namespace}' && request.name.startsWith('{job}-')"
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "ours", "expression": ours}],
        "validations": [{"expression": unless, "message": said}],
    }
    made = write_policy(town.plane, town.name, spec)
    await_policies(town.plane)
    return made


def test_no_run_is_paused_for_one_that_a_policy_takes_no_change_of(town: Town) -> None:
    """Its place could not be reserved, and the others were paused for it all the same, each time that was tried."""
    town.jobs |= {"low": ", gpus: 2, workers: 2", "high": ", gpus: 2, priority: 9, suspend: true"}
    town.comes_to(low="Running", high="Queued")
    pods = {uid(pod) for _, pod in town.live("Pod", "low")}
    made = refuse_updates(town, "high", unless="'cost-centre' in object.metadata.labels", said="no cost centre")
    town.jobs["high"] = ", gpus: 2, priority: 9"
    for _ in range(3):
        town.context = replace(town.context, rejected={})  # as a minute later
        assert any("no cost centre" in outcome.error for outcome in town.cycle().faults)
        town.until(lambda: town.cycle().settled)
        assert town.phases() == {"low": "Running", "high": "Queued"}
    assert {uid(pod) for _, pod in town.live("Pod", "low")} == pods
    for path in made:
        town.plane.call("DELETE", path)
    await_policies(town.plane)
    town.context = replace(town.context, rejected={})
    town.comes_to(low="Queued", high="Running")


def test_a_label_of_the_namespace_that_a_person_changed_is_put_back(town: Town) -> None:
    town.until(lambda: town.cycle().settled)
    ref = ObjectRef(*kinds.NAMESPACE, "", town.namespace)
    before = uid(town.state().live[ref])
    path = f"/api/v1/namespaces/{town.namespace}"
    town.plane.call("PATCH", path, {"metadata": {"labels": {names.CLUSTER_LABEL: "else"}}}, media=MERGE)
    town.until(lambda: labels_of(town.plane.call("GET", path)).get(names.CLUSTER_LABEL) == town.name)
    assert uid(town.state().live[ref]) == before


def a_minute_later(town: Town) -> None:
    """Cycles of a minute later, until nothing is left to do."""
    rejected = {ref: replace(each, at_ms=each.at_ms - RETRY_MS) for ref, each in town.context.rejected.items()}
    town.context = replace(town.context, rejected=rejected)
    town.until(lambda: town.cycle().settled)


def test_runs_are_paused_once_for_one_whose_start_alone_a_policy_refuses(town: Town) -> None:
    """Its place could be reserved. The others were paused for it each minute, and it never started."""
    town.jobs |= {"low": ", gpus: 2, workers: 2", "high": ", gpus: 2, priority: 9, suspend: true"}
    town.comes_to(low="Running", high="Queued")
    made = refuse_updates(town, "high", unless="object.spec.suspend == true", said="not on a Monday")
    town.jobs["high"] = ", gpus: 2, priority: 9"
    town.until(lambda: any("not on a Monday" in each.error for each in town.context.rejected.values()))
    town.comes_to(low="Running", high="Queued")
    pods = {uid(pod) for _, pod in town.live("Pod", "low")}
    for _ in range(3):
        a_minute_later(town)
        assert town.phases() == {"low": "Running", "high": "Queued"}
    assert {uid(pod) for _, pod in town.live("Pod", "low")} == pods
    (decision,) = [each for each in town.cycle().schedule.decisions if each.job.name == "high"]
    assert isinstance(decision, Pending)
    assert decision.reason.code == "GPU5070"
    for path in made:
        town.plane.call("DELETE", path)
    await_policies(town.plane)
    a_minute_later(town)
    town.comes_to(low="Queued", high="Running")


def test_a_start_that_is_refused_in_earnest_alone_has_failed_and_has_no_run_paused_again(town: Town) -> None:
    """A policy or webhook that asks about real writes alone takes each dry run: the others were paused each minute."""
    town.jobs |= {"low": ", gpus: 2, workers: 2", "high": ", gpus: 2, priority: 9, suspend: true"}
    town.comes_to(low="Running", high="Queued")
    in_earnest = "object.spec.suspend == true || (has(request.dryRun) && request.dryRun)"
    made = refuse_updates(town, "high", unless=in_earnest, said="not in earnest")
    town.jobs["high"] = ", gpus: 2, priority: 9"
    town.until(lambda: any("not in earnest" in each.error for each in town.context.rejected.values()))
    town.comes_to(low="Running", high="Queued")
    a_minute_later(town)
    town.until(lambda: [run.failed_starts for run in town.state().runs if run.job.name == "high"] == [1])
    town.comes_to(low="Running", high="Queued")
    pods = {uid(pod) for _, pod in town.live("Pod", "low")}
    for _ in range(3):
        a_minute_later(town)
    (decision,) = [each for each in town.cycle().schedule.decisions if each.job.name == "high"]
    assert "not in earnest" in reason_text(decision.reason)
    assert {uid(pod) for _, pod in town.live("Pod", "low")} == pods
    for path in made:
        town.plane.call("DELETE", path)


def override(town: Town) -> tuple[str, ...]:
    """Have a policy of the cluster change a field of all Jobs in each write; the paths of what it is."""
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["jobs"]}]
    change = {"expression": "Object{spec: Object.spec{backoffLimit: 9}}"}
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "ours", "expression": f"request.namespace == '{town.namespace}'"}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": change}],
    }
    made = []
    for kind, of_kind in (("policies", spec), ("policybindings", {"policyName": town.name})):
        path = f"/apis/admissionregistration.k8s.io/v1/mutatingadmission{kind}"
        town.plane.call("POST", path, {"metadata": {"name": town.name}, "spec": of_kind})
        made.append(f"{path}/{town.name}")
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}
    tried = {"metadata": {"name": "tried"}, "spec": {"suspend": True, "template": {"spec": pod}}}
    jobs = f"/apis/batch/v1/namespaces/{town.namespace}/jobs?dryRun=All"
    town.until(lambda: town.plane.call("POST", jobs, tried)["spec"]["backoffLimit"] == 9)
    return tuple(reversed(made))


def test_what_a_policy_overrides_in_each_write_is_written_seldom_and_keeps_no_run(town: Town) -> None:
    fights = Fights()
    town.context = replace(town.context, rests=fights.rests)
    made = override(town)
    town.jobs["j"] = ", gpus: 1, suspend: true"
    town.until(lambda: town.live("Job", "j") and town.one("Job", "j")["spec"]["backoffLimit"] == 9)
    reports = []
    for _ in range(12):
        reports.append(town.cycle())
        fights.note(reports[-1])
    outcomes = [each for report in reports for each in report.result.outcomes if each.status == "applied"]
    assert sum(each.change.may_rest for each in outcomes) == 3
    assert reports[-1].settled
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    for path in made:
        town.plane.call("DELETE", path)
