"""kill -9 at every write while a service grows with its load, and while it ceases to follow it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from test_crash import outcome_whenever_killed
from theatre import STEP_MS, ZERO_MS, Files, Outcome

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.model.ids import JobId, ProjectName

HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = (
    f"{HEAD}kind: Cluster\nmetadata: {{name: c}}\n"
    "spec: {nodePools: [{name: p, nodes: [n1, n2], gpusPerNode: 2, gpuMemory: 16Gi}]}\n"
    f"---\n{HEAD}kind: Project\nmetadata: {{name: a}}\nspec: {{quota: 4}}\n"
)
WEB = "type: inference, image: x, gpus: 1, minWorkers: 1, workers: 4"


def told(more: str) -> Files:
    web = f"{HEAD}kind: Job\nmetadata: {{name: web, project: a}}\nspec: {{{WEB}{more}}}\n"
    return {"cluster.yaml": CLUSTER.encode(), "web.yaml": web.encode()}


SCALED = told(", scaling: {metric: requests, target: 10}")
STORY: Sequence[Files] = (SCALED, SCALED, told(""))
LOAD = {1: 25_000}
"""Before a step: the load from then on."""


def workers(outcome: Outcome) -> int:
    return len(outcome.pods)


def test_it_comes_to_the_same_end_whenever_it_is_killed(tmp_path: Path) -> None:
    ends = []
    for number in range(len(STORY)):
        if number in LOAD:
            clock = VirtualClock(ZERO_MS + number * STEP_MS)
            with closing(EmbeddedCluster(clock, str(tmp_path / "live.db"))) as cluster:
                cluster.set_load(JobId(ProjectName("a"), "web"), LOAD[number])
        # While gpuctl is away its autoscaler acts alone: it may take a worker that is then made again.
        ends.append(outcome_whenever_killed(tmp_path, STORY, number, makes_alike=False))
    assert list(map(workers, ends)) == [1, 3, 4]
    assert [run[2] for end in ends for run in end.runs.values()] == [1, 1, 1]
