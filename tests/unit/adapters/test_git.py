from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gpuctl.adapters.files import read_tree
from gpuctl.adapters.git import GitSource, WorkingCopy, without_password
from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import Limits
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.ids import Revision
from gpuctl.model.source import MAX_FILE_BYTES, SourceFault

CLUSTER = "clusters/one/cluster.yaml"
AT_MS = 1_596_000_000_000


@pytest.fixture
def copy(tmp_path: Path) -> WorkingCopy:
    made = WorkingCopy.create(tmp_path / "repo")
    made.write(CLUSTER, b"kind: Cluster\n")
    made.write("policies/rule.yaml", b"kind: Policy\n")
    made.write("README.md", b"hello\n")
    made.commit("first", AT_MS)
    return made


def source_of(
    copy: WorkingCopy, tmp_path: Path, *, branch: str | None = "main", path: str = "clusters/one"
) -> GitSource:
    return GitSource(str(copy.folder), path, branch, tmp_path / "work")


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def fault_of(source: GitSource) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        source.head()
    return caught.value.code


def test_the_log_is_asked_about_commits(tmp_path: Path) -> None:
    copy = WorkingCopy.create(tmp_path / "repo")
    copy.write("c/a.yaml", b"a: 1\n")
    first = copy.commit("x" * 300 + " \x1b[31m\n\nbody", 1_000_000)
    copy.write("c/a.yaml", b"a: 2\n")
    second = copy.commit("two", 2_000_000)
    source = GitSource(str(tmp_path / "repo"), "c", "main", tmp_path / "work")
    source.head()
    unknown = Revision("0" * 40)
    found = {each.revision: each for each in source.commits([first, unknown, second, Revision("--all")])}
    assert found.keys() == {first, second}
    assert (found[second].author, found[second].subject, found[second].written_ms) == ("gpuctl demo", "two", 2_000_000)
    assert len(found[first].subject) == 200
    assert source.commits([unknown]) == ()


def test_it_reads_declarations_and_the_nearest_policies_at_a_commit(copy: WorkingCopy, tmp_path: Path) -> None:
    source = source_of(copy, tmp_path)
    first = source.head()
    copy.write(CLUSTER, b"kind: Cluster # changed\n")
    second = copy.commit("second", AT_MS)
    assert source.head() == second
    assert dict(source.tree(first).files).keys() == {CLUSTER, "policies/rule.yaml"}
    assert source.tree(first).files[CLUSTER].content == b"kind: Cluster\n"
    assert source.tree(second).files[CLUSTER].content == b"kind: Cluster # changed\n"
    assert source.tree(second).files[CLUSTER].revision == second
    assert source.tree(second).cluster_dir == "clusters/one"
    assert source.follows(first, second)
    assert not source.follows(second, first)
    assert not source.follows(Revision("0" * 40), second)


def test_policies_of_the_cluster_itself_come_before_those_of_the_repository(copy: WorkingCopy, tmp_path: Path) -> None:
    copy.write("clusters/one/policies/own.yaml", b"kind: Policy\n")
    copy.commit("own policies", AT_MS)
    source = source_of(copy, tmp_path)
    assert set(source.tree(source.head()).files) == {CLUSTER, "clusters/one/policies/own.yaml"}


def test_the_root_of_a_repository_can_be_the_cluster(copy: WorkingCopy, tmp_path: Path) -> None:
    source = source_of(copy, tmp_path, path=".", branch=None)
    assert source.tree(source.head()).cluster_dir == "."
    assert set(source.tree(source.head()).files) == {CLUSTER, "policies/rule.yaml"}


def test_the_branch_that_was_checked_out_at_the_start_is_followed_whatever_is_checked_out_later(
    copy: WorkingCopy, tmp_path: Path
) -> None:
    source = source_of(copy, tmp_path, branch=None)
    main = source.head()
    git(copy.folder, "switch", "-q", "--orphan", "experiment")
    git(copy.folder, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "nothing here")
    assert (source.head(), source.branch) == (main, "main")
    git(copy.folder, "switch", "-q", "--detach", "main")
    assert source.head() == main


