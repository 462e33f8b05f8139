"""A job whose pods can't start, on the embedded cluster: what people are told of it, once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.cycle import CycleContext, CycleReport, cycle
from gpuctl.app.inspect import live
from gpuctl.app.metrics import measure
from gpuctl.app.notes import notes_of
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Note
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.units import DurationMs
from gpuctl.views.explain import explain_job

ZERO_MS = 1_596_000_000_000
STUCK, NEXT = JobId.parse("a/stuck"), JobId.parse("a/then")
FILES = {
    "cluster.yaml": "kind: Cluster\nmetadata: {name: one}\nspec:\n  nodePools:\n"
    "  - {name: p, nodes: [n1], gpusPerNode: 2, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}\n",
    "a.yaml": "kind: Project\nmetadata: {name: a}\nspec: {quota: 2}\n",
    "stuck.yaml": "kind: Job\nmetadata: {name: stuck, project: a}\nspec: {image: nowhere, gpus: 2, priority: 1}\n",
    "then.yaml": "kind: Job\nmetadata: {name: then, project: a}\nspec: {image: x, gpus: 2}\n",
}
WITH_RETRIES = FILES["stuck.yaml"].replace("gpus: 2", "gpus: 2, retries: 3")
REASONS = ["ImagePullBackOff", "ErrImageNeverPull", "CreateContainerConfigError", "CrashLoopBackOff"]


def declared(**files: str) -> Declared:
    tree = {
        f"c/{path}": SourceFile(content=f"apiVersion: gpuctl.dev/v1\n{text}".encode())
        for path, text in {**FILES, **files}.items()
    }
    compiled = compile_tree(SourceTree(cluster_dir="c", files=tree))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


class Lab:
    """A cluster with one node, and the reconciler's cycles over it."""

    def __init__(self, tree: Declared) -> None:
        self.clock = VirtualClock(ZERO_MS)
        self.cluster = EmbeddedCluster(self.clock)
        self.tree = tree
        self.cluster.provide(tree.cluster.pools)
        self.context = CycleContext(object_cache=ObjectCache(self.cluster), clock=self.clock)
        self.before: CycleReport | None = None
        self.notes: list[Note] = []

    def cycle(self) -> CycleReport:
        report = cycle(self.tree, self.context)
        self.notes += notes_of(report, self.before)
        self.before = report
        return report

    def pass_time(self, duration_ms: DurationMs, step_ms: DurationMs = 5_000) -> CycleReport:
        """Cycles every few seconds."""
        until_ms = self.clock.now_ms() + duration_ms
        report = self.cycle()
        while self.clock.now_ms() < until_ms:
            self.clock.advance_to(min(until_ms, self.clock.now_ms() + step_ms))
            self.cluster.settle()
            report = self.cycle()
        return report

    def status(self, job: JobId) -> str:
        (view,) = live(self.cluster).find(job)
        return view.status


@pytest.mark.parametrize("reason", REASONS)
def test_a_pod_that_can_not_start_is_told_once_and_counted(reason: str) -> None:
    lab = Lab(declared())
    lab.cluster.set_stuck(STUCK, reason)
    report = lab.pass_time(60_000)
    assert lab.status(STUCK) == reason
    (note,) = [note for note in lab.notes if note.type == "Warning"]
    assert (note.reason, note.regarding.kind) == (reason, "Job")
    assert measure(report, None, 1).problems == {("a", reason): 1}
    lab.cluster.set_stuck(STUCK, None)
    lab.pass_time(10_000)
    assert lab.status(STUCK) == "Running"
    assert measure(lab.cycle(), None, 1).problems == {}


def test_pods_that_the_server_refuses_are_told_though_there_is_none() -> None:
    lab = Lab(declared())
    lab.cycle()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "gpu-a"}}
    lab.cluster.create({**quota, "spec": {"hard": {"pods": "0"}}})
    lab.pass_time(10_000)
    assert lab.status(STUCK) == "NoPod"
    assert [note.reason for note in lab.notes if note.type == "Warning"] == ["NoPod"]


def test_a_run_that_has_failed_is_counted_once_and_stands_wrong_no_longer() -> None:
    """The gauge is what an alert fires on: a job that failed weeks ago stays declared, and must not keep it firing."""
    lab = Lab(declared())
    lab.pass_time(60_000)
    before = lab.cycle()
    lab.cluster.finish(STUCK, 3)
    counted = []
    for _ in range(4):
        after = lab.pass_time(2_000)
        counted.append(measure(after, before, 1))
        before = after
    assert [run.phase.value for run in before.state.runs if run.job == STUCK] == ["Failed"]
    assert sum(sum(each.failures.values()) for each in counted) == 1
    assert counted[-1].problems == {}


