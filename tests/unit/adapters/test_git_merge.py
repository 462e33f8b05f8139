"""What a plan compares: base and the merge of base and head, made beside the repository."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from gpuctl.adapters.files import read_tree
from gpuctl.adapters.gitmerge import Compared, compare, roll_back, since
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.comparison import Merge
from gpuctl.model.ids import NO_REVISION
from gpuctl.model.source import SourceFault, SourceTree

ONE = "clusters/one"
LONG = "".join(f"line-{n}: {n}\n" for n in range(30))


class Clone:
    """A repository with a working tree, used as a person does."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        subprocess.run(["git", "init", "-q", "-b", "main", *options, str(folder)], check=True)
        self.commit(**{f"{ONE}/cluster.yaml": LONG, f"{ONE}/a.yaml": LONG, "README.md": "hello\n"})

    def git(self, *args: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        done = subprocess.run(["git", "-C", str(self.folder), *who, *args], check=True, capture_output=True)
        return done.stdout.decode().strip()

    def write(self, **files: str | None) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)

    def commit(self, **files: str | None) -> str:
        self.write(**files)
        self.git("add", "-A")
        self.git("commit", "-qm", "made")
        return self.git("rev-parse", "HEAD")

    def compare(self, base: str = "main", head: str | None = "feature", *, direct: bool = False) -> Compared:
        return compare(self.folder / ONE, base, head, read_tree, direct=direct)

    def fault(self, base: str, head: str | None) -> SourceUnavailable:
        with pytest.raises(SourceUnavailable) as caught:
            self.compare(base, head)
        return caught.value


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / 'a "quoted"\n\\ folder')


def texts(tree: SourceTree | None) -> dict[str, str]:
    files = {} if tree is None else tree.files
    return {Path(name).name: file.content.decode() for name, file in files.items()}


def contents(folder: Path) -> str:
    """A digest of all that is in a folder, Git's own files too."""
    found = ((str(path), path.read_bytes() if path.is_file() else b"") for path in sorted(folder.rglob("*")))
    return sha256(repr(list(found)).encode()).hexdigest()


def edited(line: int, text: str = "changed") -> str:
    return LONG.replace(f"line-{line}: {line}\n", f"line-{line}: {text}\n")


def test_what_base_has_gained_is_on_both_sides(clone: Clone) -> None:
    parted = clone.git("rev-parse", "HEAD")
    clone.git("checkout", "-qb", "feature")
    head = clone.commit(**{f"{ONE}/a.yaml": edited(20), f"{ONE}/new.yaml": "x: 1\n"})
    clone.git("checkout", "-q", "main")
    clone.commit(**{f"{ONE}/theirs.yaml": "y: 1\n"})
    base = clone.commit(**{f"{ONE}/a.yaml": edited(2)})
    before = contents(clone.folder)
    compared = clone.compare()
    assert contents(clone.folder) == before
    said = compared.comparison
    assert (said.merge, said.merge_base, said.base_moved_by) == (Merge.CLEAN, parted, 2)
    assert (said.base_commit, said.head_commit) == (base, head)
    both = edited(2).replace("line-20: 20\n", "line-20: changed\n")
    assert texts(compared.before) == {"cluster.yaml": LONG, "a.yaml": edited(2), "theirs.yaml": "y: 1\n"}
    assert texts(compared.after) == {**texts(compared.before), "a.yaml": both, "new.yaml": "x: 1\n"}
    assert texts(clone.compare(direct=True).after) == {"cluster.yaml": LONG, "a.yaml": edited(20), "new.yaml": "x: 1\n"}


def test_the_working_tree_is_merged_as_it_would_be_committed(clone: Clone) -> None:
    clone.commit(**{"policies/rule.yaml": "z: 1\n"})
    clone.git("checkout", "-qb", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(20)})
    clone.git("checkout", "-q", "main")
    clone.commit(**{f"{ONE}/cluster.yaml": edited(3), f"{ONE}/theirs.yaml": "y: 1\n"})
    clone.git("checkout", "-q", "feature")
    clone.write(**{f"{ONE}/a.yaml": None, f"{ONE}/cluster.yaml": edited(15), "policies/rule.yaml": "z: 2\n"})
    clone.write(**{f'{ONE}/é "x".yaml': "w: 1\n"})
    before = contents(clone.folder)
    compared = clone.compare(head=None)
    assert contents(clone.folder) == before
    assert (compared.comparison.merge, compared.comparison.head_commit) == (Merge.CLEAN, NO_REVISION)
    both = edited(3).replace("line-15: 15\n", "line-15: changed\n")
    wanted = {"cluster.yaml": both, "theirs.yaml": "y: 1\n", "rule.yaml": "z: 2\n", 'é "x".yaml': "w: 1\n"}
    assert texts(compared.after) == wanted
    clone.write(**{f"{ONE}/cluster.yaml": edited(3, "ours")})
    assert clone.compare(head=None).comparison.conflicts == (f"{ONE}/cluster.yaml",)


