"""The reason of a run in `list`, `get` and `explain JOB`, by what the cluster's objects tell now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.engine import reasons
from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_allowances
from gpuctl.model.decision import Placement, Reason, WorkerPlacement
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance
from gpuctl.model.ids import DomainName, JobId, NodeName, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import ClusterState, OwnObject, Run, RunPhase
from gpuctl.views.running import views_now

DIGEST = RunDigest("0123abcd")
A = ProjectName("a")


def run(name: str, reason: Reason, phase: RunPhase = RunPhase.RUNNING, gpus: int = 1) -> Run:
    worker = WorkerPlacement(node=NodeName("n1"), gpus=tuple(range(gpus)))
    return Run(
        job=JobId(A, name), digest=DIGEST, phase=phase, placement=Placement(workers=(worker,)), gpu_milli=gpus * 1000,
        started_at_ms=0, reason=reason,
    )  # fmt: skip


def told(*runs: Run, quota: int = 1000, domain: DomainName = WHOLE_CLUSTER, kind: str = "training") -> dict[str, str]:
    """The codes of the runs' reasons, by name."""
    refs = {r: ObjectRef(*kinds.JOB, "gpu-a", names.run_name(r.job.name, DIGEST)) for r in runs}
    allowances = encode_allowances({domain: Allowance(quota_milli=quota)})
    space = {"metadata": {"labels": {names.PROJECT_LABEL: "a"}, "annotations": {names.QUOTA_ANNOTATION: allowances}}}
    body = {"kind": "Job", "metadata": {"labels": {names.TYPE_LABEL: kind}}, "spec": {}}
    state = ClusterState(
        runs=runs,
        live={ObjectRef(*kinds.NAMESPACE, "", "gpu-a"): space, **dict.fromkeys(refs.values(), body)},
        own={ref: OwnObject((r.job, DIGEST), "1") for r, ref in refs.items()},
    )
    return {view.id.name: view.run.reason.code for view in views_now(state) if view.run.reason is not None}


def test_a_job_started_over_quota_is_within_it_once_another_has_ended_and_back() -> None:
    first, second = run("first", reasons.runs_in_quota(A)), run("second", reasons.runs_in_share(A))
    assert told(first, second) == {"first": "GPU5005", "second": "GPU5005"}
    over = replace(first, phase=RunPhase.SUCCEEDED)
    assert told(over, second)["second"] == "GPU5001"
    assert told(over, second, run("third", reasons.runs_in_share(A)))["second"] == "GPU5005"


@pytest.mark.parametrize("phase", [RunPhase.QUEUED, RunPhase.STOPPING])
def test_of_a_run_that_is_not_running_the_recorded_reason_is_told(phase: RunPhase) -> None:
    assert told(run("j", reasons.paused_by_guarantee(JobId.parse("b/x")), phase)) == {"j": "GPU5030"}
    assert told(run("j", reasons.runs_in_share(A), phase)) == {"j": "GPU5002"}


def test_work_that_can_not_be_paused_is_judged_by_work_of_that_kind() -> None:
    assert told(run("note", reasons.runs_in_quota(A), gpus=2), quota=2000, kind="interactive") == {"note": "GPU5001"}
    assert told(run("note", reasons.runs_in_quota(A), gpus=3), quota=2000, kind="interactive") == {"note": "GPU5005"}


def test_with_quotas_by_pool_the_recorded_reason_is_told() -> None:
    assert told(run("j", reasons.runs_in_share(A)), quota=9000, domain=DomainName("dgx1")) == {"j": "GPU5002"}


def test_a_reason_that_is_none_by_amounts_stays() -> None:
    assert told(run("j", reasons.RUNS_WITHOUT_GPU, gpus=0)) == {"j": "GPU5004"}
