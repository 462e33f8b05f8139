"""The default project: set, kept in the user's own file, and used as kubectl uses its namespace."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Run

from gpuctl.adapters.git import WorkingCopy


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg/gpuctl/config.yaml"


def test_it_is_set_printed_and_unset(run: Run, settings: Path) -> None:
    assert run("config", "project").stderr == "No default project is set.\n"
    assert run("config", "project", "team-a").stdout == f"The default project is team-a: {settings}\n"
    assert settings.read_text() == "project: team-a\n"
    assert run("config", "project").stdout == "team-a\n"
    settings.write_text("# mine\nproject: team-a  # now\n")
    assert run("config", "project", "team-b").exit_code == 0
    assert settings.read_text() == "# mine\nproject: team-b  # now\n"
    assert run("config", "project", "--unset").exit_code == 0
    assert run("config", "project").stdout == ""
    assert run("config", "project", "team-c").exit_code == 0
    assert run("config", "project").stdout == "team-c\n"


@pytest.mark.parametrize(
    "content",
    [
        b"project: [a]\n", b"project: Team A\n", b"projct: a\n", b"- a\n", b"a: 'b\n", b"\xff\n", b"#" * 70_000,
        b"a: 1\n---\nb: 2\n",
    ],
)  # fmt: skip
def test_a_file_that_can_not_be_used_is_told(run: Run, settings: Path, embedded: Path, content: bytes) -> None:
    settings.parent.mkdir(parents=True)
    settings.write_bytes(content)
    for line in (["config", "project"], ["list", "--embedded", embedded], ["config", "project", "x"]):
        result = run(*line)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error GPU6119: {settings}: ")
    assert settings.read_bytes() == content
    assert run("list", "-A", "--embedded", embedded).exit_code == 0


def test_a_folder_or_a_pipe_in_its_place_is_told(run: Run, settings: Path) -> None:
    settings.mkdir(parents=True)
    assert run("config", "project").stderr.startswith(f"error GPU6119: {settings}: ")


def test_without_a_home_there_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.delenv("HOME")
    assert run("config", "project").exit_code == 0
    assert run("config", "project", "a").stderr.startswith("error GPU6119: ")


@pytest.mark.parametrize("name", ["Team", "a/b", "-", "a b", "x" * 99, "\x1b[0m"])
def test_what_is_no_name_is_refused(run: Run, settings: Path, name: str) -> None:
    result = run("config", "project", "--", name)
    assert result.exit_code == 2
    assert not settings.exists()


@pytest.mark.usefixtures("in_no_repository")
def test_commands_that_look_use_it(run: Run, settings: Path, embedded: Path) -> None:
    del settings
    run("config", "project", "team-b")
    there = ("--embedded", embedded)
    assert {line.split("/")[0] for line in run("list", "-o", "name", *there).stdout.splitlines()} == {"team-b"}
    assert len({line.split("/")[0] for line in run("list", "-A", "-o", "name", *there).stdout.splitlines()}) == 4
    assert {line.split("/")[0] for line in run("list", "-p", "team-a", "-o", "name", *there).stdout.splitlines()} == {
        "team-a"
    }
    for command in (("get", "-o", "name"), ("explain",)):
        assert run(*command, "b-1-g06", *there).exit_code == 0
        lost = run(*command, "a-1-g", *there)
        assert (lost.exit_code, lost.stderr.splitlines()) == (
            2, ["error GPU9003: there is no job team-b/a-1-g in this cluster", "help: did you mean team-a/a-1-g?"],
        )  # fmt: skip
        assert run(*command, "a-1-g", "-p", "team-a", *there).exit_code == 0
        assert run(*command, "team-a/a-1-g", *there).exit_code == 0
    assert run("logs", "a-1-g", *there).stderr.startswith("error GPU7041")


def test_commands_that_edit_use_it(
    run: Run, settings: Path, repository: WorkingCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    del settings
    monkeypatch.chdir(repository.folder)
    run("config", "project", "team-b")
    assert run("submit", "more", "-i", "x").exit_code == 0
    assert (repository.folder / "clusters/tr4858/projects/team-b/jobs/more.yaml").exists()
    for verb in ("suspend", "resume", "delete"):
        assert run(verb, "more").exit_code == 0
        assert run(verb, "a-1-g").exit_code == 2
        assert run(verb, "team-a/a-1-g", "--dry-run").exit_code == 0
