"""What commands say of a service that follows its load."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from commands import AT_MS, Run

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.model.ids import JobId, ProjectName

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: lab}
spec: {nodePools: [{name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 16Gi}]}
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: a}
spec: {quota: 1}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: chat, project: a}
spec: {image: x, type: inference, gpus: 1, minWorkers: 1, workers: 4, scaling: {metric: requests, target: 10}}
"""


@pytest.fixture(scope="module")
def lab(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded cluster in which a service may have one worker, and its load asks for three."""
    folder = tmp_path_factory.mktemp("lab")
    copy = WorkingCopy.create(folder / "repository")
    copy.write("c/all.yaml", CLUSTER.encode())
    copy.commit("a service", AT_MS)
    where = ("--repo", copy.folder, "--path", "c", "--workdir", folder / "clones", "--embedded", folder / "cluster.db")
    assert run("reconcile", *where, "--once").exit_code == 0
    with closing(EmbeddedCluster(SystemClock(), str(folder / "cluster.db"))) as cluster:
        cluster.set_load(JobId(ProjectName("a"), "chat"), 25_000)
    return folder / "cluster.db"


def test_get_says_what_its_load_asks_for(run: Run, lab: Path) -> None:
    said = run("get", "a/chat", "--embedded", lab).stdout
    assert re.search(r"^WORKERS: +1; its load asks for 3$", said, flags=re.MULTILINE)
    assert '"askedWorkers": 3' in run("get", "a/chat", "-o", "json", "--embedded", lab).stdout
