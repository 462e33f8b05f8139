"""Which pod a person means, and why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.inspect import Live, Mirror, Unreachable, live, pod_of
from gpuctl.app.ports import ClusterUnavailable, ObjectList, WatchEvent
from gpuctl.cli.clusters import one_job
from gpuctl.cli.failures import Failure
from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.model.decision import JobState, Placement, Reason, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import ClusterState, FinishedRun, Ledger, Run, RunPhase
from gpuctl.views.jobs import JobView, PodView

ID = JobId(ProjectName("team-a"), "train")
RUN = Run(job=ID, digest=RunDigest("0badcafe"), phase=RunPhase.RUNNING)
VIEW = JobView(
    id=ID, state=JobState.RUNNING, type="training", image="i", ref=ObjectRef(*kinds.JOB, "gpu-a", "train-0badcafe"),
    asked_workers=1,
    workers=1, gpu_milli=1000, run=RUN,
)  # fmt: skip


def pod(name: str, *, worker: int = 0, phase: str = "Running", at_ms: int = 0) -> PodView:
    live = phase not in {"Succeeded", "Failed"}
    return PodView(name=name, phase=phase, node="n", created_at_ms=at_ms, worker=worker, live=live)


def job(*pods: PodView, kind: str = "training") -> JobView:
    return replace(VIEW, pods=pods, type=kind)


def test_the_pod_of_a_worker() -> None:
    gang = job(pod("g-0"), pod("g-1", worker=1))
    assert [pod_of(gang, worker).name for worker in (0, 1)] == ["g-0", "g-1"]


def test_the_newest_pod_where_one_was_replaced() -> None:
    retried = job(pod("z", phase="Failed", at_ms=5), pod("a", at_ms=3))
    assert pod_of(retried, 0).name == "a"
    ended = job(pod("z", phase="Failed", at_ms=3), pod("a", phase="Failed", at_ms=5))
    assert pod_of(ended, 0).name == "a"


def test_replicas_are_counted_by_name() -> None:
    served = job(pod("s-b"), pod("s-a"), pod("s-c"), kind="inference")
    assert [pod_of(served, worker).name for worker in (0, 2)] == ["s-a", "s-c"]
    with pytest.raises(Unreachable, match="no worker 3, only 0 to 2"):
        pod_of(served, 3)


def test_a_command_needs_a_pod_that_runs() -> None:
    ended = job(pod("t", phase="Succeeded"))
    assert pod_of(ended, 0).name == "t"
    with pytest.raises(Unreachable, match="its pod t is Succeeded"):
        pod_of(ended, 0, started=True)


PLACED = Placement(workers=(WorkerPlacement(node=NodeName("n")),))


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (replace(VIEW, state=JobState.SUCCEEDED), "it has ended (Succeeded), and its pod is gone"),
        (replace(VIEW, state=JobState.SUSPENDED), "it is suspended in Git"),
        (
            replace(VIEW, state=JobState.STARTING, run=replace(RUN, phase=RunPhase.STARTING, placement=PLACED)),
            "it is Starting, its pod is not created yet",
        ),
        (
            replace(VIEW, state=JobState.PENDING, run=replace(RUN, phase=RunPhase.QUEUED, reason=Reason(code="GPU0"))),
            "it is waiting: GPU0: GPU0",
        ),
        (replace(VIEW, state=JobState.PENDING, run=replace(RUN, phase=RunPhase.QUEUED)), "it is Pending"),
        (job(pod("g-0")), "it has no worker 7, only 0"),
    ],
)
def test_without_a_pod_it_is_said_why(view: JobView, why: str) -> None:
    with pytest.raises(Unreachable) as told:
        pod_of(view, 7)
    assert (told.value.code, str(told.value)) == ("GPU7040", f"team-a/train has no container: {why}")


def test_a_run_whose_object_is_gone_is_known_from_the_ledger() -> None:
    runs = {
        (ID, RunDigest(digest)): FinishedRun(job=ID, digest=RunDigest(digest), state=state, at_ms=at_ms)
        for digest, state, at_ms in (("0badcafe", "Failed", 1), ("1badcafe", "Succeeded", 2))
    }
    ledger = Ledger(project=ID.project, finished=runs)
    found = Live(state=ClusterState(ledgers={ID.project: ledger}), jobs=())
    for wanted in (ID, "train"):
        ended = found.ended(wanted)
        assert ended is not None
        assert ended.state == "Succeeded"
    assert found.ended("other") is None
    with pytest.raises(Failure, match=r"team-a/train has ended \(Succeeded\), and its object is gone"):
        one_job("train", "team-a", EmbeddedCluster(VirtualClock(0)), found)


SPACE = ObjectRef(*kinds.NAMESPACE, "", "gpu-team-a")
ENDING = {
    "metadata": {
        "name": "gpu-team-a",
        "deletionTimestamp": "2020-07-29T12:00:00Z",
        "labels": {names.PROJECT_LABEL: "team-a"},
    }
}
STRANGERS = frozenset({
    ObjectRef(*kinds.JOB, "gpu-team-a", name) for name in ("eval-2-0badcafe", "eval-0badcafe", "else")
})


@pytest.mark.parametrize(
    ("wanted", "state", "said"),
    [
        ("eval", ClusterState(foreign=STRANGERS), "Job gpu-team-a/eval-0badcafe, which gpuctl did not create"),
        ("team-a/eval", ClusterState(foreign=STRANGERS), "Job gpu-team-a/eval-0badcafe, which gpuctl did not create"),
        ("team-a/eval", ClusterState(live={SPACE: ENDING}), "namespace gpu-team-a is being deleted"),
        ("team-b/eval", ClusterState(foreign=STRANGERS, live={SPACE: ENDING}), ""),
        ("else", ClusterState(foreign=STRANGERS, live={SPACE: ENDING}), ""),
    ],
)  # fmt: skip
def test_what_keeps_a_job_from_being_there_is_told(
    wanted: str, state: ClusterState, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # here all of this project's own history is searched for who removed it
    with pytest.raises(Failure) as caught:
        one_job(wanted, None, EmbeddedCluster(VirtualClock(0)), Live(state=state, jobs=()))
    assert said in str(caught.value)
    assert ("GPU70" in caught.value.hint) == bool(said)


class Unconverted(EmbeddedCluster):
    """A cluster that can't read JobSets while the webhook that converts them is away."""

    is_away = True

    def _convert(self, kind: tuple[str, str]) -> None:
        if self.is_away and kind == kinds.JOB_SET:
            raise ClusterUnavailable("GPU7001", "list JobSet: conversion webhook failed")

    def list(self, kind: tuple[str, str]) -> ObjectList:
        self._convert(kind)
        return super().list(kind)

    def watch(self, kind: tuple[str, str], resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        self._convert(kind)
        return super().watch(kind, resource_version, timeout_ms)


SPACE_A = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
JOB_SET_A = ObjectRef(*kinds.JOB_SET, "a", "x")


def test_a_kind_of_another_controller_that_can_not_be_read_is_told_and_the_rest_shown() -> None:
    """Also where there are runs of it: the mirror shows no decision, that would need their GPUs."""
    cluster = Unconverted(VirtualClock(0))
    cluster.apply(SPACE_A)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.SYSTEM_NAMESPACE}})
    ledger = Ledger(project=ProjectName("a"), inventory=frozenset({JOB_SET_A}))
    cluster.apply(encode_ledger("prod", ledger).head)
    for seen in (live(cluster), Mirror(cluster).live()):
        ((code, told),) = [(each.code, str(each)) for each in seen.unread]
        assert code == "GPU7025"
        assert told.startswith("JobSet of jobset.x-k8s.io/v1alpha2 can't be read now")
        assert told.endswith("list JobSet: conversion webhook failed")
        assert ObjectRef(*kinds.NAMESPACE, "", "a") in seen.state.live


def test_a_mirror_tells_of_a_kind_that_can_not_be_read_any_more_until_it_can() -> None:
    """It shows the objects as they were, and said nothing of that."""
    cluster = Unconverted(VirtualClock(0))
    cluster.is_away = False
    cluster.apply(SPACE_A)
    made = {"apiVersion": JOB_SET_A.api_version, "kind": "JobSet", "metadata": {"name": "x", "namespace": "a"}}
    cluster.apply(made)
    mirror = Mirror(cluster)
    told: list[list[str]] = []
    for is_away in (False, True, True, False):
        cluster.is_away = is_away
        seen = mirror.live()
        told.append([each.code for each in seen.unread])
        assert JOB_SET_A in seen.state.live
    assert told == [[], ["GPU7025"], ["GPU7025"], []]
