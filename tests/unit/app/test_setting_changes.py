"""What a plan says of settings that no object of a waiting job shows."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.app.settings import setting_changes
from gpuctl.compile import compile_tree
from gpuctl.compile.digest import NEEDS_NO_NEW_RUN
from gpuctl.model.declared import Declared
from gpuctl.model.job import Job
from gpuctl.model.source import SourceFile, SourceTree

HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
CLUSTER = f"{HEAD}Cluster\nmetadata: {{name: c}}\nspec: {{nodePools: [{{name: p, nodes: [n1], gpusPerNode: 8}}]}}\n"
PROJECT = f"---\n{HEAD}Project\nmetadata: {{name: a}}\nspec: {{quota: 8}}\n---\n"
BASE = "image: x, gpus: 1"
SERVICE = "image: x, gpus: 1, type: inference, minWorkers: 1, workers: 4"
SWEEP = "image: x, gpus: 1, sweep: {completions: 3"
CHANGES = {
    "priority": (BASE, f"{BASE}, priority: 2", "priority: 0 -> 2"),
    "preemptible": (BASE, f"{BASE}, preemptible: false", "preemptible: true -> false"),
    "max_duration_ms": (BASE, f"{BASE}, maxDuration: 2h", "maxDuration: none -> 2h"),
    "pause_grace_ms": (BASE, f"{BASE}, pauseGrace: 1m", "pauseGrace: 30s -> 1m"),
    "suspend": (BASE, f"{BASE}, suspend: true", "suspend: false -> true"),
    "after": (BASE, f"{BASE}, after: [b, {{job: d, result: any}}]", "after: none -> b, d (any end)"),
    "ttl_ms": (BASE, f"{BASE}, ttlAfterFinished: 1h", "ttlAfterFinished: none -> 1h"),
    "checkpoint_ms": (BASE, f"{BASE}, checkpointEvery: 10m", "checkpointEvery: none -> 10m"),
    "parallelism": (f"{SWEEP}}}", f"{SWEEP}, parallelism: 2}}", "sweep.parallelism: none -> 2"),
    "scaling": (
        SERVICE,
        f"{SERVICE}, scaling: {{metric: m, of: external, labels: {{q: chat}}, target: 0.5}}",
        "scaling: none -> m{q=chat} of external, 0.5 each",
    ),
}
"""By the field of a job: its declaration before and after, and what is said."""
ELSEWHERE = {"pools", "pools_in_order", "idle_timeout_ms", "position"}
"""Said of the project or of the pools, or of no job by itself."""


def declared(spec: str) -> Declared:
    others = "".join(f"---\n{HEAD}Job\nmetadata: {{name: {name}, project: a}}\nspec: {{image: x}}\n" for name in "bd")
    text = f"{CLUSTER}{PROJECT}{HEAD}Job\nmetadata: {{name: j, project: a}}\nspec: {{{spec}}}\n{others}"
    compiled = compile_tree(SourceTree(cluster_dir=".", files={"all.yaml": SourceFile(content=text.encode())}))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


def test_each_field_that_needs_no_new_run_is_said() -> None:
    assert NEEDS_NO_NEW_RUN[Job] - ELSEWHERE == set(CHANGES)
    for before, after, said in CHANGES.values():
        found = [*setting_changes(declared(before), declared(after))]
        assert [f"{each.of} {each.setting}: {' -> '.join(each.change)}" for each in found] == [f"a/j {said}"]


def test_nothing_is_said_of_what_is_the_same() -> None:
    base = declared(SERVICE)
    assert [*setting_changes(base, replace(base))] == []
