"""Commits of some files of a working tree, and pushes of their branch.

The commit contains these files and nothing else: neither other staged changes nor unstaged ones. No hook, filter or
other command in the repository's own settings is run: Git writes the objects from gpuctl's input, and pushes from a
repository without settings, which has the real one's objects as alternates.

Commits are signed if `git commit` would sign them: by `commit.gpgSign`, `gpg.format` and `user.signingKey`. The signing
program is the one in the user's or the machine's settings, never one that only the repository names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gpuctl.adapters.git import allowed_url, without_password
from gpuctl.adapters.gitmerge import quoted_path, scratch_repository
from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import Answer, Git, last_line, unavailable
from gpuctl.app.editing_ports import Committed, ReviewPlace
from gpuctl.model.ids import NO_REVISION, Revision

_UNDER_WAY = {
    "MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase", "rebase-apply": "a rebase",
}  # fmt: skip
HEADS = "refs/heads/"
_FILE_MODE = "100644"
_FILE_MODES = frozenset({_FILE_MODE, "100755"})
_DRAFT = "refs/gpuctl/draft"
"""Holds the commit while it is being signed; the reference is removed afterwards."""
_SIGNERS = {"gpg.program": "gpg", "gpg.openpgp.program": "gpg", "gpg.ssh.program": "ssh-keygen",
            "gpg.x509.program": "gpgsm", "gpg.ssh.defaultKeyCommand": ""}  # fmt: skip
"""The settings that name a program, with Git's defaults."""
_TRUSTED_SCOPES = frozenset({"system", "global", "command"})


def begin_commit(folder: Path, before: Mapping[str, bytes | None], branch: str | None) -> GitDraft:
    """Check that a commit of these files is possible, on a new branch if one is named. Nothing is written.

    `before`: the content of each file. Raises SourceUnavailable: GPU8004 no repository, GPU6110 a file has other
    changes, GPU6111 no author, GPU6112 no branch, GPU6113 a merge under way, GPU6114 the branch can't be made.
    """
    repository, _ = Repository.containing(folder)
    top = repository.folder
    check_nothing_under_way(repository)
    paths = {file: Path(file).resolve().relative_to(top.resolve()).as_posix() for file in before}
    here = WorkTree(top)
    current = here.branch()
    if not current and branch is None:
        raise unavailable("GPU6112", folder=str(top))
    if branch is not None and branch != current:
        here.check_new_branch(branch)
    return GitDraft(
        here=here,
        repository=repository,
        current=current,
        branch=branch or current,
        parent=here.parent(),
        author=here.person("AUTHOR"),
        committer=here.person("COMMITTER"),
        entries={file: here.clean_entry(path, before[file]) for file, path in paths.items()},
    )


