"""A job whose pods do not run, as people and programs see it."""

from __future__ import annotations

import pytest

from gpuctl.k8s import kinds, names
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, RunDigest
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import ClusterState, OwnObject, Run, RunPhase
from gpuctl.views.explain import explain_job
from gpuctl.views.jobs import JobView, job_views
from gpuctl.views.listing import job_form, job_table, job_text
from gpuctl.views.pod_problems import OTHER, REMEDIES, known_reason, problem_text, remedy_of

JOB = JobId.parse("a/train")
DIGEST = RunDigest("0123abcd")
CRASH = PodProblem(reason="CrashLoopBackOff", pod="train-x", container="main", exit_code=3)
SECRET = PodProblem(reason="CreateContainerConfigError", message='secret "hub" not found', pod="p", container="main")


def view_of(phase: RunPhase, problem: PodProblem | None) -> JobView:
    place = Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=(0,)),))
    run = Run(job=JOB, digest=DIGEST, phase=phase, placement=place, gpu_milli=1000, started_at_ms=0, problem=problem)
    ref = ObjectRef(*kinds.JOB, "gpu-a", names.run_name("train", DIGEST))
    body = {"kind": "Job", "metadata": {}, "spec": {"parallelism": 1}}
    (view,) = job_views(ClusterState(runs=(run,), live={ref: body}, own={ref: OwnObject((JOB, DIGEST), "1")}))
    return view


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        (RunPhase.STARTING, "CrashLoopBackOff"),
        (RunPhase.RUNNING, "CrashLoopBackOff"),
        (RunPhase.FAILED, "Failed"),
        (RunPhase.STOPPING, "Stopping"),
    ],
)
def test_the_status_is_the_reason_while_the_job_should_run(phase: RunPhase, status: str) -> None:
    view = view_of(phase, CRASH)
    assert view.status == status
    assert status in job_table([view], 0, wide=False)
    assert job_form(view)["state"] == view.state.value


@pytest.mark.parametrize(("reason", "status"), [("OOMKilled", "OOMKilled"), ("Error", "Failed")])
def test_the_status_of_a_failed_job_is_what_ended_it_but_for_its_own_exit(reason: str, status: str) -> None:
    view = view_of(RunPhase.FAILED, PodProblem(reason=reason, exit_code=137))
    assert (view.status, job_form(view)["state"], job_form(view)["reason"]) == (status, "Failed", None)


def test_get_and_json_tell_all_of_it() -> None:
    view = view_of(RunPhase.STARTING, SECRET)
    assert "PROBLEM:" in job_text(view, 0)
    assert 'secret "hub" not found' in job_text(view, 0)
    assert job_form(view)["problem"] == {
        "reason": "CreateContainerConfigError",
        "message": 'secret "hub" not found',
        "pod": "p",
        "container": "main",
        "beforeStart": False,
        "exitCode": None,
        "remedy": REMEDIES["CreateContainerConfigError"],
    }
    assert job_form(view_of(RunPhase.RUNNING, None))["problem"] is None


def test_explain_tells_the_problem_and_what_to_do() -> None:
    told = list(explain_job(view_of(RunPhase.STARTING, CRASH), 0))
    assert "Its pods: CrashLoopBackOff (container main of train-x, exit code 3)." in told
    assert f"Fix: {REMEDIES['CrashLoopBackOff']}" in told


def test_words_of_the_server_are_printable() -> None:
    loud = PodProblem(reason="Unschedulable", message="\x1b[2J\u202egone")
    assert problem_text(loud).isprintable()


def test_words_that_end_with_a_full_stop_get_no_other() -> None:
    never = PodProblem(reason="Unschedulable", message="not eligible due to preemptionPolicy=Never.", pod="p")
    told = list(explain_job(view_of(RunPhase.STARTING, never), 0))
    assert "Its pods: Unschedulable (p): not eligible due to preemptionPolicy=Never." in told


def test_a_refused_pod_may_be_refused_by_any_rule_of_the_namespace() -> None:
    assert {"ResourceQuota", "LimitRange"} <= set(REMEDIES["FailedCreate"].replace(",", "").split())


def test_a_reason_from_outside_is_no_label() -> None:
    assert known_reason(CRASH) == "CrashLoopBackOff"
    assert known_reason(PodProblem(reason="Xyzzy")) == OTHER
    assert remedy_of(PodProblem(reason="Xyzzy"))