def test_a_working_tree_without_the_folder_deletes_it(clone: Clone) -> None:
    clone.git("checkout", "-qb", "feature")
    clone.git("checkout", "-q", "main")
    clone.commit(**{"README.md": "more\n"})
    clone.git("checkout", "-q", "feature")
    clone.write(**{f"{ONE}/cluster.yaml": None, f"{ONE}/a.yaml": None})
    (clone.folder / ONE).rmdir()
    compared = clone.compare(head=None)
    assert (compared.after, compared.comparison.merge) == (None, Merge.CLEAN)


def test_a_file_that_can_not_be_read_is_told_of_not_merged(clone: Clone) -> None:
    clone.git("checkout", "-qb", "feature")
    clone.git("checkout", "-q", "main")
    clone.commit(**{"README.md": "more\n"})
    clone.git("checkout", "-q", "feature")
    (clone.folder / ONE / "link.yaml").symlink_to("/etc/passwd")
    after = clone.compare(head=None).after
    assert after is not None
    assert any(file.fault for file in after.files.values())


def test_policies_behind_a_link_that_leaves_the_repository_are_told_of(clone: Clone, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "rule.yaml").write_text("kind: Policy\n")
    (clone.folder / "policies").symlink_to(outside)
    after = clone.compare(head=None).after
    assert after is not None
    (told,) = [name for name, file in after.files.items() if file.fault is SourceFault.ESCAPES]
    assert told.endswith("policies")
    assert not any("rule" in name for name in after.files)


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize("name", ["clusters/out", "way/inner"])
def test_a_folder_behind_a_link_that_leaves_the_repository_is_not_read(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_repository: bool
) -> None:
    """CI plans each folder in clusters/: a request could name a private repository of the machine by a link."""
    private = tmp_path / "private"
    (private / "inner").mkdir(parents=True)
    for folder in (private, private / "inner"):
        (folder / "cluster.yaml").write_text("password: hunter2\n")
    if is_repository:
        for words in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", *words], cwd=private, check=True)
    (clone.folder / "clusters").mkdir(exist_ok=True)
    (clone.folder / "clusters" / "out").symlink_to(private)
    (clone.folder / "way").symlink_to(private)
    monkeypatch.chdir(clone.folder)
    assert {file.fault for file in read_tree(name).files.values()} == {SourceFault.ESCAPES}
    for head in (None, "HEAD"):
        with pytest.raises(SourceUnavailable, match="is not a Git repository"):
            compare(Path(name), "HEAD", head, read_tree)


def test_a_submodule_is_nothing_of_the_repository_around_it(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request could have a cluster's folder replaced by one, in which a branch is what the request likes."""
    other = Clone(tmp_path / "other")
    clone.git("rm", "-rq", ONE)
    clone.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.folder), ONE)
    clone.git("commit", "-qm", "a submodule")
    monkeypatch.chdir(clone.folder)
    for head in (None, "HEAD"):
        compared = compare(Path(ONE), "HEAD~1", head, read_tree)
        assert (compared.before is not None, compared.after) == (True, None)
        with pytest.raises(SourceUnavailable, match="no folder"):
            since(Path(ONE), "HEAD~1", read_tree, head)
    monkeypatch.chdir(ONE)
    assert compare(Path(ONE), "HEAD", "HEAD", read_tree).after is not None


def test_conflicts_are_named_and_head_is_compared_with_where_it_began(clone: Clone) -> None:
    clone.git("checkout", "-qb", "feature")
    hostile = f"{ONE}/\x1b[31m.yaml"
    clone.commit(**{f"{ONE}/a.yaml": edited(2, "theirs"), hostile: "a: 1\n"})
    clone.git("checkout", "-q", "main")
    clone.commit(**{f"{ONE}/a.yaml": edited(2, "ours"), hostile: "a: 2\n", f"{ONE}/new.yaml": "x: 1\n"})
    compared = clone.compare()
    assert compared.comparison.merge is Merge.CONFLICTS
    assert set(compared.comparison.conflicts) == {f"{ONE}/a.yaml", hostile}
    assert texts(compared.before) == {"cluster.yaml": LONG, "a.yaml": LONG}
    assert texts(compared.after)["a.yaml"] == edited(2, "theirs")


