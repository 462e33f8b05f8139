from __future__ import annotations

from dataclasses import replace

from workbench import WAITS, ZERO_MS, Workbench, admitted, example, on, only, waiting

from gpuctl.app.apply import apply_plan
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, flag, mapping, ref_of
from gpuctl.model.change import Action, OutcomeStatus
from gpuctl.model.decision import Finished, JobState, Placement, Reclaim, RunRecord, TimeOut, WorkerPlacement
from gpuctl.model.declared import PodSecurity, Security
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import RunPhase
from gpuctl.plan import Stage

A1 = "team-a/a-1-g"
A2 = "team-a/a-2-gg"
A1_ID = JobId.parse(A1)


def bench_of(*jobs: str) -> Workbench:
    return Workbench(only(example(), *(jobs or (A1,))))


def test_a_run_is_born_suspended_even_when_it_is_admitted_at_once() -> None:
    bench = bench_of()
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 0))}
    bench.apply()
    ((_, job),) = bench.live("Job")
    assert flag(job, "spec", "suspend")
    assert names.STARTS_ANNOTATION not in annotations_of(job)
    assert names.PLACEMENT_ANNOTATION not in annotations_of(job)
    assert [run.phase for run in bench.state().runs] == [RunPhase.QUEUED]


def test_it_is_let_go_in_the_plan_that_first_records_it_as_seen() -> None:
    bench = bench_of()
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 0))}
    bench.apply()
    stages = {change.ref.kind: change.stage for change in bench.plan().changes}
    assert stages == {"ConfigMap": Stage.LEDGER, "Job": Stage.ADMIT}
    bench.apply()
    bench.pass_ms(60_000)
    (run,) = bench.state().runs
    assert (run.phase, run.starts) == (RunPhase.RUNNING, 1)
    assert bench.plan().changes == ()


def test_it_is_not_let_go_when_the_ledger_can_not_be_written() -> None:
    bench = bench_of()
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 0))}
    bench.apply()
    plan = bench.plan()
    ((ref, ledger),) = bench.live("ConfigMap", "ledger.tr4858.team-a")
    bench.cluster.update({**ledger, "data": {**mapping(ledger, "data"), "note": "somebody was faster"}})
    outcomes = {o.change.ref.kind: o.status for o in apply_plan(plan, bench.cluster).outcomes}
    assert outcomes == {"ConfigMap": OutcomeStatus.CONFLICT, "Job": OutcomeStatus.SKIPPED}
    assert [run.phase for run in bench.state().runs] == [RunPhase.QUEUED]
    assert ref.namespace == names.SYSTEM_NAMESPACE


def test_an_admission_never_makes_an_object_that_was_deleted_meanwhile() -> None:
    bench = bench_of()
    bench.converge()
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 0))}
    plan = bench.plan()
    ((ref, job),) = bench.live("Job")
    bench.cluster.delete(ref, job["metadata"]["uid"], job["metadata"]["resourceVersion"])
    statuses = {o.change.ref.kind: o.status for o in apply_plan(plan, bench.cluster).outcomes}
    assert statuses["Job"] is OutcomeStatus.CONFLICT
    assert bench.live("Job") == []


def test_a_running_job_keeps_its_template_whatever_is_rendered() -> None:
    bench = bench_of()
    bench.run(A1, on("dgx1-1", 0))
    ((_, before),) = bench.live("Job")
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-2", 5), starts=1)}
    (change,) = [c for c in bench.plan().changes if c.ref.kind == "Job"]
    assert change.body is not None
    assert "spec" not in change.reason
    bench.apply()
    ((_, after),) = bench.live("Job")
    assert mapping(after, "spec", "template") == mapping(before, "spec", "template")


def test_a_pause_suspends_and_the_template_follows_when_the_pods_are_gone() -> None:
    bench = bench_of()
    bench.run(A1, on("dgx1-1", 0))
    record = RunRecord(queued_at_ms=ZERO_MS + 60_000, starts=1, ran_ms=60_000, paused_for=JobId.parse(A2))
    bench.decisions = {A1: Reclaim(job=A1_ID, reason=WAITS, record=record, beneficiary=JobId.parse(A2))}
    (change,) = [c for c in bench.plan().changes if c.ref.kind == "Job"]
    assert (change.stage, change.action) == (Stage.PAUSE, Action.UPDATE)
    bench.apply()
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-2", 1), starts=2)}
    while bench.state().runs[0].phase is RunPhase.STOPPING:
        assert [c for c in bench.plan().changes if c.stage == Stage.ADMIT] == []
        bench.pass_ms(1_000)
    bench.converge()
    bench.pass_ms(60_000)
    (run,) = bench.state().runs
    assert (run.phase, run.starts, run.placement) == (RunPhase.RUNNING, 2, on("dgx1-2", 1))


def test_a_paused_run_goes_on_with_its_template_whatever_is_rendered_now() -> None:
    """A Job takes no change of it. Another version of gpuctl may render another one, as another level does here."""
    bench = bench_of()
    bench.run(A1, on("dgx1-1", 0))
    ((_, before),) = bench.live("Job")
    record = RunRecord(queued_at_ms=ZERO_MS + 60_000, starts=1, ran_ms=60_000)
    bench.decisions = {A1: Reclaim(job=A1_ID, reason=WAITS, record=record, beneficiary=JobId.parse(A2))}
    bench.converge()
    bench.pass_ms(60_000)
    bench.declared = replace(
        bench.declared, cluster=replace(bench.declared.cluster, security=Security(pod_security=PodSecurity.RESTRICTED))
    )
    bench.converge()
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-2", 1), starts=2)}
    bench.converge()
    bench.pass_ms(60_000)
    (run,) = bench.state().runs
    assert (run.phase, run.starts, run.placement) == (RunPhase.RUNNING, 2, on("dgx1-2", 1))
    ((_, after),) = bench.live("Job")
    made, now = (mapping(body, "spec", "template", "spec") for body in (before, after))
    assert {key for key in {*made, *now} if made.get(key) != now.get(key)} == {"affinity"}


