"""validate, render, schema: commands over a folder of declarations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from commands import ROOT, Run

from gpuctl.cli.failures import exit_code_of
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan

JOB = "projects/team-a/jobs/a-1-g.yaml"


def breaks(cluster: Path, old: str, new: str) -> None:
    file = cluster / JOB
    file.write_text(file.read_text().replace(old, new))


def test_a_valid_cluster(run: Run, cluster: Path) -> None:
    result = run("validate", cluster)
    assert (result.exit_code, result.stdout) == (0, f"{cluster}: valid, 13 jobs\n")


def test_without_a_folder_every_cluster_is_validated(run: Run, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cluster.parent.parent)
    assert run("validate").stdout == "clusters/tr4858: valid, 13 jobs\n"
    monkeypatch.chdir(cluster)
    assert run("validate").exit_code == 2


def test_a_mistake_is_told_at_its_place(run: Run, cluster: Path) -> None:
    breaks(cluster, "project: team-a", "project: taem-a")
    result = run("validate", cluster)
    assert result.exit_code == 1
    assert f"{cluster}/{JOB}:5:12: error GPU3" in result.stdout
    assert "    |            ^^^^^^" in result.stdout
    assert result.stdout.endswith(" 1 error\n") or "errors" in result.stdout


@pytest.mark.parametrize(("codes", "exit_code"), [(["GPU2003"], 1), (["GPU2003", "GPU9001"], 2), (["GPU9001"], 2)])
def test_a_bug_of_gpuctl_is_not_taken_for_a_mistake(codes: list[str], exit_code: int) -> None:
    told = [Diagnostic(code=code, message="m", span=SourceSpan(file="a.yaml")) for code in codes]
    assert exit_code_of(told) == exit_code


def test_diagnostics_as_json(run: Run, cluster: Path) -> None:
    breaks(cluster, "gpus: 1", "gpus: 1\n  gpu: 2")
    result = run("validate", cluster, "--format", "json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert {"code", "severity", "message", "file", "line", "column", "endColumn", "help"} <= found.keys()
    assert (found["code"], found["line"], found["column"], found["endColumn"]) == ("GPU2004", 10, 3, 6)


def test_diagnostics_as_annotations(run: Run, cluster: Path) -> None:
    breaks(cluster, "gpus: 1", "gpus: many")
    result = run("validate", cluster, "--format", "github")
    assert result.exit_code == 1
    assert result.stdout.startswith("::error file=")


def test_render_is_byte_stable_and_starts_nothing(run: Run, cluster: Path) -> None:
    first, second = run("render", cluster), run("render", cluster)
    assert (first.exit_code, first.stdout) == (0, second.stdout)
    objects = list(yaml.safe_load_all(first.stdout))
    jobs = [body for body in objects if body["kind"] == "Job"]
    assert len(jobs) == 13
    assert all(job["spec"]["suspend"] for job in jobs)


def test_render_writes_a_file_for_each_object(run: Run, cluster: Path, tmp_path: Path) -> None:
    result = run("render", cluster, "--output", tmp_path / "out")
    files = list((tmp_path / "out").rglob("*.yaml"))
    assert result.stdout == f"{len(files)} objects in {tmp_path / 'out'}\n"
    whole = list(yaml.safe_load_all(run("render", cluster).stdout))
    assert sorted(map(str, whole)) == sorted(str(yaml.safe_load(file.read_text())) for file in files)


def test_render_of_wrong_declarations_tells_what_is_wrong(run: Run, cluster: Path) -> None:
    breaks(cluster, "gpus: 1", "gpus: -1")
    result = run("render", cluster)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error GPU2017" in result.stderr


def test_render_into_a_file_is_a_failure(run: Run, cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    result = run("render", cluster, "--output", tmp_path / "out" / "below")
    assert result.exit_code == 2
    assert result.stderr.startswith("error GPU9004: ")


@pytest.mark.parametrize("kind", ["Cluster", "Department", "Project", "job", "Policy"])
def test_schema_prints_what_the_repository_holds(run: Run, kind: str) -> None:
    result = run("schema", kind)
    assert result.exit_code == 0
    held = ROOT / "schemas" / "gpuctl.dev" / "v1" / f"{kind.lower()}.json"
    assert json.loads(result.stdout) == json.loads(held.read_text())


def test_all_schemas(run: Run) -> None:
    kinds = {"Cluster", "Department", "Project", "Job", "Template", "Policy"}
    assert kinds | {"Declaration", "Scenario", "PlanReport", "Status"} == set(json.loads(run("schema").stdout))


def test_bench_cycle(run: Run) -> None:
    measured = json.loads(run("bench", "cycle", "--jobs", 40, "--projects", 2, "--runs", 2, "-o", "json").stdout)
    assert measured["first_writes"] > 40
    assert measured["unchanged_writes"] == 0
    assert "0 writes in 1 cycles" in run("bench", "cycle", "--jobs", 20, "--projects", 2, "--runs", 1).stdout


def test_bench_compile(run: Run) -> None:
    result = run("bench", "compile", "--jobs", 20, "--projects", 2, "--runs", 1, "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["jobs"] == 20
    assert "20 jobs in 2 projects" in run("bench", "compile", "--jobs", 20, "--projects", 2, "--runs", 1).stdout


def test_bench_review_measures_the_checks_of_a_change(run: Run) -> None:
    told = json.loads(run("bench", "review", "--jobs", 20, "--projects", 2, "--runs", 1, "-o", "json").stdout)
    assert (told["jobs"], told["projects"], told["runs"]) == (20, 2, 1)
    ms = {what: each["ms"] for what, each in told["measured"].items()}
    assert list(ms) == [
        "git diff", "validate, nothing known", "validate, known", "plan, nothing known", "plan of the change",
    ]  # fmt: skip
    assert ms["plan of the change"] > ms["git diff"] > 0
    assert all(each["cpu_ms"] > 0 for what, each in told["measured"].items() if what != "git diff")