def test_a_run_that_waits_after_a_failed_start_says_by_what_in_full() -> None:
    lab = Lab(declared())
    lab.cluster.set_stuck(STUCK, "ImagePullBackOff")
    lab.pass_time(60_000)
    (view,) = live(lab.cluster).find(STUCK)
    assert not any("Nothing to do" in line for line in explain_job(view, lab.clock.now_ms()))
    lab.pass_time(900_000)
    (view,) = live(lab.cluster).find(STUCK)
    words = "the last by ImagePullBackOff: ImagePullBackOff of a container"
    assert any(words in line for line in explain_job(view, lab.clock.now_ms()))


def test_a_start_that_fails_is_tried_again_later_and_later_also_by_another_process() -> None:
    """How often, and when next, is on record: a new process goes on where the last one was."""
    lab = Lab(declared())
    lab.cluster.set_stuck(STUCK, "ImagePullBackOff")
    lab.cluster.set_stuck(NEXT, "ImagePullBackOff")
    tries: list[int] = []
    running = False
    for _ in range(4 * 60):
        lab.pass_time(30_000, step_ms=15_000)
        (run,) = [run for run in lab.cycle().state.runs if run.job == STUCK]
        if (run.phase.value == "Starting") and not running:
            tries.append((lab.clock.now_ms() - ZERO_MS) // 60_000)
        running = run.phase.value == "Starting"
        lab.context = CycleContext(object_cache=ObjectCache(lab.cluster), clock=lab.clock)
    (run,) = [run for run in lab.cycle().state.runs if run.job == STUCK]
    assert run.failed_starts >= 3
    assert run.starts == int(running)
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert min(gaps) >= 16  # the other job takes the GPUs while it waits
    assert gaps[-1] >= 45


def test_a_service_that_crashes_is_told_and_not_stopped() -> None:
    service = "kind: Job\nmetadata: {name: stuck, project: a}\nspec: {type: inference, image: x, gpus: 2}\n"
    lab = Lab(declared(**{"stuck.yaml": service}))
    lab.pass_time(60_000)
    assert lab.status(STUCK) == "Running"
    lab.cluster.set_stuck(STUCK, "CrashLoopBackOff")
    (pod,) = [body for body in lab.cluster.list(kinds.POD).items if body["metadata"]["name"].startswith("stuck")]
    crashed = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 7}},
    }
    lab.cluster.update({**pod, "status": {**pod["status"], "containerStatuses": [crashed]}})
    lab.pass_time(3_600_000, step_ms=60_000)
    (run,) = [run for run in lab.cycle().state.runs if run.job == STUCK]
    assert (run.phase.value, run.failed_starts) == ("Running", 0)


def without_its_pod(lab: Lab) -> None:
    """Have the run's pod deleted; the next one can't start."""
    (pod,) = [body for body in lab.cluster.list(kinds.POD).items if body["metadata"]["name"].startswith("stuck")]
    lab.cluster.set_stuck(STUCK, "ImagePullBackOff")
    lab.cluster.delete(ref_of(pod), pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])


@pytest.mark.parametrize("later_ms", [120_000, 1_200_000, 7_200_000])
def test_a_pod_made_again_is_no_start_that_fails(later_ms: DurationMs) -> None:
    """The run has run, so its time counts, and it is not given up because a pod of it is made again."""
    lab = Lab(declared(**{"stuck.yaml": WITH_RETRIES}))
    lab.pass_time(later_ms, step_ms=later_ms // 24)
    without_its_pod(lab)
    lab.pass_time(120_000)
    (run,) = [run for run in lab.cycle().state.runs if run.job == STUCK]
    assert (run.phase.value, run.starting_ms, run.failed_starts) == ("Starting", 0, 0)


def test_a_start_that_takes_long_is_given_up_though_its_pod_is_made_again() -> None:
    lab = Lab(declared(**{"stuck.yaml": WITH_RETRIES}))
    lab.cluster.set_stuck(STUCK, "ImagePullBackOff")
    lab.pass_time(120_000)
    without_its_pod(lab)
    lab.pass_time(840_000)
    (run,) = [run for run in lab.cycle().state.runs if run.job == STUCK]
    assert (run.phase.value, run.failed_starts) == ("Queued", 1)
