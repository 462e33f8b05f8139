"""A Git repository that is checked out before a job starts: what it may be, and that nothing of it is an argument."""

from __future__ import annotations

import pytest
from trees import CLUSTER, codes, job, project, tree_of

from gpuctl.compile import Compiled, compile_tree
from gpuctl.model.job import GitCheckout


def compiled(git: str, more: str = "", cluster: str = f"{CLUSTER}  gitSync: {{image: git-sync}}\n") -> Compiled:
    spec = f"{{image: x, git: {{{git}}}{more}}}"
    files = {"cluster.yaml": cluster, "p.yaml": project("team-a"), "j.yaml": job("j", spec)}
    return compile_tree(tree_of(files))


def test_a_repository_is_that_of_the_address_at_a_revision() -> None:
    found = compiled(
        "repository: 'https://git.example.com:8443/a/train.git', revision: release/1.2, path: /code"
    ).declared
    assert found is not None
    assert found.cluster.git_sync == "git-sync"
    made = found.jobs[0].container.git
    assert made == GitCheckout(
        repository="https://git.example.com:8443/a/train.git",
        revision="release/1.2",
        path="/code",
        secret=None,
        size_bytes=10 << 30,
    )
    assert made.folder == "train"


@pytest.mark.parametrize(
    "repository",
    [
        "http://x/y", "ssh://x", "ssh://-oProxyCommand=x/y", "ssh://-x@x/y", "ssh://u:p@x/y",
        "git@x:y", "file:///x", "ext::sh", "--x", "https://x", "https://x/", "https://-x/y",
        "https://x/-y", "https://x/.git", "https://x/y z", "https://u:p@x/y", "https://x/y?z", "https://x/$(Z)",
        "https://x/y#z", "https://x:0/y", "https://x/y//z", "/x",
    ],
)  # fmt: skip
def test_a_repository_is_an_address_and_nothing_else(repository: str) -> None:
    assert codes(compiled(f"repository: '{repository}', path: /code, secret: s")) == ["GPU2023"]


@pytest.mark.parametrize("repository", ["ssh://git@x/a/b.git", "ssh://x:2222/y"])
def test_by_ssh_it_needs_a_key(repository: str) -> None:
    assert codes(compiled(f"repository: '{repository}', path: /code")) == ["GPU2005"]
    made = compiled(f"repository: '{repository}', path: /code, secret: deploy").declared
    assert made is not None
    assert made.jobs[0].container.git is not None
    assert made.jobs[0].container.git.is_by_ssh


@pytest.mark.parametrize(
    "revision", ["-x", "--x", "a b", "a..b", "a:b", "+a", "/a", "a/", "a//b", ".a", "$(A)", "a^", "a~1", "@{1}", "*"]
)
def test_a_revision_is_a_name_and_nothing_else(revision: str) -> None:
    assert codes(compiled(f"repository: 'https://x/y', revision: '{revision}', path: /code")) == ["GPU2023"]


@pytest.mark.parametrize("revision", ["HEAD", "main", "v1.2.3", "feature/a_b-c", "0" * 40, "a.b", "_x"])
def test_branches_tags_and_hashes_are_revisions(revision: str) -> None:
    assert not compiled(f"repository: 'https://x/y', revision: '{revision}', path: /code").diagnostics


def test_the_folder_is_mounted_once() -> None:
    volumes = ", volumes: [{claim: a, mountPath: /code}]"
    assert codes(compiled("repository: 'https://x/y', path: /code", volumes)) == ["GPU2021"]
    assert not compiled("repository: 'https://x/y', path: /code/git", volumes).diagnostics


def test_a_cluster_without_git_sync_has_none() -> None:
    assert codes(compiled("repository: 'https://x/y', path: /code", cluster=CLUSTER)) == ["GPU3078"]
