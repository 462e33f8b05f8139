"""`gpuctl fmt`: which files it takes, what it writes, and when CI fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Run

UGLY = "kind: Job\napiVersion: gpuctl.dev/v1\nmetadata: {project: team-a,  name: 'x'}\nspec:\n    image: 'a'  # why\n"
NEAT = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {name: x, project: team-a}\nspec:\n  image: a  # why\n"


@pytest.fixture
def here(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(cluster.parents[1])
    return cluster


def test_it_formats_what_is_not_formatted(run: Run, here: Path) -> None:
    assert run("fmt", "--check").stderr == "0 files of 18 would be formatted\n"
    file = here / "projects/team-a/jobs/x.yaml"
    file.write_text(UGLY)
    checked = run("fmt", "--check")
    assert checked.exit_code == 1
    assert checked.stdout == "clusters/tr4858/projects/team-a/jobs/x.yaml is not formatted\n"
    shown = run("fmt", "--dry-run", "clusters")
    assert (shown.exit_code, "+  image: a  # why" in shown.stdout.splitlines()) == (0, True)
    assert file.read_text() == UGLY
    done = run("fmt")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0, "formatted clusters/tr4858/projects/team-a/jobs/x.yaml\n", "1 file of 19 was formatted\n",
    )  # fmt: skip
    assert file.read_text() == NEAT
    assert run("fmt", "--check").exit_code == 0
    assert run("validate", "clusters/tr4858").exit_code == 0


def test_files_may_be_named(run: Run, here: Path) -> None:
    for name in ("x.yaml", "y.yaml"):
        (here / name).write_text(UGLY)
    assert run("fmt", here / "x.yaml", here / "x.yaml").stderr == "1 file of 1 was formatted\n"
    assert (here / "x.yaml").read_text() == NEAT
    assert (here / "y.yaml").read_text() == UGLY


def test_a_file_that_is_no_yaml_stays_and_the_others_are_formatted(run: Run, here: Path) -> None:
    (here / "a.yaml").write_text("a: [1\n")
    (here / "x.yaml").write_text(UGLY)
    result = run("fmt")
    assert result.exit_code == 1
    assert result.stderr.startswith("clusters/tr4858/a.yaml:1:4: error GPU1001: ")
    assert (here / "x.yaml").read_text() == NEAT
    assert (here / "a.yaml").read_text() == "a: [1\n"


def test_a_file_that_declares_nothing_is_left_as_it_is(run: Run, here: Path) -> None:
    (here / "x.YAML").write_text(UGLY)
    assert run("fmt", "--check").stderr == "0 files of 18 would be formatted\n"


def test_links_are_left_alone(run: Run, here: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text(UGLY)
    (here / "link.yaml").symlink_to(outside)
    assert run("fmt").stderr == "0 files of 18 were formatted\n"
    assert outside.read_text() == UGLY


def test_without_a_folder_it_says_what_to_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("fmt").stderr.splitlines()[1] == "help: gpuctl fmt PATH"
    assert run("fmt", "nowhere").exit_code == 2
