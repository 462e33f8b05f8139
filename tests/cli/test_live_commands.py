"""reconcile --embedded, and what list, get and explain say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from commands import Run

HEADER = "NAME STATUS AGE NODE IMAGE TYPE PROJECT USER GPUs CREATED BY CLI SERVICE URL(S)"


def test_list_has_the_columns_of_run_ai(run: Run, embedded: Path) -> None:
    result = run("list", "-p", "team-b", "--embedded", embedded)
    first, header, *rows = result.stdout.splitlines()
    assert first == "Showing jobs for project team-b"
    assert " ".join(header.split()) == HEADER
    assert sorted(row.split()[0] for row in rows) == ["b-1-g06", "b-2-g04", "b-3-g", "b-4-gg"]
    assert all(row.split()[1] == "Running" for row in rows)
    assert next(row for row in rows if row.startswith("b-1-g06")).split()[5:9] == ["Interactive", "team-b", "-", "0.6"]


def test_list_all_in_every_form(run: Run, embedded: Path) -> None:
    names = run("list", "-A", "-o", "name", "--embedded", embedded).stdout.splitlines()
    assert len(names) == 13
    assert "team-d/d-1-gggg" in names
    as_json = json.loads(run("list", "-o", "json", "--embedded", embedded).stdout)
    assert as_json == yaml.safe_load(run("list", "-o", "yaml", "--embedded", embedded).stdout)
    assert sum(job["gpuMilli"] for job in as_json["jobs"]) == 16_000
    assert "DEVICES" in run("list", "-o", "wide", "--embedded", embedded).stdout


def test_list_of_an_unknown_project_is_empty(run: Run, embedded: Path) -> None:
    result = run("list", "-p", "nobody", "--embedded", embedded)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)


def test_get_shows_the_pod_and_the_address(run: Run, embedded: Path) -> None:
    text = run("get", "a-1-1-jupyter", "--embedded", embedded).stdout
    assert "STATUS:" in text
    assert "https://10.61.218.134/team-a/a-1-1-jupyter" in text
    assert "Pods:\nPOD" in text
    form = json.loads(run("get", "team-a/a-2-gg", "-o", "json", "--embedded", embedded).stdout)
    assert (form["state"], form["starts"], len(form["placement"][0]["gpus"])) == ("Running", 1, 2)
    assert run("get", "a-2-gg", "-p", "team-a", "-o", "name", "--embedded", embedded).stdout == "team-a/a-2-gg\n"
    assert "a-2-gg" in run("get", "a-2-gg", "-o", "wide", "--embedded", embedded).stdout


@pytest.mark.parametrize("command", ["get", "explain"])
def test_a_job_that_is_not_there(run: Run, embedded: Path, command: str) -> None:
    result = run(command, "nobody", "--embedded", embedded)
    assert result.exit_code == 2
    assert result.stderr.startswith("error GPU9003: there is no job nobody")


def test_explain_a_job(run: Run, embedded: Path) -> None:
    said = run("explain", "team-b/b-4-gg", "--embedded", embedded).stdout
    assert said.startswith("team-b/b-4-gg asks for 2 GPUs and is Running.\n")
    assert "GPU5002: runs over the quota of team-b" in said


def test_explain_a_code(run: Run) -> None:
    result = run("explain", "gpu5011")
    assert result.exit_code == 0
    assert result.stdout.startswith("GPU5011: over the fair share\n")
    assert "Fix: " in result.stdout


def test_a_second_reconcile_finds_all_as_wanted(run: Run, embedded: Path) -> None:
    before = run("list", "-o", "json", "--embedded", embedded).stdout
    follow = ("--repo", embedded.parent / "repository", "--path", "clusters/tr4858", "--branch", "main")
    again = ("--workdir", embedded.parent / "clones", "--embedded", embedded, "--once", "--log-format", "json")
    result = run("reconcile", *follow, *again)
    assert result.exit_code == 0
    assert all(json.loads(line)["event"] == "following" for line in result.stderr.splitlines())
    assert run("list", "-o", "json", "--embedded", embedded).stdout == before


def test_reconcile_says_what_it_can_not_read(run: Run, tmp_path: Path) -> None:
    follow = ("--repo", tmp_path / "nothing", "--path", "x", "--workdir", tmp_path / "clones")
    result = run("reconcile", *follow, "--embedded", "--once")
    assert result.exit_code == 1
    assert "code=GPU8004" in result.stderr
