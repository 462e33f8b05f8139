"""Why a run's pods do not run, read off their status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from objects_by_hand import OWNER, decided_on, deployment, job, node, on_record, only_run, pod

from gpuctl.app.kept import Keep
from gpuctl.k8s.objects import mapping
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import Body, RunPhase
from gpuctl.observe.problems import LONGEST_MESSAGE, problem_of


def with_status(body: Body, **status: Any) -> Body:
    return {**body, "status": {**mapping(body, "status"), **status}}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "main", "state": state}


def waiting(reason: str, message: str = "", **last: Any) -> Body:
    found = {**container(waiting={"reason": reason, "message": message}), **({"lastState": last} if last else {})}
    return with_status(pod(phase="Pending"), containerStatuses=[found])


NO_SECRET = 'secret "hub" not found'
TOLD = {
    "an image that is not there": (waiting("ImagePullBackOff", "Back-off pulling"), "ImagePullBackOff", None),
    "an image that may not be pulled": (waiting("ErrImageNeverPull", "not present"), "ErrImageNeverPull", None),
    "a Secret that is not there": (
        waiting("CreateContainerConfigError", NO_SECRET), "CreateContainerConfigError", None,
    ),
    "a crash": (waiting("CrashLoopBackOff", "back-off 40s", terminated={"exitCode": 3}), "CrashLoopBackOff", 3),
    "no memory, again and again": (
        waiting("CrashLoopBackOff", "", terminated={"exitCode": 137, "reason": "OOMKilled"}), "OOMKilled", 137,
    ),
    "no memory": (
        with_status(
            pod(phase="Failed"), containerStatuses=[container(terminated={"exitCode": 137, "reason": "OOMKilled"})]
        ),
        "OOMKilled", 137,
    ),
    "no node": (
        with_status(
            pod(on=None, phase="Pending"),
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}],
        ),
        "Unschedulable", None,
    ),
    "a device that the kubelet refuses": (
        with_status(pod(phase="Failed"), reason="UnexpectedAdmissionError", message="Allocate failed"),
        "UnexpectedAdmissionError", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOLD)
def test_a_problem_is_told_by_its_reason(what: str) -> None:
    body, reason, code = TOLD[what]
    found = problem_of(body)
    assert found is not None
    assert (found.reason, found.exit_code, found.pod) == (reason, code, "a-1-x")


@pytest.mark.parametrize("what", TOLD)
def test_what_is_cached_of_a_pod_tells_the_same_and_no_more(what: str) -> None:
    body = TOLD[what][0]
    loud = with_status(body, podIPs=["x" * 99], qosClass="x", message=mapping(body, "status").get("message", ""))
    kept = Keep()(loud)
    assert problem_of(kept) == problem_of(body)
    assert Keep()(dict(kept)) == kept
    assert "podIPs" not in kept["status"]


@pytest.mark.parametrize("body", [pod(), pod(phase="Pending"), waiting("ContainerCreating"), pod(phase="Succeeded")])
def test_a_pod_on_its_way_has_none_and_costs_the_cache_nothing(body: Body) -> None:
    assert problem_of(body) is None
    assert not mapping(Keep()(body), "status").keys() - {"phase", "startTime"}


def test_the_name_of_the_missing_secret_is_told() -> None:
    found = problem_of(TOLD["a Secret that is not there"][0])
    assert found is not None
    assert found.message == NO_SECRET
    assert found.container == "main"


@pytest.mark.parametrize("reason", ["", "a b", "x" * 65, "\x1b[2J", "Ünschedulable", {"no": "text"}])
def test_what_is_no_word_is_no_reason(reason: Any) -> None:
    assert problem_of(waiting(reason)) is None


def test_a_message_is_cut_and_on_one_line() -> None:
    found = problem_of(waiting("ImagePullBackOff", "line\n\nline " * 9_999))
    assert found is not None
    assert len(found.message) <= LONGEST_MESSAGE
    assert "\n" not in found.message


def test_of_a_long_message_the_end_is_told_and_that_it_is_cut() -> None:
    said = f"admission webhook denied the request: {'x' * 2000} because the team has no budget"
    found = problem_of(waiting("CreateContainerConfigError", said))
    assert found is not None
    assert found.message.startswith("admission webhook denied the request: xxx")
    assert " [...] " in found.message
    assert found.message.endswith("because the team has no budget")
    again = problem_of(waiting("CreateContainerConfigError", found.message))
    assert again is not None
    assert again.message == found.message


def test_many_containers_are_not_all_read() -> None:
    body = with_status(pod(phase="Pending"), containerStatuses=[container(waiting={"reason": "Odd"})] * 9_999)
    assert len(Keep()(body)["status"]["containerStatuses"]) < 100


@pytest.mark.parametrize("damaged", [None, 7, [], [None], {"state": 3}, [{"state": {"waiting": {"reason": 5}}}]])
def test_a_damaged_status_is_no_problem_of_the_pod(damaged: Any) -> None:
    assert problem_of(with_status(pod(phase="Pending"), containerStatuses=damaged, conditions=damaged)) is None


def test_the_worst_pod_of_a_run_counts_and_only_pods_that_are_to_run() -> None:
    crash = {**waiting("CrashLoopBackOff"), "metadata": {**pod("a-1-y")["metadata"]}}
    missing = {**waiting("CreateContainerConfigError", NO_SECRET), "metadata": {**pod("a-1-z")["metadata"]}}
    leaving = {**missing, "metadata": {**pod("a-1-w", deletionTimestamp="2020-07-29T12:00:00Z")["metadata"]}}
    found = only_run(node(), job(parallelism=3), crash, missing).problem
    assert found is not None
    assert (found.reason, found.pod) == ("CreateContainerConfigError", "a-1-z")
    only = only_run(node(), job(parallelism=3), crash, leaving).problem
    assert only is not None
    assert only.reason == "CrashLoopBackOff"


@pytest.mark.parametrize(
    ("reason", "said"), [("EvictionByEvictionAPI", "Eviction API: evicting"), ("PreemptionByScheduler", "preempting")]
)
def test_a_pod_that_the_cluster_ended_is_told_by_that_and_not_by_its_exit_code(reason: str, said: str) -> None:
    killed = with_status(pod(phase="Failed"), containerStatuses=[container(terminated={"exitCode": 137})])
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": said}
    body = with_status(killed, conditions=[disrupted])
    told = PodProblem(reason=reason, message=said, pod="a-1-x", container="main")
    assert problem_of(body) == problem_of(Keep()(body)) == told


def test_a_pod_that_was_deleted_did_not_end_with_an_error_of_its_command() -> None:
    gone = pod(phase="Failed", deletionTimestamp="2020-07-29T12:00:00Z")
    killed = with_status(gone, containerStatuses=[container(terminated={"exitCode": 137, "reason": "Error"})])
    told = PodProblem(reason="Terminating", message="deleted", pod="a-1-x", container="main")
    assert problem_of(killed) == problem_of(Keep()(killed)) == told


@pytest.mark.parametrize("workload", [job(parallelism=2), deployment(2)])
def test_pods_that_are_deleted_and_do_not_end_are_told(workload: Body) -> None:
    """The run showed as `Starting` without end and without a word, and as one that had never run."""
    leaving = [pod(f"a-1-{name}", deletionTimestamp="2020-07-29T12:00:00Z") for name in "xy"]
    told = PodProblem(reason="Terminating", message="deleted, but not ended", pod="a-1-x")
    run = only_run(node(), workload, *leaving)
    assert (run.phase, run.begun, run.problem) == (RunPhase.STARTING, True, told)
    assert only_run(node(), workload, pod("a-1-w"), leaving[1]).problem == replace(told, pod="a-1-y")
    assert only_run(node(), workload, *leaving, pod("a-1-v", phase="Pending"), pod("a-1-w")).problem is None


def test_a_job_that_may_start_and_has_no_pod_is_told_once_the_controller_saw_it() -> None:
    refused = job(startTime="2020-07-29T12:00:00Z", active=0)
    found = only_run(node(), refused).problem
    assert found == PodProblem(reason="NoPod")
    assert only_run(node(), job(active=0)).problem is None
    assert only_run(node(), job(startTime="2020-07-29T12:00:00Z", active=1)).problem is None
    assert only_run(node(), job(suspend=True)).problem is None


def test_a_service_whose_pods_are_refused_has_the_servers_words() -> None:
    words = "pods is forbidden: violates PodSecurity"
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    body = Keep()(with_status(deployment(1), conditions=[refused]))
    assert only_run(node(), body).problem == PodProblem(reason="FailedCreate", message=words)


def test_runs_that_differ_by_a_problem_alone_are_equal() -> None:
    """A kubelet alternates between two reasons; no cycle is due for that."""
    one = only_run(node(), job(), waiting("ErrImagePull"))
    other = only_run(node(), job(), waiting("ImagePullBackOff"))
    assert one.problem != other.problem
    assert one == other


def test_a_foreign_pod_tells_nothing_of_the_run() -> None:
    stranger = {**waiting("CrashLoopBackOff"), "metadata": pod(owners=[{**OWNER, "uid": "another"}])["metadata"]}
    (run,) = decided_on(node(), job(active=1), stranger, on_record()).runs
    assert run.problem is None


def init(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


CRASHING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}
ENDED_143 = {"terminated": {"exitCode": 143, "reason": "Error"}}
TO_COME = container(waiting={"reason": "PodInitializing"})
OF_OTHERS: dict[str, tuple[str, list[Body], Body, tuple[str, str] | None]] = {
    "an init container that fails": (
        "Pending",
        [init("a", terminated={"exitCode": 0}), init("b", **CRASHING)], TO_COME, ("Init:CrashLoopBackOff", "b"),
    ),
    "an init container whose image is not there": (
        "Pending", [init("a", waiting={"reason": "ImagePullBackOff"})], TO_COME, ("Init:ImagePullBackOff", "a")
    ),
    "an init container that ended the pod": (
        "Failed", [init("a", terminated={"exitCode": 2})], TO_COME, ("Init:Error", "a")
    ),
    "init containers on their way": ("Pending", [init("a", running={}), init("b", **TO_COME["state"])], TO_COME, None),
    "a sidecar that crashes beside the job": (
        "Running", [init("a", **CRASHING)], container(running={"startedAt": "x"}), ("CrashLoopBackOff", "a")
    ),
    "a sidecar that is about to be started again": ("Running", [init("a", **ENDED_143)], container(running={}), None),
    "a sidecar that was stopped after the job": (
        "Succeeded", [init("a", **ENDED_143)], container(terminated={"exitCode": 0}), None
    ),
    "a sidecar that was stopped after a job that failed": (
        "Failed", [init("a", **ENDED_143)], container(terminated={"exitCode": 1, "reason": "Error"}), ("Error", "main")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_OTHERS)
def test_other_containers_are_told_by_their_names_and_only_where_they_are_the_trouble(case: str) -> None:
    phase, before, main, told = OF_OTHERS[case]
    body = with_status(pod(phase=phase), initContainerStatuses=before, containerStatuses=[main])
    for seen in (body, Keep()(body)):
        found = problem_of(seen)
        assert (None if found is None else (found.status, found.container)) == told
