"""Pods that do not run, on a real API server: told by their reason, their GPUs given back, the next job started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from controlplane.known import await_quotas
from town import GONE, MERGE, Town

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.incidents import EventReader
from gpuctl.adapters.kubernetes.terminal import PodSessions
from gpuctl.app.inspect import live, with_events
from gpuctl.k8s.objects import uid
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe.incidents import ASK_AFTER_MS, READY_AFTER_MS
from gpuctl.views.explain import explain_job
from gpuctl.views.pod_problems import problem_text

STUCK = JobId.parse("a/stuck")
REASONS = ("ImagePullBackOff", "ErrImageNeverPull", "CreateContainerConfigError", "CrashLoopBackOff")


class Ahead:
    """The machine's clock, put ahead so that nothing has to be waited for."""

    def __init__(self) -> None:
        self.by_ms: DurationMs = 0
        self._clock = SystemClock()

    def now_ms(self) -> Instant:
        return self._clock.now_ms() + self.by_ms


def status(town: Town) -> str:
    found = [view for view in live(town.cluster).find(STUCK) if view.ref.namespace == town.namespace]
    return found[0].status if found else ""


def gives_its_gpus_back(town: Town, *, then: bool = True) -> None:
    """Of two jobs of all GPUs the second starts once the first is given up; `then`: if the server takes its pods."""
    known = town.context.clock
    clock = known if isinstance(known, Ahead) else Ahead()
    town.context = replace(town.context, clock=clock)
    town.jobs["then"] = ", gpus: 2, workers: 2"
    clock.by_ms += 61_000
    town.cycle()
    clock.by_ms += 900_000
    town.comes_to(stuck="Queued", then="Running" if then else "Starting")
    (run,) = [run for run in town.state().runs if run.job.name == "stuck"]
    assert (run.starts, run.failed_starts) == (0, 1)


def told(town: Town, clock: Ahead) -> tuple[str, str]:
    """The reason and the words that the controller tells, who reads events too; and the command the same."""
    (run,) = [run for run in town.cycle().state.runs if run.job.name == "stuck"]
    if run.problem is None or not run.problem.message:
        return "", ""
    current = with_events(live(town.cluster), PodSessions(town.cluster.requests.connection), clock.now_ms())
    (shown,) = [view for view in current.find(STUCK) if view.ref.namespace == town.namespace]
    return (run.problem.reason, run.problem.message) if shown.status == run.problem.reason else ("", "")


@pytest.fixture
def clock(town: Town) -> Iterator[Ahead]:
    """A clock that is ahead, with a reader of events."""
    ahead = Ahead()
    with closing(EventReader(town.cluster.requests.connection)) as reader:
        town.context = replace(town.context, clock=ahead, incidents=reader)
        yield ahead


def late(town: Town, clock: Ahead, spec: str) -> None:
    """A job of all GPUs that is let go and has not started for some seconds."""
    town.jobs["stuck"] = f", gpus: 2, workers: 2{spec}"
    town.comes_to(stuck="Starting")
    clock.by_ms += ASK_AFTER_MS


def warned(town: Town, pod: tuple[ObjectRef, Body], reason: str, words: str, **part: str) -> None:
    """An event of a pod, or of a part of it, as a kubelet writes it."""
    ref, body = pod
    about = {"kind": "Pod", "namespace": ref.namespace, "name": ref.name, "uid": uid(body), **part}
    town.plane.call("POST", f"/api/v1/namespaces/{ref.namespace}/events", {
        "metadata": {"name": "as-a-kubelet"}, "involvedObject": about, "type": "Warning", "reason": reason,
        "message": words, "lastTimestamp": format_timestamp(SystemClock().now_ms()),
    })  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_a_container_that_can_not_start(town: Town, reason: str) -> None:
    town.jobs["stuck"] = f", gpus: 2, workers: 2, env: {{STUCK: {reason}}}"
    town.until(lambda: status(town) == reason)
    gives_its_gpus_back(town)


