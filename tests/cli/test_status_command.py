"""`gpuctl status` on the embedded cluster: what it says, in both forms, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from commands import Run, repository_in
from jsonschema import Draft202012Validator

from gpuctl.adapters.clock import SystemClock
from gpuctl.cli.main import gpuctl
from gpuctl.views.status_form import schema


def reconciled(run: Run, folder: Path, broken: str = "") -> Path:
    copy = repository_in(folder / "repository")
    file = folder / "cluster.db"
    follow = ("--repo", copy.folder, "--path", "clusters/tr4858", "--workdir", folder / "clones")
    assert run("reconcile", *follow, "--embedded", file, "--once").exit_code == 0
    if broken:
        copy.write("clusters/tr4858/projects/team-a/project.yaml", broken.encode())
        copy.commit("break it", 1_800_000_000_000)
        run("reconcile", *follow, "--embedded", file, "--once")
    return file


def test_ready(run: Run, tmp_path: Path) -> None:
    file = reconciled(run, tmp_path)
    result = run("status", "--embedded", file)
    first, *rest = result.stdout.splitlines()
    assert (result.exit_code, first) == (0, "tr4858: ready")
    assert [line.split()[0] for line in rest] == ["commit", "git", "cycle", "written"]
    waited = run("status", "--embedded", file, "--wait", "--timeout", "1s")
    assert waited.exit_code == 0


class CtrlC(SystemClock):
    """A person presses it when a command asks for the time."""

    def now_ms(self) -> int:
        raise KeyboardInterrupt


def test_ctrl_c_is_no_answer_of_a_command(run: Run, tmp_path: Path) -> None:
    file = reconciled(run, tmp_path)
    words = ["status", "--embedded", str(file), "--wait"]
    assert CliRunner().invoke(gpuctl, words, obj=CtrlC()).exit_code == 130


def test_not_ready_in_both_forms(run: Run, tmp_path: Path) -> None:
    file = reconciled(run, tmp_path, "kind: Nothing\n")
    result = run("status", "--embedded", file)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (1, "tr4858: not ready")
    assert lines[1].startswith("  project team-a is held back: ")
    assert "Held back" in lines
    form = json.loads(run("status", "--embedded", file, "-o", "json").stdout)
    assert not list(Draft202012Validator(schema()).iter_errors(form))
    assert [each["project"] for each in form["held"]] == ["team-a"]
    assert run("status", "--embedded", file, "--wait", "--timeout", "1s").exit_code == 1


def test_a_commit_that_is_not_the_one_applied(run: Run, tmp_path: Path) -> None:
    file = reconciled(run, tmp_path)
    applied = json.loads(run("status", "--embedded", file, "-o", "json").stdout)["commit"]["applied"]
    assert run("status", "--embedded", file, "--commit", applied[:9].upper()).exit_code == 0
    wrong = run("status", "--embedded", file, "--wait", "--commit", "HEAD")
    assert (wrong.exit_code, "HEAD is no commit's hash; git rev-parse HEAD says it" in wrong.stderr) == (2, True)
    result = run("status", "--embedded", file, "--commit", "f" * 40)
    assert (result.exit_code, result.stderr) == (1, f"note: commit {'f' * 40} is not the one that is applied\n")


def test_where_nothing_is_published(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.db"
    repository = repository_in(tmp_path / "repository")
    run("reconcile", "--repo", repository.folder, "--path", "nowhere", "--workdir", tmp_path / "w", "--embedded", file,
        "--once")  # fmt: skip
    result = run("status", "--embedded", file)
    assert (result.exit_code, result.stderr.split(":")[0]) == (1, "error GPU7080")
    assert run("status", "--embedded", tmp_path / "none").exit_code == 2
