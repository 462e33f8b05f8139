"""kill -9 at every write while a job of a declared kind starts, makes way, goes on elsewhere anew, and is removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from test_crash import outcome_whenever_killed
from theatre import Files, Outcome
from workloads.declarations import DECLARED_KINDS, KINDS_OF_CLUSTER, ROWS, declared

from gpuctl.k8s.kinds import Kind

HEAD = "apiVersion: gpuctl.dev/v1\n"
POOL = (
    "{name: p, nodes: [n1, n2], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin, "
    "resourcesPerNode: {cpu: 32, memory: 256Gi}}"
)
CLUSTER = (
    f"{HEAD}kind: Cluster\nmetadata: {{name: one}}\nspec:\n  nodePools: [{POOL}]\n{KINDS_OF_CLUSTER}---\n"
    f"{HEAD}kind: Project\nmetadata: {{name: a}}\nspec: {{quota: 0}}\n---\n"
    f"{HEAD}kind: Project\nmetadata: {{name: b}}\nspec: {{quota: 8}}\n"
)


def own(*names: str) -> dict[str, bytes]:
    """Jobs of team b, each of a whole node."""
    head = f"{HEAD}kind: Job\n"
    return {
        f"{name}.yaml": f"{head}metadata: {{name: {name}, project: b}}\nspec: {{image: x, gpus: 4}}\n".encode()
        for name in names
    }


def story(kind: Kind) -> Sequence[Files]:
    """It runs on the first node, makes way for the second job there, and goes on where the first has ended."""
    base = {"cluster.yaml": CLUSTER.encode()}
    train = {"train.yaml": declared(kind, more={"preemptible": True}, workers=2, gpus=2).encode()}
    return (base | train, base | train | own("k1", "k2"), base | train | own("k2"), base | own("k2"))


@pytest.mark.parametrize("kind", DECLARED_KINDS, ids=lambda kind: kind[1])
def test_it_comes_to_the_same_end_whenever_it_is_killed(kind: Kind, tmp_path: Path) -> None:
    rows, told = tuple(ROWS[each] for each in DECLARED_KINDS), story(kind)
    ends: list[Outcome] = [
        outcome_whenever_killed(tmp_path, told, number, declared=rows) for number in range(len(told))
    ]
    train = [end.runs.get("a/train") for end in ends]
    assert [run and (run[1], run[2], run[3]) for run in train] == [
        ("Running", 1, "None"), ("Queued", 1, "b/k2"), ("Running", 2, "None"), None,
    ]  # fmt: skip
    assert {place[1] for name, place in ends[0].pods.items() if name.startswith("train")} == {"n1"}
    assert {place[1] for name, place in ends[2].pods.items() if name.startswith("train")} == {"n2"}
    assert all(not end.lines for end in ends)