def test_where_no_branch_is_checked_out_the_commit_is_all_there_is(copy: WorkingCopy, tmp_path: Path) -> None:
    git(copy.folder, "switch", "-q", "--detach")
    source = source_of(copy, tmp_path, branch=None)
    only = source.head()
    assert (source.head(), source.branch) == (only, "HEAD")
    copy.write(CLUSTER, b"kind: Cluster # later\n")
    copy.commit("later", AT_MS)
    assert fault_of(source) == "GPU8020"
    git(copy.folder, "switch", "-q", "--detach", only)
    assert source.head() == only


def test_a_repository_without_a_commit_has_no_branch_yet(tmp_path: Path) -> None:
    empty = WorkingCopy.create(tmp_path / "repo")
    source = source_of(empty, tmp_path, branch=None)
    assert fault_of(source) == "GPU8002"
    empty.write(CLUSTER, b"kind: Cluster\n")
    assert source_of(empty, tmp_path, branch=None).branch == "HEAD"
    first = empty.commit("first", AT_MS)
    assert (source.head(), source.branch) == (first, "main")


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_folders_and_file_addresses(copy: WorkingCopy, tmp_path: Path, form: str) -> None:
    source = GitSource(form.format(copy.folder), "clusters/one", "main", tmp_path / "work")
    assert source.head() == Repository(copy.folder).resolve("main")


def test_a_remote_that_is_gone_is_unreachable_and_what_was_fetched_can_still_be_read(
    copy: WorkingCopy, tmp_path: Path
) -> None:
    source = source_of(copy, tmp_path)
    known = source.head()
    shutil.move(copy.folder, tmp_path / "elsewhere")
    assert fault_of(source) in {"GPU8001", "GPU8004"}
    restarted = source_of(copy, tmp_path)
    assert CLUSTER in restarted.tree(known).files
    shutil.move(tmp_path / "elsewhere", copy.folder)
    assert source.head() == known


def test_a_deleted_branch(copy: WorkingCopy, tmp_path: Path) -> None:
    git(copy.folder, "branch", "live")
    source = source_of(copy, tmp_path, branch="live")
    source.head()
    git(copy.folder, "branch", "-D", "live")
    assert fault_of(source) == "GPU8002"


@pytest.mark.parametrize("branch", ["--upload-pack=touch /tmp/x", "a..b", "", "a b", "-x"])
def test_a_branch_that_can_be_none(copy: WorkingCopy, tmp_path: Path, branch: str) -> None:
    assert fault_of(source_of(copy, tmp_path, branch=branch)) == "GPU8002"


def test_a_missing_path(copy: WorkingCopy, tmp_path: Path) -> None:
    source = source_of(copy, tmp_path, path="clusters/two")
    head = source.head()
    with pytest.raises(SourceUnavailable) as caught:
        source.tree(head)
    assert caught.value.code == "GPU8003"


@pytest.mark.parametrize("path", ["../etc", "/etc", "clusters/../../x"])
def test_a_path_outside_the_repository(copy: WorkingCopy, tmp_path: Path, path: str) -> None:
    with pytest.raises(SourceUnavailable) as caught:
        source_of(copy, tmp_path, path=path)
    assert caught.value.code == "GPU8003"


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert fault_of(GitSource(str(tmp_path / "plain"), ".", "main", tmp_path / "work")) == "GPU8004"


