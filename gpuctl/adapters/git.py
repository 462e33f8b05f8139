"""Git: the branch gpuctl follows, read without a working tree, and repositories that gpuctl makes itself.

Commands are run by `gitrun`, which bounds them. Every failure is SourceUnavailable with a GPU8xxx code.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from gpuctl.adapters.gitrepository import Repository, inside
from gpuctl.adapters.gitrun import Answer, Git, Limits, last_line, never, unavailable
from gpuctl.adapters.gitsignatures import Signatures, Signers
from gpuctl.adapters.gittree import Listing
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.history import Commit
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.units import DurationMs, Instant

_NO_SUCH_REF = 2
_UPLOAD_PACK = "env GIT_ALLOW_PROTOCOL=none git upload-pack"
"""The other side of a fetch on this machine. It obeys the settings of a repository that may belong to another user."""
_SCP_LIKE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*:(?!/{0,2}-)(?!:)\S+")
_WRONG = frozenset({"GPU8003", "GPU8014", "GPU8015"})
"""Faults of a commit that was fetched successfully."""
_DAMAGE = frozenset({"GPU8006", "GPU8013"})
"""Faults of a clone that lacks what it has fetched."""


class GitSource:
    """A branch of a repository, fetched into a bare clone below `workdir`.

    The clone is reused after a restart, and replaced if it is damaged and the repository can be read. `branch` None:
    the branch that the repository has checked out at the first request; a later checkout is another person's work in
    that folder. If the repository has a commit checked out and no branch, that commit is all there is. `stop` ends a
    fetch that is under way; so does `close`, permanently.
    """

    def __init__(  # noqa: PLR0913 - the last three have a default
        self,
        url: str,
        path: str,
        branch: str | None,
        workdir: Path,
        stop: Callable[[], bool] = never,
        *,
        limits: Limits | None = None,
        signers: Signers | None = None,
    ) -> None:
        self._url, self._is_local = allowed_url(url)
        self._shown = without_password(url)
        self._path = inside(path)
        self._branch = branch
        self._only = NO_REVISION
        limits = limits or Limits()
        self._git = Git(stop, limits)
        self._clone = (
            workdir.absolute() / f"{sha256(self._url.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.git"
        )
        self._repository = Repository(self._clone, self._git, bare=True)
        self._signatures = None if signers is None else Signatures(signers, self._git)
        self._first_ms: DurationMs | None = limits.first_ms
        self._head, self._tidy, self._swept, self._is_name = NO_REVISION, False, False, False

    @property
    def url(self) -> str:
        """The address of the repository, without a password."""
        return self._shown

    @property
    def path(self) -> str:
        """The cluster's folder in the repository."""
        return self._path

    @property
    def clone(self) -> Path:
        """The bare clone, which exists once the branch was fetched."""
        return self._clone

    @property
    def branch(self) -> str:
        """The branch that is followed; "HEAD" while it is not known, or if there is none."""
        return self._branch or "HEAD"

    def head(self) -> Revision:
        """Fetch, and return the branch's newest commit."""
        if self._branch is None and not self._only:
            self._look_up_branch()
        newest = self._newest()
        if self._only not in {NO_REVISION, newest}:
            raise unavailable("GPU8020", url=self._shown)
        return newest

    def _newest(self) -> Revision:
        remote = self._remote_ref()
        local = f"refs/gpuctl/{remote}"
        if os.path.isdir(self._clone):  # noqa: PTH112 - False, too, of a name that no file can have
            self._sweep()
            within_ms, self._first_ms = self._first_ms, None
            fetched = self._fetch(self._clone, remote, local, within_ms)
            self._swept = fetched.code == 0
            if fetched.code == 0:
                try:
                    return self._tidied(self._readable(self._repository, local))
                except SourceUnavailable as fault:
                    if fault.code not in _DAMAGE:
                        raise
            elif self._is_sound():
                listed = self._listed(self._clone, remote)
                if listed.code:
                    raise self._why_not(listed, absent=listed.code == _NO_SUCH_REF)
        # The remote works, so the fault is the clone's: it is missing, or was damaged, or the process was killed while
        # writing it.
        return self._begin_anew(remote, local)

    def tree(self, revision: Revision) -> SourceTree:
        """The cluster's files at a commit of the clone."""
        return self._repository.tree(revision, self._path)

    def follows(self, older: Revision, newer: Revision) -> bool:
        """Whether `newer` contains `older`; False when `older` is not known."""
        return self._repository.follows(older, newer)

    def confirmations(self, since: Revision, until: Revision, within: str | None = None) -> frozenset[str]:
        """The trailers `Gpuctl-Confirm:` of the commits after `since`, or of the newest thousand."""
        if within is not None:
            folders = [inside(f"{self._path}/{within}")] if within else Listing(self._path).paths
            since = self._repository.before_change(since, until, folders)
        return self._repository.confirmations(since, until)

    def commits(self, revisions: Collection[Revision]) -> tuple[Commit, ...]:
        """The entries of some commits in the clone's log."""
        return self._repository.commits(revisions)

    def verify(self, since: Collection[Revision], head: Revision) -> None:
        """Check the signatures of the commits that `head` adds to `since`, if this source was given signers."""
        if self._signatures is not None:
            self._signatures.check(self._clone, since, head)

    def close(self) -> None:
        """End everything under way, at once and from any thread. Nothing can be read afterwards."""
        self._git.close()
        if self._signatures is not None:
            self._signatures.close()

    def _readable(self, repository: Repository, ref: str) -> Revision:
        """The commit of a reference, if its files can be read. A fault of the commit itself does not count as
        damage."""
        revision = repository.resolve(ref)
        try:
            repository.tree(revision, self._path)
        except SourceUnavailable as fault:
            if fault.code not in _WRONG:
                raise
        return revision

    def _look_up_branch(self) -> None:
        """Ask the repository which branch it has checked out; else which commit. Each is asked only once."""
        pack = [f"--upload-pack={_UPLOAD_PACK}"] if self._is_local else []
        answer = self._git.run(
            "ls-remote", "--symref", *pack, "--", self._url, "HEAD", remote=True, within_ms=self._first_ms
        )
        if answer.code:
            raise self._why_not(answer, absent=False)
        lines = [line.partition("\t") for line in answer.text.splitlines()]
        heads = [name for name, _, ref in lines if ref == "HEAD"]
        named = [name.removeprefix("ref: refs/heads/") for name in heads if name.startswith("ref: refs/heads/")]
        if not heads:
            raise unavailable("GPU8002", url=self._shown, branch="HEAD")
        if named:
            self._branch = named[0]
        else:
            self._only = Revision(heads[0])

    def _remote_ref(self) -> str:
        if self._branch is None:
            return "HEAD"
        ref = f"refs/heads/{self._branch}"
        if not self._is_name and self._git.run("check-ref-format", ref).code:
            raise unavailable("GPU8002", url=self._shown, branch=self._branch)
        self._is_name = True  # once it is known, the branch stays the followed one
        return ref

    def _fetch(self, clone: Path, remote: str, local: str, within_ms: DurationMs | None = None) -> Answer:
        options = ["--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--update-shallow"]
        if self._is_local:
            options.append(f"--upload-pack={_UPLOAD_PACK}")
        refspec = f"+{remote}:{local}"
        return self._at(clone, "fetch", *options, "--", self._url, refspec, remote=True, within_ms=within_ms)

    def _listed(self, clone: Path, remote: str) -> Answer:
        """The repository's answer about the branch: whether it exists, if it answers at all."""
        options = ["--exit-code", *([f"--upload-pack={_UPLOAD_PACK}"] if self._is_local else [])]
        return self._at(clone, "ls-remote", *options, "--", self._url, remote, remote=True)

    def _at(self, clone: Path, *args: str, remote: bool = False, within_ms: DurationMs | None = None) -> Answer:
        return self._git.run(f"--git-dir={clone}", *args, remote=remote, within_ms=within_ms)

    def _is_sound(self) -> bool:
        return not self._at(self._clone, "rev-parse", "--git-dir").code

    def _begin_anew(self, remote: str, local: str) -> Revision:
        """Fetch into a new clone. Only a complete one replaces the old clone, which may have the only copy of the last
        good commit. An incomplete one is removed: beside it, the old clone may have no room for the next fetch."""
        fresh = self._clone.with_suffix(".new")
        try:
            return self._cloned(fresh, remote, local)
        finally:
            with suppress(ValueError):  # a NUL in the name
                shutil.rmtree(fresh, ignore_errors=True)

    def _cloned(self, fresh: Path, remote: str, local: str) -> Revision:
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.parent.mkdir(parents=True, exist_ok=True)
            made = self._git.run("init", "--quiet", "--bare", "--template=", "--", str(fresh))
            if made.code:
                raise unavailable("GPU8001", url=str(fresh), why=last_line(made.error))
            fetched = self._fetch(fresh, remote, local)
            if fetched.code:
                listed = self._listed(fresh, remote)
                raise self._why_not(listed if listed.code else fetched, absent=listed.code == _NO_SUCH_REF)
            revision = self._readable(Repository(fresh, self._git, bare=True), local)
            shutil.rmtree(self._clone, ignore_errors=True)
            fresh.rename(self._clone)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            why = getattr(error, "strerror", None) or "not writable"
            raise unavailable("GPU8001", url=str(self._clone), why=why) from error
        self._repository = Repository(self._clone, self._git, bare=True)
        return revision

    def _tidied(self, revision: Revision) -> Revision:
        """Pack the objects of many fetches, once there are many and while no new commit waits to be read."""
        if revision != self._head:
            self._head, self._tidy = revision, False
        elif not self._tidy:
            self._tidy = True
            with suppress(SourceUnavailable):
                self._at(self._clone, "-c", "gc.auto=6700", "gc", "--auto", "--quiet")
        return revision

    def _sweep(self) -> None:
        """Remove the leftovers of a fetch that was ended: up to as much as a fetch may bring."""
        if not self._swept:
            for file in (*self._clone.glob("objects/pack/tmp_*"), *self._clone.glob("objects/??/tmp_*")):
                with suppress(OSError):
                    file.unlink()
        self._swept = False

    def _why_not(self, answer: Answer, *, absent: bool) -> SourceUnavailable:
        said, why = answer.error.lower(), last_line(answer.error).replace(self._url, self._shown)
        if absent:
            return unavailable("GPU8002", url=self._shown, branch=self._branch or "HEAD")
        if any(sign in said for sign in _REFUSED):
            return unavailable("GPU8005", url=self._shown, why=why)
        if any(sign in said for sign in _NO_REPOSITORY):
            return unavailable("GPU8004", url=self._shown)
        return unavailable("GPU8001", url=self._shown, why=why)


