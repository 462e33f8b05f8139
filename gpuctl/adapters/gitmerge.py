"""What a plan compares, read from a repository: base, head, and the merge of the two.

Git merges in a bare repository of gpuctl's own, in a temporary folder, which has the real one's objects as alternates.
So nothing is written to the real one, its working tree is not touched, and its settings, attributes, merge drivers and
hooks have no effect.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import Git, unavailable
from gpuctl.adapters.gittree import shown
from gpuctl.adapters.links import holder, left_by_link, name_below
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.comparison import Comparison, Merge
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import WORKING_TREE, SourceFault, SourceFile, SourceTree

_MISSING_FOLDER = "GPU8003"
_UNKNOWN_COMMIT = "GPU8006"
_USAGE = 129
"""Git's exit code for an unknown option."""
_MOST_CONFLICTS = 1000
_CONFIG = "[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extensions}"
_SHA256 = "[extensions]\n\tobjectFormat = sha256\n"
_SHA256_DIGITS = 64
_SHOWN_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The trees that a plan compares; None for a revision without the cluster's folder.

    `confirmations`: of all commits of both sides; `added`: only of those that the change adds to base.
    """

    comparison: Comparison
    before: SourceTree | None
    after: SourceTree | None
    confirmations: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()


def compare(
    folder: Path, base: str, head: str | None, read_folder: Callable[[str], SourceTree], *, direct: bool = False
) -> Compared:
    """Read a cluster's folder before and after merging head into base; no head means the working tree.

    `read_folder` reads the files of the working tree. `direct`: no merge, head is compared as it is. Raises
    SourceUnavailable: no repository, no such revision, no common ancestor. Cost: nine commands more than reading the
    two trees, and the merge if base has moved.
    """
    repository, path = _found(folder)
    ours, theirs = _commit(repository, base), _commit(repository, head or "HEAD")
    named = WORKING_TREE if head is None else _shown(head, theirs)
    compared = Comparison(base=_shown(base, ours), head=named, folder=path, base_commit=ours)
    compared = compared if head is None else replace(compared, head_commit=theirs)
    after = _read(repository, theirs, path) if head is not None else None
    if head is None:
        after = _in_working_tree(folder, repository, path, read_folder)
    added = repository.confirmations(ours, theirs)
    confirmed = [repository.confirmations(NO_REVISION, tip) for tip in {ours, theirs}]
    tips = Compared(
        comparison=compared,
        before=_read(repository, ours, path),
        after=after,
        confirmations=frozenset[str]().union(*confirmed),
        added=added,
    )
    if direct:
        return tips
    parted = repository.merge_base(ours, theirs)
    if parted is None:
        raise _unrelated(repository, compared)
    moved_by = repository.count_since(parted, ours) if parted != ours else 0
    compared = replace(compared, merge=Merge.CLEAN, merge_base=parted, base_moved_by=moved_by)
    edits = _edits(repository, theirs, path, after) if head is None else {}
    if not moved_by or any(file is not None and file.fault for file in edits.values()):
        return replace(tips, comparison=compared)  # an unreadable file is reported as a mistake
    with scratch_repository(repository, theirs) as workshop:
        merged = workshop.merge(ours, workshop.commit(theirs, edits) if edits else theirs)
        if merged.state is Merge.CLEAN:
            return replace(tips, comparison=compared, after=_read(workshop.repository, merged.tree, path))
    compared = replace(compared, merge=merged.state, conflicts=merged.conflicts)
    return replace(tips, comparison=compared, before=_read(repository, parted, path))


def roll_back(folder: Path, base: str, to: str) -> Compared:
    """Read a cluster's folder at base, and at base with that folder as it was at an earlier commit.

    Everything outside of the folder stays as it is at base, including policies of all clusters. Raises
    SourceUnavailable: no repository, no such revision, no folder there, no earlier commit.
    """
    repository, path = _found(folder)
    now, then = _commit(repository, base), _commit(repository, to)
    if not repository.follows(then, now):
        raise unavailable("GPU8019", revision=to, base=base)
    compared = Comparison(
        base=base,
        head=to,
        folder=path,
        base_commit=now,
        head_commit=then,
        merge_base=then,
        base_moved_by=repository.count_since(then, now, path),
        merge=Merge.ROLLBACK,
    )
    folder_then = repository.folder_at(then, path)
    with scratch_repository(repository, now) as workshop:
        after = _read(workshop.repository, workshop.put_back(now, path, folder_then), path)
    before, confirmations = _read(repository, now, path), repository.confirmations(NO_REVISION, now)
    return Compared(comparison=compared, before=before, after=after, confirmations=confirmations)


def since(
    folder: Path, name: str, read: Callable[[str], SourceTree], head: str | None = None
) -> tuple[SourceTree | None, SourceTree]:
    """A cluster at the commit where `head` left the named branch (None if it did not exist), and at `head`.

    Without `head` it is the current branch, and the working tree with uncommitted changes, which `read` reads. Both
    have paths from the top of the repository. Raises SourceUnavailable: GPU8004, GPU8006, GPU8003 for a cluster that
    does not exist at `head`, and those of `Repository.tree` and `compare`.
    """
    repository, path = _found(folder)
    commit, changed = _commit(repository, name), _commit(repository, head or "HEAD")
    parted = repository.merge_base(commit, changed)
    if parted is None:
        raise _unrelated(repository, Comparison(base=name, head=head or "HEAD", folder=path))
    before = _read(repository, parted, path)
    if head is not None:
        return before, repository.tree(changed, path)
    now = _in_working_tree(folder, repository, path, read)
    if now is None:
        raise unavailable(_MISSING_FOLDER, path=path, revision=WORKING_TREE)
    return before, now


def _found(folder: Path) -> tuple[Repository, str]:
    """The repository that contains a folder, and the folder's path in it; the folder need not be in a working tree.

    A submodule that is named from the repository around it counts as that repository's, whose commits have nothing of
    its contents.
    """
    if left_by_link(folder):
        raise unavailable("GPU8004", url=str(folder))
    standing = _existing(folder)
    repository, inside = Repository.containing(standing)
    outer = repository.holder
    if outer is not None and not folder.is_absolute() and not Path.cwd().is_relative_to(repository.folder.resolve()):
        repository, inside = Repository(outer), name_below(outer, standing)
    return repository, (Path(inside) / folder.absolute().relative_to(standing)).as_posix()


def _shown(name: str, commit: Revision) -> str:
    """A revision as shown to people: a full id is cut; the full name of a branch, as CI jobs use it, too."""
    return commit[:_SHOWN_DIGITS] if name == commit else name.removeprefix("refs/heads/").removeprefix("refs/remotes/")


def _commit(repository: Repository, name: str) -> Revision:
    try:
        return repository.resolve(name)
    except SourceUnavailable as fault:
        if fault.code == _UNKNOWN_COMMIT and not repository.is_begun:
            raise unavailable("GPU8024", url=str(repository.folder)) from None
        if fault.code == _UNKNOWN_COMMIT and repository.is_shallow:
            raise unavailable("GPU8017", what=f"commit {name}", url=str(repository.folder)) from None
        raise


def _unrelated(repository: Repository, compared: Comparison) -> SourceUnavailable:
    head = "the working tree" if compared.head == WORKING_TREE else compared.head
    if repository.is_shallow:
        what = f"the commit that {compared.base} and {head} have in common"
        return unavailable("GPU8017", what=what, url=str(repository.folder))
    return unavailable("GPU8018", base=compared.base, head=head)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest existing one above it: a new or removed cluster exists in one revision only."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if _is_folder(path))


def _is_folder(path: Path) -> bool:
    """Whether the folder exists. False for a name that is too long for any."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _in_working_tree(
    folder: Path, repository: Repository, path: str, read: Callable[[str], SourceTree]
) -> SourceTree | None:
    """The cluster as it is in the working tree. None if a commit of it would have none: no folder, a link, a
    submodule."""
    top = repository.folder.resolve()
    if not _is_folder(folder) or (top / path).resolve() != top / path or top in (holder(folder) or top).parents:
        return None
    return _in_repository(read(str(folder)), repository, path)


