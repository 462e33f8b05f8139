"""Signatures in the unattended loop: a commit that is not signed changes nothing, and one that is, does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from stage import BASE, Stage, job

from gpuctl.adapters.files import read_regular
from gpuctl.adapters.git import GitSource
from gpuctl.adapters.gitsignatures import Checked, Signers

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
RUNNING = {"a/j1": "Running", "b/j2": "Running"}


class Signed(Stage):
    """A stage whose commits count only if they are signed with its key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        words = (folder / "key.pub").read_text().split()
        (folder / "allowed").write_text(f"ann@x {words[0]} {words[1]}\n")

    def sign(self) -> str:
        """Sign the newest commit."""
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@x", "-c", "gpg.format=ssh")
        return self.git(*who, "commit", "-q", "--amend", "--no-edit", f"-S{self.key}")

    def play_checked(self, second: int, checked: Checked = Checked.EACH) -> None:
        signers = Signers(checked=checked, read=read_regular, allowed_signers=self.folder / "allowed")
        source = GitSource(str(self.copy.folder), "c", "main", self.folder / "work", signers=signers)
        self.play(second, source=source)
        source.close()


@pytest.fixture
def stage(tmp_path: Path) -> Signed:
    made = Signed(tmp_path)
    made.commit(BASE)
    made.sign()
    return made


def test_an_unsigned_commit_changes_nothing_until_it_is_signed(stage: Signed) -> None:
    stage.at(30, lambda: stage.commit({"c/projects/a/j1.yaml": None, "c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play_checked(100)
    assert stage.phases() == RUNNING
    assert stage.codes() == ["GPU8021"]
    stage.at(110, stage.sign)
    stage.play_checked(160)
    assert stage.phases() == {"b/j2": "Running", "b/j3": "Running"}


def test_a_process_that_begins_with_an_unsigned_commit_keeps_what_was_good(stage: Signed) -> None:
    stage.play_checked(30)
    stage.commit({"c/projects/b/j3.yaml": job("j3", "b")})
    stage.play_checked(100)
    assert stage.phases() == RUNNING
    assert stage.codes() == ["GPU8021"]


def test_nothing_is_applied_of_a_first_commit_that_is_not_signed(stage: Signed) -> None:
    stage.commit({"c/projects/b/j3.yaml": job("j3", "b")})
    stage.play_checked(60)
    assert stage.phases() == {}
    assert "GPU8021" in stage.codes()


def test_an_unsigned_commit_below_a_signed_one_counts_only_where_the_newest_alone_is_checked(stage: Signed) -> None:
    stage.play_checked(30)
    stage.commit({"c/projects/b/j3.yaml": job("j3", "b")})
    stage.commit({"README.md": "words"})
    stage.sign()
    stage.play_checked(100)
    assert stage.phases() == RUNNING
    stage.play_checked(160, Checked.HEAD)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}


def test_signatures_are_newly_asked_for_by_the_newest_commit_alone_at_first(stage: Signed) -> None:
    """As docs/operate.md has it: commits that were not signed are below what is in force then."""
    stage.play(30)
    stage.commit({"README.md": "words"})
    stage.play(60)
    stage.play_checked(100)
    assert stage.codes() == ["GPU8021"]
    stage.commit({"c/projects/b/j3.yaml": job("j3", "b")})
    stage.sign()
    stage.play_checked(160, Checked.HEAD)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    stage.lines.clear()
    stage.commit({"c/projects/b/j4.yaml": job("j4", "b")})
    stage.sign()
    stage.play_checked(260)
    assert (stage.codes(), stage.phases()["b/j4"]) == ([], "Running")
