"""Instants at which time alone may change a decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.compile import compile_tree
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import ClusterState, FinishedRun, Ledger, Run, RunPhase
from gpuctl.simulate.wakeups import wakeups

TREE = b"""\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: tiny}
spec:
  nodePools: [{name: pool, nodes: [n1], gpusPerNode: 4}]
  scheduling: {minRuntime: 10s, starvationGuard: 20s}
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: a}
spec: {quota: 4, interactive: {idleTimeout: 30s}}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: notebook, project: a}
spec: {type: interactive, image: i, gpus: 1}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: service, project: a}
spec: {type: inference, image: i, gpus: 1, maxDuration: 60s}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: training, project: a}
spec: {image: i, gpus: 1}
"""


@pytest.fixture(scope="module")
def declared() -> Declared:
    compiled = compile_tree(SourceTree(cluster_dir=".", files={"all.yaml": SourceFile(content=TREE)})).declared
    assert compiled is not None
    return compiled


def run(declared: Declared, name: str, phase: RunPhase) -> Run:
    job = next(job for job in declared.jobs if job.id == JobId.parse(f"a/{name}"))
    return Run(job=job.id, digest=job.digest, phase=phase, queued_at_ms=1000, started_at_ms=5000, ran_ms=2000)


def woken(declared: Declared, *runs: Run, now_ms: int = 5000) -> list[int]:
    return sorted(wakeups(declared, ClusterState(runs=runs), now_ms))


def test_the_object_of_an_ended_run_is_kept_until_its_time_is_over(declared: Declared) -> None:
    ended = run(declared, "training", RunPhase.SUCCEEDED)
    past = FinishedRun(job=ended.job, digest=ended.digest, state="Succeeded", at_ms=4000)
    ledger = Ledger(project=ended.job.project, finished={(ended.job, ended.digest): past})
    state = ClusterState(runs=(ended,), ledgers={ended.job.project: ledger})
    kept = replace(declared, jobs=tuple(replace(job, ttl_ms=60_000) for job in declared.jobs))
    assert list(wakeups(kept, state, 5000)) == [64_000]
    assert list(wakeups(declared, state, 5000)) == list(wakeups(kept, state, 64_000)) == []


def test_a_waiting_job_loses_patience(declared: Declared) -> None:
    assert woken(declared, run(declared, "notebook", RunPhase.QUEUED)) == [21_000]


def test_a_run_that_did_not_start_is_tried_again_and_has_its_rights_back(declared: Declared) -> None:
    waits = replace(run(declared, "training", RunPhase.QUEUED), failed_starts=1)
    assert woken(declared, waits) == [21_000, 61_000]
    assert woken(declared, waits, now_ms=61_000) == [7_201_000]
    assert woken(declared, waits, now_ms=7_201_000) == []


def test_a_running_job_reaches_min_runtime(declared: Declared) -> None:
    running = run(declared, "training", RunPhase.RUNNING)
    assert woken(declared, running) == [15_000]
    assert woken(declared, replace(running, starts=3)) == [15_000, 165_000]


def test_a_notebook_may_idle_too_long_and_is_never_paused(declared: Declared) -> None:
    running = run(declared, "notebook", RunPhase.RUNNING)
    assert woken(declared, running) == []
    assert woken(declared, replace(running, idle_since_ms=7000)) == [37_000]


def test_nothing_in_the_cluster_ends_a_service_but_gpuctl(declared: Declared) -> None:
    assert woken(declared, run(declared, "service", RunPhase.RUNNING)) == [63_000]


def test_what_has_passed_or_ended_wakes_nothing(declared: Declared) -> None:
    assert woken(declared, run(declared, "service", RunPhase.RUNNING), now_ms=63_000) == []
    assert woken(declared, run(declared, "service", RunPhase.FAILED)) == []