_REFUSED = (
    "permission denied",
    "authentication failed",
    "could not read username",
    "could not read password",
    " 403",
    "dubious ownership",
)
_NO_REPOSITORY = (
    "does not appear to be a git repository",
    "not a git repository",
    "repository not found",
    " not found",
)


def allowed_url(url: str) -> tuple[str, bool]:
    """The address as passed to git, a folder as an absolute path; and whether it is on this machine.

    Raises SourceUnavailable for transports that are not allowed.
    """
    scheme = urlsplit(url).scheme if "://" in url else ""
    if url.startswith("-") or "::" in url.partition("/")[0] or (scheme and scheme not in {"file", "https", "ssh"}):
        raise unavailable("GPU8008", url=without_password(url))
    try:
        if scheme or (_SCP_LIKE.fullmatch(url) and not Path(url).exists()):
            return url, scheme == "file"
        return str(Path(url).resolve()), True
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, links in a circle
        raise unavailable("GPU8004", url=without_password(url)) from error


_USER = re.compile(r"(:/{1,2})(?:[^/]*@|[^/@:]+:(?![0-9]{1,5}/)[^@]*@)")
"""User and password in an address as people write it: a password may contain `@` or `/`, although it should not."""


def without_password(url: str) -> str:
    """The address as it may be shown: without a user and a query, either of which may be a secret."""
    bare = _USER.sub(r"\1", url, count=1)
    return re.sub(r"\?.*", "?...", bare) if ":/" in bare else bare


