"""Checked after the merge: what a commit did, against what was predicted when it was taken up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from stage import BASE, CLUSTER, Flaky, Stage, WithoutGit, job, project
from theatre import FOLDER, story

from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.app.metrics import Unmeasured
from gpuctl.app.ports import Conflict, ObjectList, WatchEvent
from gpuctl.k8s.kinds import CONFIG_MAP, Kind
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.state import Body

TWO_NODES = CLUSTER.replace("nodes: [n1]", "nodes: [n1, n2]")
J1 = JobId(ProjectName("a"), "j1")


class Counted(Unmeasured):
    def __init__(self) -> None:
        self.ends: list[tuple[str, dict[str, int]]] = []

    def predicted(self, result: str, causes: Mapping[str, int]) -> None:
        self.ends.append((result, dict(causes)))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """The base is enforced and at rest; j1 and j2 run."""
    made = WithoutGit(tmp_path)
    made.commit(BASE | {"c/projects/b/project.yaml": project("b", 2)})
    made.play(30)
    made.lines.clear()
    made.notes.clear()
    return made


def ends(stage: Stage) -> list[dict[str, Any]]:
    return [line for line in stage.lines if line["event"] == "prediction"]


def full(stage: Stage) -> None:
    """Two more jobs of a, above its quota, fill the cluster."""
    stage.commit({f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(2)})
    stage.play(60)
    stage.lines.clear()
    stage.notes.clear()


def test_a_reclaim_is_predicted_and_checked(stage: Stage) -> None:
    stage.meters = counted = Counted()
    full(stage)
    counted.ends.clear()
    revision = stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(120)
    (line,) = ends(stage)
    assert (line["level"], line["revision"], line["result"]) == ("info", revision[:12], "as-predicted")
    assert (line["predicted_started"], line["predicted_paused"]) == (["b/m"], ["a/j1"])
    assert "differences" not in line
    assert counted.ends == [("as-predicted", {})]
    (note,) = [note for note in stage.notes if note.regarding.kind == CONFIG_MAP[1]]
    assert (note.type, note.reason) == ("Normal", "AsPredicted")
    assert note.uid


def test_the_reports_story_does_what_was_predicted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    before: Mapping[str, bytes] = {}
    commits = story()
    for number, files in enumerate(commits, start=1):
        for path in before.keys() - files.keys():
            stage.copy.remove(f"{FOLDER}/{path}")
        for path, content in files.items():
            stage.copy.write(f"{FOLDER}/{path}", content)
        before = files
        stage.copy.commit(f"commit {number}", stage.clock.now_ms())
        stage.play(60 * number, path=FOLDER)
    assert [line["result"] for line in ends(stage)] == ["as-predicted"] * len(commits)
    assert sum(len(line.get("predicted_paused", ())) for line in ends(stage)) > 0


def test_nothing_is_said_of_commits_that_change_nothing(stage: Stage) -> None:
    stage.commit({"README.md": "a word"})
    stage.play(60)
    assert ends(stage) == []


def test_a_restart_at_rest_has_nothing_to_check(stage: Stage) -> None:
    stage.play(60)
    stage.play(90)
    assert ends(stage) == []


def test_a_restart_while_it_takes_effect_is_told(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=20_000))
    stage.commit(BASE)
    stage.play(2)
    stage.play(90)
    (line,) = ends(stage)
    assert (line["result"], line["level"]) == ("unchecked", "info")
    assert "restarted" in line["why"]


def test_another_commit_before_rest_is_the_cause(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=30_000))
    stage.commit(BASE)
    revisions: list[str] = []
    stage.at(5, lambda: revisions.append(stage.commit({"c/projects/b/m.yaml": job("m", "b")})))
    stage.play(90)
    first, second = ends(stage)
    assert (first["result"], second["result"]) == ("unchecked", "as-predicted")
    assert first["why"] == f"commit {revisions[0][:12]} was taken up before the cluster was at rest"
    assert second["revision"] == revisions[0][:12]


def test_a_node_that_is_lost_is_the_cause(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=20_000))
    stage.commit(BASE | {"c/cluster.yaml": TWO_NODES})
    stage.at(5, lambda: stage.cluster.set_node_ready(NodeName("n1"), ready=False))
    stage.play(300)
    (line,) = ends(stage)
    assert line["result"] == "explained"
    assert any("node n1 was lost" in each for each in line["differences"])


def test_a_node_that_takes_nothing_new_and_is_lost_then_is_the_cause(tmp_path: Path) -> None:
    """As one that is not heard of: it takes no pods at once, and is lost once Kubernetes has given it a taint."""
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=20_000))
    stage.commit(BASE | {"c/cluster.yaml": TWO_NODES})
    stage.play(60)
    stage.cluster.cordon(NodeName("n1"), cordoned=True)
    stage.lines.clear()
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.at(65, lambda: stage.cluster.set_node_ready(NodeName("n1"), ready=False))
    stage.play(300)
    (line,) = ends(stage)
    assert line["result"] == "explained"
    assert any("node n1 was lost" in each for each in line["differences"])


def test_a_run_that_fails_is_the_cause(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=20_000))
    stage.commit(BASE)
    stage.play(60)
    full(stage)
    stage.commit({"c/projects/b/m.yaml": job("m", "b"), "c/projects/b/n.yaml": job("n", "b")})
    stage.at(63, lambda: stage.cluster.finish(J1, 1))
    stage.play(200)
    (line,) = ends(stage)
    assert line["result"] == "explained"
    assert "a/j1 was stopped, which was not predicted: a/j1 failed" in line["differences"]


def test_a_start_that_is_given_up_is_the_cause(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path)
    stage.cluster.set_stuck(J1, "ErrImagePull")
    stage.commit(BASE | {"c/cluster.yaml": CLUSTER + "  scheduling: {startTimeout: 1m}\n"})
    stage.play(200)
    (line,) = ends(stage)
    assert (line["level"], line["result"]) == ("info", "explained")
    assert line["differences"] == ["a/j1 was not started on n1: a/j1 did not start within startTimeout (ErrImagePull)"]


def test_what_a_guard_refuses_is_predicted_to_stay(stage: Stage) -> None:
    """No other job was to start on its GPUs either."""
    full(stage)
    removed = {"c/projects/b/j2.yaml": None, "c/projects/b/project.yaml": None}
    stage.commit({**removed, "c/projects/a/w.yaml": job("w", "a")})
    stage.play(120)
    (line,) = ends(stage)
    assert line["result"] == "as-predicted"
    assert not [key for key in line if key.startswith("predicted_")]


def test_what_others_change_is_the_cause(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=20_000))
    stage.commit(BASE)
    stage.play(60)
    stage.lines.clear()
    stage.commit({"c/projects/a/k0.yaml": job("k0", "a")})

    def removed() -> None:
        ref, live = stage.live("Job", "j1")
        stage.cluster.delete(ref, live["metadata"]["uid"], live["metadata"]["resourceVersion"])

    stage.at(65, removed)
    stage.play(200)
    (line,) = ends(stage)
    assert line["result"] == "explained"
    assert line["differences"] == ["a/j1 was stopped, which was not predicted: a/j1 was stopped by another client"]


def test_a_place_reserved_before_an_object_is_made_is_decided_anew(tmp_path: Path) -> None:
    """One of two changed jobs has the place of the other's old run reserved, and no entry in the ledger yet."""
    stage = WithoutGit(tmp_path)
    gpus = {"i": 2, "j": 2, "k": 4, "l": 2}
    jobs = {f"c/projects/a/{name}.yaml": job(name, "a", count) for name, count in gpus.items()}
    three = CLUSTER.replace("nodes: [n1]", "nodes: [n1, n2, n3]")
    stage.commit({"c/cluster.yaml": three, "c/projects/a/project.yaml": project("a", 12)} | jobs)
    stage.play(60)
    stage.lines.clear()
    changed = [path for path in jobs if path.endswith(("i.yaml", "j.yaml"))]
    stage.commit({path: jobs[path].replace("image: x", "image: y") for path in changed})
    stage.play(120)
    (line,) = ends(stage)
    assert (line["result"], line.get("differences")) == ("as-predicted", None)


