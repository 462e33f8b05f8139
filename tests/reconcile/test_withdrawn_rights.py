"""A right that is taken from gpuctl while it runs, of each kind that it reads: what is not needed for decisions stops
none, without the rest nothing is written; it is told, and when the right is back all is as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage import CLUSTER, Stage, Withdrawn, WithoutGit, job, project
from workloads.declarations import declared

from gpuctl.app.drift import drift_report
from gpuctl.app.status import Direct, read_status
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind

OPEN = "  ingress: {host: gpus.example.com, className: nginx}\n  security: {reachableFrom: [monitoring]}\n"
LARGE = CLUSTER.replace("gpusPerNode: 4", "gpusPerNode: 8, resourcesPerNode: {cpu: 32, memory: 256Gi}")
DRA = LARGE.replace("device-plugin", "dra")
OLD = ", type: interactive, expose: [{port: 80, via: ingress}], volumes: [{newClaim: {size: 1Gi}, mountPath: /d}]"
SERVED = ", type: inference, workers: 2, minWorkers: 1, scaling: {metric: load, target: 5}"
FILES = {
    "c/projects/a/project.yaml": project("a", 4, ", access: [{group: all, role: view}]"),
    "c/projects/a/old.yaml": job("old", "a", more=OLD),
    "c/projects/b/project.yaml": project("b"),
    "c/projects/b/j2.yaml": job("j2", "b"),
}
BEFORE = {"a/old": "Running", "a/served": "Running", "b/j2": "Running"}
CHANGE = {"c/projects/a/old.yaml": None, "c/projects/b/j3.yaml": job("j3", "b")}
AFTER = {"a/served": "Running", "b/j2": "Running", "b/j3": "Running"}
DECISIVE = [kind for kind in kinds.OBSERVED if kinds.is_decisive(kind)]
NOT_NEEDED = [kind for kind in kinds.OBSERVED if not kinds.is_decisive(kind)]


def name_of(kind: Kind) -> str:
    return kind[1]


def test_what_decides() -> None:
    """Each test below holds whatever is in this list; what is in it is a decision (ADR 84)."""
    decide = {"Namespace", "Node", "Job", "Pod", "ConfigMap", "Deployment", "ReplicaSet"}
    assert {kind[1] for kind in DECISIVE} == decide
    assert {kind[1] for kind in kinds.OF_DEVICES} == {"ResourceClaim", "ResourceSlice", "DeviceClass"}


def begun(folder: Path, kind: Kind, cluster: str = LARGE) -> tuple[Stage, Withdrawn]:
    stage = WithoutGit(folder)
    stage.publisher = Direct(stage.cluster)
    stage.through = withdrawn = Withdrawn(stage.cluster, kind)
    served = job("served", "a", more=SERVED if cluster == LARGE else ", type: inference")
    stage.commit({**FILES, "c/cluster.yaml": cluster + OPEN, "c/projects/a/served.yaml": served})
    stage.play(30)
    assert stage.phases() == BEFORE
    return stage, withdrawn


def is_as_declared(stage: Stage) -> bool:
    """Whether nothing is left to write, nothing but its data is left of what was removed, and nothing else is wrong."""
    assert isinstance(stage, WithoutGit)
    compiled = compile_tree(stage.written.tree(stage.written.head()))
    assert compiled.declared is not None
    left = [ref.kind for ref in stage.state().live if "old" in ref.name]
    codes = [each.code for each in read_status(stage.cluster, stage.clock).status.problems]
    refused = [each.code for each in read_status(stage.cluster, stage.clock).status.refusals]
    differs = drift_report(compiled.declared, stage.cluster, stage.clock).objects
    return (left, codes, refused, differs) == (["PersistentVolumeClaim"], [], ["GPU6003"], ())


@pytest.mark.parametrize("kind", NOT_NEEDED, ids=name_of)
@pytest.mark.parametrize("is_new", [False, True], ids=["running", "started"])
def test_without_a_right_that_no_decision_needs_all_else_goes_on(tmp_path: Path, kind: Kind, *, is_new: bool) -> None:
    """One team's NetworkPolicy, and no job of any team was started any more."""
    stage, withdrawn = begun(tmp_path, kind)
    had = [ref for ref in stage.state().live if (ref.api_version, ref.kind) == kind]
    if is_new:
        withdrawn.turn()
    else:
        stage.at(40, withdrawn.turn)
    stage.at(50, lambda: stage.commit(CHANGE))

    def is_done() -> None:
        assert stage.phases() == AFTER
        told = [line for line in stage.lines if line["event"] == "unread"]
        assert [(line["code"], line["level"]) for line in told] == ([("GPU7015", "error")] if had else [])
        withdrawn.turn()

    stage.at(90, is_done)
    stage.play(180)
    assert stage.phases() == AFTER
    assert is_as_declared(stage)
    assert "unreachable" not in stage.events()


DECIDED = [(kind, LARGE) for kind in DECISIVE] + [(kind, DRA) for kind in sorted(kinds.OF_DEVICES)]


@pytest.mark.parametrize(("kind", "cluster"), DECIDED, ids=[name_of(kind) for kind, _ in DECIDED])
def test_without_a_right_that_decisions_need_nothing_is_written_until_it_is_back(
    tmp_path: Path, kind: Kind, cluster: str
) -> None:
    stage, withdrawn = begun(tmp_path, kind, cluster)
    stage.at(40, withdrawn.turn)
    stage.at(50, lambda: stage.commit(CHANGE))
    written = stage.events().count("applied")

    def is_as_before() -> None:
        assert stage.phases() == BEFORE
        assert stage.events().count("applied") == written
        assert stage.codes("unreachable") == ["GPU7015"]
        withdrawn.turn()

    stage.at(110, is_as_before)
    stage.play(180)
    assert stage.phases() == AFTER
    assert is_as_declared(stage)


def test_a_job_of_another_controllers_kind_stays_as_it_is_without_the_right_to_it(tmp_path: Path) -> None:
    stage, withdrawn = begun(tmp_path, kinds.JOB_SET)
    stage.commit({"c/projects/a/train.yaml": declared(kinds.JOB_SET, workers=2, gpus=1)})
    stage.play(60)
    assert stage.phases() == BEFORE | {"a/train": "Running"}
    stage.at(70, withdrawn.turn)
    stage.at(80, lambda: stage.commit({**CHANGE, "c/projects/a/train.yaml": None}))

    def is_done() -> None:
        assert stage.phases() == AFTER | {"a/train": "Running"}
        withdrawn.turn()

    stage.at(120, is_done)
    stage.play(220)
    assert stage.phases() == AFTER
    assert is_as_declared(stage)
    assert "unreachable" not in stage.events()
