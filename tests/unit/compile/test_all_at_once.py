"""As many independent mistakes as a declaration has, so many are told: none hides another."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
import yaml

from gpuctl.compile import compile_tree
from gpuctl.model.source import SourceFile, SourceTree

CLUSTER = """\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: prod}
spec: {nodePools: [{name: a, nodes: [n1], gpusPerNode: 8, gpuMemory: 32Gi}]}
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: vision}
spec: {quota: 4}
---
"""


def codes(kind: str, metadata: dict[str, object], spec: dict[str, object]) -> list[str]:
    body = {"apiVersion": "gpuctl.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}
    text = CLUSTER + yaml.safe_dump(body)
    tree = SourceTree(cluster_dir=".", files={"a.yaml": SourceFile(content=text.encode())})
    return sorted(found.code for found in compile_tree(tree).diagnostics)


def volumes(*entries: object) -> list[str]:
    job = {"image": "x", "gpus": 1, "volumes": list(entries)}
    return codes("Job", {"name": "one", "project": "vision"}, job)


def test_a_claim_a_host_path_and_a_relative_path() -> None:
    # Both origins at once, a host path that is no absolute path, a mount path that is none.
    assert volumes({"claim": "data", "hostPath": "mnt", "mountPath": "tmp"}) == ["GPU2019", "GPU2020", "GPU2020"]


def test_two_volumes_at_one_place_and_a_third_with_a_mistake() -> None:
    data = {"claim": "data", "mountPath": "/data"}
    assert volumes(data, dict(data), dict(data), {"mountPath": "/x", "claim": "Up Per"}) == [
        "GPU2010",
        "GPU2021",
        "GPU2021",
    ]


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "amounts": ({"gpus": 1, "gpuMemory": "16Gi"}, "GPU2019"),
    "elastic": ({"workers": 2, "minWorkers": 3}, "GPU2022"),
    "unknown": ({"imagePull": "Never"}, "GPU2004"),
    "text": ({"image": 5}, "GPU2008"),
    "choice": ({"type": "trainin"}, "GPU2007"),
    "duration": ({"maxDuration": "soon"}, "GPU2014"),
    "ports": ({"expose": [{"port": 1}, {"port": 1}, {"port": "x"}]}, "GPU2021 GPU2006"),
    "origin": ({"volumes": [{"mountPath": "/x"}]}, "GPU2019"),
}
SETS = tuple(chain.from_iterable(combinations(MISTAKES, count) for count in (1, 2, 3, len(MISTAKES))))


@pytest.mark.parametrize("chosen", SETS, ids="-".join)
def test_no_mistake_of_a_job_hides_another(chosen: tuple[str, ...]) -> None:
    spec: dict[str, object] = {"image": "x"}
    for name in chosen:
        spec |= MISTAKES[name][0]
    wanted = sorted(code for name in chosen for code in MISTAKES[name][1].split())
    assert codes("Job", {"name": "one", "project": "vision"}, spec) == wanted


def test_no_mistake_of_a_project_or_a_policy_hides_another() -> None:
    access = [{"group": "a", "user": "b", "role": 5}, {"role": "view"}]
    assert codes("Project", {"name": "other"}, {"access": access}) == ["GPU2008", "GPU2019", "GPU2019"]
    rule = {"match": {"kind": "Job"}, "field": "spec.gpus", "message": 5}
    assert codes("Policy", {"name": "rule"}, rule) == ["GPU2008", "GPU2019", "GPU4009"]


def test_a_field_with_a_wrong_name_is_no_missing_field_as_well() -> None:
    assert volumes({"clam": "data", "mountPath": "/data"}) == ["GPU2004"]