def test_a_gang_may_be_dealt_among_its_nodes(tmp_path: Path) -> None:
    """Four workers were planned on n1 and one on n2; kube-scheduler puts three on n1."""
    stage = WithoutGit(tmp_path)
    stage.commit({"c/cluster.yaml": TWO_NODES, "c/projects/a/project.yaml": project("a", 8)})
    stage.play(30)
    stage.lines.clear()
    stage.commit({"c/projects/a/gang.yaml": job("gang", "a", 1, ", workers: 5")})
    stage.play(90)
    (gang,) = [run for run in stage.state().runs if run.placement is not None]
    assert gang.placement is not None
    assert [worker.node for worker in gang.placement.workers] == ["n1", "n1", "n1", "n2", "n2"]
    (line,) = ends(stage)
    assert line["result"] == "as-predicted"


def test_pods_that_stop_at_once_are_the_cause(tmp_path: Path) -> None:
    """The changed job is predicted on n2, since its old pods are on n1 a cycle more. They are gone before that."""
    stage = WithoutGit(tmp_path, EmbeddedTimings(termination_ms=0))
    files = {f"c/projects/a/{name}.yaml": job(name, "a", 2, ", priority: 1") for name in ("changed", "mate")}
    stage.commit({"c/cluster.yaml": TWO_NODES, "c/projects/a/project.yaml": project("a", 8)} | files)
    stage.play(60)
    stage.lines.clear()
    changed = files["c/projects/a/changed.yaml"].replace("image: x", "image: y")
    stage.commit({"c/projects/a/changed.yaml": changed, "c/projects/a/wide.yaml": job("wide", "a", 3)})
    stage.play(120)
    (line,) = ends(stage)
    assert (line["level"], line["result"]) == ("info", "explained")
    why = "pods of a/changed stopped or started sooner than those of others"
    assert line["differences"][0] == f"a/changed was started on n1, not on n2: {why}"
    assert all(each.endswith(why) for each in line["differences"])


