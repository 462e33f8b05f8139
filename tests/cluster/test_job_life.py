"""The life of jobs on a real API server, with its own Job controller and scheduler: only the nodes are not real."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Event

from test_pod_failures import Ahead
from town import MERGE, Town, running
from unattended import at_last

from gpuctl.adapters.kubernetes.paths import item
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of, condition, flag, items, mapping, number, text, uid
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.views.jobs import JobView, PodView, job_views


def places(body: Body) -> list[str]:
    affinity = mapping(body, "spec", "template", "spec", "affinity", "nodeAffinity")
    terms = mapping(affinity, "requiredDuringSchedulingIgnoredDuringExecution").get("nodeSelectorTerms", [])
    return [value for term in terms for field in term["matchFields"] for value in field["values"]]


def test_a_job_is_born_suspended_and_placed_and_let_go_by_one_write(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1, maxDuration: 1h"
    while all(outcome.change.ref.kind != "Job" for outcome in town.cycle().result.outcomes):
        time.sleep(0.05)
    body = town.one("Job", "j")
    assert flag(body, "spec", "suspend")
    assert town.live("Pod", "j") == []
    report = town.cycle()
    told = [(o.change.ref.kind, o.status, o.error) for o in report.result.outcomes]
    assert [kind for kind, *_ in told] == ["ConfigMap", "Job"], (told, report.schedule.decisions)
    body = town.one("Job", "j")
    assert not flag(body, "spec", "suspend")
    assert number(body, "spec", "activeDeadlineSeconds") == 3600
    town.comes_to(j="Running")
    assert places(body) == [town.one("Pod", "j")["spec"]["nodeName"]]
    assert town.until(lambda: town.cycle().settled)


def test_a_paused_job_frees_its_gpus_when_its_pods_are_gone_and_resumes_elsewhere_with_its_remaining_time(
    town: Town,
) -> None:
    """The pod takes four seconds to leave. Until then nobody may have its GPUs."""
    town.jobs |= {"big": ", gpus: 2, maxDuration: 1h", "other": ", gpus: 2", "next": ", gpus: 2"}
    town.jobs["next"] += ", suspend: true"
    town.comes_to(big="Running", other="Running", next="Queued")
    first = town.one("Pod", "big")["spec"]["nodeName"]
    town.mark("big", leave_after="4s")
    time.sleep(1.5)
    town.jobs |= {"big": town.jobs["big"] + ", suspend: true", "next": ", gpus: 2"}
    seen: set[tuple[bool, str]] = set()

    def next_runs() -> bool:
        phase = town.phases()["next"]  # read first: pods that are seen later were there then
        seen.add((any(running(pod) for _, pod in town.live("Pod", "big")), phase))
        return phase == "Running"

    town.until(next_runs)
    assert {(True, "Queued"), (False, "Running")} <= seen
    assert seen <= {(True, "Queued"), (False, "Queued"), (False, "Starting"), (False, "Running")}
    assert town.one("Pod", "next")["spec"]["nodeName"] == first
    town.jobs |= {"big": ", gpus: 2, maxDuration: 1h", "other": ", gpus: 2, suspend: true"}
    town.comes_to(big="Running", other="Queued", next="Running")
    body = town.one("Job", "big")
    assert town.one("Pod", "big")["spec"]["nodeName"] != first
    assert 3500 < number(body, "spec", "activeDeadlineSeconds") < 3600
    assert annotations_of(body)[names.STARTS_ANNOTATION] == "2"


def test_a_disruption_budget_keeps_no_run_from_being_paused(town: Town) -> None:
    """A pause suspends the Job, which deletes its pods and evicts none."""
    town.jobs["j"] = ", gpus: 2, workers: 2"
    town.comes_to(j="Running")
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {names.JOB_LABEL: "j"}}}
    budgets = f"/apis/policy/v1/namespaces/{town.namespace}/poddisruptionbudgets"
    town.plane.call("POST", budgets, {"metadata": {"name": "mine"}, "spec": budget})
    ((ref, _), *_) = town.live("Pod", "j")
    path = f"/api/v1/namespaces/{town.namespace}/pods/{ref.name}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": ref.name}}
    assert "disruption budget" in str(town.plane.refused("POST", path, eviction))
    town.jobs["k"] = ", gpus: 2, workers: 2, priority: 9"
    town.comes_to(j="Queued", k="Running")


def test_a_job_waits_for_pods_of_a_paused_one_that_do_not_end_and_they_are_told(town: Town) -> None:
    """A process that hangs in its GPU's driver: nothing told why the other job waits for hours."""
    clock = Ahead()
    town.context = replace(town.context, clock=clock)
    town.jobs["j"] = ", gpus: 2, workers: 2"
    town.comes_to(j="Running")
    town.mark("j", worker="0", leave_after="1h")
    town.jobs["k"] = ", gpus: 2, workers: 2, priority: 9"
    town.comes_to(j="Stopping", k="Queued")
    town.until(lambda: len(town.live("Pod", "j")) == 1)
    assert town.cycle().plan.notices == ()
    clock.by_ms += 120_000
    (notice,) = town.cycle().plan.notices
    ((ref, pod),) = town.live("Pod", "j")
    assert notice.code == "GPU7027"
    assert notice.message.endswith(f"{ref.namespace}/{ref.name} on node {text(pod, 'spec', 'nodeName')}")
    town.collect(ref)
    town.comes_to(j="Queued", k="Running")


