"""kill -9 at every write while a sweep starts, loses its last jobs to another project, and becomes another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from test_crash import outcome_whenever_killed
from theatre import Files, Outcome

HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = (
    f"{HEAD}kind: Cluster\nmetadata: {{name: c}}\nspec: {{nodePools: [{{name: p, nodes: [n1], gpusPerNode: 4}}]}}\n"
)


def told(sweep: str, owner: str = "") -> Files:
    projects = "".join(
        f"---\n{HEAD}kind: Project\nmetadata: {{name: {name}}}\nspec: {{quota: {quota}}}\n"
        for name, quota in (("a", 1), ("b", 3))
    )
    tune = f"{HEAD}kind: Job\nmetadata: {{name: tune, project: a}}\nspec: {{image: x, gpus: 1, sweep: {{{sweep}}}}}\n"
    own = f"{HEAD}kind: Job\nmetadata: {{name: own, project: b}}\nspec: {{image: x, gpus: 3}}\n"
    files = {"cluster.yaml": CLUSTER + projects, "tune.yaml": tune, **({"own.yaml": own} if owner else {})}
    return {path: text.encode() for path, text in files.items()}


STORY: Sequence[Files] = (
    told("completions: 4, parallelism: 3"),
    told("completions: 4, parallelism: 3", "b"),
    told("completions: 5"),
)


def starts(outcome: Outcome) -> dict[str, int]:
    return {job.partition("-")[2]: run[2] for job, run in outcome.runs.items() if "tune" in job}


def test_it_comes_to_the_same_end_whenever_it_is_killed(tmp_path: Path) -> None:
    ends = [outcome_whenever_killed(tmp_path, STORY, number) for number in range(len(STORY))]
    first, paused, more = map(starts, ends)
    assert first == {"0": 1, "1": 1, "2": 1, "3": 0}
    assert paused == {"0": 1, "1": 1, "2": 1, "3": 0}
    assert [job for job, run in ends[1].runs.items() if run[3] == "b/own"] == ["a/tune-1", "a/tune-2"]
    assert more == {"0": 1, "1": 2, "2": 2, "3": 1, "4": 0}