def test_a_name_that_is_no_utf8_is_spelt_out(clone: Clone) -> None:
    name = os.fsdecode(b"README-\xff.md")
    clone.git("checkout", "-qb", "feature")
    clone.commit(**{name: "a\n"})
    clone.git("checkout", "-q", "main")
    clone.commit(**{name: "b\n"})
    assert clone.compare().comparison.conflicts == ("README-\\xff.md",)


def test_a_file_that_base_has_renamed_is_followed(clone: Clone) -> None:
    clone.git("checkout", "-qb", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(20)})
    clone.git("checkout", "-q", "main")
    clone.git("mv", f"{ONE}/a.yaml", f"{ONE}/b.yaml")
    clone.commit()
    assert texts(clone.compare().after) == {"cluster.yaml": LONG, "b.yaml": edited(20)}


def test_what_is_merged_already_changes_nothing(clone: Clone) -> None:
    clone.git("branch", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(2)})
    compared = clone.compare()
    assert texts(compared.before) == texts(compared.after) == {"cluster.yaml": LONG, "a.yaml": edited(2)}


def test_a_base_that_has_not_moved_needs_no_merge(clone: Clone) -> None:
    clone.git("checkout", "-qb", "feature")
    head = clone.commit(**{f"{ONE}/a.yaml": edited(20)})
    compared = clone.compare()
    assert (compared.comparison.merge, compared.comparison.base_moved_by) == (Merge.CLEAN, 0)
    assert compared.after is not None
    assert compared.after.revision == head


def test_a_git_that_can_not_merge_so_is_told(clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone.git("checkout", "-qb", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(20)})
    clone.git("checkout", "-q", "main")
    clone.commit(**{f"{ONE}/new.yaml": "x: 1\n"})
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    old.write_text(f'#!/bin/sh\ncase "$*" in *--write-tree*) echo usage: >&2; exit 129;; esac\nexec {real} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    compared = clone.compare()
    assert compared.comparison.merge is Merge.UNSUPPORTED
    assert texts(compared.before) == {"cluster.yaml": LONG, "a.yaml": LONG}
    assert texts(compared.after) == {"cluster.yaml": LONG, "a.yaml": edited(20)}


def test_histories_without_a_common_commit(clone: Clone) -> None:
    clone.git("checkout", "-q", "--orphan", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(20)})
    assert clone.fault("main", "feature").code == "GPU8018"
    assert clone.compare(direct=True).comparison.merge is Merge.DIRECT


def test_a_shallow_clone_is_told_and_works_once_it_has_enough(clone: Clone, tmp_path: Path) -> None:
    clone.git("checkout", "-qb", "feature")
    for n in range(4):
        clone.commit(**{f"{ONE}/a.yaml": edited(20 + n)})
    clone.git("checkout", "-q", "main")
    clone.commit(**{f"{ONE}/new.yaml": "x: 1\n"})
    shallow = Clone.__new__(Clone)
    shallow.folder = tmp_path / "shallow"
    url, options = clone.folder.as_uri(), ["-q", "--depth=1", "--branch=feature"]
    subprocess.run(["git", "clone", *options, url, str(shallow.folder)], check=True)
    missing = shallow.fault("origin/main", "HEAD")
    assert (missing.code, "commit origin/main is not in" in str(missing)) == ("GPU8017", True)
    shallow.git("fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
    apart = shallow.fault("origin/main", "HEAD")
    assert (apart.code, "origin/main and HEAD have in common" in str(apart)) == ("GPU8017", True)
    shallow.git("fetch", "-q", "--deepen=4", "origin", "main:refs/remotes/origin/main", "feature")
    compared = shallow.compare("origin/main", "HEAD")
    assert compared.comparison.merge is Merge.CLEAN
    assert texts(compared.after) == {"cluster.yaml": LONG, "a.yaml": edited(23), "new.yaml": "x: 1\n"}


def test_worktrees_and_longer_names_of_objects(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "long", "--object-format=sha256")
    clone.git("checkout", "-qb", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(20)})
    clone.git("worktree", "add", "-q", str(tmp_path / "beside"), "main")
    beside = Clone.__new__(Clone)
    beside.folder = tmp_path / "beside"
    beside.commit(**{f"{ONE}/new.yaml": "x: 1\n"})
    beside.git("checkout", "-q", "--detach", "feature")
    for head in ("feature", None):
        assert texts(beside.compare(head=head).after) == {
            "cluster.yaml": LONG,
            "a.yaml": edited(20),
            "new.yaml": "x: 1\n",
        }


@pytest.mark.parametrize("name", ["--all", "-h", "", "main..feature", "main\n", "\x00", "main^{/x}"])
def test_a_name_is_never_an_option(clone: Clone, name: str) -> None:
    assert clone.fault(name, "main").code in {"GPU8006", "GPU8011"}