def code_host_page(url: str) -> str:
    """The address of the repository's pages, for an https URL; "" for any other. Without user, password and .git."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return f"https://{host}{parts.path.rstrip('/').removesuffix('.git')}"


class WorkingCopy:
    """A repository with a working tree that gpuctl writes itself, for demonstrations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._git = Git()
        self._changed: set[str] = set()

    @staticmethod
    def create(folder: Path, branch: str = "main") -> WorkingCopy:
        """A new repository in a folder that holds none."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unavailable("GPU8001", url=str(folder), why=error.strerror or "not writable") from error
        made = WorkingCopy(folder)
        made._run("init", "--quiet", "--template=", f"--initial-branch={branch}")
        return made

    def write(self, path: str, content: bytes) -> None:
        """Write a file, for the next commit."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        self._changed.add(path)

    def remove(self, path: str) -> None:
        """Delete a file, for the next commit."""
        (self.folder / path).unlink()
        self._changed.add(path)

    def commit(self, text: str, at_ms: Instant) -> Revision:
        """Commit what was written and removed since the last one. Cost: three commands, however many files."""
        if self._changed:
            paths = b"\0".join(os.fsencode(path) for path in sorted(self._changed))
            self._run("add", "--all", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", feed=paths)
        person = {"NAME": "gpuctl demo", "EMAIL": "demo@gpuctl.dev", "DATE": f"@{at_ms // 1000} +0000"}
        people = {f"GIT_{role}_{fact}": value for role in ("AUTHOR", "COMMITTER") for fact, value in person.items()}
        self._run(*_COMMIT, feed=text.encode(), environment=people)
        self._changed.clear()
        return Revision(self._run("rev-parse", "HEAD"))

    def _run(self, *args: str, feed: bytes = b"", environment: Mapping[str, str] | None = None) -> str:
        failed = unavailable("GPU8001", url=str(self.folder), why=f"`git {args[0]}` failed")
        at = ("-C", str(self.folder.absolute()), "-c", "i18n.commitEncoding=utf-8")
        with closing(self._git.stream(*at, *args, feed=feed, otherwise=failed, environment=environment)) as chunks:
            return b"".join(chunks).decode().strip()


_COMMIT = ("commit", "--quiet", "--allow-empty", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-")
"""A commit of the index, with its text unchanged; no hook runs."""
