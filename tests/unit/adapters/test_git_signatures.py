"""Commits are signed with real keys, by SSH and OpenPGP; whose count is said in files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from openpgp import LONG_AGO, People, needs_gpg, people

from gpuctl.adapters.files import read_regular
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.adapters.gitsignatures import MAX_COMMITS, Checked, Signers
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.ids import NO_REVISION, Revision

CLUSTER = "clusters/one/cluster.yaml"
AT_MS = 1_596_000_000_000
PEOPLE = ("ann", "bob")

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


class Town:
    """A repository, a key for each person, and the files that say whose keys count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources: list[GitSource] = []
        self.copy = WorkingCopy.create(folder / "repo")
        self.copy.write(CLUSTER, b"kind: Cluster\n")
        self.first = self.copy.commit("first, unsigned", AT_MS)
        self.allowed = folder / "allowed_signers"
        for person in PEOPLE:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", person, "-f", str(folder / person))
        self.allow("ann")

    def allow(self, *people: str, options: str = 'namespaces="git"') -> None:
        keys = [(person, (self.folder / f"{person}.pub").read_text().rsplit(" ", 1)[0]) for person in people]
        self.allowed.write_text("".join(f"{person}@x {options} {key}\n" for person, key in keys))

    def commit(self, signer: str | None = None, *more: str) -> Revision:
        """A commit without changes, by SSH of a person; unsigned for None."""
        sign = ["--no-gpg-sign"] if signer is None else [f"-S{self.folder / signer}"]
        self.git("-c", "gpg.format=ssh", "commit", "-q", "--allow-empty", "-m", "x", *sign, *more)
        return self.head()

    def head(self) -> Revision:
        return Revision(self.git("rev-parse", "HEAD"))

    def git(self, *args: str, **environment: str) -> str:
        who = ("-c", "user.name=Eve", "-c", "user.email=eve@x")
        return run("git", "-C", str(self.copy.folder), *who, *args, **environment)

    def source(
        self,
        checked: Checked = Checked.EACH,
        openpgp: Path | None = None,
        most: int = MAX_COMMITS,
        *,
        by_ssh: bool = True,
    ) -> GitSource:
        signers = Signers(
            checked=checked,
            read=read_regular,
            allowed_signers=self.allowed if by_ssh else None,
            openpgp_keys=openpgp,
            most_commits=most,
        )
        made = GitSource(str(self.copy.folder), "clusters/one", "main", self.folder / "work", signers=signers)
        made.head()
        self.sources.append(made)
        return made


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    return done.stdout.strip()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    yield made
    for source in made.sources:
        source.close()


def refusal(source: GitSource, since: list[Revision], head: Revision) -> str:
    """What is told of the commit that is not accepted; empty if all are."""
    try:
        source.verify(since, head)
    except SourceUnavailable as fault:
        return f"{fault.code}: {fault}"
    return ""


def test_a_commit_of_a_key_that_may_sign_is_accepted(town: Town) -> None:
    signed = town.commit("ann")
    assert refusal(town.source(), [town.first], signed) == ""


def test_an_unsigned_commit_is_refused(town: Town) -> None:
    head = town.commit()
    assert refusal(town.source(), [town.first], head) == f"GPU8021: commit {head} is not accepted: it is not signed"


def test_a_key_that_may_not_sign_is_refused(town: Town) -> None:
    head = town.commit("bob")
    assert "which is not among the keys that may sign" in refusal(town.source(), [town.first], head)


def test_each_commit_since_the_last_good_one_needs_a_signature(town: Town) -> None:
    slipped_in = town.commit()
    head = town.commit("ann")
    assert slipped_in in refusal(town.source(), [town.first], head)
    assert refusal(town.source(), [slipped_in], head) == ""


