"""`gpuctl policy list` and `gpuctl policy test`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import ROOT, Run

HEAD = "apiVersion: gpuctl.dev/v1\n"
RULE = (
    HEAD
    + """\
kind: Policy
metadata: {name: small}
spec:
  match: {kind: Job}
  severity: warning
  cel: total.gpus <= 8
  message: At most eight.
"""
)
RAISE = """\
kind: Policy
metadata: {name: raise}
spec: {match: {kind: Project}, cel: 'old != null', message: x}
"""


def job(spec: str) -> str:
    return f"{HEAD}kind: Job\nmetadata: {{name: j, project: team-a}}\nspec: {spec}\n"


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """A policy with an example of each verdict."""
    examples = tmp_path / "policies" / "examples" / "small"
    examples.mkdir(parents=True)
    (tmp_path / "policies" / "small.yaml").write_text(RULE)
    (examples / "good-8.yaml").write_text(job("{image: x, gpus: 8}"))
    (examples / "bad-9.yaml").write_text(job("{image: x, gpus: 9}"))
    return tmp_path / "policies"


def test_examples_that_are_judged_rightly(run: Run, policies: Path) -> None:
    result = run("policy", "test", policies)
    assert (result.exit_code, result.stdout) == (0, "small: 1 good and 1 bad, as expected\n")


def test_a_verdict_that_differs_is_told_with_what_breaks_the_policy(run: Run, policies: Path) -> None:
    (policies / "examples" / "small" / "good-8.yaml").write_text(job("{image: x, gpus: 3, workers: 3}"))
    (policies / "examples" / "small" / "bad-9.yaml").write_text(job("{image: x}"))
    result = run("policy", "test", policies)
    assert result.exit_code == 1
    assert 'error GPU4010: the example is called good, and breaks it: policy "small"' in result.stdout
    assert "note: At most eight. (gpus of all workers is 9" in result.stdout
    assert 'error GPU4010: the example is called bad, and does not break it: policy "small"' in result.stdout
    assert result.stdout.endswith("small: 1 good and 1 bad; 2 mistakes\n")


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("other.yaml", job("{image: x}"), "GPU4011"),
        ("good-b.yaml", job("{image: x, gpuz: 1}"), "GPU2004"),
        ("bad-b.yaml", "{", "GPU1001"),
        ("bad-b.before.yaml", "{", None),
    ],
)
def test_an_example_that_is_none(run: Run, policies: Path, name: str, content: str, code: str | None) -> None:
    (policies / "examples" / "small" / name).write_text(content)
    result = run("policy", "test", policies)
    assert (result.exit_code, (code or "as expected") in result.stdout) == (1 if code else 0, True), result.stdout


@pytest.mark.parametrize("gone", ["good-8.yaml", "bad-9.yaml"])
def test_a_policy_has_an_example_of_each_verdict(run: Run, policies: Path, gone: str) -> None:
    (policies / "examples" / "small" / gone).unlink()
    result = run("policy", "test", policies)
    assert (result.exit_code, f"there is no {gone.partition('-')[0]} example in" in result.stdout) == (1, True)


def test_a_policy_that_cannot_be_read_or_evaluated_fails_the_test(run: Run, policies: Path) -> None:
    (policies / "broken.yaml").write_text("kind: Policy\n cel: 1\n")
    assert run("policy", "test", policies).exit_code == 1
    (policies / "broken.yaml").unlink()
    (policies / "small.yaml").write_text(RULE.replace("total.gpus", "total.gpuz"))
    result = run("policy", "test", policies)
    assert (result.exit_code, "GPU4007" in result.stdout) == (1, True)


def test_a_folder_without_policies_is_told(run: Run, tmp_path: Path) -> None:
    assert run("policy", "test", tmp_path).exit_code == 2


def test_examples_are_no_declarations(run: Run, cluster: Path) -> None:
    examples = cluster.parents[1] / "policies" / "examples" / "small"
    examples.mkdir(parents=True)
    (examples / "bad-9.yaml").write_text("this: [is no declaration")
    own = cluster / "projects" / "team-a" / "policies" / "examples" / "small"
    own.mkdir(parents=True)
    (own / "bad-9.yaml").write_text(job("{image: x, gpuz: 9}"))
    result = run("validate", cluster)
    assert (result.exit_code, "valid, 13 jobs" in result.stdout) == (0, True)


def test_policies_are_counted_by_what_they_match_and_what_breaks_them(run: Run, cluster: Path) -> None:
    folder = cluster.parents[1] / "policies"
    folder.mkdir()
    (folder / "small.yaml").write_text(
        RULE.replace("<= 8", "<= 1").replace("match: {kind: Job}", "match: {kind: Job, except: [team-b]}")
    )
    (folder / "raise.yaml").write_text(HEAD + RAISE)
    listed = {
        each["name"]: each for each in json.loads(run("policy", "list", cluster, "-o", "json").stdout)["policies"]
    }
    assert (listed["raise"]["matches"], listed["raise"]["breaches"], listed["raise"]["severity"]) == (4, None, "error")
    warnings = run("validate", cluster).stdout.count("warning GPU4001")
    assert 0 < listed["small"]["breaches"] == warnings < listed["small"]["matches"]
    table = run("policy", "list", cluster).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["POLICY", "raise", "small"]


def test_a_cluster_without_policies(run: Run, cluster: Path) -> None:
    result = run("policy", "list", cluster)
    assert (result.exit_code, result.stderr) == (0, "No policies found.\n")


def test_the_librarys_policies_stop_nothing_of_the_example(run: Run) -> None:
    assert run("validate", ROOT / "clusters" / "tr4858").exit_code == 0
