"""demo and simulate."""

from __future__ import annotations

import json
import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import warm
from commands import ROOT, Run

SCENARIO = """\
apiVersion: gpuctl.dev/v1
kind: Scenario
metadata: {name: small}
why: Two jobs of one GPU each, and one GPU.
given:
  documents:
  - {apiVersion: gpuctl.dev/v1, kind: Cluster, metadata: {name: tiny},
     spec: {nodePools: [{name: pool, nodes: [n1], gpusPerNode: 1}]}}
  - {apiVersion: gpuctl.dev/v1, kind: Project, metadata: {name: a}, spec: {quota: 1}}
  - {apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: a-1, project: a}, spec: {image: train, gpus: 1}}
  - {apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: a-2, project: a}, spec: {image: train, gpus: 1}}
expect:
- at: end
  projects: {a: {allocated: 1, pending: [a-2]}}
"""


@pytest.fixture(scope="module")
def demo(run: Run) -> dict[str, Any]:
    result = run("demo", "-o", "json")
    assert result.exit_code == 0
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def state(demo: dict[str, Any], label: str) -> dict[str, tuple[int, int, list[str]]]:
    (checkpoint,) = [c for c in demo["checkpoints"] if c["label"] == label]
    return {
        p["name"][-1]: (p["allocatedGpuMilli"] // 1000, p["quotaGpuMilli"] // 1000, p["pending"])
        for p in checkpoint["projects"]
    }


def test_the_demo_reaches_the_three_states_of_the_report(demo: dict[str, Any]) -> None:
    assert state(demo, "4.8") == {"a": (4, 4, []), "b": (4, 2, []), "c": (4, 2, []), "d": (4, 8, [])}
    assert state(demo, "4.9") == {"a": (4, 4, []), "b": (2, 2, ["b-4-gg"]), "c": (2, 2, ["c-4-gg"]), "d": (8, 8, [])}
    assert state(demo, "4.10") == {"a": (8, 4, []), "b": (4, 2, ["b-5-gg"]), "c": (4, 2, ["c-6-gg"]), "d": (0, 8, [])}


def test_the_demo_restarts_only_the_two_jobs_that_were_paused(demo: dict[str, Any]) -> None:
    jobs = {job["name"]: job for job in demo["checkpoints"][-1]["jobs"]}
    assert {name: job["starts"] for name, job in jobs.items() if job["starts"] != 1} == {
        "b-4-gg": 2, "b-5-gg": 0, "c-4-gg": 2, "c-6-gg": 0,
    }  # fmt: skip
    pauses = [(t["job"], t["for"]) for t in demo["transitions"] if t["evicted"]]
    assert {job for job, _ in pauses} == {"team-b/b-4-gg", "team-c/c-4-gg"}
    assert {beneficiary for _, beneficiary in pauses} == {"team-d/d-2-gg", "team-d/d-3-gg"}


def test_the_demo_moves_no_run(demo: dict[str, Any]) -> None:
    places = [
        {job["name"]: job["placement"] for job in checkpoint["jobs"] if job["placement"]}
        for checkpoint in demo["checkpoints"]
        if checkpoint["label"] in {"4.8", "4.9", "4.10"}
    ]
    for earlier, later in pairwise(places):
        stayed = (earlier.keys() & later.keys()) - {"b-4-gg", "c-4-gg"}
        assert {name: later[name] for name in stayed} == {name: earlier[name] for name in stayed}


def test_the_report_has_the_form_of_the_design(demo: dict[str, Any]) -> None:
    assert (demo["apiVersion"], demo["kind"]) == ("gpuctl.dev/v1", "SimulationReport")
    assert {"checkpoints", "transitions", "expectations", "summary"} <= demo.keys()
    checkpoint = demo["checkpoints"][-1]
    assert {"atMs", "label", "revision", "projects", "jobs", "freeGpuMilli"} <= checkpoint.keys()
    assert len(checkpoint["revision"]) == 40
    project = {"name", "quotaGpuMilli", "fairShareGpuMilli", "allocatedGpuMilli", "pending"}
    assert all(project <= row.keys() for row in checkpoint["projects"])
    job = {"name", "project", "state", "reason", "gpuMilli", "placement", "starts", "queuedMs"}
    assert all(job <= row.keys() for row in checkpoint["jobs"])
    transition = {"atMs", "job", "from", "to", "reason", "node", "for"}
    assert all(transition <= row.keys() for row in demo["transitions"])
    assert all({"at", "path", "want", "got", "ok"} == row.keys() for row in demo["expectations"])
    assert demo["summary"]["ok"]


def test_the_demo_needs_nothing_of_its_users_environment(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    broken = "[commit]\n  gpgsign = true\n[core]\n  hooksPath = /nonexistent\n[init]\n  templateDir = /nonexistent\n"
    (home / ".gitconfig").write_text(broken)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "GIT_AUTHOR_DATE": "nonsense"}
    done = warm.run("demo", "--keep", tmp_path / "story", env=environment, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("as in the report") == 4
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.replace(str(tmp_path), "/tmp").splitlines())) <= 110
    log = subprocess.run(
        ["git", "-C", str(tmp_path / "story"), "log", "--format=%s"], capture_output=True, text=True, check=True
    )
    assert len(log.stdout.splitlines()) == 21


