"""`project set-quota` and `project set`: one field of a project, in its own line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import Run

from gpuctl.adapters.git import WorkingCopy

PROJECT = Path("clusters/tr4858/projects/team-a/project.yaml")


@pytest.fixture
def file(repository: WorkingCopy, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(repository.folder)
    return repository.folder / PROJECT


@pytest.mark.parametrize(
    ("line", "before", "after"),
    [
        ("set-quota team-a 3", "spec:\n  quota: 4  # of 16\n", "spec:\n  quota: 3  # of 16\n"),
        ("set-quota team-a 2.5", "spec: {quota: 4}\n", "spec: {quota: 2.5}\n"),
        ("set-quota team-a 3", "", "spec: {quota: 3}\n"),
        ("set team-a --limit 12", "spec:\n  quota: 4\n", "spec:\n  quota: 4\n  limit: 12\n"),
        ("set team-a --limit none", "spec:\n  quota: 4\n  limit: 12\n", "spec:\n  quota: 4\n"),
        ("set team-a --limit none", "spec:\n  limit: 12\n", "spec:\n  {}\n"),
        (
            "set team-a --weight 2 --priority -1",
            "spec:\n  quota: 4\n  owners: ['@a']\n",
            "spec:\n  quota: 4\n  overQuotaWeight: 2\n  priority: -1\n  owners: ['@a']\n",
        ),
        (
            "set team-a --interactive-max-duration 8h --training-pools dgx1",
            "spec:\n  quota: 4\n",
            "spec:\n  quota: 4\n  nodeAffinity: {training: [dgx1]}\n  interactive: {maxDuration: 8h}\n",
        ),
        ("set team-a --owners @acme/a,ana@example.com", "spec: {}\n", 'spec: {owners: ["@acme/a", ana@example.com]}\n'),
    ],
)
def test_a_field_is_set_in_its_own_line(run: Run, file: Path, line: str, before: str, after: str) -> None:
    head = "apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: team-a}\n"
    file.write_text(head + before)
    result = run("project", *line.split())
    assert result.exit_code == 0, result.stderr
    assert file.read_text() == head + after
    assert result.stdout.startswith("Set project team-a: ")


def test_quotas_by_pool(run: Run, file: Path) -> None:
    folder = file.parents[2]
    for path in folder.rglob("project.yaml"):
        path.write_text(re.sub(r"quota: (\d)", r"quota: {dgx1: \1}", path.read_text()))
    result = run("project", "set-quota", "team-a", "dgx1=3")
    assert result.exit_code == 0, result.stderr
    assert "quota: {dgx1: 3}" in file.read_text()


@pytest.mark.parametrize(
    ("line", "code", "exit_code"),
    [
        ("set-quota team-x 3", "GPU6105", 2),
        ("set-quota team-a 99", "GPU6117", 1),
        ("set-quota team-a -- -1", "GPU6117", 1),
        ("set-quota team-a many", "GPU6117", 1),
        ("set-quota team-a nopool=1", "GPU6117", 1),
        ("set-quota team-a 1 2", "GPU9002", 2),
        ("set-quota team-a a=1 2", "GPU9002", 2),
        ("set-quota team-a", "GPU9002", 2),
        ("set team-a", "GPU9002", 2),
        ("set team-a --department none-such", "GPU6117", 1),
    ],
)
def test_what_can_not_be_is_told_and_nothing_is_written(
    run: Run, file: Path, line: str, code: str, exit_code: int
) -> None:
    before = file.read_bytes()
    result = run("project", *line.split())
    assert f"error {code}: " in result.stderr
    assert result.exit_code == exit_code
    assert file.read_bytes() == before


def test_the_plan_that_is_named_tells_the_effect(run: Run, file: Path) -> None:
    result = run("project", "set-quota", "team-a", "2", "--branch", "less")
    assert result.stdout.splitlines() == [
        f"Set project team-a: quota 4 -> 2 ({PROJECT} written)",
        result.stdout.splitlines()[1],
        "next: gpuctl plan clusters/tr4858 --base main --head less",
    ]
    plan = run(*result.stdout.splitlines()[-1].removeprefix("next: gpuctl ").split())
    assert plan.exit_code == 2
    assert "team-a" in plan.stdout
    del file