def test_the_merge_commit_alone_can_vouch_for_what_it_merges(town: Town) -> None:
    town.git("switch", "-q", "-c", "feature")
    inside = town.commit()
    town.git("switch", "-q", "main")
    town.git("-c", "gpg.format=ssh", "merge", "-q", "--no-ff", "-m", "m", f"-S{town.folder / 'ann'}", "feature")
    assert refusal(town.source(Checked.HEAD), [town.first], town.head()) == ""
    assert inside in refusal(town.source(Checked.EACH), [town.first], town.head())


def test_the_newest_alone_is_checked_though_it_is_in_force(town: Town) -> None:
    head = town.commit()
    assert head in refusal(town.source(Checked.HEAD), [head], head)


def test_a_part_that_was_never_good_excludes_no_commit(town: Town) -> None:
    signed = town.commit("ann")
    assert refusal(town.source(), [town.first, NO_REVISION], signed) == ""
    assert town.first in refusal(town.source(), [NO_REVISION], signed)


def test_without_a_file_of_ssh_keys_none_counts(town: Town) -> None:
    signed = town.commit("ann")
    assert signed in refusal(town.source(by_ssh=False), [town.first], signed)


def test_a_refused_commit_is_not_checked_at_each_fetch(town: Town) -> None:
    """Its signatures cost a process each."""
    head = town.commit()
    source = town.source()
    told = refusal(source, [town.first], head)
    source.clone.rename(source.clone.with_suffix(".away"))
    assert refusal(source, [town.first], head) == told
    assert refusal(source, [], head).startswith("GPU8013")


def test_without_a_last_good_commit_the_newest_is_checked(town: Town) -> None:
    signed = town.commit("ann")
    assert refusal(town.source(), [], signed) == ""
    unsigned = town.commit()
    assert unsigned in refusal(town.source(), [], unsigned)


def test_after_a_forced_push_the_whole_new_history_is_checked(town: Town) -> None:
    signed = town.commit("ann")
    assert town.first in refusal(town.source(), [Revision("f" * 40)], signed)


def test_keys_given_later_count_at_once_and_keys_taken_away_no_more(town: Town) -> None:
    head = town.commit("bob")
    source = town.source()
    assert refusal(source, [town.first], head)
    town.allow("ann", "bob")
    assert refusal(source, [town.first], head) == ""
    town.allow("ann")
    assert refusal(source, [town.first], head)


def test_a_signature_made_for_another_purpose_does_not_count(town: Town) -> None:
    head = town.commit("ann")
    town.allow("ann", options='namespaces="file"')
    assert refusal(town.source(), [town.first], head)


def test_a_signature_of_another_commit_does_not_count(town: Town) -> None:
    signed = town.git("cat-file", "commit", town.commit("ann"))
    forged = town.folder / "forged"
    forged.write_text(signed.replace("Eve", "Ann") + "\n")
    head = Revision(town.git("hash-object", "-t", "commit", "-w", str(forged)))
    town.git("update-ref", "refs/heads/main", head)
    assert "its signature is not one of this commit" in refusal(town.source(), [town.first], head)


def test_settings_of_the_repository_change_nothing(town: Town) -> None:
    """What the repository says of signatures is written by those whose signatures are in question."""
    ran = town.folder / "ran"
    program = town.folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\necho 'Good \"git\" signature'\n")
    program.chmod(0o755)
    head = town.commit("bob")
    mine = town.folder / "mine"
    mine.write_text(f"bob@x {(town.folder / 'bob.pub').read_text()}")
    for name in ("gpg.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand"):
        town.git("config", name, str(program))
    town.git("config", "gpg.ssh.allowedSignersFile", str(mine))
    assert refusal(town.source(), [town.first], head)
    assert not ran.exists()


def test_more_commits_than_are_checked_at_once_are_refused(town: Town) -> None:
    commits = [town.commit("ann") for _ in range(3)]
    assert refusal(town.source(most=2), [town.first], commits[1]) == ""
    assert "more than 2 commits" in refusal(town.source(most=2), [town.first], commits[2])


def test_a_commit_that_is_missing_is_not_accepted(town: Town) -> None:
    assert refusal(town.source(), [town.first], Revision("f" * 40)).startswith("GPU8013")


