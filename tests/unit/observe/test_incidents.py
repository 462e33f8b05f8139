"""Why runs do not start, read off events: of runs that are late alone, within bounds, and never believed further."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from objects_by_hand import DIGEST, JOB_ID, NAMESPACE, NOON, NOON_MS, RUN_NAME, job, node, only_run, pod, seen

from gpuctl.app.kept import Keep
from gpuctl.k8s.names import REPORTER
from gpuctl.k8s.objects import mapping
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import Body, ClusterState, RunPhase
from gpuctl.observe import problem_of_events, unexplained_runs, with_problems
from gpuctl.observe.incidents import ASK_AFTER_MS, MOST_RUNS, READY_AFTER_MS, REASONS
from gpuctl.observe.problems import LONGEST_MESSAGE, unready_since_ms
from gpuctl.views.pod_problems import REMEDIES

LATER_MS = NOON_MS + ASK_AFTER_MS
LET_GO: dict[str, Any] = {"startTime": "2020-07-29T12:00:00Z", "active": 1}


def event(reason: str, message: str, kind: str = "Pod", name: str = "a-1-x", at: str = "12:00:05") -> Body:
    about = {"kind": kind, "namespace": NAMESPACE, "name": name}
    when = f"2020-07-29T{at}Z"
    return {"involvedObject": about, "reason": reason, "message": message, "type": "Warning", "lastTimestamp": when}


def late_world(*bodies: Body, volumes: list[Any] | None = None) -> ClusterState:
    body = job(**LET_GO)
    template = mapping(body, "spec", "template")
    spec = {**mapping(template, "spec"), "volumes": volumes or []}
    body = {**body, "spec": {**mapping(body, "spec"), "template": {**template, "spec": spec}}}
    return seen(node(), body, *(bodies or (pod(phase="Pending"),)))


def told(*events: Body, state: ClusterState | None = None) -> PodProblem | None:
    (late,) = unexplained_runs(state or late_world(), LATER_MS)
    return problem_of_events(late, events)


def test_a_run_is_asked_about_once_it_is_late() -> None:
    state = late_world()
    assert unexplained_runs(state, LATER_MS - 1) == ()
    (late,) = unexplained_runs(state, LATER_MS)
    assert late.run == (JOB_ID, DIGEST)
    assert [(ref.kind, ref.name) for ref in late.objects] == [("Job", RUN_NAME), ("Pod", "a-1-x")]


def test_nothing_is_asked_of_a_run_that_runs_or_whose_pod_says_why_it_does_not() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    stuck = pod(phase="Pending")
    stuck = {**stuck, "status": {**stuck["status"], "containerStatuses": [{"name": "main", "state": waiting}]}}
    for world in (late_world(pod()), late_world(stuck)):
        assert unexplained_runs(world, LATER_MS) == ()


def test_the_claims_that_its_pods_wait_for_are_asked_about_too() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "new", "ephemeral": {}}]
    state = late_world(volumes=volumes)
    (late,) = unexplained_runs(state, LATER_MS)
    assert [ref.name for ref in late.objects] == [RUN_NAME, "a-1-x", "data", "a-1-x-new"]
    found = told(event("FailedBinding", "no volumes", "PersistentVolumeClaim", "data"), state=state)
    assert found == PodProblem(reason="FailedBinding", message="claim data is Pending: no volumes")


def test_the_newest_event_counts() -> None:
    older = event("FailedCreate", "quota", "Job", RUN_NAME, at="12:00:01")
    newer = event("FailedMount", 'secret "s" not found')
    assert told(newer, older) == PodProblem(reason="FailedMount", message='secret "s" not found', pod="a-1-x")
    assert told(older) == PodProblem(reason="FailedCreate", message="quota")


@pytest.mark.parametrize(
    "strange",
    [
        event("Scheduled", "fine"),
        event("FailedMount", "of another", name="other"),
        event("FailedMount", "of yesterday", at="11:00:00"),
        event("FailedBinding", "of no claim"),
        event("Free text <b>", "x"),
        {},
        {"reason": 3, "involvedObject": []},
    ],
)
def test_other_events_say_nothing(strange: Body) -> None:
    assert told(strange) is None


@pytest.mark.parametrize(
    ("field", "container", "status"),
    [
        ("spec.initContainers{proxy}", "proxy", "Init:Unhealthy"),
        ("spec.containers{main}", "main", "Unhealthy"),
        ("spec.containers{<b>}", "", "Unhealthy"),
        (None, "", "Unhealthy"),
    ],
)
def test_a_container_whose_probe_says_no_is_told_by_its_name(field: str | None, container: str, status: str) -> None:
    words = "Startup probe failed: dial tcp 10.0.0.3:3128: connect: connection refused"
    said = event("Unhealthy", words)
    found = told({**said, "involvedObject": {**said["involvedObject"], "fieldPath": field}})
    assert found is not None
    assert (found.container, found.status, found.message, found.pod) == (container, status, words, "a-1-x")


def not_ready(*, init: bool = False, **said: Any) -> Body:
    """A pod that runs, with a container that has started and is not ready."""
    body = pod()
    running = {"name": "main", "ready": False, "started": True, "state": {"running": {}}, **said}
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": NOON}]
    statuses = {"initContainerStatuses" if init else "containerStatuses": [running]}
    return {**body, "status": {**body["status"], "conditions": conditions, **statuses}}


PROBED = "Readiness probe failed: HTTP probe failed with statuscode: 503"


@pytest.mark.parametrize("init", [False, True])
def test_a_run_whose_pod_is_not_ready_for_a_minute_is_asked_about(*, init: bool) -> None:
    state = late_world(not_ready(init=init))
    assert unexplained_runs(state, NOON_MS + READY_AFTER_MS - 1) == ()
    (late,) = unexplained_runs(state, NOON_MS + READY_AFTER_MS)
    assert [(ref.kind, ref.name) for ref in late.objects] == [("Pod", "a-1-x")]
    startup = event("Unhealthy", "Startup probe failed: refused", at="12:00:09")
    assert problem_of_events(late, [startup, event("FailedMount", "m"), event("Unhealthy", PROBED)]) == PodProblem(
        reason="Unhealthy", message=PROBED, pod="a-1-x"
    )


@pytest.mark.parametrize("said", [{"started": False}, {"ready": True}, {"ready": None}, {"state": {"waiting": {}}}])
def test_a_pod_that_is_ready_or_still_starts_is_not(said: dict[str, Any]) -> None:
    assert only_run(node(), job(**LET_GO), not_ready(**said)).unready_since_ms is None


def test_what_is_kept_of_a_pod_says_since_when_it_is_not_ready() -> None:
    keep = Keep()
    kept = keep(not_ready())
    assert unready_since_ms(kept) == NOON_MS
    assert keep(dict(kept)) == kept
    assert "conditions" not in keep(not_ready(started=False))["status"]


def test_runs_that_do_not_start_are_asked_about_before_those_that_are_not_ready() -> None:
    other = JobId(JOB_ID.project, "a-2")
    state = late_world(not_ready())
    (run,), (own,) = state.runs, state.own.items()
    starting = replace(run, job=other, phase=RunPhase.STARTING, unready_since_ms=None, begun=False)
    second = own[0]._replace(name="a-2-0badcafe")
    both = replace(
        state,
        runs=(run, starting),
        own={**state.own, second: own[1]._replace(run=(other, DIGEST))},
        live={**state.live, second: state.live[own[0]]},
    )
    assert [late.run[0] for late in unexplained_runs(both, NOON_MS + 10 * READY_AFTER_MS)] == [other, JOB_ID]


def test_the_many_late_runs_of_one_project_keep_no_other_from_being_asked_about() -> None:
    """Those that were let go first were asked about, all of one project where it had 200 that never start."""
    state = late_world()
    (run,), (own,) = state.runs, state.own.items()
    jobs = [JobId(JOB_ID.project, f"j{at}") for at in range(MOST_RUNS)] + [JobId(ProjectName("zz"), "late")]
    refs = [own[0]._replace(name=f"{job.name}-0badcafe") for job in jobs]
    many = replace(
        state,
        runs=tuple(replace(run, job=job) for job in jobs),
        own={ref: own[1]._replace(run=(job, DIGEST)) for ref, job in zip(refs, jobs, strict=True)},
        live={**state.live, **dict.fromkeys(refs, state.live[own[0]])},
    )
    asked = [late.run[0] for late in unexplained_runs(many, LATER_MS)]
    assert (len(asked), jobs[-1] in asked) == (MOST_RUNS, True)


def test_gpuctls_own_event_is_not_taken_for_the_servers_words() -> None:
    servers = event("FailedCreate", "exceeded quota: no-more", "Job", RUN_NAME)
    own = {
        **event("FailedCreate", "FailedCreate. The server …", "Job", RUN_NAME, "12:00:09"),
        "reportingComponent": REPORTER,
    }
    assert told(own) is None
    assert (found := told(servers, own)) is not None
    assert found.message == "exceeded quota: no-more"


def test_messages_are_cut_and_on_one_line() -> None:
    found = told(event("FailedMount", "a\nb" * 9_999))
    assert found is not None
    assert len(found.message) <= LONGEST_MESSAGE
    assert "\n" not in found.message


def test_a_told_problem_changes_no_run_but_in_its_words() -> None:
    state = late_world()
    problem = PodProblem(reason="FailedMount")
    with_it = with_problems(state, {(JOB_ID, DIGEST): problem})
    assert with_it == state
    assert [run.problem for run in with_it.runs] == [problem]
    assert with_problems(state, {}) is state


def test_each_reason_has_a_remedy_so_that_measurements_name_it() -> None:
    assert set(REASONS) <= REMEDIES.keys()


def test_the_last_line_of_the_log_is_told() -> None:
    """The kubelet puts the end of a container's log into its status."""
    body = pod(phase="Failed")
    ended = {"exitCode": 1, "reason": "Error", "message": "Traceback\n  line 1\nCUDA out of memory\n\n"}
    states = [{"name": "main", "state": {"terminated": ended}}]
    found = only_run(node(), job(**LET_GO), {**body, "status": {**body["status"], "containerStatuses": states}}).problem
    assert found is not None
    assert (found.reason, found.exit_code, found.message) == ("Error", 1, "CUDA out of memory")
