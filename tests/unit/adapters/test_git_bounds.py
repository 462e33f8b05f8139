"""Commits made to use up time and memory: each ends at a bound that is told, and hurts nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gitbombs import CLUSTER, Forge

from gpuctl.adapters.git import GitSource
from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import Limits
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.revisions import Desired, Revisions
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import MAX_ENTRIES, MAX_FILE_BYTES, MAX_FILES, MOST_LEFT_OUT, SourceFault, SourceFile
from gpuctl.observe import Records

MIB = 1 << 20


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge.create(tmp_path / "repo")


def below(forge: Forge, commit: str) -> dict[str, SourceFile]:
    """The files of the cluster's folder, by their paths in it, but for its cluster.yaml."""
    files = Repository(forge.folder).tree(Revision(commit), "clusters/one").files
    assert files[CLUSTER].content == b"kind: Cluster\n"
    return {path.removeprefix("clusters/one/"): file for path, file in files.items() if path != CLUSTER}


def refused(forge: Forge, commit: str) -> str:
    with pytest.raises(SourceUnavailable) as caught:
        Repository(forge.folder).tree(Revision(commit), "clusters/one")
    assert caught.value.code == "GPU8014"
    return str(caught.value)


def test_a_tree_bomb_is_told_and_not_unfolded(forge: Forge) -> None:
    began = time.monotonic()
    assert f"more than {MAX_ENTRIES} files and folders" in refused(
        forge, forge.commit({"clusters/one/x": forge.bomb()})
    )
    assert time.monotonic() - began < 120


def test_a_bomb_that_holds_no_file_at_all(forge: Forge) -> None:
    """A plain `ls-tree -r` prints nothing of it, and walks it for hours."""
    bomb = forge.bomb(leaf=forge.tree([]))
    assert "files and folders" in refused(forge, forge.commit({"clusters/one/x": bomb}))


def test_a_bomb_of_long_names(forge: Forge) -> None:
    tree = forge.tree([(*forge.file(), "job.yaml")])
    for _ in range(40):
        tree = forge.tree([("040000", tree, f"{n}{'x' * 250}") for n in range(2)])
    assert "MiB of paths" in refused(forge, forge.commit({"clusters/one/x": ("040000", tree)}))


def test_a_bomb_elsewhere_in_the_repository_is_not_even_seen(forge: Forge) -> None:
    links = {
        "clusters/one/in.yaml": forge.link(b"../../bomb/folder-0/folder-1/"),
        "clusters/one/job.yaml": forge.file(),
    }
    files = below(forge, forge.commit({"bomb": forge.bomb(), "policies": forge.file(), **links}))
    assert files["job.yaml"].content == b"kind: Job\n"
    assert files["in.yaml"].fault is SourceFault.UNREADABLE


def test_a_repository_with_more_files_elsewhere_than_are_ever_listed(forge: Forge) -> None:
    blob = forge.file()[1]
    many = forge.tree(("100644", blob, f"{n:07}.yaml") for n in range(MAX_ENTRIES + 1))
    files = below(
        forge, forge.commit({"app": ("040000", many), "clusters/one/a.yaml": forge.link(b"../../app/0000007.yaml")})
    )
    assert files["a.yaml"].content == b"kind: Job\n"


def test_too_many_declarations(forge: Forge) -> None:
    blob = forge.file()[1]
    many = forge.tree(("100644", blob, f"{n:07}.yaml") for n in range(MAX_FILES))
    assert f"more than {MAX_FILES} declaration files" in refused(
        forge, forge.commit({"clusters/one/x": ("040000", many)})
    )


def test_one_file_under_many_names_counts_as_often_as_it_is_compiled(forge: Forge) -> None:
    blob = forge.file(b"#" * MAX_FILE_BYTES)[1]
    tree = forge.tree([("100644", blob, f"{n}.yaml") for n in range(9)])
    assert "MiB of declarations" in refused(forge, forge.commit({"clusters/one/x": ("040000", tree)}))


def too_many(forge: Forge) -> tuple[str, str]:
    blob = forge.file()[1]
    return "040000", forge.tree(("100644", blob, f"{n:07}.yaml") for n in range(MAX_FILES + 1))


def too_large(forge: Forge) -> tuple[str, str]:
    """Each is a link to one file: a commit of some kilobytes."""
    large = [(*forge.file(b"#" * MAX_FILE_BYTES), "0.yaml")]
    return "040000", forge.tree([*large, *((*forge.link(b"0.yaml"), f"{n}.yaml") for n in range(1, 9))])


def too_many_links(forge: Forge) -> tuple[str, str]:
    links = [forge.link(b"%04d/" % n + b"x/" * 2000) for n in range(1100)]
    return "040000", forge.tree((*link, f"{n}.yaml") for n, link in enumerate(links))