@pytest.mark.parametrize(
    "url",
    ["ext::sh -c touch% /tmp/x", "--upload-pack=x", "http://example.com/x", "git://example.com/x", "fd::17", "-x:y"],
)
def test_addresses_that_could_run_commands_or_be_changed_on_the_way(tmp_path: Path, url: str) -> None:
    with pytest.raises(SourceUnavailable) as caught:
        GitSource(url, ".", "main", tmp_path / "work")
    assert caught.value.code == "GPU8008"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@h/x.git", "https://h/x.git"),
        ("https://token@h/x.git", "https://h/x.git"),
        ("https://u:s3@cret@h/x.git", "https://h/x.git"),
        ("https://u:s3/cret@h/x.git", "https://h/x.git"),
        ("https:/u:p@h/x.git", "https:/h/x.git"),
        ("https://u:p@h/x.git?private_token=secret", "https://h/x.git?..."),
        ("https://h:8443/x@1.git", "https://h:8443/x@1.git"),
        ("https://h/x@1.git", "https://h/x@1.git"),
        ("git@h:x.git", "git@h:x.git"),
        ("/srv/what?.git", "/srv/what?.git"),
    ],
)
def test_no_secret_of_an_address_is_shown_however_it_is_written(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_password_in_the_address_is_not_shown(tmp_path: Path) -> None:
    source = GitSource("https://me:secret@127.0.0.1:9/x.git", ".", "main", tmp_path / "work")
    with pytest.raises(SourceUnavailable) as caught:
        source.head()
    assert caught.value.code == "GPU8001"
    assert "secret" not in str(caught.value)


def test_a_rewritten_branch_is_followed_and_the_old_commit_stays_readable(copy: WorkingCopy, tmp_path: Path) -> None:
    source = source_of(copy, tmp_path)
    copy.write(CLUSTER, b"kind: Cluster # old\n")
    old = copy.commit("old", AT_MS)
    assert source.head() == old
    git(copy.folder, "reset", "-q", "--hard", "HEAD~1")
    other = WorkingCopy(copy.folder)
    other.write(CLUSTER, b"kind: Cluster # new\n")
    new = other.commit("new", AT_MS)
    assert source.head() == new
    assert not source.follows(old, new)
    assert source.tree(old).files[CLUSTER].content == b"kind: Cluster # old\n"


@pytest.mark.parametrize("damage", ["pack", "lock", "empty", "config"])
def test_a_damaged_clone_is_made_anew(copy: WorkingCopy, tmp_path: Path, damage: str) -> None:
    source = source_of(copy, tmp_path)
    head = source.head()
    clone = next((tmp_path / "work").iterdir())
    if damage == "pack":
        for file in [*clone.glob("objects/pack/*"), *clone.glob("objects/??/*")]:
            file.chmod(0o600)
            file.write_bytes(b"garbage")
    elif damage == "lock":
        (clone / "refs/gpuctl/refs/heads/main.lock").touch()
        copy.write(CLUSTER, b"kind: Cluster # next\n")
        head = copy.commit("next", AT_MS)
    elif damage == "empty":
        shutil.rmtree(clone)
        clone.mkdir()
    else:
        (clone / "config").write_text("[broken")
    again = source_of(copy, tmp_path)
    assert again.head() == head
    assert CLUSTER in again.tree(head).files


def test_a_shallow_repository(copy: WorkingCopy, tmp_path: Path) -> None:
    old = Repository(copy.folder).resolve("main")
    copy.write(CLUSTER, b"kind: Cluster # two\n")
    head = copy.commit("two", AT_MS)
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{copy.folder}", str(shallow)], check=True)
    source = GitSource(str(shallow), "clusters/one", "main", tmp_path / "work")
    assert source.head() == head
    assert CLUSTER in source.tree(head).files
    assert not source.follows(old, head)
    assert source.confirmations(old, head) == frozenset()


def test_links_are_followed_inside_the_commit_only(copy: WorkingCopy, tmp_path: Path) -> None:
    copy.write("shared/team/job.yaml", b"kind: Job\n")
    folder = copy.folder / "clusters/one"
    for name, target in {
        "file.yaml": "../../shared/team/job.yaml",
        "team": "../../shared/team",
        "out.yaml": "../../../outside.yaml",
        "root.yaml": "/etc/passwd",
        "nowhere.yaml": "missing.yaml",
        "loop.yaml": "loop.yaml",
        "folder.yaml": "../../shared",
        "notes.txt": "/etc/passwd",
    }.items():
        (folder / name).symlink_to(target)
    git(copy.folder, "add", "-A")
    copy.commit("links", AT_MS)
    source = source_of(copy, tmp_path)
    files = source.tree(source.head()).files
    below = {path.removeprefix("clusters/one/"): file for path, file in files.items()}
    assert below["file.yaml"].content == b"kind: Job\n"
    assert "team/job.yaml" not in below
    faults = {path: file.fault for path, file in below.items() if file.fault}
    assert faults == {
        "out.yaml": SourceFault.ESCAPES,
        "root.yaml": SourceFault.ESCAPES,
        "nowhere.yaml": SourceFault.DANGLING,
        "loop.yaml": SourceFault.DANGLING,
        "folder.yaml": SourceFault.UNREADABLE,
    }


def test_a_file_that_is_too_large_is_not_read(copy: WorkingCopy, tmp_path: Path) -> None:
    copy.write("clusters/one/big.yaml", b"#" * (MAX_FILE_BYTES + 1))
    copy.commit("big", AT_MS)
    source = source_of(copy, tmp_path)
    file = source.tree(source.head()).files["clusters/one/big.yaml"]
    assert (file.content, file.fault) == (b"", SourceFault.TOO_LARGE)


def test_a_commit_and_its_working_tree_read_alike(copy: WorkingCopy, tmp_path: Path) -> None:
    for path in [
        "a.yaml",
        "b.yml",
        "c.json",
        ".hidden/d.yaml",
        "sub/.x/e.yaml",
        ".f.yaml",
        "sub/g.yaml",
        "h.YAML",
        "sub/i.Yml",
    ]:
        copy.write(f"clusters/one/{path}", b"kind: Job\n")
    (copy.folder / "clusters/one/out.yaml").symlink_to("/etc/passwd")
    git(copy.folder, "add", "-A")
    copy.commit("files", AT_MS)
    source = source_of(copy, tmp_path)
    committed = {path: (f.content, f.fault) for path, f in source.tree(source.head()).files.items()}
    on_disk = read_tree(str(copy.folder / "clusters/one"))
    here = {Path(path).relative_to(copy.folder).as_posix(): (f.content, f.fault) for path, f in on_disk.files.items()}
    assert committed == here
    misnamed = {path for path, (_, fault) in here.items() if fault is SourceFault.MISNAMED}
    assert misnamed == {"clusters/one/h.YAML", "clusters/one/sub/i.Yml"}


def test_names_with_spaces_and_other_letters(copy: WorkingCopy, tmp_path: Path) -> None:
    copy.write("clusters/one/größe 1.yaml", b"x: 1\n")
    copy.commit("names", AT_MS)
    source = source_of(copy, tmp_path)
    assert source.tree(source.head()).files["clusters/one/größe 1.yaml"].content == b"x: 1\n"


def test_confirmations_of_a_change_are_with_it_and_after_it(copy: WorkingCopy, tmp_path: Path) -> None:
    def git(*args: str) -> str:
        done = subprocess.run(["git", "-C", str(copy.folder), *args], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(line: str, path: str) -> str:
        copy.write(path, line.encode())
        return copy.commit(f"{line}\n\nGpuctl-Confirm: {line}\n", AT_MS)

    first = commit("before", "README.md")
    git("switch", "-qc", "topic")
    commit("with-it", "clusters/c/projects/p/j.yaml")
    commit("beside-it", "README.md")
    git("switch", "-q", "-")
    commit("meanwhile", "clusters/c/projects/q/j.yaml")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "merge", "-q", "--no-edit", "-X", "theirs", "topic")
    merge = Revision(git("rev-parse", "HEAD"))
    copy_source = source_of(copy, tmp_path, path="clusters/c")
    assert copy_source.head() == merge
    of_p = {"with-it", "beside-it"}
    assert copy_source.confirmations(Revision(""), merge, "projects/p") == of_p
    assert copy_source.confirmations(Revision("0" * 40), merge, "projects/p") == of_p
    assert copy_source.confirmations(Revision(""), merge, "") == of_p
    assert copy_source.confirmations(Revision(""), merge, "projects/q") == of_p | {"meanwhile"}
    assert copy_source.confirmations(Revision(first), merge, "projects/none") == of_p | {"meanwhile"}


def test_confirmations_are_trailers_since_a_commit(copy: WorkingCopy, tmp_path: Path) -> None:
    first = copy.commit("one\n\nGpuctl-Confirm: aaa\n", AT_MS)
    head = copy.commit("two\n\nSigned-off-by: x\nGpuctl-Confirm: bbb\nGpuctl-Confirm: ccc\n", AT_MS)
    copy_source = source_of(copy, tmp_path)
    assert copy_source.head() == head
    assert copy_source.confirmations(first, head) == {"bbb", "ccc"}
    assert copy_source.confirmations(Revision(""), head) == {"aaa", "bbb", "ccc"}
    assert copy_source.confirmations(Revision("0" * 40), head) == {"aaa", "bbb", "ccc"}


def test_of_a_new_clone_that_can_not_be_completed_nothing_is_left(copy: WorkingCopy, tmp_path: Path) -> None:
    """It took as much of the disk as the whole repository, beside the old clone, which then had no room for a fetch."""
    source = source_of(copy, tmp_path)
    first = source.head()
    copy.write("large.bin", os.urandom(4 << 20))
    copy.commit("large", AT_MS)
    shutil.rmtree(source.clone / "objects")
    bounded = GitSource(str(copy.folder), "clusters/one", "main", tmp_path / "work", limits=Limits(file_bytes=2 << 20))
    assert fault_of(bounded) == "GPU8015"
    assert [path.name for path in (tmp_path / "work").iterdir()] == [source.clone.name]
    assert source.head() != first


def test_a_fetch_ends_when_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow-ssh"
    slow.write_text("#!/bin/sh\nsleep 300\n")
    slow.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(slow))
    began = time.monotonic()
    source = GitSource("host:repo", ".", "main", tmp_path / "work", stop=lambda: time.monotonic() > began + 0.2)
    assert fault_of(source) == "GPU8001"
    assert time.monotonic() - began < 60


