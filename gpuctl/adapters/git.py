"""Git: the branch gpuctl follows, read without a working tree, and repositories that it makes itself.

Every command goes through GitPython, is killed after a time limit and asks nobody for a password. What people give
(addresses, branches, revisions) never reaches git as an option, and only transports that run no commands are allowed.
Everything that goes wrong is SourceUnavailable with a GPU8xxx code.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # else importing fails where git is missing; running it says so

import git

from gpuctl.adapters.gittree import Contents, blob_sizes, entries, file_contents
from gpuctl.app.ports import SourceUnavailable
from gpuctl.diag.wording import message
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import MAX_FILE_BYTES, SourceTree
from gpuctl.model.units import DurationMs, Instant

TIME_LIMIT_MS: DurationMs = 60_000
_STEP_S = 0.1
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_ALLOW_PROTOCOL": "file:https:ssh",
    "GIT_OPTIONAL_LOCKS": "0",
}
_SETTINGS = ("core.askPass=", "gc.autoDetach=false", "gc.pruneExpire=never")
_CONFIRMED = "%(trailers:key=Gpuctl-Confirm,valueonly)"
_REMEMBERED_COMMITS = 1000
_NO_SUCH_REF = 2
_FULL_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SCP_LIKE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*:(?!/{0,2}-)(?!:)\S+")


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a git command said."""

    code: int
    output: bytes
    error: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace").strip()


def _git(folder: Path | None, *args: str, feed: bytes = b"", stop: Callable[[], bool] = _never) -> _Answer:
    """Run git. Raises SourceUnavailable when it can't be run, does not end in time, or `stop` says so."""
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    where = [] if folder is None else ["-C", str(folder)]
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh")
    with tempfile.TemporaryFile() as stream:
        stream.write(feed)
        stream.seek(0)
        try:
            process = git.Git().execute(
                [git.Git.GIT_PYTHON_GIT_EXECUTABLE or "git", *where, *settings, *args],
                istream=stream,
                as_process=True,
                env={**_ENVIRONMENT, "GIT_SSH_COMMAND": f"{ssh} -o BatchMode=yes -o ConnectTimeout=15"},
                start_new_session=True,
            )
        except (git.GitCommandNotFound, OSError) as error:
            raise _unavailable("GPU8011", why=str(getattr(error, "strerror", None) or "not found")) from error
        return _answer(cast("subprocess.Popen[bytes]", process.proc), stop)


def _answer(process: subprocess.Popen[bytes], stop: Callable[[], bool]) -> _Answer:
    deadline = time.monotonic() + TIME_LIMIT_MS / 1000
    while True:
        try:
            output, error = process.communicate(timeout=_STEP_S)
        except subprocess.TimeoutExpired:
            if not stop() and time.monotonic() < deadline:
                continue
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            why = "stopped" if stop() else f"no answer within {TIME_LIMIT_MS // 1000} s"
            raise _unavailable("GPU8001", url="git", why=why) from None
        return _Answer(process.returncode, output, error.decode("utf-8", "replace").strip())


def _unavailable(code: str, **params: str) -> SourceUnavailable:
    return SourceUnavailable(code, message(code, params))