def test_a_slow_demo_is_the_same_and_says_what_to_try_next(run: Run) -> None:
    began = time.monotonic()
    slow = run("demo", "--slow", "100ms").stdout
    lines = [line for line in slow.splitlines() if line.startswith(("add ", "remove ", "cluster and "))]
    assert time.monotonic() - began >= len(lines) / 10
    assert slow == run("demo").stdout
    assert "\nnext:\n  gpuctl demo --keep story " in slow


def test_what_to_try_in_the_repository_works_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("demo", "--keep", tmp_path / "story").stdout
    there, plan = told.partition("next:\n")[2].splitlines()
    assert there.strip() == f"cd {tmp_path / 'story'} && git log --oneline"
    monkeypatch.chdir(tmp_path / "story")
    done = run(*plan.partition("#")[0].split()[1:])
    assert done.exit_code == 2
    assert "4 jobs start, 3 end" in done.stdout


def test_the_demo_does_not_touch_a_folder_with_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    result = run("demo", "--keep", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_scenario_that_comes_true(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    result = run("simulate", file)
    assert result.exit_code == 0
    assert "ok: 2 of 2 expectations met" in result.stdout
    report = json.loads(run("simulate", file, "-o", "json").stdout)
    assert report["metadata"]["name"] == "small"
    assert len(json.loads(run("simulate", file, file, "-o", "json").stdout)) == 2


def test_a_scenario_that_does_not(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO.replace("[a-2]", "[a-1]"))
    result = run("simulate", file)
    assert result.exit_code == 1
    assert "failed at end: projects.a.pending: want ['a-1'], got ['a-2']" in result.stdout
    report = json.loads(run("simulate", file, "-o", "json").stdout)
    assert [outcome["path"] for outcome in report["expectations"] if not outcome["ok"]] == ["projects.a.pending"]


def test_mistakes_in_a_scenario_are_told_at_their_places(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO.replace("project: a}, spec: {image: train, gpus: 1}", "project: b}, spec: {gpus: 1.5}", 1))
    result = run("simulate", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{file}:10:79: error GPU2005" in result.stderr
    assert f"{file}:10:92: error GPU2013" in result.stderr


def test_a_scenario_in_a_repository_shows_nothing_of_the_machine(run: Run, tmp_path: Path) -> None:
    """One comes in a pull request, and its mistakes stand in the log of a CI job, each with its line."""
    (tmp_path / "token").write_text("abc123\n")
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "config").write_text("abc123\n")
    (repository / "link").symlink_to(tmp_path)
    for place in ("../token", str(tmp_path / "token"), "link/token", "link", ".git/config"):
        (repository / "small.yaml").write_text(f"{SCENARIO}declarations: [{place}]\n")
        told = run("simulate", repository / "small.yaml")
        assert told.exit_code == 1
        assert f"{place} can't be read: it is not in the scenario's repository" in told.stderr
        assert "abc123" not in told.output
    (tmp_path / "small.yaml").write_text(f"{SCENARIO}declarations: [repository/../token]\n")
    assert "abc123" in run("simulate", tmp_path / "small.yaml").output
