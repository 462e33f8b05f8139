"""Jobs: suspension, resumption, deadlines, ends and indexed workers, as the real Job controller was seen to do them."""

from __future__ import annotations

from typing import Any

import pytest
from labs import Lab, job, lab

from gpuctl.app.ports import Conflict, Invalid
from gpuctl.k8s import kinds, names

MOST_BYTES = 256 * 1024
"""Of annotations, on the server."""
FAILURES = names.INDEX_FAILURES_ANNOTATION
TWO_WORKERS: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}


def test_a_suspended_job_has_no_pods_and_says_so(lab: Lab) -> None:
    lab.apply(job("j", suspend=True))
    lab.eventually(lambda: lab.condition("j", "Suspended"))
    assert lab.condition("j", "Suspended")["reason"] == "JobSuspended"
    lab.later(30_000)
    assert lab.pods("j") == []
    assert "startTime" not in lab.status("j")


def test_one_write_resumes_places_and_limits(lab: Lab) -> None:
    lab.apply(job("j", suspend=True))
    lab.apply(job("j", nodes=("plain-2",), activeDeadlineSeconds=600))
    pods = lab.running("j")
    assert [pod["spec"]["nodeName"] for pod in pods] == ["plain-2"]
    lab.eventually(lambda: lab.status("j").get("active") == 1)
    assert lab.status("j")["startTime"]
    assert not lab.condition("j", "Suspended")


