"""kill -9 at every write while a service grows with its load, ceases to follow it, and has none at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


ZERO_CLUSTER = CLUSTER.replace("gpuMemory: 16Gi}]}", "gpuMemory: 16Gi}], scheduling: {scaleToZero: true}}")
ZERO: Files = {
    "cluster.yaml": ZERO_CLUSTER.encode(),
    "web.yaml": told("")["web.yaml"].replace(
        WEB.encode(),
        b"type: inference, image: x, gpus: 1, minWorkers: 0, workers: 4, "
        b"scaling: {metric: requests, of: external, target: 10}",
    ),
}


def workers(outcome: Outcome) -> int:
    return len(outcome.pods)


def ends_of(story: Sequence[Files], load: Mapping[int, int], folder: Path) -> list[Outcome]:
    ends = []
    for number in range(len(story)):
        if number in load:
            clock = VirtualClock(ZERO_MS + number * STEP_MS)
            with closing(EmbeddedCluster(clock, str(folder / "live.db"))) as cluster:
                cluster.set_load(JobId(ProjectName("a"), "web"), load[number])
        # While gpuctl is away its autoscaler acts alone: it may take a worker that is then made again.
        ends.append(outcome_whenever_killed(folder, story, number, makes_alike=False))
    return ends


def test_it_comes_to_the_same_end_whenever_it_is_killed(tmp_path: Path) -> None:
    ends = ends_of(STORY, LOAD, tmp_path)
    assert list(map(workers, ends)) == [1, 3, 4]
    assert [run[2] for end in ends for run in end.runs.values()] == [1, 1, 1]


def test_so_it_does_while_the_service_is_scaled_to_zero_and_comes_back(tmp_path: Path) -> None:
    """A smaller load counts after five minutes, and a step takes one."""
    ends = ends_of([ZERO] * 9, {1: 0, 8: 25_000}, tmp_path)
    assert list(map(workers, ends)) == [1, 1, 1, 1, 1, 1, 0, 0, 3]
    assert [run[2] for end in ends for run in end.runs.values()] == [1, 1, 1, 1, 1, 1, 1, 1, 2]
