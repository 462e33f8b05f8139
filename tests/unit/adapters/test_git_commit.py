"""A commit holds the edited file and nothing else, or there is none; a push moves one branch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from openpgp import People, Person, needs_gpg, people

from gpuctl.adapters.files import read_regular
from gpuctl.adapters.gitcommit import begin_commit
from gpuctl.adapters.gitrun import Git
from gpuctl.adapters.gitsignatures import Checked, Signatures, Signers
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.ids import Revision

BEFORE, AFTER = b"a: 1\n", b"a: 2\n"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the repository's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "c").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Ana Löwe")
    git(folder, "config", "user.email", "ana@example.com")
    (folder / "c/f.yaml").write_bytes(BEFORE)
    (folder / "other").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def refused(repo: Path, *, branch: str | None = None, before: bytes | None = BEFORE, name: str = "f.yaml") -> str:
    state = git(repo, "status", "--porcelain"), git(repo, "for-each-ref")
    with pytest.raises(SourceUnavailable) as caught:
        begin_commit(repo / "c", {str(repo / "c" / name): before}, branch)
    assert (git(repo, "status", "--porcelain"), git(repo, "for-each-ref")) == state
    return caught.value.code


def test_only_the_file_is_committed_whatever_else_is_staged_or_changed(repo: Path) -> None:
    (repo / "other").write_text("2\n")
    git(repo, "add", "other")
    (repo / "other").write_text("3\n")
    (repo / "new").write_text("x\n")
    git(repo, "add", "new")
    draft = begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, None)
    (repo / "c/f.yaml").write_bytes(AFTER)
    made = draft.commit({str(repo / "c/f.yaml"): AFTER}, "Two\n\nGpuctl-Confirm: 0123456789ab")
    assert git(repo, "rev-parse", "main") == made.revision
    shown = git(repo, "show", "--format=%an <%ae>|%cn|%B", "--name-status", "HEAD")
    assert [line for line in shown.splitlines() if line] == [
        "Ana Löwe <ana@example.com>|Ana Löwe|Two", "Gpuctl-Confirm: 0123456789ab", "M\tc/f.yaml",
    ]  # fmt: skip
    assert git(repo, "status", "--porcelain").splitlines() == ["A  new", "MM other"]
    assert git(repo, "fsck", "--strict") == ""


def test_a_file_is_created_and_deleted_and_keeps_its_mode(repo: Path) -> None:
    os.chmod(repo / "c/f.yaml", 0o755)  # noqa: PTH101 - as a person would
    git(repo, "commit", "-qam", "mode")
    begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, None).commit({str(repo / "c/f.yaml"): AFTER}, "x")
    assert git(repo, "ls-tree", "HEAD", "c/f.yaml").startswith("100755 ")
    odd = 'é "q" \\ #.yaml'
    (repo / "c" / odd).write_bytes(AFTER)
    begin_commit(repo / "c", {str(repo / "c" / odd): None}, None).commit({str(repo / "c" / odd): AFTER}, "x")
    assert git(repo, "-c", "core.quotePath=false", "ls-tree", "-z", "--name-only", "HEAD", "c/").split("\0")[1:2] == [
        f"c/{odd}"
    ]
    (repo / "c" / odd).unlink()
    begin_commit(repo / "c", {str(repo / "c" / odd): AFTER}, None).commit({str(repo / "c" / odd): None}, "x")
    assert git(repo, "ls-tree", "--name-only", "HEAD", "c/") == "c/f.yaml"


def test_a_branch_is_made_and_checked_out(repo: Path) -> None:
    made = begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, "ana/more").commit(
        {str(repo / "c/f.yaml"): AFTER}, "x"
    )
    assert (made.branch, made.previous) == ("ana/more", "main")
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/ana/more"
    assert git(repo, "log", "--format=%s", "main") == "first"


def test_the_first_commit_of_a_repository(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    (folder / "c").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Ana")
    git(folder, "config", "user.email", "ana@example.com")
    begin_commit(folder / "c", {str(folder / "c/f.yaml"): None}, None).commit({str(folder / "c/f.yaml"): AFTER}, "x")
    assert git(folder, "log", "--format=%s", "main") == "x"


def test_line_breaks_are_committed_as_they_are_in_the_commit_before(repo: Path) -> None:
    (repo / "c/f.yaml").write_bytes(b"a: 1\r\n")
    begin_commit(repo / "c", {str(repo / "c/f.yaml"): b"a: 1\r\n"}, None).commit(
        {str(repo / "c/f.yaml"): b"a: 2\r\n"}, "x"
    )
    assert git(repo, "cat-file", "-s", "HEAD:c/f.yaml") == "5"


def test_other_changes_of_the_file_are_not_taken_along(repo: Path) -> None:
    (repo / "c/f.yaml").write_bytes(b"a: 7\n")
    assert refused(repo, before=b"a: 7\n") == "GPU6110"
    git(repo, "add", "c/f.yaml")
    assert refused(repo, before=b"a: 7\n") == "GPU6110"
    (repo / "c/f.yaml").write_bytes(BEFORE)
    assert refused(repo) == "GPU6110"
    (repo / "c/n.yaml").write_bytes(BEFORE)
    assert refused(repo, name="n.yaml") == "GPU6110"


def test_without_an_author_there_is_no_commit(repo: Path) -> None:
    git(repo, "config", "--unset", "user.email")
    assert refused(repo) == "GPU6111"
    git(repo, "config", "--unset", "user.name")
    assert refused(repo) == "GPU6111"


def test_no_branch_a_merge_and_wrong_branches(repo: Path, tmp_path: Path) -> None:
    git(repo, "branch", "side")
    for name in ("side", "-x", "a..b", "HEAD", "x y", "", "@{-1}", "a/"):
        assert refused(repo, branch=name) == "GPU6114", name
    (repo / ".git/MERGE_HEAD").write_text(git(repo, "rev-parse", "HEAD"))
    assert refused(repo) == "GPU6113"
    (repo / ".git/MERGE_HEAD").unlink()
    git(repo, "checkout", "-q", "--detach")
    assert refused(repo) == "GPU6112"
    begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, "found").commit({str(repo / "c/f.yaml"): AFTER}, "x")
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/found"
    (tmp_path / "plain").mkdir()
    with pytest.raises(SourceUnavailable) as caught:
        begin_commit(tmp_path / "plain", {str(tmp_path / "plain/f.yaml"): None}, None)
    assert caught.value.code == "GPU8004"


def test_a_branch_that_moved_meanwhile_is_not_overwritten(repo: Path) -> None:
    draft = begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, None)
    git(repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    with pytest.raises(SourceUnavailable) as caught:
        draft.commit({str(repo / "c/f.yaml"): AFTER}, "x")
    assert caught.value.code == "GPU6116"
    assert git(repo, "log", "--format=%s") == "meanwhile\nfirst"


def test_another_git_command_under_way_is_told(repo: Path) -> None:
    (repo / ".git/index.lock").touch()
    with pytest.raises(SourceUnavailable) as caught:
        begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, None).commit({str(repo / "c/f.yaml"): AFTER}, "x")
    assert caught.value.code == "GPU6116"
    assert "index.lock" in str(caught.value)


def test_the_branch_is_pushed_and_nothing_else(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.git"
    git(tmp_path, "init", "-q", "--bare", str(other))
    git(repo, "remote", "add", "origin", str(other))
    git(repo, "branch", "side")
    draft = begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, "more")
    made = draft.commit({str(repo / "c/f.yaml"): AFTER}, "x")
    assert draft.push(made) == f"origin ({other})"
    assert git(other, "for-each-ref", "--format=%(refname) %(objectname)") == f"refs/heads/more {made.revision}"
    assert git(repo, "rev-parse", "origin/more") == made.revision


def test_a_push_that_is_refused_leaves_the_commit(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(other))
    git(repo, "remote", "add", "origin", str(other))
    git(repo, "commit", "-q", "--amend", "-m", "rewritten")
    draft = begin_commit(repo / "c", {str(repo / "c/f.yaml"): BEFORE}, None)
    made = draft.commit({str(repo / "c/f.yaml"): AFTER}, "x")
    for url in (str(other), "ext::sh -c 'touch x'", ""):
        git(repo, "config", "remote.origin.url", url)
        with pytest.raises(SourceUnavailable) as caught:
            draft.push(made)
        assert caught.value.code == ("GPU8008" if url.startswith("ext") else "GPU6115")
    assert git(repo, "log", "-1", "--format=%s") == "x"
    assert git(other, "log", "--format=%s") == "first"


@pytest.fixture
def signing(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings ask for signatures by SSH."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key = tmp_path / "ana"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    allowed, settings = tmp_path / "allowed", tmp_path / "gitconfig"
    allowed.write_text(f"ana@example.com {key.with_suffix('.pub').read_text()}")
    settings.write_text(
        f"[commit]\ngpgSign = true\n[gpg]\nformat = ssh\n[user]\nsigningKey = {key}\n"
        f'[gpg "ssh"]\nallowedSignersFile = {allowed}\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    return repo


def _commit(repo: Path, branch: str | None = None) -> str:
    file = str(repo / "c/f.yaml")
    draft = begin_commit(repo / "c", {file: BEFORE}, branch)
    (repo / "c/f.yaml").write_bytes(AFTER)
    return draft.commit({file: AFTER}, "Zwei: größer\n\nGpuctl-Confirm: 0123456789ab").revision


def _signature(repo: Path, revision: str) -> str:
    return git(repo, "log", "-1", "--format=%G?", revision)


@pytest.mark.parametrize("branch", [None, "more"])
def test_a_commit_is_signed_where_git_signs_it(signing: Path, branch: str | None) -> None:
    before = git(signing, "rev-parse", "HEAD")
    made = _commit(signing, branch)
    assert _signature(signing, made) == "G"
    assert git(signing, "rev-parse", branch or "main", f"{made}^").split() == [made, before]
    assert git(signing, "log", "-1", "--format=%an|%cn|%B") == (
        "Ana Löwe|Ana Löwe|Zwei: größer\n\nGpuctl-Confirm: 0123456789ab"
    )
    assert git(signing, "status", "--porcelain") == ""
    assert git(signing, "for-each-ref", "refs/gpuctl") == ""


def test_signers_accept_what_is_signed(signing: Path, tmp_path: Path) -> None:
    before = Revision(git(signing, "rev-parse", "HEAD"))
    made = _commit(signing)
    signers = Signers(checked=Checked.EACH, read=read_regular, allowed_signers=tmp_path / "allowed")
    with closing(Signatures(signers, Git())) as signatures:
        signatures.check(signing / ".git", [before], Revision(made))


def test_the_repository_may_say_that_it_is_not_signed(signing: Path) -> None:
    git(signing, "config", "commit.gpgSign", "false")
    assert _signature(signing, _commit(signing)) == "N"


def test_no_program_of_the_repositorys_settings_signs(signing: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    trap.chmod(0o755)
    names = ("gpg.ssh.program", "gpg.program", "gpg.openpgp.program", "gpg.ssh.defaultKeyCommand")
    for name in names:
        git(signing, "config", name, str(trap))
    made = _commit(signing)
    assert not (tmp_path / "ran").exists()
    for name in names:
        git(signing, "config", "--unset", name)
    assert _signature(signing, made) == "G"


def test_a_commit_that_cant_be_signed_is_not_made(signing: Path, tmp_path: Path) -> None:
    before = git(signing, "rev-parse", "HEAD")
    (tmp_path / "ana").unlink()
    (tmp_path / "ana.pub").unlink()
    with pytest.raises(SourceUnavailable) as caught:
        _commit(signing)
    assert caught.value.code == "GPU6123"
    assert git(signing, "rev-parse", "HEAD") == before
    assert git(signing, "for-each-ref", "refs/gpuctl") == ""


@pytest.fixture
def pgp() -> Iterator[People]:
    with people() as made:
        yield made


def _signs_by_openpgp(person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's settings ask for signatures by OpenPGP."""
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[commit]\ngpgSign = true\n[gpg]\nformat = openpgp\n[user]\nsigningKey = {person.address}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GNUPGHOME", str(person.home))


@needs_gpg
def test_a_commit_is_signed_by_openpgp(
    repo: Path, pgp: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = pgp.person("ann")
    _signs_by_openpgp(ann, tmp_path, monkeypatch)
    before = Revision(git(repo, "rev-parse", "HEAD"))
    made = _commit(repo)
    assert git(repo, "log", "-1", "--format=%GF", made) == ann.fingerprint
    signers = Signers(checked=Checked.EACH, read=read_regular, openpgp_keys=ann.export())
    with closing(Signatures(signers, Git())) as signatures:
        signatures.check(repo / ".git", [before], Revision(made))
    assert git(repo, "status", "--porcelain") == ""


@needs_gpg
def test_a_revoked_openpgp_key_signs_no_commit(
    repo: Path, pgp: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = pgp.person("ann")
    ann.revoke()
    _signs_by_openpgp(ann, tmp_path, monkeypatch)
    before = git(repo, "rev-parse", "HEAD")
    with pytest.raises(SourceUnavailable) as caught:
        _commit(repo)
    assert caught.value.code == "GPU6123"
    assert git(repo, "rev-parse", "HEAD") == before
