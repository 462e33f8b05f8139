"""What a decision makes of a run's object."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sample import NOW, RECORD, admit, bodies, declared, job, pending, place, ref, rendered, run_body

from gpuctl.k8s import kinds, names
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.decision import (
    Decision,
    Displace,
    Finished,
    JobState,
    Keep,
    Preempt,
    Reason,
    Reclaim,
    RunRecord,
    Suspended,
    TimeOut,
)
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.job import Container, JobType
from gpuctl.model.state import Body, Run, RunPhase
from gpuctl.model.volumes import (
    NewClaimVolume,
)
from gpuctl.plan.entries import next_entry
from gpuctl.render.canonical import in_order

OTHER = JobId(ProjectName("team-d"), "d-1")
WHY = Reason(code="GPU5000")


def template_of(body: Body) -> Any:
    return body["spec"]["template"]


def test_an_admitted_run_is_let_go_at_its_place() -> None:
    one = job()
    body = run_body(declared(one), admit(one, ("dgx1-2", (3,))))
    assert body["metadata"]["name"] == "a-1-g-0badcafe"
    assert body["spec"]["suspend"] is False
    notes = body["metadata"]["annotations"]
    assert notes[names.PLACEMENT_ANNOTATION] == '[{"node":"dgx1-2","gpus":[3]}]'
    assert notes[names.STARTS_ANNOTATION] == "1"
    assert notes[names.QUEUED_AT_ANNOTATION] == "2020-07-29T05:20:00.000Z"
    assert notes[names.SOURCE_ANNOTATION] == f"projects/team-a/jobs/a-1-g.yaml:4@{'c' * 40}"
    assert notes[names.REVISION_ANNOTATION] == "c" * 40
    required = template_of(body)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["dgx1-2"]}]}
    ]


def test_a_run_that_is_kept_is_written_as_it_was_admitted() -> None:
    one = job(max_duration_ms=3_600_000)
    admitted = admit(one, ("dgx1-2", (3,)), record=RECORD._replace(ran_ms=60_001))
    kept = Keep(job=one.id, reason=admitted.reason, record=admitted.record, placement=admitted.placement)
    assert run_body(declared(one), kept) == run_body(declared(one), admitted)
    assert run_body(declared(one), kept)["spec"]["activeDeadlineSeconds"] == 3540


def test_places_reserved_for_workers_that_a_run_lacks_are_written_on_it_and_in_its_entry() -> None:
    one, more = job(), place(("dgx1-2", (5,)))
    admitted = admit(one, ("dgx1-2", (3,)))
    kept = Keep(job=one.id, reason=admitted.reason, record=admitted.record, placement=admitted.placement, reserved=more)
    body = run_body(declared(one), kept)
    assert body["metadata"]["annotations"][names.RESERVED_ANNOTATION] == '[{"node":"dgx1-2","gpus":[5]}]'
    run = Run(job=one.id, digest=one.digest, phase=RunPhase.RUNNING, starts=1)
    entry = next_entry(body, None, "uid", run, 0, BUILT_IN)
    assert entry.reserved == more
    paused = run_body(declared(one), Preempt(job=one.id, reason=WHY, record=admitted.record, beneficiary=one.id))
    assert next_entry(paused, entry, "uid", run, 0, BUILT_IN).reserved is None


def test_a_waiting_run_is_suspended_and_goes_nowhere_yet() -> None:
    one = job(max_duration_ms=3_600_000)
    body = run_body(declared(one), pending(one))
    assert body["spec"]["suspend"] is True
    assert "activeDeadlineSeconds" not in body["spec"]
    assert "affinity" not in template_of(body)["spec"]
    assert "annotations" not in template_of(body)["metadata"]
    assert names.PLACEMENT_ANNOTATION not in body["metadata"]["annotations"]


def test_a_reservation_is_noted_but_sends_no_pod() -> None:
    one = job()
    manifests = bodies(rendered(declared(one), pending(one, place(("dgx1-1", (0,))))))
    body = manifests["Job a-1-g-0badcafe"]
    assert body["metadata"]["annotations"][names.PLACEMENT_ANNOTATION] == '[{"node":"dgx1-1","gpus":[0]}]'
    assert body["spec"]["suspend"] is True
    assert "affinity" not in template_of(body)["spec"]
    assert not [name for name in manifests if name.startswith("ResourceClaimTemplate")]


@pytest.mark.parametrize(
    "decision",
    [
        Reclaim(job=job().id, reason=WHY, record=RECORD._replace(ran_ms=5000, paused_for=OTHER), beneficiary=OTHER),
        Preempt(job=job().id, reason=WHY, record=RECORD._replace(ran_ms=5000, paused_for=OTHER), beneficiary=OTHER),
        Displace(job=job().id, reason=WHY, record=RECORD._replace(ran_ms=5000)),
        Suspended(job=job().id, reason=WHY, record=RECORD._replace(ran_ms=5000)),
    ],
    ids=lambda decision: type(decision).__name__,
)
def test_a_paused_run_is_suspended_without_a_place(decision: Decision) -> None:
    manifests = bodies(rendered(declared(job()), decision))
    body = manifests["Job a-1-g-0badcafe"]
    notes = body["metadata"]["annotations"]
    assert body["spec"]["suspend"] is True
    assert names.PLACEMENT_ANNOTATION not in notes
    assert notes[names.RAN_ANNOTATION] == "5000"
    assert notes.get(names.PAUSED_FOR_ANNOTATION) == (str(OTHER) if decision.record.paused_for else None)
    assert not [name for name in manifests if name.startswith("ResourceClaimTemplate")]


def test_a_job_that_times_out_ends_itself_at_once() -> None:
    body = run_body(declared(job()), TimeOut(job=job().id, reason=WHY, record=RECORD))
    assert body["spec"]["suspend"] is False
    assert body["spec"]["activeDeadlineSeconds"] == 1


def test_inference_that_times_out_has_no_replicas() -> None:
    one = job(type=JobType.INFERENCE)
    assert run_body(declared(one), TimeOut(job=one.id, reason=WHY, record=RECORD))["spec"]["replicas"] == 0


def test_what_is_left_of_the_limit_is_rounded_up_and_never_nothing() -> None:
    one = job(max_duration_ms=10_000)
    for ran_ms, left_s in ((0, 10), (1, 10), (1000, 9), (9_999, 1), (20_000, 1)):
        body = run_body(declared(one), admit(one, ("dgx1-1", (0,)), record=RunRecord(queued_at_ms=NOW, ran_ms=ran_ms)))
        assert body["spec"]["activeDeadlineSeconds"] == left_s


def test_of_a_finished_run_only_its_claims_are_wanted_and_its_object_is_left_alone() -> None:
    volume = NewClaimVolume(size_bytes=2**30, storage_class=None, mount_path="/scratch")
    one = job(container=Container(image="i", volumes=(volume,)))
    ended = Finished(job=one.id, reason=WHY, record=RECORD, state=JobState.SUCCEEDED)
    manifests = rendered(declared(one), ended)
    assert manifests.retained == {ref(kinds.JOB, "a-1-g-0badcafe")}
    of_job = [m.ref for m in manifests.items if names.JOB_LABEL in m.body["metadata"]["labels"]]
    assert of_job == [ref(kinds.CLAIM, "pvc-a-1-g-0")]


def test_reasons_are_written_as_data() -> None:
    one = job()
    decision = replace(pending(one), reason=Reason(code="GPU5003", params=(("quota", 4000),)))
    body = run_body(declared(one), decision)
    note = body["metadata"]["annotations"][names.REASON_ANNOTATION]
    assert json.loads(note) == {"code": "GPU5003", "params": {"quota": 4000}}


def test_files_under_no_version_control_name_no_commit() -> None:
    one = job()
    body = run_body(replace(declared(one), project_revisions={}), pending(one))
    notes = body["metadata"]["annotations"]
    assert notes[names.SOURCE_ANNOTATION] == "projects/team-a/jobs/a-1-g.yaml:4"
    assert names.REVISION_ANNOTATION not in notes


def test_everything_is_rendered_once_sorted_and_under_gpuctls_labels() -> None:
    jobs = [job(f"a-{i}") for i in range(3)]
    manifests = rendered(declared(*jobs), *(pending(one) for one in jobs))
    refs = [m.ref for m in manifests.items]
    assert refs == sorted(set(refs))
    for manifest in manifests.items:
        assert manifest.body["metadata"]["labels"][names.MANAGED_BY_LABEL] == names.MANAGED_BY
        assert manifest.body["metadata"]["name"] == manifest.ref.name
        assert manifest.span is not None


def test_a_run_let_go_by_hand_and_not_bound_yet_goes_on_without_a_place() -> None:
    nowhere = place()
    for kind in (JobType.TRAINING, JobType.INFERENCE):
        one = job(type=kind, workers=2)
        body = run_body(declared(one), Keep(job=one.id, reason=WHY, record=RECORD, placement=nowhere))
        assert body["spec"].get("parallelism", body["spec"].get("replicas")) == 2
        assert "affinity" not in template_of(body)["spec"]
        assert names.PLACEMENT_ANNOTATION not in body["metadata"]["annotations"]


def test_two_objects_of_one_name_are_a_bug() -> None:
    twice = rendered(declared()).items[0]
    with pytest.raises(ValueError, match="rendered twice"):
        in_order([twice.ref, twice.ref])


@pytest.mark.parametrize(
    ("kind", "preemptible", "said"),
    [
        (JobType.TRAINING, True, None),
        (JobType.TRAINING, False, "false"),
        (JobType.INTERACTIVE, False, None),
        (JobType.INTERACTIVE, True, "true"),
        (JobType.INFERENCE, True, "true"),
    ],
)
def test_a_job_that_departs_from_its_type_says_so(kind: JobType, preemptible: bool, said: str | None) -> None:  # noqa: FBT001
    wanted = job(type=kind, preemptible=preemptible)
    found = bodies(rendered(declared(wanted), pending(wanted)))
    run = found[f"{'Deployment' if kind is JobType.INFERENCE else 'Job'} a-1-g-0badcafe"]
    assert run["metadata"]["annotations"].get(names.PREEMPTIBLE_ANNOTATION) == said
    assert names.PREEMPTIBLE_ANNOTATION not in run["spec"]["template"]["metadata"].get("annotations", {})