def _in_repository(tree: SourceTree, repository: Repository, path: str) -> SourceTree:
    """The working tree's files by their paths in the repository, as in commits.

    Files behind a link that leaves the repository keep their paths.
    """
    top = repository.folder.resolve()
    folders: dict[str, str] = {}
    files = dict[str, SourceFile]()
    for name, file in tree.files.items():
        folder, base = os.path.split(name)
        if folder not in folders:
            at = Path(folder)
            real = at.resolve()
            found = (real.relative_to(top) if real.is_relative_to(top) else at).as_posix()
            folders[folder] = "" if found == "." else found
        files[os.path.join(folders[folder], base)] = file  # noqa: PTH118 - a Path for each of 10,000 files takes 0.15 s
    return replace(tree, cluster_dir=path, files=files)


def _read(repository: Repository, revision: Revision, path: str) -> SourceTree | None:
    try:
        return repository.tree(revision, path)
    except SourceUnavailable as fault:
        if fault.code == _MISSING_FOLDER:
            return None
        raise


def _edits(
    repository: Repository, commit: Revision, path: str, tree: SourceTree | None
) -> Mapping[str, SourceFile | None]:
    """The declarations in the working tree that differ from a commit, by path in the repository; None: deleted."""
    read = _read(repository, commit, path)
    before, now = ({} if side is None else _declaring(side.files) for side in (read, tree))
    changed = {name: file for name, file in now.items() if name not in before or not file.says_the_same(before[name])}
    return {**dict.fromkeys(before.keys() - now.keys()), **changed}