def test_a_volume_that_can_not_be_mounted(town: Town, clock: Ahead) -> None:
    late(town, clock, ", env: {STUCK: ContainerCreating}")
    pod, *_ = town.until(lambda: town.live("Pod", "stuck"))
    words = 'MountVolume.SetUp failed for volume "volume-0": secret "s" not found'
    warned(town, pod, "FailedMount", words)
    assert town.until(lambda: found if (found := told(town, clock))[0] else None) == ("FailedMount", words)
    gives_its_gpus_back(town)


def test_a_sidecar_that_does_not_come_to_run(town: Town, clock: Ahead) -> None:
    """As the kubelet tells it: the container runs and has not started, and an event has what its probe said."""
    probe = "{startup: {tcp: {port: 3128}}}"
    late(town, clock, f", env: {{STUCK: ContainerCreating}}, sidecars: [{{name: proxy, image: x, probes: {probe}}}]")
    (pod, body), *_ = town.until(lambda: town.live("Pod", "stuck"))
    words = "Startup probe failed: dial tcp 10.0.0.3:3128: connect: connection refused"
    warned(town, (pod, body), "Unhealthy", words, fieldPath="spec.initContainers{proxy}")
    (run,) = town.until(lambda: [each for each in town.cycle().state.runs if each.problem is not None])
    assert problem_text(run.problem) == f"Init:Unhealthy (container proxy of {pod.name}): {words}"
    gives_its_gpus_back(town)


