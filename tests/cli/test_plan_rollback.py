"""`gpuctl plan --rollback REV --commit`: what it commits, and what it leaves alone."""

from __future__ import annotations

import subprocess

import pytest
from commands import AT_MS, Run
from planstories import QUOTA, claim_of_team_d, switched

from gpuctl.adapters.git import WorkingCopy

FOLDER = "clusters/tr4858"


def git(repository: WorkingCopy, *args: str) -> str:
    at = ("git", "-C", str(repository.folder), *args)
    return subprocess.run(at, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def claimed(repository: WorkingCopy) -> WorkingCopy:
    """Two jobs more, and a file outside of the folder, in the last commit; a hook that would forbid any other."""
    claim_of_team_d(repository)
    repository.write("README.md", b"one\n")
    repository.commit("a claim", AT_MS + 1000)
    for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction"):
        hook = repository.folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {repository.folder}/{name}.ran\nexit 1\n")
        hook.chmod(0o755)
    return repository


def test_the_rollback_is_committed(claimed: WorkingCopy, run: Run) -> None:
    (claimed.folder / "README.md").write_text("two\n")
    before = git(claimed, "rev-parse", "main")
    result = run("plan", claimed.folder / FOLDER, "--rollback", "main~1", "--commit")
    assert result.exit_code == 2, result.stderr
    made = git(claimed, "rev-parse", "main")
    assert result.stderr == f"Committed {made[:10]} on main\n"
    assert git(claimed, "rev-parse", "main~1") == before
    assert git(claimed, "rev-parse", f"main:{FOLDER}") == git(claimed, "rev-parse", f"main~2:{FOLDER}")
    assert git(claimed, "log", "-1", "--format=%an <%ae> %s") == (
        f"Ana <ana@example.com> Roll back {FOLDER} to {git(claimed, 'rev-parse', 'main~2')[:10]}"
    )
    assert git(claimed, "show", "main:README.md") == "one"
    assert git(claimed, "status", "--porcelain") == "M README.md"
    assert not list(claimed.folder.glob("*.ran"))
    again = run("plan", claimed.folder / FOLDER, "--rollback", "main~2", "--commit")
    assert (again.exit_code, again.stderr) == (0, "Nothing is committed: there is nothing to roll back\n")


@pytest.mark.parametrize("how", ["changed", "staged", "untracked"])
def test_changes_in_the_folder_are_never_lost(claimed: WorkingCopy, run: Run, how: str) -> None:
    before = git(claimed, "rev-parse", "main")
    file = claimed.folder / (f"{FOLDER}/new.yaml" if how == "untracked" else QUOTA)
    file.write_text("# mine\n")
    if how == "staged":
        git(claimed, "add", "--all")
    result = run("plan", claimed.folder / FOLDER, "--rollback", "main~1", "--commit")
    assert result.exit_code == 1
    assert "GPU6014" in result.stderr
    assert file.relative_to(claimed.folder).as_posix() in result.stderr
    assert (git(claimed, "rev-parse", "main"), file.read_text()) == (before, "# mine\n")


def test_only_what_is_checked_out_is_rolled_back(claimed: WorkingCopy, run: Run) -> None:
    git(claimed, "config", "core.hooksPath", "/dev/null")
    switched(claimed, "-q", "main~1")
    result = run("plan", claimed.folder / FOLDER, "--base", "main", "--rollback", "main~1", "--commit")
    assert (result.exit_code, "GPU6112" in result.stderr) == (1, True)
    switched(claimed, "-qb", "other")
    result = run("plan", claimed.folder / FOLDER, "--base", "main", "--rollback", "main~1", "--commit")
    assert (result.exit_code, "GPU6015" in result.stderr) == (1, True)


def test_an_author_is_needed(claimed: WorkingCopy, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "0")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    before = git(claimed, "rev-parse", "main")
    result = run("plan", claimed.folder / FOLDER, "--rollback", "main~1", "--commit")
    assert (result.exit_code, "GPU6111" in result.stderr) == (1, True)
    assert git(claimed, "rev-parse", "main") == before


def test_what_is_refused_is_not_committed(claimed: WorkingCopy, run: Run) -> None:
    before = git(claimed, "rev-parse", "main")
    command = ("plan", claimed.folder / FOLDER, "--rollback", "main~1", "--commit", "--fail-on", "stopped")
    result = run(*command)
    assert (result.exit_code, result.stderr) == (3, "Nothing is committed: the rollback is refused\n")
    assert git(claimed, "rev-parse", "main") == before


def test_commit_goes_with_rollback(claimed: WorkingCopy, run: Run) -> None:
    assert run("plan", claimed.folder / FOLDER, "--base", "main", "--commit").exit_code == 1