def test_a_finished_job_is_not_run_again_when_its_object_is_gone_until_it_is_asked_for(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    town.mark("j", run_for="0s")
    town.until(lambda: town.ended() == {"j": "Succeeded"})
    ((ref, _),) = town.live("Job", "j")
    path = f"/apis/batch/v1/namespaces/{town.namespace}/jobs/{ref.name}"
    town.plane.call("PATCH", path, {"spec": {"ttlSecondsAfterFinished": 0}}, token=town.token, media=MERGE)
    town.until(lambda: not town.live("Job", "j") and town.cycle().settled)  # that it is gone is noted in the ledger
    for _ in range(5):
        assert town.cycle().settled
    assert town.ended() == {"j": "Succeeded"}
    town.jobs["j"] = ", gpus: 1, runIndex: 2"
    town.comes_to(j="Running")
    assert town.ended() == {}


def test_a_job_that_is_gone_before_a_cycle_saw_its_end_has_succeeded(town: Town) -> None:
    """A policy of the cluster may have each Job deleted that has ended. It was told as deleted by hand."""
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    town.until(lambda: town.cycle().settled)
    path = f"/apis/batch/v1/namespaces/{town.namespace}/jobs"
    name = town.one("Job", "j")["metadata"]["name"]
    town.mark("j", run_for="0s")
    at_last(lambda: condition(town.plane.call("GET", f"{path}/{name}"), "Complete"))
    town.plane.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Foreground"})
    at_last(lambda: town.plane.refused("GET", f"{path}/{name}"))
    time.sleep(1)  # the watch has told it
    town.until(lambda: town.ended() == {"j": "Succeeded"})
    town.until(lambda: town.cycle().settled)
    assert town.phases() == {}
    assert town.ended() == {"j": "Succeeded"}


def test_a_job_is_let_go_once_the_one_it_comes_after_succeeded_and_goes_on_after_a_pause(town: Town) -> None:
    """Also where the object of the other is gone by then: its end stands in the ledger."""
    town.jobs |= {"data": "", "train": ", gpus: 1, after: [data]"}
    town.comes_to(data="Running", train="Queued")
    town.until(lambda: town.cycle().settled)
    assert "GPU5025" in annotations_of(town.one("Job", "train"))[names.REASON_ANNOTATION]
    town.mark("data", run_for="0s")
    town.until(lambda: town.ended() == {"data": "Succeeded"} and town.phases().get("train") == "Running")
    town.remove(*town.live("Job", "data")[0])
    town.jobs["train"] += ", suspend: true"
    town.until(lambda: town.phases().get("train") == "Queued")
    town.jobs["train"] = ", gpus: 1, after: [data]"
    town.until(lambda: town.phases().get("train") == "Running")
    town.mark("train", run_for="0s")
    town.until(lambda: town.ended() == {"data": "Succeeded", "train": "Succeeded"})
    assert town.until(lambda: town.cycle().settled)


def test_jobs_of_a_sweep_fail_are_retried_and_follow_each_other_one_by_one(town: Town) -> None:
    town.jobs["s"] = ", gpus: 1, retries: 1, sweep: {completions: 3, parallelism: 2}"
    town.comes_to(**{"s-0": "Running", "s-1": "Running", "s-2": "Queued"})
    assert "GPU5027" in annotations_of(town.one("Job", "s-2"))[names.REASON_ANNOTATION]
    other = town.one("Pod", "s-1")
    assert {"name": "JOB_COMPLETION_INDEX", "value": "1"} in other["spec"]["containers"][0]["env"]
    town.mark("s-0", fail_after="0s")
    town.until(lambda: number(town.one("Job", "s-0"), "status", "failed") == 1 and town.phases()["s-0"] == "Running")
    assert uid(town.one("Pod", "s-1")) == uid(other)
    assert town.phases()["s-2"] == "Queued"
    town.mark("s-1", run_for="0s")
    town.until(lambda: town.ended() == {"s-1": "Succeeded"} and town.phases()["s-2"] == "Running")
    town.jobs["s"] = ", gpus: 1, retries: 1, sweep: {completions: 5}"  # all that are left have a place
    town.until(lambda: town.phases().get("s-4") == "Running")
    assert number(town.one("Job", "s-0"), "status", "failed") == 1
    assert town.ended() == {"s-1": "Succeeded"}


def test_a_job_fails_when_its_retries_are_used_up(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1, retries: 1"
    town.comes_to(j="Running")
    first = [ref.name for ref, _ in town.live("Pod", "j")]
    town.mark("j", fail_after="0s")
    town.until(lambda: [r.name for r, b in town.live("Pod", "j") if r.name not in first and running(b)])
    assert town.ended() == {}
    town.mark("j", fail_after="0s")
    town.until(lambda: town.ended() == {"j": "Failed"})
    town.until(lambda: number(town.one("Job", "j"), "status", "failed") == 2)  # counted after it is given up


def test_each_worker_of_a_gang_is_started_again_by_itself_as_often_as_it_may(town: Town) -> None:
    town.jobs["g"] = ", gpus: 1, workers: 2, framework: pytorch, retriesPerWorker: 1"
    town.comes_to(g="Running")

    def pods() -> dict[str, PodView]:
        return {str(each.worker): each for each in view_of(town, "g").pods if each.live}

    def restarted(worker: str) -> bool:
        pod = pods().get(worker)
        return pod is not None and pod.restarts == 1

    first = pods()
    town.mark("g", worker="1", fail_after="0s")
    town.until(lambda: restarted("1"))
    town.comes_to(g="Running")
    assert pods()["0"].name == first["0"].name
    second = pods()
    town.mark("g", worker="0", fail_after="0s")
    town.until(lambda: restarted("0"))
    town.comes_to(g="Running")
    assert pods()["1"].name == second["1"].name
    town.until(lambda: view_of(town, "g").restarts == 2)
    assert town.ended() == {}
    town.jobs["g"] += ", suspend: true"
    town.until(lambda: town.phases() == {"g": "Queued"})
    town.jobs["g"] = town.jobs["g"].removesuffix(", suspend: true")
    town.comes_to(g="Running")
    assert [each.restarts for each in pods().values()] == [0, 0]
    town.mark("g", worker="1", fail_after="0s")
    town.until(lambda: {key: each.restarts for key, each in pods().items()} == {"0": 0, "1": 1})
    town.until(lambda: view_of(town, "g").restarts == 3)
    town.comes_to(g="Running")
    town.mark("g", worker="1", fail_after="0s")
    town.until(lambda: town.ended() == {"g": "Failed"})


def view_of(town: Town, name: str) -> JobView:
    (view,) = [each for each in job_views(town.state()) if each.id.name == name]
    return view


def test_a_job_that_a_person_deleted_is_told_and_not_run_again(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    town.remove(*town.live("Job", "j")[0])
    town.until(lambda: town.ended() == {"j": "Deleted"})
    town.until(lambda: not town.live("Pod", "j"))
    town.until(lambda: town.cycle().settled)
    assert town.live("Job", "j") == []


def test_a_job_whose_namespace_a_person_deleted_is_not_run_again(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    ref = ObjectRef(*kinds.NAMESPACE, "", town.namespace)
    before = town.state().live[ref]
    town.remove(ref, before)
    town.until(lambda: (now := town.state().live.get(ref)) is not None and uid(now) != uid(before))
    town.until(lambda: town.ended() == {"j": "Deleted"})
    assert town.live("Job", "j") == []
    town.jobs["j"] = ", gpus: 1, runIndex: 2"
    town.comes_to(j="Running")


def test_a_changed_job_is_a_new_run_and_the_old_one_goes(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    before = town.one("Job", "j")
    town.jobs["j"] = ", gpus: 2, priority: 3"
    town.until(lambda: [ref.name for ref, _ in town.live("Job", "j")] != [before["metadata"]["name"]])
    town.until(lambda: len(town.live("Job", "j")) == 1 and town.phases() == {"j": "Running"})
    assert town.one("Job", "j")["metadata"]["name"] != before["metadata"]["name"]


def test_a_gang_meets_at_worker_0(town: Town) -> None:
    town.jobs["g"] = ", gpus: 2, workers: 2"
    town.comes_to(g="Running")
    pods = [body for _, body in town.live("Pod", "g")]
    run = town.one("Job", "g")["metadata"]["name"]
    assert sorted(pod["spec"]["hostname"] for pod in pods) == [f"{run}-0", f"{run}-1"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    services = [body["metadata"]["name"] for _, body in town.live("Service", "g")]
    assert services == [pods[0]["spec"]["subdomain"]]
    env = {entry["name"]: entry.get("value", "") for entry in pods[0]["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == f"{run}-0.{services[0]}.{town.namespace}.svc"
    assert {"MASTER_PORT", "NODE_RANK", "WORLD_SIZE"} < env.keys()


def test_a_gang_that_needs_worker_0_alone_goes_on_after_a_pause_and_ends_with_it(town: Town) -> None:
    town.jobs["g"] = ", gpus: 1, workers: 3, success: worker0"
    town.comes_to(g="Running")
    town.jobs["g"] += ", suspend: true"
    town.comes_to(g="Queued")
    town.jobs["g"] = ", gpus: 1, workers: 3, success: worker0"
    town.comes_to(g="Running")

    def end(index: str) -> None:
        for ref, body in town.live("Pod", "g"):
            if annotations_of(body).get(names.WORKER_INDEX_LABEL) == index:
                path = f"/api/v1/namespaces/{town.namespace}/pods/{ref.name}"
                note = {"metadata": {"annotations": {"test/run-for": "0s"}}}
                town.plane.call("PATCH", path, note, media=MERGE)

    end("2")
    town.until(lambda: text(town.one("Job", "g"), "status", "completedIndexes") == "2")
    assert town.ended() == {}
    end("0")
    town.until(lambda: town.ended() == {"g": "Succeeded"})
    town.until(lambda: not any(running(body) for _, body in town.live("Pod", "g")))


def test_a_gang_whose_worker_0_succeeded_has_succeeded_though_a_person_writes_on_its_job_meanwhile(town: Town) -> None:
    """Its controller, whose writes meet conflicts then, takes the others that it stops for failures."""
    town.jobs["g"] = ", gpus: 1, workers: 2, success: worker0"
    town.comes_to(g="Running")
    ((ref, _),) = town.live("Job", "g")
    is_over = Event()

    def writes() -> None:
        for at in count():
            note = {"metadata": {"annotations": {"example.com/note": str(at)}}}
            town.plane.call("PATCH", item(ref), note, media=MERGE)
            if is_over.wait(0):
                return

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(writes)
        try:
            town.mark("g", worker="0", run_for="0s")
            at_last(lambda: not any(running(body) for _, body in town.live("Pod", "g")))
        finally:
            is_over.set()
    busy.result()
    town.until(lambda: town.ended() == {"g": "Succeeded"})


def test_inference_is_scaled_to_its_workers_and_to_none(town: Town) -> None:
    town.jobs["web"] = ", gpus: 1, type: inference, workers: 3"
    town.comes_to(web="Running")
    assert number(town.one("Deployment", "web"), "spec", "replicas") == 3
    town.jobs["web"] += ", suspend: true"
    town.comes_to(web="Queued")
    town.until(lambda: not town.live("Pod", "web"))
    town.jobs["web"] = ", gpus: 1, type: inference, workers: 3"
    town.comes_to(web="Running")
    town.until(lambda: number(town.one("Deployment", "web"), "status", "readyReplicas") == 3)


def test_a_job_has_its_volumes_and_ports_and_keeps_its_data_in_the_next_run(town: Town) -> None:
    volumes = "[{newClaim: {size: 1Gi, storageClass: none}, mountPath: /data}]"
    more = f", gpus: 1, suspend: true, expose: [{{port: 8888, via: ingress}}], volumes: {volumes}"
    town.jobs["nb"] = more
    town.until(lambda: town.live("Ingress", "nb") and town.live("Job", "nb"))
    claim, body = town.one("PersistentVolumeClaim", "nb"), town.one("Job", "nb")
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    (volume,) = body["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert [port["port"] for port in town.one("Service", "nb")["spec"]["ports"]] == [8888]
    (rule,) = town.one("Ingress", "nb")["spec"]["rules"]
    assert rule["http"]["paths"][0]["path"].startswith("/a/nb")
    town.jobs["nb"] = more + ", runIndex: 2"
    town.until(lambda: [ref.name for ref, _ in town.live("Job", "nb")] != [body["metadata"]["name"]])
    town.until(lambda: len(town.live("Job", "nb")) == 1)
    assert uid(town.one("PersistentVolumeClaim", "nb")) == uid(claim)


def reasons(job: Body) -> set[str]:
    """Of a Job's conditions."""
    return {text(each, "reason") for each in items(job, "status", "conditions")}


def test_a_job_ends_at_its_limit_while_gpuctl_is_down(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1, maxDuration: 2s"
    town.until(lambda: [job for _, job in town.live("Job", "j") if not flag(job, "spec", "suspend")])
    ((ref, _),) = town.live("Job", "j")
    at_last(lambda: "DeadlineExceeded" in reasons(town.plane.call("GET", item(ref))))
    town.until(lambda: town.ended() == {"j": "TimedOut"})


def test_a_waiting_job_follows_its_pool_to_another_kind_of_sharing(town: Town) -> None:
    """The server takes no such change of a suspended Job. It never ran: it is made anew under its name."""
    town.jobs |= {"big": ", gpus: 2, workers: 2", "j": ", gpus: 1"}
    town.comes_to(big="Running", j="Queued")
    before = town.one("Job", "j")
    town.sharing = "dra"
    town.until(lambda: town.live("Job", "j") and uid(town.one("Job", "j")) != uid(before))
    after = town.one("Job", "j")
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["spec"]["template"]["spec"]["resourceClaims"]
    town.sharing = "device-plugin"
    town.jobs["big"] += ", suspend: true"
    town.until(lambda: town.phases() == {"big": "Queued", "j": "Running"})
    assert town.ended() == {}


def test_sidecars_and_init_containers_are_booked_with_the_job(town: Town) -> None:
    """All that Kubernetes counts of a pod is the run's: nothing of it is foreign, and the next worker has no room."""
    more = (
        ", gpus: 1, resources: {cpu: 1}, sidecars: [{name: log, image: x, gpus: 1, resources: {cpu: 1}}],"
        " initContainers: [{name: fetch, image: x, gpus: 1, resources: {cpu: 3}}]"
    )
    town.more_of_pool = ", resourcesPerNode: {cpu: 80, memory: 512Gi}"
    town.jobs |= {"one": more, "two": more, "wait": ", gpus: 1"}
    town.comes_to(one="Running", two="Running", wait="Queued")
    state = town.state()
    for run in state.runs:
        if run.job.name != "wait":
            assert (run.gpu_milli, run.cpu_milli) == (2000, 3000)
    mine = [node for node in state.nodes if node.labels.get("town") == town.name]
    assert [(node.foreign_cpu_milli, sum(node.foreign_gpu_milli)) for node in mine] == [(0, 0)] * 2
    town.mark("one", run_for="0s")
    town.until(lambda: town.phases().get("wait") == "Running")


def test_a_paused_worker_that_exits_with_0_has_not_ended_its_job(town: Town) -> None:
    """It has saved its work: Kubernetes counts no pod that it stopped for a pause, as long as that takes to leave."""
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    town.mark("j", leave_after="3s")
    town.jobs["j"] = ", gpus: 1, suspend: true"
    town.until(lambda: all("deletionTimestamp" in pod["metadata"] for _, pod in town.live("Pod", "j")))
    for pod, _ in town.live("Pod", "j"):
        ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        main = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        town.plane.call("PATCH", path, {"status": {"phase": "Succeeded", "containerStatuses": [main]}}, media=MERGE)
    town.comes_to(j="Queued")
    town.until(lambda: not town.live("Pod", "j"))
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    assert "succeeded" not in town.one("Job", "j")["status"]
