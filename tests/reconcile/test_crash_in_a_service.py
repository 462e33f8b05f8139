"""kill -9 at every write while a service grows with its load, and while it ceases to follow it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from test_crash import RESTARTED_AFTER_MS, killed
from theatre import STEP_MS, ZERO_MS, Files, Outcome, play

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
    live, ends = tmp_path / "live.db", []
    for number in range(len(STORY)):
        before, began_ms = tmp_path / f"{number}.db", ZERO_MS + number * STEP_MS
        if number in LOAD:
            with closing(EmbeddedCluster(VirtualClock(began_ms), str(live))) as cluster:
                cluster.set_load(JobId(ProjectName("a"), "web"), LOAD[number])
        if live.exists():
            shutil.copy(live, before)
        wanted, writes = play(live, STORY, number, began_ms)
        ends.append(wanted)
        for write in range(1, writes + 1):
            database = tmp_path / f"{number}-{write}.db"
            if before.exists():
                shutil.copy(before, database)
            killed(lambda: play(database, STORY, number, began_ms, (write, False)))  # noqa: B023 - it ends in this turn
            found, _ = play(database, STORY, number, began_ms + RESTARTED_AFTER_MS)
            assert found.but_for_places() == wanted.but_for_places(), f"killed at write {write} of step {number}"
    assert list(map(workers, ends)) == [1, 3, 4]
    assert [run[2] for end in ends for run in end.runs.values()] == [1, 1, 1]