def test_a_machine_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GitSource(str(tmp_path), ".", "main", tmp_path / "work")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fault_of(source) == "GPU8011"


def test_resolving_names(copy: WorkingCopy) -> None:
    repository, path = Repository.containing(copy.folder / "clusters/one")
    assert path == "clusters/one"
    head = repository.resolve("main")
    assert repository.resolve(head[:10]) == repository.resolve("HEAD") == head
    for bad in ["", "-x", "nope", "--help", "main:clusters"]:
        with pytest.raises(SourceUnavailable) as caught:
            repository.resolve(bad)
        assert caught.value.code == "GPU8006"


def test_a_name_of_several_things_is_no_commits(copy: WorkingCopy) -> None:
    """Git takes the tag. Where it takes what a name says in any case, a tag of that name hinders nobody."""
    repository, _ = Repository.containing(copy.folder)
    head = repository.resolve("main")
    for ref in ("refs/remotes/origin/main", "refs/tags/origin/main", "refs/tags/HEAD", f"refs/tags/{head}"):
        subprocess.run(["git", "-C", str(copy.folder), "update-ref", ref, "HEAD"], check=True)
    for name in ("origin/main", "origin/main~0"):
        with pytest.raises(SourceUnavailable) as caught:
            repository.resolve(name)
        assert caught.value.code == "GPU8025"
    for name in ("refs/remotes/origin/main", "HEAD", "HEAD~0", "@", head):
        assert repository.resolve(name) == head