def of_long_names(forge: Forge) -> tuple[str, str]:
    tree = forge.tree([(*forge.file(), "job.yaml")])
    for _ in range(40):
        tree = forge.tree([("040000", tree, f"{n}{'x' * 250}") for n in range(2)])
    return "040000", tree


TOO_MUCH: dict[str, Callable[[Forge], tuple[str, str]]] = {
    "files and folders": Forge.bomb,
    "folders alone": lambda forge: forge.bomb(leaf=forge.tree([])),
    "bytes of names": of_long_names,
    "one long name": lambda forge: ("040000", forge.tree([(*forge.file(), f"{'x' * 500_000}.yaml")])),
    "declarations": too_many,
    "bytes": too_large,
    "links": too_many_links,
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_a_project_with_too_much_is_left_out_alone(case: str, forge: Forge) -> None:
    """Its team may write nowhere else, and must not hold up what others declare."""
    others = {
        "jobs.yaml": forge.file(b"jobs"),
        "projects/a/job.yaml": forge.file(b"a"),
        "projects/z/job.yaml": forge.link(b"../../../../lib/z.yaml"),
    }
    evil = {"projects/evil": TOO_MUCH[case](forge)}
    below_one = {f"clusters/one/{path}": entry for path, entry in {**others, **evil}.items()}
    files = below(forge, forge.commit({**below_one, "lib/z.yaml": forge.file(b"z"), "policies/p.yaml": forge.file()}))
    assert files.pop("projects/evil/project.yaml").fault is SourceFault.LEFT_OUT
    assert {path: file.content for path, file in files.items()} == {
        "jobs.yaml": b"jobs",
        "policies/p.yaml": b"kind: Job\n",
        "projects/a/job.yaml": b"a",
        "projects/z/job.yaml": b"z",
    }


def test_a_project_is_left_out_of_a_cluster_at_the_root_of_the_repository(forge: Forge) -> None:
    tree = {"cluster.yaml": forge.file(), "projects/a/job.yaml": forge.file(b"a"), "projects/evil": forge.bomb()}
    files = Repository(forge.folder).tree(Revision(forge.commit(tree)), ".").files
    assert set(files) == {CLUSTER, "cluster.yaml", "projects/a/job.yaml", "projects/evil/project.yaml"}


def test_of_many_that_have_too_much_only_so_many_are_left_out(forge: Forge) -> None:
    large = forge.file(b"#" * MAX_FILE_BYTES)
    projects = [f"clusters/one/projects/{n}/{file}.yaml" for n in range(MOST_LEFT_OUT + 8) for file in range(2)]
    assert set(below(forge, forge.commit(dict.fromkeys(projects[:-22], large)))) >= {"projects/0/project.yaml"}
    assert "32 MiB of declarations" in refused(forge, forge.commit(dict.fromkeys(projects, large)))
    assert "32 MiB of declarations" in refused(
        forge, forge.commit({f"clusters/one/{n}.yaml": large for n in range(9)} | {projects[0]: large})
    )


def test_others_are_enforced_beside_a_project_that_has_too_much(forge: Forge, tmp_path: Path) -> None:
    """It stays as it was last good, and is told why; once it has less, it counts again."""
    source = GitSource(str(forge.folder), "clusters/one", "main", tmp_path / "work")
    revisions = Revisions(source)

    def composed(**jobs: str) -> Desired:
        pools = "[{name: p, nodes: [n1], gpusPerNode: 8}]"
        texts = {"cluster": f"Cluster\nmetadata: {{name: one}}\nspec: {{nodePools: {pools}}}"}
        for owner, name in jobs.items():
            texts[f"projects/{owner}/project"] = f"Project\nmetadata: {{name: {owner}}}\nspec: {{quota: 2}}"
            spec = "{image: x, gpus: 1}"
            texts[f"projects/{owner}/job"] = f"Job\nmetadata: {{name: {name}, project: {owner}}}\nspec: {spec}"
        files = {
            f"clusters/one/{path}.yaml": forge.file(f"apiVersion: gpuctl.dev/v1\nkind: {text}\n".encode())
            for path, text in texts.items()
        }
        forge.commit({**files, **({} if "evil" in jobs else {"clusters/one/projects/evil": forge.bomb()})})
        return revisions.compose(source.tree(source.head()), Records())

    def names(desired: Desired) -> set[str]:
        assert desired.declared is not None
        return {str(job.id) for job in desired.declared.jobs}

    assert names(composed(a="one", evil="mine")) == {"a/one", "evil/mine"}
    held = composed(a="two")
    assert names(held) == {"a/two", "evil/mine"}
    assert set(held.kept_back) == {"evil"}
    assert [found.code for found in held.diagnostics if found.code == "GPU1024"] == ["GPU1024"]
    assert names(composed(a="two", evil="less")) == {"a/two", "evil/less"}


@pytest.mark.parametrize("text", [b"a/../", b"./", b"//", b"x", b"../"])
def test_a_link_of_megabytes_leads_nowhere_at_once(forge: Forge, text: bytes) -> None:
    long = forge.link(text * (4 * MIB // len(text)))
    files = {"a.yaml": long, "b.yaml": forge.link(b"by/c.yaml"), "by": long, "job.yaml": forge.file()}
    commit = forge.commit({f"clusters/one/{name}": file for name, file in files.items()})
    began = time.process_time()
    found = below(forge, commit)
    assert time.process_time() - began < 10
    assert (found["a.yaml"].fault, found["b.yaml"].fault) == (SourceFault.DANGLING, SourceFault.DANGLING)
    assert found["job.yaml"].content == b"kind: Job\n"


def test_links_through_links_end(forge: Forge) -> None:
    """Each leads through the one before twice: two to the power of their number."""
    links = {"l0": forge.link(b".")} | {f"l{n}": forge.link(f"l{n - 1}/l{n - 1}".encode()) for n in range(1, 40)}
    files = {**links, "short.yaml": forge.link(b"l3/job.yaml"), "long.yaml": forge.link(b"l39/job.yaml")}
    commit = forge.commit({f"clusters/one/{name}": file for name, file in {**files, "job.yaml": forge.file()}.items()})
    began = time.process_time()
    found = below(forge, commit)
    assert time.process_time() - began < 10
    assert found["short.yaml"].content == b"kind: Job\n"
    assert found["long.yaml"].fault is SourceFault.DANGLING


def test_as_many_links_as_there_may_be_are_followed_in_a_moment(forge: Forge) -> None:
    """Each of its own way out of the cluster's folder, with as many parts as there are letters."""
    deep = forge.nested({"/".join("abcdefgh"): forge.file()})
    links = [
        ("120000", forge.blob(f"../../../{n}/../{'/'.join('abcdefgh')}".encode()), f"{n:03}.yaml") for n in range(100)
    ]
    folders = {str(n): forge.file() for n in range(0, 100, 2)}
    files = {
        "a": ("040000", forge.run("rev-parse", f"{deep}:a")),
        **folders,
        "clusters/one/x": ("040000", forge.tree(links)),
    }
    commit = forge.commit({**files, **{f"{n}/f": forge.file() for n in range(1, 100, 2)}})
    began = time.process_time()
    found = below(forge, commit)
    assert time.process_time() - began < 10
    assert found["x/001.yaml"].content == b"kind: Job\n"
    assert found["x/000.yaml"].fault is SourceFault.DANGLING  # through a file


@pytest.mark.parametrize(
    ("target", "leads_to"),
    [
        (b"../../lib/jobs/one.yaml", b"one"),
        (b"../../lib/jobs/../jobs/./one.yaml", b"one"),
        (b"../../lib/way/two.yaml", b"two"),
        (b"../../lib/way/../up.yaml", b"up"),  # one up from where the link leads, not from where it is
        (b"../../lib/chain.yaml", b"one"),
        (b"here.yaml", b"here"),
        (b"sub/../here.yaml", b"here"),
        (b"../../lib", SourceFault.UNREADABLE),
        (b"../..", SourceFault.UNREADABLE),
        (b"../../lib/none.yaml", SourceFault.DANGLING),
        (b"../../lib/jobs/one.yaml/x", SourceFault.DANGLING),
        (b"../../lib/jobs/none/../one.yaml", SourceFault.DANGLING),
        (b"../../module", SourceFault.DANGLING),
        (b"../../module/x.yaml", SourceFault.DANGLING),
        (b"../../../one.yaml", SourceFault.ESCAPES),
        (b"../../lib/out.yaml", SourceFault.ESCAPES),
        (b"/clusters/one/here.yaml", SourceFault.ESCAPES),
        (b"", SourceFault.DANGLING),
        (b"\xff\xfe", SourceFault.DANGLING),
        (b"a\0b", SourceFault.DANGLING),
        (b":(top)clusters/one/here.yaml", SourceFault.DANGLING),
        (b"../../lib/*/one.yaml", SourceFault.DANGLING),
    ],
)
def test_where_a_link_leads(forge: Forge, target: bytes, leads_to: bytes | SourceFault) -> None:
    commit = forge.commit({
        "lib/jobs/one.yaml": forge.file(b"one"),
        "lib/jobs/deep/two.yaml": forge.file(b"two"),
        "lib/up.yaml": forge.file(b"wrong"),
        "lib/jobs/up.yaml": forge.file(b"up"),
        "lib/way": forge.link(b"jobs/deep/../deep"),
        "lib/chain.yaml": forge.link(b"chain2.yaml"),
        "lib/chain2.yaml": forge.link(b"way/../one.yaml"),
        "lib/out.yaml": forge.link(b"../../etc/passwd"),
        "module": ("160000", "1" * 40),
        "clusters/one/here.yaml": forge.file(b"here"),
        "clusters/one/sub/x": forge.file(b""),
        "clusters/one/link.yaml": forge.link(target),
    })  # fmt: skip
    file = below(forge, commit)["link.yaml"]
    assert (file.fault or file.content) == leads_to


def test_names_that_are_no_text_stay_apart(forge: Forge) -> None:
    tree = forge.tree([(*forge.file(), os.fsdecode(b"\xff%d.yaml" % n)) for n in (1, 2)])
    commit = forge.commit({"clusters/one/x": ("040000", tree), "clusters/one/a.yaml": forge.link(b"x/\xff1.yaml")})
    assert set(below(forge, commit)) == {"a.yaml", "x/\\xff1.yaml", "x/\\xff2.yaml"}
    assert below(forge, commit)["a.yaml"].content == b"kind: Job\n"


def test_a_link_to_a_file_with_its_own_text_as_long_as_a_declaration(forge: Forge) -> None:
    """The same object is a file's content and a link's text: read as a file, it is still too long for a link."""
    text = b"#" * 5000
    repository = Repository(forge.folder)
    first = forge.commit({"clusters/one/a.yaml": forge.file(text)})
    assert repository.tree(Revision(first), "clusters/one").files["clusters/one/a.yaml"].content == text
    second = forge.commit({"clusters/one/a.yaml": forge.file(text), "clusters/one/b.yaml": forge.link(text)})
    assert repository.tree(Revision(second), "clusters/one").files["clusters/one/b.yaml"].fault is SourceFault.DANGLING


def test_a_commit_beyond_the_bounds_leaves_the_clone_and_the_good_commit(forge: Forge, tmp_path: Path) -> None:
    good = Revision(forge.commit({}))
    source = GitSource(str(forge.folder), "clusters/one", "main", tmp_path / "work")
    assert source.head() == good
    (clone,) = (tmp_path / "work").iterdir()
    (clone / "mine").touch()
    bad = Revision(forge.commit({"clusters/one/x": forge.bomb()}))
    assert source.head() == bad
    for _ in range(2):
        with pytest.raises(SourceUnavailable) as caught:
            source.tree(bad)
        assert caught.value.code == "GPU8014"
    assert CLUSTER in source.tree(good).files
    assert (clone / "mine").exists()


def test_a_message_of_megabytes_confirms_nothing_and_stops_nothing(forge: Forge) -> None:
    first = Revision(forge.commit({}, b"one\n\nGpuctl-Confirm: aaa\n"))
    forge.commit({}, b"two\n\n" + b"Gpuctl-Confirm: bbbbbbbbbbbb\n" * (6 * MIB // 29))
    head = Revision(forge.commit({}, b"three\n\nGpuctl-Confirm: ccc\n"))
    repository = Repository(forge.folder)
    assert "ccc" in repository.confirmations(NO_REVISION, head)
    assert repository.confirmations(NO_REVISION, first) == {"aaa"}


@pytest.mark.parametrize(
    ("limits", "made", "told"),
    [
        (Limits(memory_bytes=24 * MIB), lambda: b"words\n" * (10 * MIB), "24 MiB of memory"),
        (Limits(file_bytes=MIB), lambda: random.Random(1).randbytes(3 * MIB), "1 MiB for a file"),
    ],
    ids=["memory", "file"],
)
def test_a_fetch_that_brings_too_much(
    forge: Forge, tmp_path: Path, limits: Limits, made: Callable[[], bytes], told: str
) -> None:
    content = made()
    good = Revision(forge.commit({}))
    source = GitSource(str(forge.folder), "clusters/one", "main", tmp_path / "work", limits=limits)
    assert source.head() == good
    forge.commit({"big": forge.file(content[: 8 * MIB])}, content if told.endswith("memory") else b"big")
    for _ in range(2):
        with pytest.raises(SourceUnavailable) as caught:
            source.head()
        assert (caught.value.code, told in str(caught.value)) == ("GPU8015", True), str(caught.value)
    assert CLUSTER in source.tree(good).files
    forge.moved(good)
    assert source.head() == good
    assert list((tmp_path / "work").rglob("tmp_*")) == [], "what it brought is still there"


def test_all_of_it_stays_far_below_the_memory_that_install_allows(forge: Forge) -> None:
    """The command on a bomb, in a process that may allocate 256 MiB."""
    forge.commit({"clusters/one/x": forge.bomb()})
    forge.run("checkout", "-q", "-f", "HEAD", "--", CLUSTER)
    command = [sys.executable, "-m", "gpuctl", "plan", str(forge.folder / "clusters/one"), "--base", "HEAD"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -d 262144; exec "$@"', "sh", *command], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error GPU8014: clusters/one (")