def _declaring(files: Mapping[str, SourceFile]) -> Mapping[str, SourceFile]:
    """The files that are read: files with another ending declare nothing, whatever a merge makes of them."""
    return {path: file for path, file in files.items() if file.fault is not SourceFault.MISNAMED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    """The tree of a clean merge, or why there is none."""

    state: Merge
    tree: Revision = NO_REVISION
    conflicts: tuple[str, ...] = ()


class _Workshop:
    """A bare repository without settings that has all objects of another one."""

    def __init__(self, folder: Path, source: Repository) -> None:
        self.repository = Repository(folder, bare=True)
        self._source = source
        self._git = Git()
        self._at = (f"--git-dir={folder}", "-c", "core.attributesFile=/dev/null")

    def merge(self, ours: Revision, theirs: Revision) -> _Merged:
        """Merge two commits as `git merge` does."""
        options = ("--write-tree", "-z", "--name-only", "--no-messages")
        answer = self._git.run(*self._at, "merge-tree", *options, ours, theirs)
        if answer.code == _USAGE:
            return _Merged(state=Merge.UNSUPPORTED)
        tree, *names = answer.output.split(b"\0")[:-1] or [b""]
        if answer.code > 1 or not tree:
            raise self._damaged()
        if not answer.code:
            return _Merged(state=Merge.CLEAN, tree=Revision(tree.decode()))
        paths = sorted({shown(os.fsdecode(name)) for name in names if name})
        return _Merged(state=Merge.CONFLICTS, conflicts=tuple(paths[:_MOST_CONFLICTS]))

    def commit(self, parent: Revision, edits: Mapping[str, SourceFile | None]) -> Revision:
        """Commit edits of files on top of another commit; None: the file is deleted."""
        orders = [
            b"D " + quoted_path(path)
            if file is None
            else b"M 100644 inline %s\n%s" % (quoted_path(path), _data(file.content))
            for path, file in sorted(edits.items())
        ]
        return self._committed(parent, orders)

    def put_back(self, parent: Revision, path: str, tree: str) -> Revision:
        """Commit a folder, in its state in a tree, on top of another commit."""
        return self._committed(parent, [b"M 040000 " + tree.encode() + b" " + quoted_path("" if path == "." else path)])

    def _committed(self, parent: Revision, orders: Sequence[bytes]) -> Revision:
        head = [b"commit refs/heads/planned", b"mark :1", b"committer gpuctl <> 0 +0000", _data(b"")]
        feed = b"\n".join([*head, b"from " + parent.encode(), *orders, b"", b"get-mark :1", b"done", b""])
        told = self._git.stream(*self._at, "fast-import", "--quiet", "--done", feed=feed, otherwise=self._damaged())
        return Revision(b"".join(told).decode().strip())

    def _damaged(self) -> SourceUnavailable:
        return unavailable("GPU8013", folder=str(self._source.folder))


@contextmanager
def scratch_repository(source: Repository, commit: Revision) -> Iterator[_Workshop]:
    """Make a scratch repository, and remove it afterwards. The length of `commit` tells how the repository names
    objects."""
    with TemporaryDirectory(prefix="gpuctl-merge-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch).resolve()
        for part in ("objects/info", "refs"):
            (folder / part).mkdir(parents=True)
        is_long = len(commit) == _SHA256_DIGITS
        config = _CONFIG.format(version=int(is_long), extensions=_SHA256 if is_long else "")
        (folder / "config").write_text(config)
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        (folder / "objects/info/alternates").write_bytes(quoted_path(str(source.own_path("objects"))) + b"\n")
        with suppress(FileNotFoundError):
            shutil.copyfile(source.own_path("shallow"), folder / "shallow")
        yield _Workshop(folder, source)


def quoted_path(path: str) -> bytes:
    """A path in the quoted form that Git reads."""
    raw = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + raw + b'"'


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content