def test_a_cluster_that_does_not_come_to_rest_is_given_up(tmp_path: Path) -> None:
    stage = WithoutGit(tmp_path, EmbeddedTimings(start_ms=10_000_000))
    stage.commit(BASE)
    stage.play(1_000)
    (line,) = ends(stage)
    assert (line["result"], line["why"]) == ("unchecked", "not at rest within 15m: a/j1, b/j2")


class ReadOnly(Flaky):
    """A cluster that takes no writes between two times, and is read at any."""

    def list(self, kind: Kind) -> ObjectList:
        return self._stage.cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        return self._stage.cluster.watch(kind, resource_version, timeout_ms)


@pytest.mark.parametrize(
    ("until_s", "result", "why"),
    [(150, "as-predicted", None), (2_000, "unchecked", "not at rest within 15m: ConfigMap ledger.one.a")],
)
def test_a_commit_that_can_not_be_written_yet_is_not_judged(
    stage: Stage, until_s: int, result: str, why: str | None
) -> None:
    stage.through = ReadOnly(stage, 30, until_s)
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(until_s + 60)
    (line,) = ends(stage)
    assert (line["level"], line["result"], line.get("why")) == ("info", result, why)
    assert stage.phases() == {"b/j2": "Running"}


class Late(ReadOnly):
    """A cluster that takes a ledger only at the second try."""

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        if body["metadata"]["name"] == "ledger.one.a" and not self.tries:
            self.tries.append(self._stage.clock.now_ms())
            raise Conflict("GPU7003", "changed by another client")
        return self._stage.cluster.apply(body, is_new=is_new)


def test_a_write_that_is_taken_only_later_is_the_cause(tmp_path: Path) -> None:
    """Project a has its new job's object a cycle later, so that the two new jobs change places."""
    stage = WithoutGit(tmp_path)
    three = CLUSTER.replace("nodes: [n1]", "nodes: [n1, n2, n3]") + "  scheduling: {stopGuard: 100}\n"
    projects = {f"c/projects/{name}/project.yaml": project(name, 4) for name in ("a", "b")}
    wide, pair = job("wide", "a", 4), job("pair", "b", 1, ", workers: 2")
    jobs = {"a/wide": wide, "b/one": job("one", "b", 1, ", type: inference"), "b/pair": pair}
    stage.commit(
        {"c/cluster.yaml": three} | projects | {f"c/projects/{name}.yaml": text for name, text in jobs.items()}
    )
    stage.play(40)
    stage.lines.clear()
    stage.through = Late(stage, 0, 0)
    stage.commit({
        "c/projects/a/wide.yaml": None,
        "c/projects/b/pair.yaml": pair.replace("image: x", "image: y"),
        "c/projects/a/new.yaml": job("new", "a", 3, ", type: inference"),
        "c/projects/b/new.yaml": job("new", "b", 3, ", type: inference"),
    })
    stage.play(120)
    (line,) = ends(stage)
    assert (line["level"], line["result"]) == ("info", "explained")
    why = "the API server did not take ConfigMap ledger.one.a at once"
    assert line["differences"] == [
        f"a/new was started on n2, not on n3: {why}", f"b/new was started on n3, not on n2: {why}",
    ]  # fmt: skip
