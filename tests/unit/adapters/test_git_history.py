"""Which commit removed a job: also out of a file with others, by a merge, and never one that only moved it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuctl.adapters.githistory import removal_of
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.ids import JobId, ProjectName


class Repo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=Ana", "-c", "user.email=ana@example.com")
        done = subprocess.run(["git", "-C", str(self.folder), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, text: str, **files: tuple[str, ...]) -> str:
        """Files with jobs `project/name`; without any the file is deleted."""
        for name, jobs in files.items():
            path = self.folder / f"{name}.yaml"
            path.unlink(missing_ok=True)
            if jobs:
                path.write_text("---\n".join(map(declared, jobs)))
        self.git("add", "-A")
        self.git("commit", "-qm", text, "--date", "2026-11-24T10:00:00Z")
        return self.git("rev-parse", "HEAD")


def declared(job: str) -> str:
    project, _, name = job.partition("/")
    return (
        f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata:\n  name: {name}\n  project: {project}\nspec: {{image: x}}\n"
    )


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "repo")
    made.commit("first", a=("p/x", "p/y", "q/x"), b=("p/x-1", "p/1-x"))
    return made


def removed(repo: Repo, job: str) -> str | None:
    project, slash, name = job.partition("/")
    found = removal_of(repo.folder, JobId(ProjectName(project), name) if slash else job)
    return found.revision if found is not None else None


def test_out_of_a_file_with_others(repo: Repo) -> None:
    gone = repo.commit("Less\n\nbody", a=("p/y", "q/x"))
    repo.commit("later", c=("p/z",))
    found = removal_of(repo.folder, JobId(ProjectName("p"), "x"))
    assert found is not None
    assert (str(found.job), found.revision, found.author, found.date, found.subject) == (
        "p/x", gone, "Ana", "2026-11-24", "Less",
    )  # fmt: skip
    assert removed(repo, "x") is None  # q/x is still declared
    assert [removed(repo, job) for job in ("q/x", "p/y", "p/x-1", "p/none", "p/X*", "../x", "p/-G.")] == [None] * 7


def test_a_deleted_file_a_bare_name_and_a_second_time(repo: Repo) -> None:
    first = repo.commit("gone", b=())
    assert (removed(repo, "x-1"), removed(repo, "p/1-x")) == (first, first)
    repo.commit("back", b=("p/x-1",))
    assert removed(repo, "p/x-1") is None
    second = repo.commit("gone again", b=())
    assert (removed(repo, "p/x-1"), removed(repo, "p/1-x")) == (second, first)


def test_a_move_to_another_file_is_no_removal(repo: Repo) -> None:
    repo.commit("moved", b=(), c=("p/x-1", "p/1-x"))
    assert removed(repo, "p/x-1") is None


def test_what_a_merge_brought_is_the_merges(repo: Repo) -> None:
    repo.git("switch", "-qc", "side")
    repo.commit("on a branch", b=())
    repo.git("switch", "-q", "main")
    repo.commit("meanwhile", c=("p/z",))
    repo.git("merge", "-q", "--no-ff", "-m", "Merge side", "side")
    assert removed(repo, "p/x-1") == repo.git("rev-parse", "HEAD")


def test_a_shallow_clone_and_no_repository(repo: Repo, tmp_path: Path) -> None:
    repo.commit("gone", b=())
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repo.folder}", str(tmp_path / "shallow")], check=True)
    assert removal_of(tmp_path / "shallow", "x-1") is None
    (tmp_path / "none").mkdir()
    with pytest.raises(SourceUnavailable):
        removal_of(tmp_path / "none", "x-1")


def test_links_and_submodules_of_such_names_are_no_declarations(repo: Repo) -> None:
    (repo.folder / "link.yaml").symlink_to("b.yaml")
    repo.commit("linked")
    inner = repo.git("rev-parse", "HEAD")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{inner},inner.yaml")
    repo.git("commit", "-qm", "a submodule")
    (repo.folder / "link.yaml").unlink()
    gone = repo.commit("gone", b=())
    assert removed(repo, "p/x-1") == gone