def test_suspending_deletes_the_pods_with_time_to_end_and_clears_the_start(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-1",)))
    lab.running("j")
    lab.apply(job("j", nodes=("plain-1",), suspend=True))
    lab.eventually(lambda: all("deletionTimestamp" in pod["metadata"] for pod in lab.pods("j")))
    lab.eventually(lambda: not lab.pods("j"))
    lab.eventually(lambda: "startTime" not in lab.status("j") and not lab.status("j").get("active"))
    assert not lab.status("j").get("failed")


def test_a_paused_job_resumes_elsewhere_with_a_new_start(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-1",)))
    lab.running("j")
    lab.eventually(lambda: "startTime" in lab.status("j"))
    first = lab.status("j")["startTime"]
    lab.apply(job("j", nodes=("plain-1",), suspend=True))
    lab.eventually(lambda: not lab.pods("j"))
    lab.passes(1_000)
    lab.apply(job("j", nodes=("plain-2",)))
    assert [pod["spec"]["nodeName"] for pod in lab.running("j")] == ["plain-2"]
    lab.eventually(lambda: lab.status("j").get("startTime", first) > first)


def test_the_pod_template_of_a_running_job_is_immutable_affinity_included(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-1",)))
    lab.running("j")
    before = lab.there(kinds.JOB, "j")
    with pytest.raises(Invalid, match=r"spec\.template"):
        lab.apply(job("j", nodes=("plain-2",)))
    assert lab.there(kinds.JOB, "j")["spec"] == before["spec"]


def test_the_template_may_not_change_in_the_write_that_suspends(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-1",)))
    lab.running("j")
    with pytest.raises(Invalid):
        lab.apply(job("j", nodes=("plain-2",), suspend=True))


def test_while_suspended_only_what_schedules_may_change(lab: Lab) -> None:
    lab.apply(job("j", suspend=True))
    toleration = {"key": "gpuctl.dev/managed", "operator": "Exists", "effect": "NoSchedule"}
    moved = job("j", suspend=True, nodes=("plain-2",), pod={"tolerations": [toleration]})
    moved["spec"]["template"]["metadata"]["annotations"] = {"gpuctl.dev/note": "moved"}
    lab.apply(moved)
    other_image = job("j", suspend=True)
    other_image["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.local/other:1"
    with pytest.raises(Invalid, match=r"spec\.template"):
        lab.apply(other_image)


def test_while_suspended_the_amounts_may_change_and_the_claims_may_not(lab: Lab) -> None:
    """From Kubernetes 1.36 on; an older server refuses both."""
    lab.apply(job("j", suspend=True))
    other_amounts = job("j", suspend=True)
    other_amounts["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "2"},
        "requests": {"nvidia.com/gpu": "2"},
    }
    lab.apply(other_amounts)
    claiming = job("j", suspend=True, pod={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "j"}]})
    claiming["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    with pytest.raises(Invalid, match=r"spec\.template"):
        lab.apply(claiming)


@pytest.mark.parametrize(
    "change",
    [{"selector": {"matchLabels": {"a": "b"}}}, {"completions": 3}, {"completionMode": "Indexed", "completions": 1}],
)
def test_what_identifies_a_jobs_work_is_immutable(lab: Lab, change: dict[str, Any]) -> None:
    lab.apply(job("j", suspend=True))
    with pytest.raises(Invalid, match="immutable"):
        lab.apply(job("j", suspend=True, **change))


def test_an_indexed_job_may_change_its_size_in_both_fields_at_once(lab: Lab) -> None:
    lab.apply(job("gang", suspend=True, **TWO_WORKERS))
    lab.apply(job("gang", suspend=True, completionMode="Indexed", completions=3, parallelism=3))
    with pytest.raises(Invalid, match=r"spec\.completions: .* in tandem with spec\.parallelism"):
        lab.apply(job("gang", suspend=True, completionMode="Indexed", completions=2, parallelism=3))


def test_the_deadline_may_change_while_running_and_ends_the_job(lab: Lab) -> None:
    lab.apply(job("j", activeDeadlineSeconds=3600))
    lab.running("j")
    lab.apply(job("j", activeDeadlineSeconds=5))
    lab.eventually(lambda: lab.condition("j", "Failed"))
    assert lab.condition("j", "Failed")["reason"] == "DeadlineExceeded"
    lab.eventually(lambda: not lab.pods("j"))
    assert "completionTime" not in lab.status("j")


def test_the_deadline_ends_a_job_whose_pod_never_had_a_node(lab: Lab) -> None:
    lab.apply(job("j", gpus=16, activeDeadlineSeconds=5))
    lab.eventually(lambda: lab.condition("j", "Failed"))
    assert lab.condition("j", "Failed")["reason"] == "DeadlineExceeded"


def test_the_deadline_counts_anew_from_each_resume(lab: Lab) -> None:
    lab.apply(job("j", activeDeadlineSeconds=3600))
    lab.running("j")
    lab.passes(10_000)
    lab.apply(job("j", activeDeadlineSeconds=3600, suspend=True))
    lab.passes(1_000)
    lab.apply(job("j", activeDeadlineSeconds=15))
    lab.passes(7_000)  # with those before it more than the deadline
    assert not lab.condition("j", "Failed")
    lab.eventually(lambda: lab.condition("j", "Failed"), within_ms=10_000)


def test_a_failed_condition_waits_for_the_pods_to_be_gone(lab: Lab) -> None:
    lab.apply(job("j", activeDeadlineSeconds=10))
    lab.running("j")
    lab.eventually(lambda: lab.condition("j", "FailureTarget"))
    failed = lab.condition("j", "Failed")
    assert not failed or all(pod["status"]["phase"] == "Failed" for pod in lab.pods("j"))
    lab.eventually(lambda: lab.condition("j", "Failed"))


def test_a_job_whose_pod_succeeds_is_complete(lab: Lab) -> None:
    lab.apply(job("j"))
    lab.running("j")
    lab.finish("j")
    lab.eventually(lambda: lab.condition("j", "Complete"))
    assert lab.status("j")["succeeded"] == 1
    assert lab.status("j")["completionTime"]
    assert [pod["status"]["phase"] for pod in lab.pods("j")] == ["Succeeded"]


def test_a_failure_without_retries_fails_the_job(lab: Lab) -> None:
    lab.apply(job("j"))
    lab.running("j")
    lab.finish("j", 3)
    lab.eventually(lambda: lab.condition("j", "Failed"))
    assert lab.condition("j", "Failed")["reason"] == "BackoffLimitExceeded"
    ended = lab.pods("j")[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 3


def test_a_failure_with_a_retry_left_gets_another_pod_after_a_while(lab: Lab) -> None:
    lab.apply(job("j", backoffLimit=1))
    lab.running("j")
    lab.finish("j", 1)
    lab.eventually(lambda: len(lab.pods("j")) == 2)
    assert not lab.condition("j", "Failed")
    lab.eventually(lambda: any(pod["status"]["phase"] == "Running" for pod in lab.pods("j")))
    lab.finish("j", 1)
    lab.eventually(lambda: lab.condition("j", "Failed"))
    lab.eventually(lambda: lab.status("j").get("failed") == 2)


def test_a_pod_that_somebody_deletes_counts_as_failed_and_is_replaced_once_gone(lab: Lab) -> None:
    lab.apply(job("j", backoffLimit=1))
    (first,) = lab.running("j")
    lab.delete(kinds.POD, first["metadata"]["name"])
    assert len(lab.pods("j")) <= 1
    lab.eventually(lambda: [p for p in lab.pods("j") if p["metadata"]["uid"] != first["metadata"]["uid"]])
    lab.eventually(lambda: lab.status("j").get("failed") == 1)


def test_workers_have_their_index_in_name_host_name_and_annotation(lab: Lab) -> None:
    lab.apply(job("gang", **TWO_WORKERS))
    pods = sorted(lab.running("gang", 2), key=lambda pod: str(pod["metadata"]["name"]))
    assert [pod["metadata"]["name"].rsplit("-", 1)[0] for pod in pods] == ["gang-0", "gang-1"]
    assert [pod["spec"]["hostname"] for pod in pods] == ["gang-0", "gang-1"]
    assert [pod["metadata"]["annotations"][names.WORKER_INDEX_LABEL] for pod in pods] == ["0", "1"]
    assert [pod["metadata"]["labels"][names.WORKER_INDEX_LABEL] for pod in pods] == ["0", "1"]


def test_a_worker_that_fails_is_made_again_alone(lab: Lab) -> None:
    lab.apply(job("gang", backoffLimit=1, **TWO_WORKERS))

    def workers() -> dict[str, str]:
        running = [pod for pod in lab.pods("gang") if pod["status"]["phase"] == "Running"]
        staying = [pod for pod in running if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["labels"][names.WORKER_INDEX_LABEL]: pod["metadata"]["uid"] for pod in staying}

    (last,) = [pod for pod in lab.running("gang", 2) if pod["spec"]["hostname"] == "gang-1"]
    before = workers()
    lab.delete(kinds.POD, last["metadata"]["name"])
    lab.eventually(lambda: workers().keys() == {"0", "1"} and workers()["1"] != before["1"])
    assert workers()["0"] == before["0"]
    lab.eventually(lambda: lab.status("gang").get("failed") == 1)


def test_a_limit_for_each_worker_counts_each_by_itself_and_from_each_start(lab: Lab) -> None:
    limits: dict[str, Any] = {
        "backoffLimit": 2**31 - 1, "backoffLimitPerIndex": 1, "maxFailedIndexes": 0, "podReplacementPolicy": "Failed",
    }  # fmt: skip
    lab.apply(job("gang", **limits, **TWO_WORKERS))

    def failures() -> dict[str, str]:
        running = [pod for pod in lab.pods("gang") if pod["status"]["phase"] == "Running"]
        staying = [pod["metadata"] for pod in running if "deletionTimestamp" not in pod["metadata"]]
        return {each["labels"][names.WORKER_INDEX_LABEL]: each["annotations"][FAILURES] for each in staying}

    def fail(worker: str) -> None:
        here = [pod for pod in lab.pods("gang") if pod["status"]["phase"] == "Running"]
        (one,) = [pod for pod in here if pod["spec"]["hostname"] == f"gang-{worker}"]
        lab.delete(kinds.POD, one["metadata"]["name"])

    lab.running("gang", 2)
    assert failures() == {"0": "0", "1": "0"}
    fail("0")
    lab.eventually(lambda: failures() == {"0": "1", "1": "0"})
    fail("1")
    lab.eventually(lambda: failures() == {"0": "1", "1": "1"})
    lab.eventually(lambda: lab.status("gang").get("failed") == 2)
    lab.apply(job("gang", suspend=True, **limits, **TWO_WORKERS))
    lab.eventually(lambda: not lab.pods("gang"))
    lab.apply(job("gang", **limits, **TWO_WORKERS))
    lab.running("gang", 2)
    assert failures() == {"0": "0", "1": "0"}
    fail("1")
    lab.eventually(lambda: failures() == {"0": "0", "1": "1"})
    fail("1")
    lab.eventually(lambda: lab.condition("gang", "Failed"))
    assert lab.condition("gang", "Failed")["reason"] == "MaxFailedIndexesExceeded"
    assert lab.status("gang")["failedIndexes"] == "1"


def test_an_indexed_job_is_complete_when_every_index_is(lab: Lab) -> None:
    lab.apply(job("gang", **TWO_WORKERS))
    lab.running("gang", 2)
    lab.finish("gang")
    lab.eventually(lambda: lab.condition("gang", "Complete"))
    assert lab.status("gang")["completedIndexes"] == "0,1" or lab.status("gang")["completedIndexes"] == "0-1"


@pytest.mark.parametrize("rule", [{"succeededIndexes": "0"}, {"succeededCount": 1}], ids=["worker 0", "any"])
def test_an_indexed_job_with_a_success_policy_is_complete_when_so_many_are(lab: Lab, rule: dict[str, Any]) -> None:
    policy = {"rules": [rule]}
    lab.apply(job("gang", completionMode="Indexed", completions=2, parallelism=1, successPolicy=policy))
    lab.running("gang")
    lab.finish("gang")
    lab.eventually(lambda: lab.condition("gang", "Complete"))
    assert lab.condition("gang", "SuccessCriteriaMet")["reason"] == "SuccessPolicy"
    assert lab.status("gang")["completedIndexes"] == "0"
    assert lab.status("gang")["succeeded"] == 1


def test_a_finished_job_goes_after_its_time_to_live(lab: Lab) -> None:
    lab.apply(job("j", ttlSecondsAfterFinished=10))
    lab.running("j")
    lab.finish("j")
    lab.eventually(lambda: lab.get(kinds.JOB, "j") is None)
    lab.eventually(lambda: not lab.pods("j"))


def test_a_changed_spec_raises_the_generation_and_a_changed_label_does_not(lab: Lab) -> None:
    first = lab.apply(job("j", suspend=True))
    second = lab.apply(job("j", suspend=True, activeDeadlineSeconds=9))
    labelled = job("j", suspend=True, activeDeadlineSeconds=9)
    labelled["metadata"]["labels"] = {**labelled["metadata"]["labels"], "more": "so"}
    third = lab.apply(labelled)
    assert [o["metadata"]["generation"] for o in (first, second, third)] == [1, 2, 2]


def test_deleting_a_job_deletes_its_pods_in_the_background(lab: Lab) -> None:
    lab.apply(job("j"))
    lab.running("j")
    lab.delete(kinds.JOB, "j")
    assert lab.get(kinds.JOB, "j") is None
    lab.eventually(lambda: not lab.pods("j"))


def test_deleting_a_job_that_a_finalizer_keeps_deletes_its_pods_all_the_same(lab: Lab) -> None:
    """Asked to delete them in the background, the server deletes them after the Job, which is there for good."""
    lab.apply(job("j"))
    lab.running("j")
    held = lab.there(kinds.JOB, "j")
    lab.edit({**held, "metadata": {**held["metadata"], "finalizers": ["example.com/hold"]}}, "person")
    lab.delete(kinds.JOB, "j")
    lab.eventually(lambda: not lab.pods("j"))
    lab.eventually(lambda: not lab.status("j").get("active"))
    kept = lab.there(kinds.JOB, "j")
    assert "example.com/hold" in kept["metadata"]["finalizers"]
    lab.edit({**kept, "metadata": {**kept["metadata"], "finalizers": []}}, "person")
    lab.eventually(lambda: lab.get(kinds.JOB, "j") is None)


def workers(lab: Lab) -> list[str]:
    """The indexes of the Job's pods that are running and stay, in order."""
    stays = [p for p in lab.pods("j") if "deletionTimestamp" not in p["metadata"] and p["status"]["phase"] == "Running"]
    return sorted(p["metadata"]["annotations"][names.WORKER_INDEX_LABEL] for p in stays)


def sized(count: int) -> dict[str, Any]:
    return {"completionMode": "Indexed", "completions": count, "parallelism": count}


def test_an_indexed_job_shrinks_in_place_by_its_highest_indexes(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-1", "plain-2"), **sized(4)))
    lab.eventually(lambda: workers(lab) == ["0", "1", "2", "3"])
    stay = {pod["metadata"]["uid"] for pod in lab.pods("j") if pod["metadata"]["name"].startswith(("j-0", "j-1"))}
    lab.apply(job("j", nodes=("plain-1", "plain-2"), **sized(2)))
    lab.eventually(lambda: len(lab.pods("j")) == 2)
    assert {pod["metadata"]["uid"] for pod in lab.pods("j")} == stay
    lab.eventually(lambda: lab.status("j").get("active") == 2)
    assert not lab.status("j").get("failed")
    assert not lab.condition("j", "Failed")


def test_an_indexed_job_grows_in_place_with_the_template_it_has(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-2",), **sized(1)))
    lab.eventually(lambda: workers(lab) == ["0"])
    lab.apply(job("j", nodes=("plain-2",), **sized(3)))
    lab.eventually(lambda: workers(lab) == ["0", "1", "2"])
    assert {pod["spec"]["nodeName"] for pod in lab.pods("j")} == {"plain-2"}


def test_completions_change_only_together_with_parallelism(lab: Lab) -> None:
    lab.apply(job("j", nodes=("plain-1",), **sized(2)))
    lab.running("j", 2)
    with pytest.raises(Invalid):
        lab.apply(job("j", nodes=("plain-1",), **{**sized(2), "completions": 1}))


def test_what_others_fill_an_object_with_goes_where_it_leaves_no_room(lab: Lab) -> None:
    """Else a run of which its team filled the annotations could be paused for no other."""
    lab.apply(job("j", nodes=("plain-1",)))
    lab.running("j")
    wanted = job("j", nodes=("plain-1",), suspend=True)
    wanted["metadata"]["annotations"] = {"gpuctl.dev/reason": "because"}

    def filled() -> bool:
        live = lab.there(kinds.JOB, "j")
        meta = {**live["metadata"], "annotations": {"theirs": "x" * (MOST_BYTES - len("theirs"))}, "labels": {"a": "b"}}
        try:
            lab.edit({**live, "metadata": meta}, "somebody")
        except Conflict:  # its controller wrote it in between
            return False
        return True

    lab.eventually(filled)
    stored = lab.apply(wanted)
    assert (stored["spec"]["suspend"], stored["metadata"]["annotations"]) == (True, {"gpuctl.dev/reason": "because"})
    lab.eventually(lambda: not lab.pods("j") and "startTime" not in lab.status("j"))
    resumed = lab.apply(job("j", nodes=("plain-2",)))
    assert not resumed["metadata"].get("annotations")
    assert [pod["spec"]["nodeName"] for pod in lab.running("j")] == ["plain-2"]
