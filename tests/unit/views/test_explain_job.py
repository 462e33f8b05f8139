"""What is told of a job by its objects alone, without its declaration."""

from __future__ import annotations

import pytest

from gpuctl.k8s import kinds, names
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, RunDigest
from gpuctl.model.state import Body, ClusterState, OwnObject, Run, RunPhase
from gpuctl.views.explain import explain_job
from gpuctl.views.jobs import job_views

JOB = JobId.parse("a/train")
DIGEST = RunDigest("0123abcd")


@pytest.mark.parametrize(
    ("most", "said"),
    [
        ("4", "a/train requests 4 GPUs in 4 workers, has 2 of them and is Running."),
        ("2", "a/train requests 2 GPUs in 2 workers and is Running."),
        ("many", "a/train requests 2 GPUs in 2 workers and is Running."),
    ],
)
def test_an_elastic_job_tells_how_many_workers_it_asked_for(most: str, said: str) -> None:
    workers = tuple(WorkerPlacement(node=NodeName("n1"), gpus=(gpu,)) for gpu in range(2))
    run = Run(
        job=JOB, digest=DIGEST, phase=RunPhase.RUNNING, placement=Placement(workers=workers), gpu_milli=1000,
        started_at_ms=0,
    )  # fmt: skip
    env = [{"name": "MAX_WORKERS", "value": most}]
    body = {
        "kind": "Job",
        "metadata": {"annotations": {names.MIN_WORKERS_ANNOTATION: "1"}},
        "spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "main", "env": env}]}}},
    }
    ref = ObjectRef(*kinds.JOB, "gpu-a", names.run_name("train", DIGEST))
    (view,) = job_views(ClusterState(runs=(run,), live={ref: body}, own={ref: OwnObject((JOB, DIGEST), "1")}))
    assert next(iter(explain_job(view, 0))) == said


@pytest.mark.parametrize(
    ("charge", "said"),
    [
        ('{"cpuMilli":0,"gpuMilli":2000,"memBytes":0}', "a/train requests 6 GPUs in 3 workers and is Pending."),
        ("a lie", "a/train requests 0 GPUs in 3 workers and is Pending."),
    ],
)
def test_a_job_that_has_never_run_tells_what_it_asks_for(charge: str, said: str) -> None:
    run = Run(job=JOB, digest=DIGEST, phase=RunPhase.QUEUED)
    body = {
        "kind": "Job",
        "metadata": {"annotations": {names.CHARGE_ANNOTATION: charge}},
        "spec": {"parallelism": 3, "suspend": True, "template": {"spec": {"containers": [{"name": "main"}]}}},
    }
    ref = ObjectRef(*kinds.JOB, "gpu-a", names.run_name("train", DIGEST))
    (view,) = job_views(ClusterState(runs=(run,), live={ref: body}, own={ref: OwnObject((JOB, DIGEST), "1")}))
    assert next(iter(explain_job(view, 0))) == said


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (RunPhase.RUNNING, "It made room for b/urgent."),
        (RunPhase.STOPPING, "It was paused for b/urgent."),
        (RunPhase.QUEUED, "It was paused for b/urgent."),
    ],
)
def test_a_run_that_goes_on_made_room_and_any_other_was_paused(phase: RunPhase, said: str) -> None:
    placement = Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=(0,)),))
    run = Run(job=JOB, digest=DIGEST, phase=phase, placement=placement, paused_for=JobId.parse("b/urgent"))
    ref = ObjectRef(*kinds.JOB, "gpu-a", names.run_name("train", DIGEST))
    body = {"kind": "Job", "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}
    (view,) = job_views(ClusterState(runs=(run,), live={ref: body}, own={ref: OwnObject((JOB, DIGEST), "1")}))
    assert said in explain_job(view, 0)


def test_an_address_is_the_jobs_only_where_its_ingress_is_in_the_jobs_namespace() -> None:
    """In another one a tenant may write any label, and people type their passwords where they are led."""
    ref = ObjectRef(*kinds.JOB, "gpu-a", "train-0123abcd")
    labels = {names.PROJECT_LABEL: "a", names.JOB_LABEL: "train"}

    def ingress(host: str) -> Body:
        rule = {"host": host, "http": {"paths": [{"path": "/a/train"}]}}
        return {"metadata": {"labels": labels}, "spec": {"rules": [rule]}}

    live = {
        ref: {"kind": "Job"},
        ObjectRef(*kinds.INGRESS, "gpu-a", "train"): ingress("gpus.example.com"),
        ObjectRef(*kinds.INGRESS, "gpu-b", "train"): ingress("phish.example.com"),
    }
    run = Run(job=JOB, digest=DIGEST, phase=RunPhase.RUNNING, gpu_milli=1000, started_at_ms=0)
    (view,) = job_views(ClusterState(runs=(run,), live=live, own={ref: OwnObject((JOB, DIGEST), "1")}))
    assert view.urls == ("https://gpus.example.com/a/train",)