def check_nothing_under_way(repository: Repository) -> None:
    """Refuse to commit in the middle of a merge or a similar operation. Raises SourceUnavailable GPU6113."""
    for part, what in _UNDER_WAY.items():
        if repository.own_path(part).exists():
            raise unavailable("GPU6113", what=what, folder=str(repository.folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A file in the checked-out commit: its path from the top, its mode, and whether it has line feeds where the
    working tree has carriage returns too."""

    path: str
    mode: str = _FILE_MODE
    is_converted: bool = False


class WorkTree:
    """Commands in the working tree. `gitrun` switches off what its settings would run."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._git = Git()
        self._at = ("-C", str(top.absolute()))

    def run(self, *args: str) -> Answer:
        """Run a command and return its answer."""
        return self._git.run(*self._at, *args)

    def fed(self, *args: str, feed: bytes) -> str:
        """The output of a command that is given input. Raises GPU6116 if it fails."""
        failed = unavailable("GPU6116", why=f"`git {args[0]}` failed")
        with closing(self._git.stream(*self._at, *args, feed=feed, otherwise=failed)) as chunks:
            return b"".join(chunks).decode("utf-8", "replace").strip()

    def must(self, *args: str) -> None:
        """Run a command that must not fail. Raises GPU6116."""
        answer = self.run(*args)
        if answer.code:
            raise unavailable("GPU6116", why=last_line(answer.error))

    def commit(
        self, branch: str, parent: Revision, people: tuple[str, str], text: bytes, changes: Sequence[bytes]
    ) -> Revision:
        """Make a commit and move the branch to it; fails if the branch has moved meanwhile.

        `people`: author and committer. `changes`: orders of fast-import. Raises GPU6116; GPU6123 if it can't be signed.
        """
        signs = self.run("config", "--type=bool", "--get", "commit.gpgSign").text == "true"
        name = _DRAFT if signs else f"{HEADS}{branch}"
        orders = [
            b"commit " + os.fsencode(name),
            b"mark :1",
            b"author " + os.fsencode(people[0]),
            b"committer " + os.fsencode(people[1]),
            b"data %d\n%s" % (len(text), text),
            *([b"from " + parent.encode()] if parent else []),
            *changes,
            b"", b"get-mark :1", b"done", b"",
        ]  # fmt: skip
        forced = ("--force",) if signs else ()
        made = Revision(self.fed("fast-import", "--quiet", "--done", *forced, feed=b"\n".join(orders)))
        if not signs:
            return made
        try:
            signed = self._signed(made, parent, text)
        finally:
            self.run("update-ref", "-d", _DRAFT)
        is_there = not self.run("show-ref", "--verify", "--quiet", f"{HEADS}{branch}").code
        expected = parent if is_there else "0" * len(signed)
        self.must("update-ref", "-m", "gpuctl: commit", f"{HEADS}{branch}", signed, expected)
        return signed

    def _signed(self, made: Revision, parent: Revision, text: bytes) -> Revision:
        """The same commit with the user's signature. Raises GPU6123."""
        settings = [word for setting in self._signers() for word in ("-c", setting)]
        settings += ["-c", "user.useConfigOnly=true", "-c", "i18n.commitEncoding=utf-8"]
        parents = ("-p", parent) if parent else ()
        answer = self.run(*settings, "commit-tree", "-S", *parents, "-m", text.decode(), f"{made}^{{tree}}")
        if answer.code:
            raise unavailable("GPU6123", why=last_line(answer.error))
        return Revision(answer.text)

    def _signers(self) -> Iterator[str]:
        """The settings that name the signing programs, without values of the repository's own settings."""
        for name, usual in _SIGNERS.items():
            told = self.run("config", "--show-scope", "--get-all", name).output.decode("utf-8", "replace")
            pairs = [line.split("\t", 1) for line in told.splitlines() if "\t" in line]
            trusted = [program for scope, program in pairs if scope in _TRUSTED_SCOPES]
            if pairs:
                yield f"{name}={trusted[-1] if trusted else usual}"

    def branch(self) -> str:
        """The branch that is checked out; "" for none."""
        head = self.run("symbolic-ref", "--quiet", "HEAD")
        return head.text.removeprefix(HEADS) if not head.code and head.text.startswith(HEADS) else ""

    def parent(self) -> Revision:
        """The commit that is checked out; NO_REVISION before the first one."""
        answer = self.run("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        return Revision(answer.text) if not answer.code else NO_REVISION

    def person(self, role: str) -> str:
        """Name, address and time of the author or committer, in the form of commits. Raises GPU6111."""
        answer = self.run("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT")
        if answer.code or not answer.text:
            raise unavailable("GPU6111", why=last_line(answer.error))
        return answer.text

    def check_new_branch(self, branch: str) -> None:
        """Refuse an invalid branch name, or one that exists. Raises GPU6114."""
        if branch.startswith("-") or self.run("check-ref-format", f"{HEADS}{branch}").code or branch == "HEAD":
            raise unavailable("GPU6114", branch=branch, why="that is no name of a branch")
        if not self.run("show-ref", "--verify", "--quiet", f"{HEADS}{branch}").code:
            raise unavailable("GPU6114", branch=branch, why="there is one of that name")

    def clean_entry(self, path: str, before: bytes | None) -> _Entry:
        """The file as committed. Raises GPU6110 if the index or the working tree has other contents."""
        unclean = unavailable("GPU6110", path=path)
        committed = _facts(self.run("ls-tree", "--full-tree", "HEAD", "--", path))
        staged = _facts(self.run("ls-files", "-s", "--", path))
        if not committed and not staged and before is None:
            return _Entry(path=path)
        if before is None or len(committed) != 1 or len(staged) != 1:
            raise unclean
        (mode, _, blob), (staged_mode, staged_blob, stage) = committed[0], staged[0]
        if (mode, blob, "0") != (staged_mode, staged_blob, stage) or mode not in _FILE_MODES:
            raise unclean
        with closing(self._git.stream(*self._at, "cat-file", "blob", blob, otherwise=unclean)) as chunks:
            content = b"".join(chunks)
        if content != before and content != before.replace(b"\r\n", b"\n"):
            raise unclean
        return _Entry(path=path, mode=mode, is_converted=content != before)


def _facts(answer: Answer) -> list[list[str]]:
    """The three facts that Git lists for each file."""
    return [line.partition("\t")[0].split() for line in answer.text.splitlines()] if not answer.code else []


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDraft:
    """A prepared commit.

    `current`: the branch that is checked out, "" for none; `branch`: that of the commit.
    """

    here: WorkTree
    repository: Repository
    current: str
    branch: str
    parent: Revision
    author: str
    committer: str
    entries: Mapping[str, _Entry]

    def commit(self, after: Mapping[str, bytes | None], text: str) -> Committed:
        """Commit the files and update the index. Raises SourceUnavailable GPU6116, GPU6123."""
        changes = [self._staged(self.entries[file], content) for file, content in after.items()]
        said = f"{text.strip()}\n".encode("utf-8", "replace")
        made = self.here.commit(self.branch, self.parent, (self.author, self.committer), said, changes)
        if self.branch != self.current:
            self.here.must("symbolic-ref", "-m", f"gpuctl: to {self.branch}", "HEAD", f"{HEADS}{self.branch}")
        return Committed(revision=made, branch=self.branch, previous=self.current)

    def review_place(self) -> ReviewPlace:
        """The remote, and the branch to merge into: the one it has checked out, else the one that was checked out
        here."""
        remote = self._remote
        url = self._setting(f"remote.{remote}.url")
        head = self.here.run("symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD")
        target = head.text.removeprefix(f"refs/remotes/{remote}/") if not head.code else self.current
        if not url:
            raise unavailable("GPU6122", why=f"{remote} has no address: `git remote add {remote} URL`")
        if target in {"", self.branch}:
            raise unavailable("GPU6122", why=f"{self.branch} is the branch that it would be merged into")
        return ReviewPlace(remote_url=url, target=target)

    def push(self, made: Committed) -> str:
        """Push the branch to its remote, or to origin. Raises SourceUnavailable GPU6115."""
        remote = self._remote
        url = self._setting(f"remote.{remote}.pushurl") or self._setting(f"remote.{remote}.url")
        if not url or remote == ".":
            raise unavailable("GPU6115", remote=remote, why="it has no address: `git remote add origin URL`")
        address, _ = allowed_url(url if "://" in url else self._from_top(url))
        target = f"{made.revision}:{HEADS}{self.branch}"
        with scratch_repository(self.repository, made.revision) as scratch:
            at = f"--git-dir={scratch.repository.folder}"
            answer = Git().run(at, "push", "--quiet", "--no-verify", "--", address, target, remote=True)
        if answer.code:
            why = last_line(answer.error).replace(url, without_password(url))
            raise unavailable("GPU6115", remote=remote, why=why)
        self.here.run("update-ref", "-m", "gpuctl: push", f"refs/remotes/{remote}/{self.branch}", made.revision)
        return f"{remote} ({without_password(url)})"

    @property
    def _remote(self) -> str:
        return self._setting(f"branch.{self.current}.remote") or "origin"

    def _staged(self, entry: _Entry, after: bytes | None) -> bytes:
        """Put the file's new state into the index; returns the equivalent order of fast-import."""
        if after is None:
            self.here.must("update-index", "--force-remove", "--", entry.path)
            return b"D " + quoted_path(entry.path)
        content = after.replace(b"\r\n", b"\n") if entry.is_converted else after
        blob = self.here.fed("hash-object", "-w", "--no-filters", "--stdin", feed=content)
        self.here.must("update-index", "--add", "--cacheinfo", f"{entry.mode},{blob},{entry.path}")
        return b"M %s %s %s" % (entry.mode.encode(), blob.encode(), quoted_path(entry.path))

    def _setting(self, name: str) -> str:
        answer = self.here.run("config", "--get", name)
        return "" if answer.code else answer.text

    def _from_top(self, url: str) -> str:
        """A remote's relative folder, which Git resolves from the top of the working tree."""
        folder = self.repository.folder / url
        return str(folder) if folder.is_dir() else url