def test_a_rollback_takes_the_folder_back_and_nothing_else(clone: Clone) -> None:
    first = clone.commit(**{"policies/rule.yaml": "z: 1\n", f"{ONE}/gone.yaml": "x: 1\n"})
    clone.commit(**{"policies/rule.yaml": "z: 2\n"})
    clone.commit(**{f"{ONE}/gone.yaml": None, f"{ONE}/new.yaml": "x: 2\n", f"{ONE}/a.yaml": edited(3)})
    before = contents(clone.folder)
    compared = roll_back(clone.folder / ONE, "main", "main~2")
    assert contents(clone.folder) == before
    said = compared.comparison
    assert (said.merge, said.head_commit, said.base_moved_by, said.folder) == (Merge.ROLLBACK, first, 1, ONE)
    assert texts(compared.before) == {
        "cluster.yaml": LONG,
        "a.yaml": edited(3),
        "new.yaml": "x: 2\n",
        "rule.yaml": "z: 2\n",
    }
    assert texts(compared.after) == {"cluster.yaml": LONG, "a.yaml": LONG, "gone.yaml": "x: 1\n", "rule.yaml": "z: 2\n"}


def test_a_rollback_puts_links_back_as_links(clone: Clone) -> None:
    """What they lead to, outside of the folder, stays as it is now."""
    clone.write(**{"shared.yaml": "s: 1\n"})
    (clone.folder / ONE / "link.yaml").symlink_to("../../shared.yaml")
    (clone.folder / ONE / "bad.yaml").symlink_to("nowhere.yaml")
    clone.commit(**{f"{ONE}/notes.txt": "not a declaration\n"})
    clone.commit(**{"shared.yaml": "s: 2\n", f"{ONE}/link.yaml": None, f"{ONE}/bad.yaml": None})
    compared = roll_back(clone.folder / ONE, "main", "main~1")
    assert texts(compared.after)["link.yaml"] == "s: 2\n"
    assert compared.after is not None
    assert compared.after.files[f"{ONE}/bad.yaml"].fault is SourceFault.DANGLING


def test_a_rollback_of_the_whole_repository(clone: Clone) -> None:
    first = clone.git("rev-parse", "HEAD")
    clone.commit(**{"more.yaml": "x: 1\n"})
    compared = roll_back(clone.folder, "main", first)
    assert texts(compared.before) == {"cluster.yaml": LONG, "a.yaml": LONG, "more.yaml": "x: 1\n"}
    assert texts(compared.after) == {"cluster.yaml": LONG, "a.yaml": LONG}


def test_a_rollback_is_to_an_earlier_commit_that_has_the_folder(clone: Clone) -> None:
    clone.git("checkout", "-qb", "feature")
    clone.commit(**{f"{ONE}/a.yaml": edited(3)})
    for base, to, code in (
        ("main", "feature", "GPU8019"),
        ("main", "nothing", "GPU8006"),
        ("feature", "-x", "GPU8006"),
    ):
        with pytest.raises(SourceUnavailable) as caught:
            roll_back(clone.folder / ONE, base, to)
        assert caught.value.code == code
    with pytest.raises(SourceUnavailable) as caught:
        roll_back(clone.folder / "clusters/two", "feature", "main")
    assert caught.value.code == "GPU8003"


def test_before_the_first_commit_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    for base in ("HEAD", "main"):
        with pytest.raises(SourceUnavailable) as caught:
            compare(tmp_path, base, None, lambda folder: SourceTree(cluster_dir=folder))
        assert caught.value.code == "GPU8024"


def test_of_a_bare_clone_is_told_that_it_has_no_folders(tmp_path: Path) -> None:
    """It was "not a Git repository": bare ones are not looked for around a folder."""
    bare = tmp_path / "gpus.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    with pytest.raises(SourceUnavailable) as caught:
        compare(bare / ONE, "main", "feature", lambda folder: SourceTree(cluster_dir=folder))
    assert caught.value.code == "GPU8026"


def test_what_is_passed_over_is_no_part_of_a_merge(clone: Clone) -> None:
    """A new `x.YAML` in the working tree: the change is merged as if it were not there."""
    clone.git("branch", "feature")
    clone.commit(**{f"{ONE}/b.yaml": "b: 1\n"})
    clone.git("checkout", "-q", "feature")
    clone.write(**{f"{ONE}/x.YAML": "x: 1\n", f"{ONE}/c.yaml": "c: 1\n"})
    compared = clone.compare(head=None)
    assert (compared.comparison.merge, compared.comparison.base_moved_by) == (Merge.CLEAN, 1)
    assert compared.after is not None
    assert {f"{ONE}/b.yaml", f"{ONE}/c.yaml"} <= compared.after.files.keys()
    assert f"{ONE}/x.YAML" not in compared.after.files
