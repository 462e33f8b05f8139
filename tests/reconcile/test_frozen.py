"""What people freeze in the cluster: nothing of it is written meanwhile, what runs stays, the rest goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage import BASE, Stage, WithoutGit, job, project
from theatre import Heard

from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.status import Direct, read_status
from gpuctl.k8s import names
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.observe import CONTROL, decode_frozen, encode_frozen

A = Frozen(project=ProjectName("a"), by="ann", reason="an incident", since_ms=1_596_000_000_000)
ALL = Frozen(project=None, by="bob", reason="storage", since_ms=1_596_000_000_000)


def staged(tmp_path: Path) -> Stage:
    """Two projects with a job each that runs, on four GPUs."""
    stage = WithoutGit(tmp_path)
    stage.publisher = Direct(stage.cluster)
    stage.commit(BASE)
    stage.play(30)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running"}
    return stage


def control(stage: Stage, *frozen: Frozen, text: str = "", asked: str = "") -> None:
    said = {names.FROZEN_ANNOTATION: text or encode_frozen(frozen), names.SYNC_ANNOTATION: asked}
    stage.cluster.apply({
        "apiVersion": CONTROL.api_version, "kind": CONTROL.kind,
        "metadata": {
            "name": CONTROL.name, "namespace": CONTROL.namespace,
            "annotations": {name: value for name, value in said.items() if value},
        },
    })  # fmt: skip


def written(stage: Stage) -> dict[str, str]:
    """The version of each object that gpuctl wrote for project a."""
    return {
        str(ref): body["metadata"]["resourceVersion"]
        for ref, body in stage.state().live.items()
        if ref.kind != "Pod" and (ref.namespace == "gpu-a" or ref.name.endswith((".one.a", "gpu-a")) or ref.name == "a")
    }


def test_a_frozen_project_stays_as_it_is_and_others_go_on(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    control(stage, A)
    stage.commit({
        "c/projects/a/project.yaml": project("a", 1), "c/projects/a/k.yaml": job("k", "a"),
        "c/projects/a/j1.yaml": None, "c/projects/b/m.yaml": job("m", "b"),
    })  # fmt: skip
    before = written(stage)
    stage.play(120)
    assert written(stage) == before
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running", "b/m": "Running"}
    status = read_status(stage.cluster, stage.clock).status
    assert status.why_not == ["project a is frozen by ann: an incident"]
    assert [(each.project, each.by, each.since) for each in status.frozen] == [("a", "ann", "2020-07-29T05:20:00.000Z")]
    control(stage)
    stage.play(200)
    assert stage.phases() == {"a/k": "Running", "b/j2": "Running", "b/m": "Running"}
    assert read_status(stage.cluster, stage.clock).status.ready


def test_no_job_of_another_project_takes_what_a_frozen_one_runs_on(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.commit({f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(2)})
    stage.play(60)
    assert stage.phases()["a/k1"] == "Running"
    control(stage, A)
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(150)
    assert stage.phases() == {
        "a/j1": "Running", "a/k0": "Running", "a/k1": "Running", "b/j2": "Running", "b/m": "Queued",
    }  # fmt: skip
    control(stage)
    stage.play(250)
    assert stage.phases()["b/m"] == "Running"


def test_a_frozen_project_is_not_removed_though_a_commit_removes_it(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(60)
    control(stage, A)
    before = written(stage)
    stage.commit({"c/projects/a/project.yaml": None})
    stage.play(120)
    assert written(stage) == before != {}
    control(stage)
    stage.play(250)
    assert written(stage) == {}


def test_nothing_is_written_to_a_frozen_cluster(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    meters = stage.meters = PrometheusMeters()
    control(stage, ALL, A)
    stage.commit({
        "c/projects/b/m.yaml": job("m", "b"), "c/projects/b/j2.yaml": None, "c/projects/n/project.yaml": project("n"),
    })  # fmt: skip
    stage.through = counted = Heard(stage.cluster)
    stage.at(70, lambda: stage.cluster.finish(JobId(ProjectName("a"), "j1"), 0))
    stage.play(200)
    assert counted.writes == 0
    status = read_status(stage.cluster, stage.clock).status
    assert {each.by for each in status.frozen} == {"ann", "bob"}
    assert status.commit.applied != status.commit.head
    assert meters.unready() == ""
    control(stage)
    stage.play(300)
    assert stage.phases() == {"a/j1": "Succeeded", "b/m": "Running"}


@pytest.mark.parametrize("text", ["", "[", "[]", '{"project/a": 1}', '{"team/a": {}}', "[" * 30_000])
def test_an_annotation_that_can_not_be_read_freezes_all(tmp_path: Path, text: str) -> None:
    stage = staged(tmp_path)
    control(stage, text=text)
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(60)
    assert ("b/m" in stage.phases()) == (not text)


def test_git_is_read_when_a_person_asks(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.fetches.clear()
    stage.at(45, lambda: control(stage, asked="2020-07-29T05:20:45Z"))
    stage.play(60)
    apart = [later - earlier for earlier, later in zip(stage.fetches, stage.fetches[1:], strict=False)]
    assert min(apart) < 9
    assert [second for second in stage.fetches if 44 <= second <= 48]


def test_what_was_frozen_is_read_as_it_was_written() -> None:
    assert decode_frozen(encode_frozen((ALL, A))) == (ALL, A)
    assert encode_frozen(()) == ""
