"""What becomes of jobs in the cluster, cycle after cycle, with the real engine and the embedded cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage import BASE, Stage, WithoutGit, job

from gpuctl.app.loop import LoopSettings
from gpuctl.app.ports import Cluster, Invalid
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, flag, labels_of, mapping, resource_version, uid
from gpuctl.model.ids import JobId, ObjectRef, ProjectName
from gpuctl.model.state import Body

RUNNING = {"a/j1": "Running", "b/j2": "Running"}
J1 = JobId.parse("a/j1")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = WithoutGit(tmp_path)
    made.commit(BASE)
    made.play(20)
    assert made.phases() == RUNNING
    return made


def starts(stage: Stage) -> dict[str, int]:
    return {str(run.job): run.starts for run in stage.state().runs}


def finished(stage: Stage) -> dict[str, str]:
    ledgers = stage.state().ledgers.values()
    return {str(run.job): run.state for ledger in ledgers for run in ledger.finished.values()}


def remove(stage: Stage, kind: str, name: str) -> ObjectRef:
    """As a person with kubectl does."""
    ref, body = stage.live(kind, name)
    stage.cluster.delete(ref, uid(body), resource_version(body))
    return ref


def test_a_run_that_ended_stays_known_where_the_ledgers_were_lost(stage: Stage) -> None:
    stage.cluster.finish(J1, 0)
    stage.play(40)
    for name in ("ledger.one", "ledger.one.a", "ledger.one.b"):
        stage.cluster.delete(ObjectRef("v1", "ConfigMap", names.SYSTEM_NAMESPACE, name), "", "")
    stage.play(80)
    assert (stage.phases(), stage.codes()) == ({**RUNNING, "a/j1": "Succeeded"}, [])
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(120)
    assert stage.phases() == {"b/j2": "Running"}, "its object is gpuctl's, and goes with its declaration"


def test_a_job_that_kubernetes_deletes_right_after_its_end_has_succeeded(stage: Stage) -> None:
    """A policy of the cluster may set `ttlSecondsAfterFinished` on every Job. Such a one was told as deleted by hand,
    and what comes after it never ran."""
    stage.commit({"c/projects/a/next.yaml": job("next", "a", more=", after: [j1]")})
    stage.play(40)
    ref, live = stage.live("Job", "j1-")
    stage.cluster.update({**live, "spec": {**live["spec"], "ttlSecondsAfterFinished": 0}})
    stage.play(60)
    stage.rhythm = LoopSettings(interval_ms=30_000, react_ms=10_000)
    stage.at(65, lambda: stage.cluster.finish(J1, 0))
    stage.play(120)
    assert stage.phases() == {"b/j2": "Running", "a/next": "Running"}
    assert finished(stage) == {"a/j1": "Succeeded"}
    assert ref not in stage.state().ledgers[ProjectName("a")].inventory


def test_a_job_goes_on_with_a_claim_that_was_given_more_room(stage: Stage) -> None:
    """By hand, or by what resizes claims that are nearly full. The server takes no smaller size again, so the job never
    started once more."""
    with_claim = ", volumes: [{newClaim: {size: 1Gi}, mountPath: /d}]"
    stage.commit({"c/projects/a/j3.yaml": job("j3", "a", more=with_claim)})
    stage.play(40)
    ref, claim = stage.live("PersistentVolumeClaim", "pvc-j3-0")
    spec = {**claim["spec"], "resources": {"requests": {"storage": "5Gi"}}}
    stage.cluster.update({**claim, "spec": spec, "metadata": {**claim["metadata"], "labels": {}}}, "resizer")
    stage.commit({"c/projects/a/j3.yaml": job("j3", "a", more=f"{with_claim}, suspend: true")})
    stage.play(80)
    assert stage.phases()["a/j3"] == "Queued"
    stage.commit({"c/projects/a/j3.yaml": job("j3", "a", more=with_claim)})
    stage.play(120)
    assert (stage.phases()["a/j3"], stage.codes("failed")) == ("Running", [])
    after = stage.state().live[ref]
    assert mapping(after, "spec", "resources", "requests") == {"storage": "5Gi"}
    assert labels_of(after) == labels_of(claim)
    stage.commit({"c/projects/a/j3.yaml": job("j3", "a", more=with_claim.replace("1Gi", "8Gi"))})
    stage.play(160)
    assert mapping(stage.state().live[ref], "spec", "resources", "requests") == {"storage": "8Gi"}


def test_over_quota_work_is_paused_for_a_guarantee_and_resumed_when_it_is_free_again(stage: Stage) -> None:
    stage.commit({f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(2)})
    stage.play(60)
    assert stage.phases() == RUNNING | {"a/k0": "Running", "a/k1": "Running"}
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(120)
    phases = stage.phases()
    assert phases["b/m"] == "Running"
    (victim,) = [name for name, phase in phases.items() if phase == "Queued"]
    assert victim.startswith("a/")
    paused = next(run for run in stage.state().runs if str(run.job) == victim)
    assert (str(paused.paused_for), paused.starts) == ("b/m", 1)
    assert paused.ran_ms > 0
    stage.cluster.finish(JobId.parse("b/m"), 0)
    stage.play(180)
    assert stage.phases()[victim] == "Running"
    assert starts(stage) == {"a/j1": 1, "b/j2": 1, "a/k0": 1, "a/k1": 1, "b/m": 1} | {victim: 2}
    told = [line for line in stage.lines if "paused" in line]
    assert [line["paused"] for line in told] == [[f"{victim} for b/m"]]


def test_a_finished_run_is_never_started_again_even_when_its_object_goes(stage: Stage) -> None:
    stage.cluster.finish(J1, 0)
    stage.play(60)
    assert finished(stage) == {"a/j1": "Succeeded"}
    remove(stage, "Job", "j1-")
    stage.play(120)
    assert stage.phases() == {"b/j2": "Running"}
    assert finished(stage) == {"a/j1": "Succeeded"}
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", runIndex: 2")})
    stage.play(180)
    assert stage.phases() == RUNNING
    assert finished(stage) == {}


def test_the_object_of_a_run_goes_after_its_time_and_the_run_stays_ended(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.commit({**BASE, "c/projects/a/j1.yaml": job("j1", "a", more=", ttlAfterFinished: 2m")})
    stage.play(20)
    stage.cluster.finish(J1, 0)
    stage.play(100)
    assert stage.phases() == {"a/j1": "Succeeded", "b/j2": "Running"}
    stage.play(200)
    assert stage.phases() == {"b/j2": "Running"}
    assert finished(stage) == {"a/j1": "Succeeded"}
    versions = stage.state().live
    stage.play(400)
    assert stage.state().live == versions  # another process, too, finds nothing to do
    assert stage.phases() == {"b/j2": "Running"}
    assert finished(stage) == {"a/j1": "Succeeded"}
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", ttlAfterFinished: 2m, runIndex: 2")})
    stage.play(460)
    assert stage.phases() == RUNNING


def test_a_failed_run_is_not_started_again(stage: Stage) -> None:
    stage.cluster.finish(J1, 3)
    stage.play(60)
    assert finished(stage) == {"a/j1": "Failed"}
    assert starts(stage)["a/j1"] == 1


def test_a_run_somebody_deleted_is_not_started_again(stage: Stage) -> None:
    remove(stage, "Job", "j1-")
    stage.play(120)
    assert stage.phases() == {"b/j2": "Running"}
    assert finished(stage) == {"a/j1": "Deleted"}
    assert stage.codes("deleted") == ["GPU5053"]


def test_a_job_taken_out_and_put_back_at_once_runs_again(stage: Stage) -> None:
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(21)
    assert stage.phases() == {"a/j1": "Stopping", "b/j2": "Running"}
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a")})
    stage.play(60)
    assert stage.phases() == RUNNING
    assert finished(stage) == {}


def test_a_changed_declaration_is_a_new_run_and_the_old_object_goes(stage: Stage) -> None:
    before, _ = stage.live("Job", "j1-")
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", gpus=2)})
    stage.play(120)
    after, body = stage.live("Job", "j1-")
    assert after.name != before.name
    assert stage.phases() == RUNNING
    assert starts(stage) == {"a/j1": 1, "b/j2": 1}
    ledger = stage.state().ledgers[ProjectName("a")]
    assert {digest for _, digest in ledger.seen} == {labels_of(body)[names.RUN_LABEL]}


def test_a_change_that_needs_no_restart_restarts_nothing(stage: Stage) -> None:
    _, before = stage.live("Pod", "j1-")
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", priority: 5, maxDuration: 9h")})
    stage.play(60)
    _, after = stage.live("Pod", "j1-")
    _, body = stage.live("Job", "j1-")
    assert uid(after) == uid(before)
    assert body["spec"]["activeDeadlineSeconds"] == 9 * 3600


def test_a_removed_job_ends_and_leaves_nothing(stage: Stage) -> None:
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(120)
    assert stage.phases() == {"b/j2": "Running"}
    assert [ref for ref in stage.state().live if ref.name.startswith("j1")] == []


def test_a_persons_suspend_pauses_and_its_removal_resumes(stage: Stage) -> None:
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", suspend: true")})
    stage.play(60)
    assert stage.phases() == RUNNING | {"a/j1": "Queued"}
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a")})
    stage.play(120)
    assert stage.phases() == RUNNING
    assert starts(stage)["a/j1"] == 2


def test_a_job_ends_at_its_limit_between_two_cycles(stage: Stage) -> None:
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", maxDuration: 2m")})
    stage.play(60)
    stage.clock.advance_to(stage.clock.now_ms() + 600_000)
    stage.play(700)
    assert finished(stage) == {"a/j1": "TimedOut"}


def test_an_inference_job_is_a_deployment_that_is_scaled(stage: Stage) -> None:
    stage.commit({"c/projects/a/web.yaml": job("web", "a", more=", type: inference")})
    stage.play(60)
    assert stage.phases() == RUNNING | {"a/web": "Running"}
    _, body = stage.live("Deployment", "web-")
    assert body["spec"]["replicas"] == 1
    stage.commit({"c/projects/a/web.yaml": job("web", "a", more=", type: inference, suspend: true")})
    stage.play(120)
    _, body = stage.live("Deployment", "web-")
    assert body["spec"]["replicas"] == 0


def test_a_hand_edit_is_put_back_and_what_others_add_is_left_alone(stage: Stage) -> None:
    _, body = stage.live("Job", "j1-")
    labels = {**labels_of(body), names.PROJECT_LABEL: "b", "theirs": "kept"}
    meta = {**body["metadata"], "labels": labels, "annotations": {**annotations_of(body), "note": "kept"}}
    stage.cluster.update({**body, "metadata": meta, "spec": {**body["spec"], "suspend": True}})
    stage.play(60)
    _, body = stage.live("Job", "j1-")
    assert labels_of(body)[names.PROJECT_LABEL] == "a"
    assert labels_of(body)["theirs"] == annotations_of(body)["note"] == "kept"


def test_deleted_surroundings_come_back(stage: Stage) -> None:
    live = stage.state().live.items()
    ref, body = next((r, b) for r, b in live if r.kind == "ResourceQuota" and r.namespace == "gpu-a")
    stage.cluster.delete(ref, uid(body), resource_version(body))
    stage.play(40)
    assert ref in stage.state().live
    assert stage.phases() == RUNNING


def test_a_deleted_ledger_is_written_anew_and_nothing_starts_again(stage: Stage) -> None:
    before = stage.state().ledgers[ProjectName("a")]
    remove(stage, "ConfigMap", "ledger.one.a")
    stage.play(60)
    after = stage.state().ledgers[ProjectName("a")]
    assert (after.inventory, after.seen) == (before.inventory, before.seen)
    assert starts(stage) == {"a/j1": 1, "b/j2": 1}


def test_a_damaged_ledger_is_told_and_its_project_left_alone_until_it_is_gone(stage: Stage) -> None:
    _, body = stage.live("ConfigMap", "ledger.one.a")
    stage.cluster.update({**body, "data": {**body["data"], "seen": "{broken"}})
    remove(stage, "Job", "j1-")
    stage.play(60)
    assert stage.codes("damaged") == ["GPU7008"]
    assert stage.state().damaged != ()
    assert stage.phases() == {"b/j2": "Running"}
    remove(stage, "ConfigMap", "ledger.one.a")
    stage.play(100)
    assert stage.state().damaged == ()
    assert stage.phases() == RUNNING


def test_a_deleted_namespace_comes_back_without_the_runs_that_were_in_it(stage: Stage) -> None:
    remove(stage, "Namespace", "gpu-a")
    stage.play(180)
    stage.live("Namespace", "gpu-a")
    assert stage.phases() == {"b/j2": "Running"}
    assert finished(stage) == {"a/j1": "Deleted"}


def test_a_job_a_person_let_go_is_stopped_again(stage: Stage) -> None:
    stage.commit({f"c/projects/a/k{n}.yaml": job(f"k{n}", "a", gpus=2) for n in range(2)})
    stage.play(60)
    (waiting,) = [name for name, phase in stage.phases().items() if phase == "Queued"]
    _, body = stage.live("Job", f"{waiting.removeprefix('a/')}-")
    stage.cluster.update({**body, "spec": {**body["spec"], "suspend": False}})
    stage.play(120)
    _, body = stage.live("Job", f"{waiting.removeprefix('a/')}-")
    assert flag(body, "spec", "suspend")
    assert stage.phases()[waiting] == "Queued"


class Refusing:
    """A cluster that refuses what bears a name."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.list = cluster.list
        self.watch = cluster.watch
        self.delete = cluster.delete
        self.each = cluster.each
        self.check = cluster.check

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        if body["metadata"]["name"].startswith(self._name) and body["kind"] == "Job":
            raise Invalid("GPU7006", "spec.template.spec: Invalid value")
        return self._cluster.apply(body, is_new=is_new)


def test_a_job_the_server_refuses_does_not_keep_its_team_from_working(stage: Stage) -> None:
    stage.through = Refusing(stage.cluster, "bad-")
    stage.commit({"c/projects/a/bad.yaml": job("bad", "a"), "c/projects/a/k.yaml": job("k", "a")})
    stage.play(60)
    assert stage.phases() == RUNNING | {"a/k": "Running"}
    failed = [line for line in stage.lines if line["event"] == "failed"]
    assert [line["object"].partition("-")[0] for line in failed] == ["Job gpu"]