@pytest.mark.parametrize("content", [None, b"#" * (1 << 19)])
def test_keys_that_cant_be_read_are_told(town: Town, content: bytes | None) -> None:
    head = town.commit("ann")
    source = town.source()
    if content is None:
        town.allowed.unlink()
    else:
        town.allowed.write_bytes(content)
    with pytest.raises(SourceUnavailable) as caught:
        source.verify([town.first], head)
    assert caught.value.code == "GPU8022"


@pytest.fixture
def pgp() -> Iterator[People]:
    with people() as made:
        yield made


@needs_gpg
def test_openpgp_keys_count_when_they_are_given(town: Town, pgp: People) -> None:
    ann, bob = pgp.person("ann"), pgp.person("bob")
    by_ann = Revision(ann.commit(town.copy.folder))
    by_bob = Revision(bob.commit(town.copy.folder))
    source = town.source(openpgp=ann.export())
    assert refusal(source, [town.first], by_ann) == ""
    assert by_bob in refusal(source, [town.first], by_bob)
    assert "the key is not among the keys that may sign" in refusal(source, [by_ann], by_bob)
    assert by_ann in refusal(town.source(), [town.first], by_ann), "no OpenPGP key was given"


@needs_gpg
def test_beside_openpgp_keys_an_unsigned_commit_is_refused_and_one_by_ssh_counts(town: Town, pgp: People) -> None:
    unsigned = town.commit()
    by_ssh = town.commit("ann")
    source = town.source(openpgp=pgp.person("ann").export())
    assert refusal(source, [town.first], unsigned).endswith("it is not signed")
    assert refusal(source, [unsigned], by_ssh) == ""


@needs_gpg
def test_an_openpgp_signature_of_another_commit_does_not_count(town: Town, pgp: People) -> None:
    ann = pgp.person("ann")
    signed = town.git("cat-file", "commit", ann.commit(town.copy.folder))
    forged = town.folder / "forged"
    forged.write_text(signed.replace("Eve", "Ann") + "\n")
    head = Revision(town.git("hash-object", "-t", "commit", "-w", str(forged)))
    town.git("update-ref", "refs/heads/main", head)
    assert refusal(town.source(openpgp=ann.export()), [town.first], head).endswith(
        "its signature is not one of this commit"
    )


@needs_gpg
def test_a_key_that_is_revoked_in_the_file_of_keys_does_not_count(town: Town, pgp: People) -> None:
    """Also for what it signed before."""
    ann = pgp.person("ann")
    head = Revision(ann.commit(town.copy.folder))
    source = town.source(openpgp=ann.export())
    assert refusal(source, [town.first], head) == ""
    ann.revoke()
    ann.export()
    assert refusal(source, [town.first], head).endswith(f"it is signed with key {ann.fingerprint}, which was revoked")


@needs_gpg
def test_an_expired_key_does_not_count(town: Town, pgp: People) -> None:
    ann = pgp.person("ann", expires="1d", now=LONG_AGO)
    head = Revision(ann.commit(town.copy.folder))
    told = refusal(town.source(openpgp=ann.export()), [town.first], head)
    assert told.endswith(f"it is signed with key {ann.fingerprint}, which has expired")


@needs_gpg
def test_an_expired_signature_does_not_count(town: Town, pgp: People) -> None:
    ann = pgp.person("ann", now=LONG_AGO, signature_expires="1d")
    head = Revision(ann.commit(town.copy.folder))
    assert refusal(town.source(openpgp=ann.export()), [town.first], head).endswith("its signature has expired")


@needs_gpg
def test_a_file_without_keys_is_told(town: Town) -> None:
    empty = town.folder / "keys.asc"
    empty.write_text("no keys\n")
    source = town.source(openpgp=empty)
    with pytest.raises(SourceUnavailable) as caught:
        source.verify([town.first], town.first)
    assert caught.value.code == "GPU8022"
