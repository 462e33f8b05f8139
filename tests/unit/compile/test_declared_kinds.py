"""Kinds that a Cluster declares: what a row may say, and what a manifest of such a kind may have."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from workloads.declarations import CLUSTER_WITH_KINDS, TRAINING_RUN, declared, manifest

from gpuctl import api
from gpuctl.k8s.declared_kinds import decode_kind, kind_value
from gpuctl.model.workload_kind import WorkloadKind

ROW: dict[str, Any] = {
    "apiVersion": "batch.example.com/v1", "kind": "TrainingRun", "plural": "trainingruns",
    "pods": [{"each": "groups", "counts": ["count"], "nameField": "name"}], "suspend": "paused",
}  # fmt: skip
HEAD, PROJECT = CLUSTER_WITH_KINDS.split("---\n")


def codes(files: dict[str, str]) -> list[str]:
    return [each.code for each in api.compile(files).diagnostics]


def of_row(**more: Any) -> list[str]:
    """What is wrong with a Cluster that declares the row with these fields in place of its own; None takes one away."""
    row = {name: value for name, value in {**ROW, **more}.items() if value is not None}
    head = yaml.safe_load(HEAD)
    head["spec"]["workloadKinds"] = [row]
    return codes({"cluster.yaml": yaml.safe_dump(head)})


def of_manifest(change: dict[str, Any], cluster: str = CLUSTER_WITH_KINDS) -> list[str]:
    job = yaml.safe_load(declared(TRAINING_RUN))
    job["spec"]["manifest"]["spec"] |= change
    return codes({"cluster.yaml": cluster, "train.yaml": yaml.safe_dump(job)})


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, []),
        ({"suspend": None, "scaleToZero": "replicas", "pods": [{"counts": ["replicas"], "name": "w"}]}, []),
        ({"suspend": None, "scaleToZero": "replicas"}, ["GPU2018"]),
        ({"suspend": None}, ["GPU3132"]),
        ({"succeeded": {"condition": "Done"}}, ["GPU2019"]),
        ({"succeeded": {"field": "phase"}, "failed": {"condition": "F"}}, ["GPU2019"]),
        ({"apiVersion": "v1"}, ["GPU2023"]),
        ({"apiVersion": "apps/v1"}, ["GPU2023"]),
        ({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Right", "plural": "rights"}, ["GPU3130"]),
        ({"apiVersion": "ray.io/v2", "kind": "RayJob"}, ["GPU3130"]),
        ({"apiVersion": "kubeflow.org/v1", "plural": "pytorchjobs"}, ["GPU3130"]),
        ({"kind": "Secret"}, ["GPU3130"]),
        ({"fields": ["groups.template"]}, ["GPU3131"]),
        ({"fields": ["groups"]}, ["GPU3131"]),
        ({"fields": ["paused.at"]}, ["GPU3131"]),
        ({"fields": ["a'b"]}, ["GPU2023"]),
        ({"fields": [".".join("abcdefghijk")]}, ["GPU2023"]),
        ({"pods": [{"each": "groups", "name": "w"}] * 2}, ["GPU3131"]),
        ({"pods": [{"name": "w"}] * 21}, ["GPU2018"]),
        ({"pods": []}, ["GPU2018"]),
        ({"pods": [{"at": "driver", "nameField": "name"}]}, ["GPU2019"]),
    ],
)  # fmt: skip
def test_a_row_is_held_against_what_can_be_true(more: dict[str, Any], wrong: list[str]) -> None:
    assert of_row(**more) == wrong


def test_more_rows_than_a_few_and_one_kind_twice_are_refused() -> None:
    head = yaml.safe_load(HEAD)
    for rows, code in (
        ([{**ROW, "kind": f"R{n}", "plural": f"r{n}"} for n in range(21)], "GPU2018"),
        ([ROW, ROW], "GPU2021"),
    ):
        head["spec"]["workloadKinds"] = rows
        assert codes({"cluster.yaml": yaml.safe_dump(head)}) == [code]


def test_a_manifest_has_what_the_row_names_and_pods_nowhere_else() -> None:
    assert of_manifest({}) == []
    assert of_manifest({"entryPoint": {"any": [{"thing": 1}]}}) == []
    assert of_manifest({"paused": True}) == ["GPU3101"]
    assert of_manifest({"serviceAccountName": "admin"}) == ["GPU3101"]
    assert of_manifest({"entryPoint": {"sidecar": [{"spec": {"containers": []}}]}}) == ["GPU3101"]
    (group, *_) = manifest(TRAINING_RUN)["spec"]["groups"]
    group["pods"]["template"]["spec"]["hostNetwork"] = True
    assert of_manifest({"groups": [group]}) == ["GPU3101"]


def test_a_mistake_in_the_cluster_is_not_told_again_for_each_job() -> None:
    broken = CLUSTER_WITH_KINDS.replace("suspend: paused", "suspends: paused")
    assert set(of_manifest({}, broken)) == {"GPU2004", "GPU3132"}
    without = CLUSTER_WITH_KINDS.replace("TrainingRun", "OtherRun")
    assert of_manifest({}, without) == ["GPU3100"]


POLICY = """\
apiVersion: gpuctl.dev/v1
kind: Policy
metadata: {name: p}
spec: {match: {kind: Job}, message: no, schema: {properties: {spec: {properties: {image: {const: x}}}}}}
"""


def test_nothing_is_asked_of_a_job_whose_kind_the_broken_cluster_may_declare() -> None:
    """A policy looks at each container of a manifest, where its row says that they are."""
    broken = CLUSTER_WITH_KINDS.replace("suspend: paused", "suspends: paused")
    train = declared(TRAINING_RUN)
    assert set(codes({"cluster.yaml": broken, "train.yaml": train, "policies/p.yaml": POLICY})) == {
        "GPU2004",
        "GPU3132",
    }
    head = yaml.safe_load(HEAD)
    head["spec"].pop("workloadKinds")
    two = {"a.yaml": yaml.safe_dump(head), "b.yaml": broken}
    assert set(codes({**two, "train.yaml": train})) == {"GPU2004", "GPU3132", "GPU3002"}
    job = {"apiVersion": "gpuctl.dev/v1", "kind": "Job", "metadata": {"name": "t", "project": "a"}}
    template = {**job, "kind": "Template", "metadata": {"name": "run"}}
    of_template = yaml.safe_dump_all([
        {**template, "spec": {"job": {"manifest": manifest(TRAINING_RUN)}}},
        {**job, "spec": {"template": {"name": "run"}}},
    ])
    files = {"cluster.yaml": broken, "train.yaml": of_template, "policies/p.yaml": POLICY}
    assert set(codes(files)) == {"GPU2004", "GPU3132"}


def test_a_projects_folder_declares_none() -> None:
    files = {"cluster.yaml": PROJECT, "projects/a/cluster.yaml": HEAD, "projects/a/train.yaml": declared(TRAINING_RUN)}
    assert "GPU3100" in codes(files)


def test_a_template_may_have_one() -> None:
    job = {"apiVersion": "gpuctl.dev/v1", "kind": "Job", "metadata": {"name": "t", "project": "a"}}
    template = {"apiVersion": "gpuctl.dev/v1", "kind": "Template", "metadata": {"name": "run"}}
    texts = (
        {**template, "spec": {"job": {"manifest": manifest(TRAINING_RUN)}}},
        {**job, "spec": {"template": {"name": "run"}}},
    )
    compiled = api.compile({"cluster.yaml": CLUSTER_WITH_KINDS, "all.yaml": yaml.safe_dump_all(texts)})
    assert compiled.diagnostics == ()
    assert compiled.declared is not None
    assert [each.workers for each in compiled.declared.jobs] == [2]


def test_what_is_published_of_a_row_reads_objects_as_the_row_does() -> None:
    declared_ = api.compile({"cluster.yaml": CLUSTER_WITH_KINDS}).declared
    assert declared_ is not None
    for row in declared_.cluster.workload_kinds:
        read = decode_kind(kind_value(row))
        assert _reading(read) == _reading(row)


def _reading(row: WorkloadKind) -> Any:
    pods = [(each.entries, each.is_list, each.template, each.counts, each.called, each.name) for each in row.pods]
    states = (row.succeeded, row.failed)
    return row.kind, row.plural, pods, row.suspension, states
