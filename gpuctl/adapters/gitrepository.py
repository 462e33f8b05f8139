"""A repository on this machine, read at a commit: the files of one cluster, and other facts that gpuctl asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpuctl.adapters.gitrun import Answer, Git, last_line, unavailable
from gpuctl.adapters.gittree import Entry, Links, Listing, Meter, blob_sizes, file_contents, shown
from gpuctl.adapters.links import left_by_link, name_below
from gpuctl.app.ports import SourceUnavailable
from gpuctl.k8s.bounds import MOST_AMOUNT, whole_number
from gpuctl.model.history import Commit
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import (
    MAX_FILE_BYTES,
    MAX_LINK_BYTES,
    MAX_TREE_BYTES,
    SourceFault,
    SourceFile,
    SourceTree,
    Tally,
    TooLarge,
    exceeded,
    is_misnamed,
    read_without_the_most,
)

_CONFIRMED = "%(trailers:key=Gpuctl-Confirm,valueonly)"
_MOST_TOLD = 200
"""In characters; Git itself cuts columns, and some characters have none."""
_TOLD = "%H%x1f%<(200,trunc)%an%x1f%at%x1f%<(200,trunc)%s%x1e"
_REMEMBERED_COMMITS = 1000
_REMEMBERED_TREES = 8
_REMEMBERED_BYTES = 2 * MAX_TREE_BYTES
_ARGUMENTS_BYTES = 1 << 16
_FULL_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_AMBIGUOUS = re.compile(r"^warning: refname '(.+)' is ambiguous\.$", re.MULTILINE)
_PLAIN_NAME = re.compile(rf"HEAD|@|refs/.+|{_FULL_ID.pattern}")
"""Names that Git takes literally, even if a tag has the same name."""
_LASTING = frozenset({"GPU8003", "GPU8014"})
"""Faults of a commit itself: another try finds the same."""


class Repository:
    """A repository on this machine, read only. Commands in its own settings are not run.

    A repository of another user of the machine is not read, following Git's `safe.directory`. `bare`: the folder is the
    repository itself, gpuctl's own.
    """

    def __init__(self, folder: Path, git: Git | None = None, *, bare: bool = False) -> None:
        self.folder = folder
        self._git = git or Git()
        self._at = (f"--git-dir={folder.absolute()}",) if bare else ("-C", str(folder.absolute()))
        self._trees: dict[tuple[Revision, str], SourceTree | SourceUnavailable] = {}
        self._blobs: dict[str, bytes | None] = {}
        self._here: set[Revision] = set()

    @staticmethod
    def containing(path: Path) -> tuple[Repository, str]:
        """The repository that contains a folder, and the folder's path inside it, by its name there.

        In a commit a link to a folder has nothing below it, wherever it leads, so it is not followed.
        """
        folder = path if path.is_dir() else path.parent
        answer = Git().run("-C", str(folder.absolute()), "rev-parse", "--show-toplevel")
        if "dubious ownership" in answer.error:
            raise unavailable("GPU8005", url=str(path), why=last_line(answer.error))
        if "cannot use bare repository" in answer.error:
            raise unavailable("GPU8026", path=str(path))
        top = Path(os.fsdecode(answer.output.removesuffix(b"\n")))
        if answer.code or left_by_link(path) or not path.resolve().is_relative_to(top.resolve()):
            raise unavailable("GPU8004", url=str(path))
        return Repository(top), name_below(top, path)

    def resolve(self, name: str) -> Revision:
        """The commit that a branch, tag or id names.

        Raises GPU8006 if none has that name, GPU8025 if several may have it. Security: Git would take a tag
        `origin/main`, which anybody may push who may push a branch, for the branch of the remote.
        """
        bad = not name or name.startswith("-")
        answer = None if bad else self._run("rev-parse", "--verify", f"{name}^{{commit}}")
        if answer is None or answer.code:
            raise unavailable("GPU8006", revision=name, url=str(self.folder))
        if any(not _PLAIN_NAME.fullmatch(found) for found in _AMBIGUOUS.findall(answer.error)):
            raise unavailable("GPU8025", revision=name, url=str(self.folder))
        return self._seen_here(Revision(answer.text))

    def tree(self, revision: Revision, path: str) -> SourceTree:
        """A cluster's folder at a commit, with the `policies/` nearest to it.

        Raises GPU8003 for a missing folder, GPU8014 for one that exceeds the bounds even without the largest projects.
        Cost: a command once a commit, and two for what the tree before did not have; some more for links to elsewhere;
        all of that again for each project that is left out.
        """
        where = inside(path)
        known = self._trees.get((revision, where))
        if known is None:
            try:
                known = self._read_tree(revision, where)
            except SourceUnavailable as fault:
                if fault.code not in _LASTING:
                    raise
                known = fault
            self._remember(revision, where, known)
        if isinstance(known, SourceUnavailable):
            raise known.with_traceback(None)
        return known

    def contents(self, blobs: Collection[str]) -> Mapping[str, bytes | None]:
        """Files by the ids of their contents; None for one that is too large. Cost: two commands.

        Raises GPU8014 if the files exceed the bounds, GPU8013 if one is missing.
        """
        try:
            return self._read(blobs, MAX_FILE_BYTES)
        except TooLarge as found:
            raise unavailable("GPU8014", path=str(self.folder), revision="several", bound=found.bound) from None

    def follows(self, older: Revision, newer: Revision) -> bool:
        """Whether `newer` contains `older`."""
        if not (_FULL_ID.fullmatch(older) and _FULL_ID.fullmatch(newer)):
            return False
        return self._run("merge-base", "--is-ancestor", older, newer).code == 0

    def merge_base(self, one: Revision, other: Revision) -> Revision | None:
        """The best common ancestor of two commits; None if they have none here."""
        answer = self._run("merge-base", one, other)
        if answer.code > 1:
            raise unavailable("GPU8013", folder=str(self.folder))
        return None if answer.code else Revision(answer.text)

    def count_since(self, older: Revision, newer: Revision, path: str = ".") -> int:
        """How many commits `newer` contains that `older` does not, and that changed something below a path."""
        within = () if path == "." else ("--", path)
        answer = self._run("rev-list", "--count", newer, f"^{older}", *within)
        if answer.code:
            raise unavailable("GPU8013", folder=str(self.folder))
        return int(answer.text)

    def folder_at(self, revision: Revision, path: str) -> str:
        """The id of a folder at a commit. Raises GPU8003 for a missing folder."""
        where = inside(path)
        if where == ".":
            answer = self._run("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}")
            found = answer.text
        else:
            answer = self._run("ls-tree", "-d", "--full-tree", revision, "--", where)
            found = answer.text.partition("\t")[0].rpartition(" ")[2]
        if answer.code or not found:
            raise unavailable("GPU8003", path=where, revision=revision)
        return found

    @property
    def holder(self) -> Path | None:
        """The top of the repository that this one is a submodule of; None for none."""
        if (self.folder / ".git").is_dir():
            return None
        outer = self._run("rev-parse", "--show-superproject-working-tree").output.removesuffix(b"\n")
        return Path(os.fsdecode(outer)) if outer else None

    @property
    def is_begun(self) -> bool:
        """Whether the checkout has a commit: not before the first one."""
        return not self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}").code

    @property
    def is_shallow(self) -> bool:
        """Whether its history is cut off."""
        return self._run("rev-parse", "--is-shallow-repository").text == "true"

    def own_path(self, name: str) -> Path:
        """Where Git keeps a part of the repository, such as its objects, which worktrees share."""
        answer = self._run("rev-parse", "--git-path", name)
        return (self.folder / os.fsdecode(answer.output.removesuffix(b"\n"))).absolute()

    def before_change(self, since: Revision, until: Revision, folders: Sequence[str]) -> Revision:
        """The commit on the branch itself before the newest one that changed something in the folders, by itself or by
        what it merged. `since` if none after that did; NO_REVISION if the change is in the very first commit."""
        after = [f"^{since}"] if self._has(since) else []
        asked = ("log", "--first-parent", "--max-count=1", "--format=%H %P", until, *after, "--", *folders)
        told = self._run(*asked).text.split() if self._has(until) else []
        if not told:
            return since
        return Revision(told[1]) if len(told) > 1 else NO_REVISION

    def confirmations(self, since: Revision, until: Revision) -> frozenset[str]:
        """Trailers of the commits after `since`, at most of the newest thousand.

        Reading ends at a commit whose message is too large: neither it nor any commit before it counts.
        """
        if not self._has(until):
            return frozenset()
        newest = [until, f"^{since}"] if since != NO_REVISION and self._has(since) else [until]
        answer = self._run("log", f"--max-count={_REMEMBERED_COMMITS}", f"--format={_CONFIRMED}", *newest)
        return frozenset(answer.text.split())

    def branches(self, most: int) -> tuple[str, ...]:
        """The names of its branches, and of its remotes' branches as last fetched, newest commit first."""
        told = self._run(
            "for-each-ref", f"--count={most}", "--sort=-committerdate", "--format=%(refname:short)", "refs/heads",
            "refs/remotes",
        )  # fmt: skip
        return tuple(name for name in told.text.splitlines() if not name.endswith("/HEAD"))

    def commits(self, revisions: Collection[Revision]) -> tuple[Commit, ...]:
        """The log entries of some commits, at most of the first thousand; missing commits have none.

        Texts are cut at 200 characters.
        """
        wanted = [revision for revision in revisions if _FULL_ID.fullmatch(revision)][:_REMEMBERED_COMMITS]
        if not wanted:
            return ()
        told = self._run(
            "log", "--no-walk=unsorted", "--ignore-missing", "--no-show-signature", f"--format={_TOLD}", *wanted, "--"
        )
        found = []
        for record in told.output.decode("utf-8", "replace").split("\x1e"):
            revision, *rest = record.strip("\n").split("\x1f")
            if len(rest) == 3 and (seconds := whole_number(rest[1], MOST_AMOUNT // 1000)) is not None:
                author, _, subject = rest
                found.append(
                    Commit(
                        revision=Revision(revision),
                        author=author[:_MOST_TOLD].rstrip(),
                        subject=subject[:_MOST_TOLD].rstrip(),
                        written_ms=1000 * seconds,
                    )
                )
        return tuple(found)

    def _run(self, *args: str) -> Answer:
        return self._git.run(*self._at, *args)

    def _has(self, revision: Revision) -> bool:
        """Whether a commit is in the repository. Cost: a command for each call until it was found."""
        if revision in self._here:
            return True
        if not _FULL_ID.fullmatch(revision) or self._run("cat-file", "-e", f"{revision}^{{commit}}").code:
            return False
        return bool(self._seen_here(revision))

    def _seen_here(self, revision: Revision) -> Revision:
        if len(self._here) >= _REMEMBERED_COMMITS:
            self._here.clear()
        self._here.add(revision)
        return revision

    def _remember(self, revision: Revision, where: str, read: SourceTree | SourceUnavailable) -> None:
        """Keep the tree, and as many earlier ones as fit the bound together."""
        self._trees[revision, where] = read
        while len(self._trees) > 1 and (
            len(self._trees) > _REMEMBERED_TREES or sum(map(_size, self._trees.values())) > _REMEMBERED_BYTES
        ):
            del self._trees[next(iter(self._trees))]

    def _read_tree(self, revision: Revision, where: str) -> SourceTree:
        missing = unavailable("GPU8006", revision=revision, url=str(self.folder))
        if not _FULL_ID.fullmatch(revision):
            raise missing
        try:
            files = read_without_the_most(where, partial(self._files, revision, where, missing))
        except TooLarge as found:
            raise unavailable("GPU8014", path=where, revision=revision, bound=found.bound) from None
        of_it = {shown(path): replace(file, revision=revision) for path, file in sorted(files.items())}
        return SourceTree(cluster_dir=where, revision=revision, files=of_it)

    def _files(
        self, revision: Revision, where: str, missing: SourceUnavailable, without: Collection[str]
    ) -> dict[str, SourceFile]:
        """The files by their paths in Git, without those of some projects."""
        meter, listing = Meter(where), Listing(where)

        def listed(paths: Sequence[str], *options: str) -> Iterator[Entry]:
            command = (*self._at, "ls-tree", "-t", "-z", "--full-tree", *options, revision, "--", *map(_raw, paths))
            with closing(self._git.stream(*command, otherwise=missing)) as chunks:
                yield from meter.entries(chunks)

        def below(folder: str) -> Iterator[Entry]:
            return listed([folder] if folder else [])

        for some in [listing.paths] if not without else _batches(listing.without(without, below)):
            listing.take(listed(some, "-r"))
        if not (listing.is_there or without):
            raise unavailable("GPU8003", path=where, revision=revision)
        found = listing.declarations()
        misnamed = dict.fromkeys(filter(is_misnamed, found), SourceFault.MISNAMED)
        with _told(Tally(where, dict.fromkeys(found, 1))):
            _check(files=len(found))
        links = Links(
            found,
            lambda paths: (entry for some in _batches(paths) for entry in listed(some)),
            lambda blobs: self._read(blobs, MAX_LINK_BYTES),
        )
        with _told(Tally(where, {path: int(entry.is_link) for path, entry in found.items()})):
            followed = links.follow(entry for path, entry in found.items() if entry.is_link and path not in misnamed)
        real: dict[str, Entry | SourceFault] = {**found, **followed, **misnamed}
        blobs = {path: entry.blob for path, entry in real.items() if isinstance(entry, Entry)}
        try:
            self._blobs = read = self._read(blobs.values(), MAX_FILE_BYTES)
        except TooLarge as beyond:
            sizes = self._sizes(sorted(set(blobs.values())))
            held = {path: sizes[blob] for path, blob in blobs.items() if sizes[blob] <= MAX_FILE_BYTES}
            raise Tally(where, held).too_large(beyond.bound) from None
        return {path: _file(entry, read) for path, entry in real.items()}

    def _read(self, blobs: Collection[str], most_bytes: int) -> dict[str, bytes | None]:
        """Contents by blob; None for one that is too large. Together they are within the bounds, where a blob counts as
        often as it is named, because it is compiled as often."""
        known = {blob: _within(self._blobs[blob], most_bytes) for blob in blobs if blob in self._blobs}
        wanted = sorted(set(blobs) - known.keys())
        sizes = self._sizes(wanted)
        small = [blob for blob in wanted if sizes[blob] <= most_bytes]
        sizes |= {blob: len(content or b"") for blob, content in known.items()}
        _check(size_bytes=sum(sizes[blob] for blob in blobs if sizes[blob] <= most_bytes))
        with closing(self._batch("--batch", small)) as chunks:
            return {**known, **dict.fromkeys(wanted), **dict(file_contents(chunks))}

    def _sizes(self, blobs: Sequence[str]) -> dict[str, int]:
        with closing(self._batch("--batch-check", blobs)) as chunks:
            sizes = blob_sizes(b"".join(chunks))
        if len(sizes) < len(blobs):
            raise unavailable("GPU8013", folder=str(self.folder))
        return sizes

    def _batch(self, mode: str, blobs: Sequence[str]) -> Generator[bytes]:
        if blobs:
            feed = "".join(f"{blob}\n" for blob in blobs).encode()
            damaged = unavailable("GPU8013", folder=str(self.folder))
            yield from self._git.stream(*self._at, "cat-file", mode, feed=feed, otherwise=damaged)


@contextmanager
def _told(of_what: Tally) -> Iterator[None]:
    """In a fault of a bound, name the project that has the most."""
    try:
        yield
    except TooLarge as beyond:
        raise of_what.too_large(beyond.bound) from None


def _check(*, files: int = 0, size_bytes: int = 0) -> None:
    bound = exceeded(files=files, size_bytes=size_bytes)
    if bound:
        raise TooLarge(bound)


def _within(content: bytes | None, most_bytes: int) -> bytes | None:
    return content if content is not None and len(content) <= most_bytes else None


def _size(read: SourceTree | SourceUnavailable) -> int:
    return sum(len(file.content) for file in read.files.values()) if isinstance(read, SourceTree) else 0


def _file(entry: Entry | SourceFault, read: Mapping[str, bytes | None]) -> SourceFile:
    if isinstance(entry, SourceFault):
        return SourceFile(content=b"", fault=entry)
    content = read[entry.blob]
    return SourceFile(content=b"", fault=SourceFault.TOO_LARGE) if content is None else SourceFile(content=content)


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _batches(paths: Sequence[str]) -> Iterator[list[str]]:
    """Paths in parts that fit one command line."""
    some, size = list[str](), 0
    for path in paths:
        if some and size + len(path) > _ARGUMENTS_BYTES:
            yield some
            some, size = [], 0
        some.append(path)
        size += 4 * len(path)
    if some:
        yield some


def inside(path: str) -> str:
    """A folder's path in the repository, normalised; "." is the root."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise unavailable("GPU8003", path=path, revision="(any)")
    return "/".join(parts) or "."