class Repository:
    """A repository on this machine, read only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trees: dict[tuple[Revision, str], SourceTree] = {}
        self._blobs: dict[str, bytes | None] = {}

    @staticmethod
    def containing(path: Path) -> tuple[Repository, str]:
        """The repository a folder is in, and the folder's path inside it."""
        answer = _git(path if path.is_dir() else path.parent, "rev-parse", "--show-toplevel")
        if answer.code:
            raise _unavailable("GPU8004", url=str(path))
        top = Path(answer.text)
        return Repository(top), path.resolve().relative_to(top.resolve()).as_posix()

    def resolve(self, name: str) -> Revision:
        """The commit that a branch, tag or id names."""
        bad = not name or name.startswith("-")
        answer = None if bad else _git(self.folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if answer is None or answer.code:
            raise _unavailable("GPU8006", revision=name, url=str(self.folder))
        return Revision(answer.text)

    def tree(self, revision: Revision, path: str) -> SourceTree:
        """A cluster's folder at a commit with the `policies/` nearest to it.

        Cost: a command once a commit, and two for what the tree before did not have.
        """
        where = _inside(path)
        known = self._trees.get((revision, where))
        if known is None:
            known = self._read_tree(revision, where)
            while len(self._trees) >= 8:
                del self._trees[next(iter(self._trees))]
            self._trees[revision, where] = known
        return known

    def follows(self, older: Revision, newer: Revision) -> bool:
        """Whether `newer` contains `older`."""
        if not (_FULL_ID.fullmatch(older) and _FULL_ID.fullmatch(newer)):
            return False
        return _git(self.folder, "merge-base", "--is-ancestor", older, newer).code == 0

    def confirmations(self, since: Revision, until: Revision) -> frozenset[str]:
        """Trailers of the commits after `since`, at most the newest thousand."""
        if not _FULL_ID.fullmatch(until):
            return frozenset()
        known = since != NO_REVISION and self._has(since)
        newest = [until, f"^{since}"] if known else [until]
        answer = _git(self.folder, "log", f"--max-count={_REMEMBERED_COMMITS}", f"--format={_CONFIRMED}", *newest)
        if answer.code:
            raise _unavailable("GPU8006", revision=until, url=str(self.folder))
        return frozenset(answer.text.split())

    def _has(self, revision: Revision) -> bool:
        return (
            bool(_FULL_ID.fullmatch(revision))
            and not _git(self.folder, "cat-file", "-e", f"{revision}^{{commit}}").code
        )

    def _read_tree(self, revision: Revision, where: str) -> SourceTree:
        if not _FULL_ID.fullmatch(revision):
            raise _unavailable("GPU8006", revision=revision, url=str(self.folder))
        listing = _git(self.folder, "ls-tree", "-r", "-z", "--full-tree", revision)
        if listing.code:
            raise _unavailable("GPU8006", revision=revision, url=str(self.folder))
        read: dict[str, bytes | None] = {}

        def contents_of(blobs: Iterable[str]) -> dict[str, bytes | None]:
            read.update(self._read(set(blobs)))
            return read

        contents = Contents(entries(listing.output), contents_of)
        if not contents.holds(where):
            raise _unavailable("GPU8003", path=where, revision=revision)
        files = contents.files(where, revision)
        self._blobs = read
        return SourceTree(cluster_dir=where, revision=revision, files=files)

    def _read(self, blobs: set[str]) -> dict[str, bytes | None]:
        """Contents by blob; None for one that is larger than the compiler reads."""
        known = {blob: self._blobs[blob] for blob in blobs & self._blobs.keys()}
        wanted = sorted(blobs - known.keys())
        if not wanted:
            return known
        sizes = blob_sizes(self._batch("--batch-check", wanted))
        if len(sizes) < len(wanted):
            raise _unavailable("GPU8013", folder=str(self.folder))
        small = [blob for blob in wanted if sizes[blob] <= MAX_FILE_BYTES]
        read = dict(file_contents(self._batch("--batch", small) if small else b""))
        return {**known, **dict.fromkeys(wanted), **read}

    def _batch(self, mode: str, blobs: Iterable[str]) -> bytes:
        answer = _git(self.folder, "cat-file", mode, feed="".join(f"{blob}\n" for blob in blobs).encode())
        if answer.code:
            raise _unavailable("GPU8013", folder=str(self.folder))
        return answer.output


def _inside(path: str) -> str:
    """A folder's path in the repository, normalised; "." is the root."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise _unavailable("GPU8003", path=path, revision="(any)")
    return "/".join(parts) or "."


def _last_line(text: str) -> str:
    """The line of git's complaint that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:", "remote:"))]
    return (told or lines or ["no reason given"])[0].removeprefix("fatal: ").removeprefix("error: ")


class GitSource:
    """A branch of a repository, fetched into a bare clone below `workdir`.

    The clone is reused after a restart and made anew when it is damaged. `branch` None is what the remote has checked
    out. `stop` ends a fetch that is under way.
    """

    def __init__(
        self, url: str, path: str, branch: str | None, workdir: Path, stop: Callable[[], bool] = _never
    ) -> None:
        self._url = _allowed(url)
        self._shown = _without_password(url)
        self._path = _inside(path)
        self._branch = branch
        self._stop = stop
        self._clone = workdir / f"{sha256(self._url.encode()).hexdigest()[:16]}.git"
        self._repository = Repository(self._clone)

    def head(self) -> Revision:
        """Fetch, and say what the branch is at."""
        remote = self._remote_ref()
        local = f"refs/gpuctl/{remote}"
        if not self._is_sound():
            self._make_clone()
        fetched = self._fetch(remote, local)
        if fetched.code == 0:
            try:
                return self._readable(local)
            except SourceUnavailable:
                pass
        else:
            listed = _git(None, "ls-remote", "--exit-code", "--", self._url, remote, stop=self._stop)
            if listed.code:
                raise self._why_not(listed, absent=listed.code == _NO_SUCH_REF)
        # The remote is well, so it is the clone: it was damaged, or killed while it was written.
        self._make_clone()
        fetched = self._fetch(remote, local)
        if fetched.code:
            raise self._why_not(fetched, absent=False)
        return self._readable(local)

    def tree(self, revision: Revision) -> SourceTree:
        """The cluster's files at a commit of the clone."""
        return self._repository.tree(revision, self._path)

    def follows(self, older: Revision, newer: Revision) -> bool:
        """Whether `newer` contains `older`; False when `older` is not known."""
        return self._repository.follows(older, newer)

    def confirmations(self, since: Revision, until: Revision) -> frozenset[str]:
        """Trailers `Gpuctl-Confirm:` of the commits after `since`, or of the newest thousand."""
        return self._repository.confirmations(since, until)

    def _readable(self, ref: str) -> Revision:
        """The commit of a reference whose files can be read; that the folder is not among them is no damage."""
        revision = self._repository.resolve(ref)
        try:
            self.tree(revision)
        except SourceUnavailable as fault:
            if fault.code != "GPU8003":
                raise
        return revision

    def _remote_ref(self) -> str:
        if self._branch is None:
            return "HEAD"
        ref = f"refs/heads/{self._branch}"
        if _git(None, "check-ref-format", ref).code:
            raise _unavailable("GPU8002", url=self._shown, branch=self._branch)
        return ref

    def _fetch(self, remote: str, local: str) -> _Answer:
        options = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--update-shallow")
        return _git(self._clone, "fetch", *options, "--", self._url, f"+{remote}:{local}", stop=self._stop)

    def _is_sound(self) -> bool:
        return self._clone.is_dir() and not _git(None, f"--git-dir={self._clone}", "rev-parse", "--git-dir").code

    def _make_clone(self) -> None:
        try:
            shutil.rmtree(self._clone, ignore_errors=True)
            self._clone.parent.mkdir(parents=True, exist_ok=True)
            made = _git(None, "init", "--quiet", "--bare", "--template=", "--", str(self._clone))
        except OSError as error:
            raise _unavailable("GPU8001", url=str(self._clone), why=error.strerror or "not writable") from error
        if made.code:
            raise _unavailable("GPU8001", url=str(self._clone), why=_last_line(made.error))
        self._repository = Repository(self._clone)

    def _why_not(self, answer: _Answer, *, absent: bool) -> SourceUnavailable:
        said, why = answer.error.lower(), _last_line(answer.error).replace(self._url, self._shown)
        if absent:
            return _unavailable("GPU8002", url=self._shown, branch=self._branch or "HEAD")
        if any(sign in said for sign in _REFUSED):
            return _unavailable("GPU8005", url=self._shown, why=why)
        if any(sign in said for sign in _NO_REPOSITORY):
            return _unavailable("GPU8004", url=self._shown)
        return _unavailable("GPU8001", url=self._shown, why=why)


_REFUSED = ("permission denied", "authentication failed", "could not read username", "could not read password", " 403")
_NO_REPOSITORY = (
    "does not appear to be a git repository",
    "not a git repository",
    "repository not found",
    " not found",
)


def _allowed(url: str) -> str:
    """The address as git gets it: a folder as an absolute path. Raises for transports that are not allowed."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    if url.startswith("-") or "::" in url.partition("/")[0] or (scheme and scheme not in {"file", "https", "ssh"}):
        raise _unavailable("GPU8008", url=_without_password(url))
    if scheme or (_SCP_LIKE.fullmatch(url) and not Path(url).exists()):
        return url
    return str(Path(url).resolve())


def _without_password(url: str) -> str:
    """The address as it may be shown."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


class WorkingCopy:
    """A repository with a working tree that gpuctl writes itself, for demonstrations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: set[str] = set()
        self._removed: set[str] = set()

    @staticmethod
    def create(folder: Path, branch: str = "main") -> WorkingCopy:
        """A new repository in a folder that holds none."""
        try:
            git.Repo.init(folder, initial_branch=branch).close()
        except (git.GitError, OSError) as error:
            raise _unavailable("GPU8001", url=str(folder), why=str(error)) from error
        return WorkingCopy(folder)

    def write(self, path: str, content: bytes) -> None:
        """Write a file, for the next commit."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        self._removed.discard(path)
        self._written.add(path)

    def remove(self, path: str) -> None:
        """Delete a file, for the next commit."""
        (self.folder / path).unlink()
        self._written.discard(path)
        self._removed.add(path)

    def commit(self, text: str, at_ms: Instant) -> Revision:
        """Commit what was written and removed since the last one."""
        author = git.Actor("gpuctl demo", "demo@gpuctl.dev")
        date = f"{at_ms // 1000} +0000"
        with git.Repo(self.folder) as repository:
            if self._written:
                repository.index.add(sorted(self._written))
            if self._removed:
                repository.index.remove(sorted(self._removed))
            made = repository.index.commit(
                text, author=author, committer=author, author_date=date, commit_date=date, skip_hooks=True
            )
            self._written.clear()
            self._removed.clear()
            return Revision(made.hexsha)