def test_a_claim_template_for_other_devices_is_made_anew_before_the_run_is_let_go() -> None:
    bench = bench_of()
    bench.run(A1, on("dgx1-1", 0))
    ((_, first),) = bench.live("ResourceClaimTemplate")
    bench.decisions = {
        A1: Reclaim(job=A1_ID, reason=WAITS, record=RunRecord(queued_at_ms=1, starts=1), beneficiary=A1_ID)
    }
    bench.apply()
    # The pruning of the template is left out, as if gpuctl had been killed before it.
    plan = bench.plan()
    assert {(c.ref.kind, c.action) for c in plan.changes if c.stage == Stage.PRUNE} <= {
        ("ResourceClaimTemplate", Action.DELETE)
    }
    bench.pass_ms(60_000)
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 4), starts=2)}
    bench.converge()
    bench.pass_ms(60_000)
    ((_, second),) = bench.live("ResourceClaimTemplate")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    (run,) = bench.state().runs
    assert (run.phase, run.placement) == (RunPhase.RUNNING, on("dgx1-1", 4))


def test_a_stale_claim_template_is_deleted_and_made_in_one_plan_and_left_alone_while_pods_are_there() -> None:
    bench = bench_of()
    bench.run(A1, on("dgx1-1", 0))
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 7), starts=1)}
    assert [c for c in bench.plan().changes if c.ref.kind == "ResourceClaimTemplate"] == []
    ((ref, job),) = bench.live("Job")
    bench.cluster.update({**job, "spec": {**job["spec"], "suspend": True}})
    bench.pass_ms(60_000)
    bench.decisions = {A1: admitted(A1_ID, on("dgx1-1", 7), starts=2)}
    stages = [(c.ref.kind, c.action, c.stage) for c in bench.plan().changes if c.ref.kind != "ConfigMap"]
    assert stages == [
        ("ResourceClaimTemplate", Action.DELETE, Stage.RELEASE),
        ("ResourceClaimTemplate", Action.CREATE, Stage.CLAIM),
        ("Job", Action.UPDATE, Stage.ADMIT),
    ]
    bench.converge()
    assert ref.name.startswith("a-1-g-")


def test_a_person_who_lets_a_waiting_job_go_is_undone() -> None:
    bench = bench_of()
    bench.converge()
    ((_, job),) = bench.live("Job")
    bench.cluster.update({**job, "spec": {**job["spec"], "suspend": False}})
    (change,) = bench.plan().changes
    assert change.stage == Stage.PAUSE
    bench.converge()
    ((_, job),) = bench.live("Job")
    assert flag(job, "spec", "suspend")


def test_a_reservation_comes_before_the_pause_it_is_for() -> None:
    bench = bench_of(A1, A2)
    bench.run(A1, on("dgx1-1", 0))
    place = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0, 1)),))
    held = waiting(JobId.parse(A2))
    bench.decisions = {
        A1: Reclaim(job=A1_ID, reason=WAITS, record=RunRecord(queued_at_ms=1, starts=1), beneficiary=JobId.parse(A2)),
        A2: type(held)(job=held.job, reason=held.reason, record=held.record, reserved=place),
    }
    stages = [(c.ref.name.rpartition("-")[0], c.stage) for c in bench.plan().changes if c.ref.kind == "Job"]
    assert stages == [("a-2-gg", Stage.UPDATE), ("a-1-g", Stage.PAUSE)]
    bench.apply()
    reserved = {str(run.job): run.placement for run in bench.state().runs}
    assert reserved[A2] == place


def test_a_timed_out_job_ends_by_its_own_deadline_and_is_recorded() -> None:
    bench = bench_of()
    bench.run(A1, on("dgx1-1", 0))
    bench.decisions = {A1: TimeOut(job=A1_ID, reason=WAITS, record=RunRecord(queued_at_ms=ZERO_MS, starts=1))}
    bench.apply()
    bench.pass_ms(120_000)
    (run,) = bench.state().runs
    assert run.phase is RunPhase.TIMED_OUT
    bench.decisions = {
        A1: Finished(
            job=A1_ID, reason=WAITS, record=RunRecord(queued_at_ms=ZERO_MS, starts=1), state=JobState.TIMED_OUT
        )
    }
    bench.converge()
    ((key, ended),) = bench.state().ledgers[A1_ID.project].finished.items()
    assert (key[0], ended.state, ended.starts, ended.at_ms) == (A1_ID, "TimedOut", 1, run.finished_at_ms)
    assert [ref_of(body).name for _, body in bench.live("Job")] != []
    bench.pass_ms(3_600_000)
    assert bench.plan().changes == ()


def test_the_quotas_of_a_namespace_are_there_before_the_people_who_may_work_in_it() -> None:
    text = "apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: x}\nspec: {access: [{user: ann, role: edit}]}\n"
    bench = Workbench(only(example({"projects/x/project.yaml": text})))
    stages = {change.ref.kind: change.stage for change in bench.plan().changes if change.ref.namespace == "gpu-x"}
    assert stages["ResourceQuota"] < stages["RoleBinding"]
