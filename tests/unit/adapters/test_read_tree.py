from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpuctl.adapters.files import read_files, read_tree
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model import source
from gpuctl.model.source import MAX_ENTRIES, MAX_FILE_BYTES, SourceFault


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("repo/.git", "repo/policies", "repo/clusters/c/projects/.hidden", "policies"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("policies/p.yaml", "clusters/c/cluster.yaml", "clusters/c/projects/a.yml", "clusters/c/notes.txt",
                 "clusters/c/projects/.hidden/h.yaml"):  # fmt: skip
        (tmp_path / "repo" / name).write_text("a: 1\n")
    (tmp_path / "policies" / "outside.yaml").write_text("a: 1\n")
    return tmp_path / "repo"


def test_the_clusters_files_and_the_nearest_policies(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    for name in ("clusters/c", "clusters/c/", "./clusters/c"):
        tree = read_tree(name)
        assert tree.cluster_dir == "clusters/c"
        assert list(tree.files) == ["clusters/c/cluster.yaml", "clusters/c/projects/a.yml", "policies/p.yaml"]
    monkeypatch.chdir(repository / "clusters" / "c")
    assert list(read_tree(".").files) == ["../../policies/p.yaml", "cluster.yaml", "projects/a.yml"]


def test_paths_are_as_the_caller_gave_them(repository: Path) -> None:
    tree = read_tree(str(repository / "clusters" / "c"))
    assert f"{repository}/clusters/c/cluster.yaml" in tree.files
    assert f"{repository}/policies/p.yaml" in tree.files


def test_a_policies_folder_of_the_cluster_itself_is_nearest(repository: Path) -> None:
    (repository / "clusters/c/policies").mkdir()
    assert not [path for path in read_tree(str(repository / "clusters" / "c")).files if path.endswith("p.yaml")]


def test_policies_are_not_looked_for_above_the_repository(repository: Path) -> None:
    (repository / "policies" / "p.yaml").unlink()
    (repository / "policies").rmdir()
    assert not [path for path in read_tree(str(repository / "clusters" / "c")).files if path.endswith("outside.yaml")]
    (repository / ".git").rmdir()
    assert [path for path in read_tree(str(repository / "clusters" / "c")).files if path.endswith("outside.yaml")]


def test_links_stay_in_the_repository(repository: Path, tmp_path: Path) -> None:
    folder = repository / "clusters" / "c"
    (tmp_path / "secret.yaml").write_text("a: 1\n")
    (folder / "in.yaml").symlink_to("../../policies/p.yaml")
    (folder / "out.yaml").symlink_to("../../../secret.yaml")
    (folder / "absolute.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "outside").symlink_to(tmp_path)
    (folder / "inside").symlink_to("projects")
    (folder / "odd.yaml").symlink_to("projects")
    files = {Path(path).name: file for path, file in read_tree(str(folder)).files.items()}
    assert (files["in.yaml"].content, files["in.yaml"].fault) == (b"a: 1\n", None)
    assert files["out.yaml"].fault is files["absolute.yaml"].fault is SourceFault.ESCAPES
    assert files["outside"].fault is SourceFault.ESCAPES
    assert files["odd.yaml"].fault is SourceFault.UNREADABLE
    assert files["gone.yaml"].fault is files["loop.yaml"].fault is SourceFault.DANGLING
    assert all(file.content == b"" for file in files.values() if file.fault)
    assert {"secret.yaml", "inside"}.isdisjoint(files)


@pytest.mark.parametrize("name", ["policies", "clusters/c"])
def test_nothing_is_listed_behind_a_link_that_leaves_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`policies -> /` of a pull request had CI walk its machine, and print the names of files there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "customer-x.yaml").write_text("a: 1\n")
    shutil.rmtree(repository / name)
    (repository / name).symlink_to(outside)
    monkeypatch.chdir(repository)
    files = read_tree("clusters/c").files
    assert files[name].fault is SourceFault.ESCAPES
    assert not any("customer" in path for path in files)
    assert [(path, file.fault) for path, file in read_files([name])] == [(name, SourceFault.ESCAPES)]


def test_a_link_that_leads_into_git_is_refused(repository: Path) -> None:
    (repository / ".git" / "config.yaml").write_text("a: 1\n")
    (repository / "clusters/c/config.yaml").symlink_to("../../.git/config.yaml")
    files = read_tree(str(repository / "clusters" / "c")).files
    assert files[f"{repository}/clusters/c/config.yaml"].fault is SourceFault.ESCAPES


def test_a_file_too_large_is_not_read(repository: Path) -> None:
    large = repository / "clusters" / "c" / "large.yaml"
    large.write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    file = read_tree(str(repository / "clusters" / "c")).files[str(large)]
    assert (file.content, file.fault) == (b"", SourceFault.TOO_LARGE)


def test_a_folder_named_like_a_file_is_looked_into(repository: Path) -> None:
    (repository / "clusters/c/odd.yaml").mkdir()
    (repository / "clusters/c/odd.yaml/x.yaml").write_text("a: 1\n")
    assert f"{repository}/clusters/c/odd.yaml/x.yaml" in read_tree(str(repository / "clusters" / "c")).files


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_tree(str(tmp_path / "nowhere")).files == {}


def refused(folder: Path) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        read_tree(str(folder))
    assert caught.value.code == "GPU8014"
    return str(caught.value)


def test_more_files_than_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in range(20):
        (tmp_path / f"{folder}").mkdir()
        monkeypatch.chdir(tmp_path / f"{folder}")
        Path("0").touch()
        for n in range(1, MAX_ENTRIES // 20 + 1):  # links: a file system makes them faster than files
            os.link("0", f"{n}")
    assert f"more than {MAX_ENTRIES} files and folders" in refused(tmp_path)


def test_more_than_is_read_of_one_cluster(tmp_path: Path) -> None:
    (tmp_path / "0.yaml").write_bytes(b"#" * MAX_FILE_BYTES)
    for n in range(1, 9):
        (tmp_path / f"{n}.yaml").symlink_to("0.yaml")
    assert "32 MiB of declarations" in refused(tmp_path)


@pytest.mark.parametrize("what", ["bytes", "files", "entries"])
def test_a_project_with_too_much_is_left_out_alone(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "evil", "z"):
        (tmp_path / "c" / "projects" / name).mkdir(parents=True)
        (tmp_path / "c" / "projects" / name / "job.yaml").write_text(name)
    evil = tmp_path / "c" / "projects" / "evil"
    if what == "bytes":
        (evil / "0.yaml").write_bytes(b"#" * MAX_FILE_BYTES)
        for n in range(1, 9):
            (evil / f"{n}.yaml").symlink_to("0.yaml")
    elif what == "files":
        monkeypatch.setattr(source, "MAX_FILES", 20)
        for n in range(20):
            (evil / f"{n}.yaml").touch()
    else:
        monkeypatch.setattr(source, "MAX_ENTRIES", 20)
        for n in range(20):
            (evil / f"{n}").mkdir()
    monkeypatch.chdir(tmp_path / "c")
    for folder in (".", str(tmp_path / "c")):
        root = "" if folder == "." else f"{folder}/projects/"
        files = {
            path.removeprefix(root).removeprefix("projects/"): file for path, file in read_tree(folder).files.items()
        }
        assert files.pop("evil/project.yaml").fault is SourceFault.LEFT_OUT
        assert {path: file.content for path, file in files.items()} == {"a/job.yaml": b"a", "z/job.yaml": b"z"}


def test_links_through_thousands_of_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").touch()
    (tmp_path / "l0").symlink_to(".")
    for n in range(1, 3000):
        (tmp_path / f"l{n}").symlink_to(f"l{n - 1}/l{n - 1}")
    (tmp_path / "far.yaml").symlink_to("l2999/job.yaml")
    (tmp_path / "near.yaml").symlink_to("l3/job.yaml")
    files = read_tree(str(tmp_path)).files
    assert files[f"{tmp_path}/far.yaml"].fault is SourceFault.DANGLING
    assert files[f"{tmp_path}/near.yaml"].fault is None


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "in.yaml").symlink_to("pipe.yaml")
    files = read_tree(str(tmp_path)).files
    assert files[f"{tmp_path}/pipe.yaml"].fault is files[f"{tmp_path}/in.yaml"].fault is SourceFault.UNREADABLE
    assert files[f"{tmp_path}/zero.yaml"].fault is SourceFault.ESCAPES
