"""A job whose pods can't start, on the embedded cluster: what people are told of it, once."""

from __future__ import annotations

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
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.units import DurationMs

ZERO_MS = 1_596_000_000_000
STUCK, NEXT = JobId.parse("a/stuck"), JobId.parse("a/then")
FILES = {
    "cluster.yaml": "kind: Cluster\nmetadata: {name: one}\nspec:\n  nodePools:\n"
    "  - {name: p, nodes: [n1], gpusPerNode: 2, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}\n",
    "a.yaml": "kind: Project\nmetadata: {name: a}\nspec: {quota: 2}\n",
    "stuck.yaml": "kind: Job\nmetadata: {name: stuck, project: a}\nspec: {image: nowhere, gpus: 2, priority: 1}\n",
    "then.yaml": "kind: Job\nmetadata: {name: then, project: a}\nspec: {image: x, gpus: 2}\n",
}
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
    assert lab.status(STUCK) == "FailedCreate"
    assert [note.reason for note in lab.notes if note.type == "Warning"] == ["FailedCreate"]
