"""A cluster where another engine decides: gpuctl writes, records and prunes, and neither starts nor pauses anything.

What Kueue does to a Job, a test does: Kueue itself is in tests/kueue.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stage import BASE, Stage, WithoutGit, job

from gpuctl.install import Duties, Installation, all_objects
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import flag, mapping, resource_version, uid, with_value
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.state import Body
from gpuctl.targets import Engine

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = WithoutGit(tmp_path)
    made.engine = Engine.KUEUE
    made.commit(BASE)
    made.play(30)
    return made


def of_kueue(stage: Stage) -> set[tuple[str, str]]:
    return {(each[1], body["metadata"]["name"]) for each in kinds.OF_ENGINES for body in stage.cluster.list(each).items}


def by_kueue(stage: Stage, name: str, *, suspend: bool) -> tuple[ObjectRef, Body]:
    """Its admission, or a pause."""
    _, body = stage.live("Job", name)
    stage.cluster.update(with_value(body, ("spec", "suspend"), suspend), manager="kueue")
    return stage.live("Job", name)


def test_its_objects_are_written_and_no_job_is_suspended(stage: Stage) -> None:
    assert {("ClusterQueue", "gpu-a-guaranteed"), ("LocalQueue", "preemptible"), ("Cohort", "one")} <= of_kueue(stage)
    _, body = stage.live("Job", "j1")
    assert not flag(body, "spec", "suspend")
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "preemptible"
    assert names.PLACEMENT_ANNOTATION not in body["metadata"]["annotations"]
    before = stage.version()
    stage.play(120)
    assert stage.version() == before, "at rest it costs no write"
    assert stage.codes() == []


def test_what_the_engine_pauses_and_lets_go_is_left_as_it_is(stage: Stage) -> None:
    for suspend, phase in ((True, "Queued"), (False, "Running"), (True, "Queued")):
        _, written = by_kueue(stage, "j1", suspend=suspend)
        stage.play(int(stage.clock.now_ms() / 1000) - 1_596_000_000 + 60)
        _, body = stage.live("Job", "j1")
        assert flag(body, "spec", "suspend") is suspend
        assert uid(body) == uid(written)
        assert stage.phases()["a/j1"] == phase


def test_what_is_declared_no_more_is_pruned_and_a_queue_with_its_project(stage: Stage) -> None:
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(90)
    assert not [ref for ref in stage.state().live if ref.name.startswith("j1")]
    stage.commit({"c/projects/a/project.yaml": None})
    stage.play(180)
    assert not [name for _, name in of_kueue(stage) if name.startswith("gpu-a")]
    assert ("ClusterQueue", "gpu-b-guaranteed") in of_kueue(stage)


def test_what_ended_or_was_removed_is_not_made_again(stage: Stage) -> None:
    stage.cluster.finish(JobId.parse("a/j1"), 0)
    ref, body = stage.live("Job", "j2")
    stage.play(60)
    stage.cluster.delete(ref, uid(body), resource_version(body))
    stage.play(120)
    (ledger,) = [one for one in stage.state().ledgers.values() if one.project == "a"]
    assert [run.state for run in ledger.finished.values()] == ["Succeeded"]
    assert not [ref for ref in stage.state().live if ref.kind == "Job" and ref.name.startswith("j2")]


def test_a_job_that_is_there_keeps_its_template(stage: Stage) -> None:
    _, before = stage.live("Job", "j1")
    cluster = BASE["c/cluster.yaml"].rstrip() + "\n  - {name: q, nodes: [n2], gpusPerNode: 4, sharing: device-plugin}\n"
    stage.commit({
        "c/cluster.yaml": cluster,
        "c/projects/a/j1.yaml": job("j1", "a", more=", nodePools: [p], priority: 3"),
    })
    stage.play(90)
    _, after = stage.live("Job", "j1")
    assert mapping(after, "spec", "template") == mapping(before, "spec", "template")
    assert after["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "one-training-3"
    assert not [line for line in stage.lines if line["event"] == "failed"]


def rights(engine: str) -> dict[str, set[str]]:
    """The verbs on each resource that an installation for that engine has in the cluster."""
    wanted = Installation(image="x", repo="https://git.example.com/x.git", path="c", guard=True)
    bodies = all_objects(wanted, Duties(engine=engine))
    (role,) = [body for body in bodies if body["kind"] == "ClusterRole" and body["metadata"]["name"] == "gpuctl"]
    return {name: set(rule["verbs"]) for rule in role["rules"] for name in rule["resources"]}


@pytest.mark.parametrize("engine", Engine)
def test_an_installation_has_the_rights_that_are_used_and_no_others(engine: Engine) -> None:
    found, usual = rights(engine.value), rights("")
    used = {kinds.KINDS[kind].plural for kind in kinds.of_engine(engine)}
    assert {name for name in found if found[name] != usual.get(name)} == {
        *used, "priorityclasses", "resourceclaimtemplates", "jobsets", "pytorchjobs", "mpijobs", "rayjobs",
        "rayclusters", "leaderworkersets",
    }  # fmt: skip
    assert all(found[name] == {"create", "delete", "list", "patch", "watch"} for name in used)
    assert found["jobsets"] == found["resourceclaimtemplates"] == {"list", "watch"}
    words = PAGE.read_text().partition("## Rights")[2].partition("## ")[0]
    assert all(re.search(rf"\b{kind[1]}(s|es)\b", words) for kind in kinds.of_engine(engine))