def test_a_service_that_runs_and_is_not_ready(town: Town, clock: Ahead) -> None:
    """As the kubelet tells it: the container has started, the pod is not ready, and an event has the probe's words."""
    town.jobs["stuck"] = ", type: inference, gpus: 1, probes: {readiness: {http: {port: 8000, path: /health}}}"
    town.comes_to(stuck="Running")
    ((pod, body),) = town.live("Pod", "stuck")
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
    running = {"running": {"startedAt": format_timestamp(SystemClock().now_ms())}}
    said = {"name": "main", "image": "x", "imageID": "", "restartCount": 0, "started": True, "state": running}

    def become(*, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": running["running"]["startedAt"]}
        told = {"conditions": [condition], "containerStatuses": [{**said, "ready": ready}]}
        town.plane.call("PATCH", path, {"status": told}, media=MERGE)

    become(ready=False)
    words = "Readiness probe failed: HTTP probe failed with statuscode: 503"
    warned(town, (pod, body), "Unhealthy", words, fieldPath="spec.containers{main}")
    assert told(town, clock) == ("", "")
    clock.by_ms += READY_AFTER_MS
    assert town.until(lambda: found if (found := told(town, clock))[0] else None) == ("Unhealthy", words)
    assert town.phases()["stuck"] == "Running"
    become(ready=True)
    assert town.until(lambda: told(town, clock) == ("", ""))


def test_a_claim_that_gets_no_volume(town: Town, clock: Ahead) -> None:
    late(town, clock, ", volumes: [{newClaim: {size: 1Gi}, mountPath: /data}]")
    reason, words = town.until(lambda: found if (found := told(town, clock))[0] == "FailedBinding" else None)
    assert re.match(r"claim \S+ is Pending: no persistent volumes available", words), (reason, words)
    gives_its_gpus_back(town)


def test_a_claim_that_is_not_there(town: Town, clock: Ahead) -> None:
    late(town, clock, ", volumes: [{claim: nowhere, mountPath: /data}]")
    reason, words = town.until(lambda: found if (found := told(town, clock))[0] else None)
    assert reason == "Unschedulable"
    assert 'persistentvolumeclaim "nowhere" not found' in words
    gives_its_gpus_back(town)


@pytest.mark.parametrize("reason", ["OOMKilled", "UnexpectedAdmissionError"])
def test_pods_that_end(town: Town, reason: str) -> None:
    """A container that the kernel ends, a pod that a node's device plugin refuses: the run fails, the next starts."""
    town.jobs["stuck"] = ", gpus: 2, workers: 2"
    town.comes_to(stuck="Running")
    ended = {"exitCode": 137, "reason": reason, "message": "the last words"}
    of_container = {"containerStatuses": [
        {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
    ]}  # fmt: skip
    change = of_container if reason == "OOMKilled" else {"reason": reason, "message": "Allocate failed"}
    for pod, _ in town.live("Pod", "stuck"):
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        # The first that fails ends the Job: its controller may have taken away the second.
        refused = town.plane.refused("PATCH", path, {"status": {"phase": "Failed", **change}}, media=MERGE)
        assert refused is None or refused[0] == GONE
    town.jobs["then"] = ", gpus: 2, workers: 2"
    town.until(lambda: (found := town.phases()).get("then") == "Running" and found.get("stuck") == "Failed")
    (run,) = [run for run in town.state().runs if run.job.name == "stuck"]
    assert run.problem is not None
    assert run.problem.reason == reason
    (view,) = [view for view in live(town.cluster).find(STUCK) if view.ref.namespace == town.namespace]
    assert (view.status, view.state.value, view.reason) == (reason, "Failed", None)
    told = "\n".join(explain_job(view, SystemClock().now_ms()))
    assert f"Its pods: {reason} " in told
    assert told.endswith("a higher spec.runIndex runs it again.")


def test_an_init_container_that_crashes_and_a_sidecar_that_does(town: Town) -> None:
    """As the kubelet writes it: before the job's own container has begun, and beside it."""
    more = ", sidecars: [{name: log, image: x}], initContainers: [{name: fetch, image: x}]"
    town.jobs["stuck"] = f", gpus: 1, env: {{STUCK: ContainerCreating}}{more}"
    town.until(lambda: town.live("Pod", "stuck"))
    ((pod, _),) = town.live("Pod", "stuck")
    said = {"image": "x", "imageID": "", "ready": False, "restartCount": 3}
    crash = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "no such bucket"}},
    }
    to_come = {"state": {"waiting": {"reason": "PodInitializing"}}}
    running = {"state": {"running": {"startedAt": format_timestamp(SystemClock().now_ms())}}}

    def is_told(wanted: str, phase: str, before: dict[str, Any], main: dict[str, Any]) -> bool:
        """Written again at each look, as a kubelet does: KWOK may write its own once more at first."""
        body = {
            "phase": phase,
            "initContainerStatuses": [{**said, **before}],
            "containerStatuses": [{**said, "name": "main", **main}],
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        town.plane.call("PATCH", path, {"status": body}, media=MERGE)
        return status(town) == wanted

    def explained() -> str:
        (view,) = [view for view in live(town.cluster).find(STUCK) if view.ref.namespace == town.namespace]
        return "\n".join(explain_job(view, SystemClock().now_ms()))

    def is_explained() -> bool:
        words = explained()
        told = f"Init:CrashLoopBackOff (container fetch of {pod.name}, exit code 2): no such bucket" in words
        return told and "gpuctl logs JOB -c fetch --previous" in words

    init = {"name": "fetch", **crash}
    town.until(lambda: is_told("Init:CrashLoopBackOff", "Pending", init, to_come) and is_explained())
    town.until(lambda: is_told("CrashLoopBackOff", "Running", {"name": "log", **crash}, running))


def test_pods_that_the_server_refuses(town: Town, clock: Ahead) -> None:
    town.until(lambda: town.cycle().settled)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-more"}}
    town.plane.call(
        "POST", f"/api/v1/namespaces/{town.namespace}/resourcequotas", {**quota, "spec": {"hard": {"pods": "0"}}}
    )
    path = f"/api/v1/namespaces/{town.namespace}/resourcequotas/no-more"
    town.until(lambda: "hard" in town.plane.call("GET", path)["status"])
    await_quotas(town.plane, town.namespace)
    late(town, clock, "")
    reason, words = town.until(lambda: found if (found := told(town, clock))[0] else None)
    assert reason == "FailedCreate"
    assert "exceeded quota: no-more" in words
    gives_its_gpus_back(town, then=False)