def test_a_link_is_what_it_is_in_a_commit(copy: WorkingCopy, tmp_path: Path) -> None:
    """It has nothing below it there. Where a link elsewhere leads is the caller's own choice."""
    (copy.folder / "clusters/two").symlink_to("one")
    (copy.folder / "clusters/top").symlink_to("..")
    (tmp_path / "way").symlink_to(copy.folder)
    (tmp_path / "inside").symlink_to(copy.folder / "clusters")
    for name in ("clusters/two", "clusters/top", "clusters/top/clusters/one", "clusters/two/../one"):
        assert Repository.containing(copy.folder / name)[1] == os.path.normpath(name)
    for way in ("way/clusters/one", "inside/one"):
        assert Repository.containing(tmp_path / way)[1] == "clusters/one"


def test_a_removed_file_is_gone_from_the_next_commit(copy: WorkingCopy, tmp_path: Path) -> None:
    copy.remove("policies/rule.yaml")
    copy.commit("less", AT_MS)
    source = source_of(copy, tmp_path)
    assert set(source.tree(source.head()).files) == {CLUSTER}


@pytest.mark.parametrize("what", ["url", "path", "branch", "workdir"])
@pytest.mark.parametrize("text", ["x" * 5000, "a\udcff", "a\0b"])
def test_names_that_no_file_can_have(copy: WorkingCopy, tmp_path: Path, what: str, text: str) -> None:
    given = {"url": str(copy.folder), "path": "clusters/one", "branch": "main", "workdir": str(tmp_path / "work")}
    given[what] = str(tmp_path / text) if what in {"url", "workdir"} else text
    with pytest.raises(SourceUnavailable):  # noqa: PT012 - either may say so
        source = GitSource(given["url"], given["path"], given["branch"], Path(given["workdir"]))
        source.tree(source.head())
        if what == "workdir":
            raise SourceUnavailable("", "a folder may well be called so")
