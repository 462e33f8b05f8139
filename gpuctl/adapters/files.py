"""Files of the working directory as a source tree. Only this module reads and writes declarations in the filesystem.

A folder may contain anything, so reading is counted and ends at the bounds of `model.source`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from errno import EINVAL
from operator import itemgetter
from pathlib import Path
from stat import S_IMODE, S_ISLNK, S_ISREG

from gpuctl.adapters.links import holder, left_by_link
from gpuctl.app.editing_ports import not_edited
from gpuctl.app.ports import SourceUnavailable
from gpuctl.diag.wording import message
from gpuctl.model.source import (
    MAX_FILE_BYTES,
    YAML_SUFFIXES,
    SourceFault,
    SourceFile,
    SourceTree,
    Tally,
    TooLarge,
    exceeded,
    folder_project,
    is_misnamed,
    read_without_the_most,
)

MOST_SECRET_BYTES = 16 * 1024


def read_tree(cluster_dir: str) -> SourceTree:
    """Every YAML file below a cluster's folder, and below the nearest `policies/` folder at or above it.

    Policies are searched up to the top of the Git working tree, or without Git up to the filesystem's root. Paths are
    as the caller gave the folder. A missing folder is an empty tree. Hidden folders are skipped. Raises
    SourceUnavailable GPU8014 if the folder exceeds the bounds even without the largest projects.
    """
    folder = Path(cluster_dir)
    where, top = folder.as_posix(), _top(folder)
    policies = _policies(folder, top)

    def read(without: Collection[str]) -> dict[str, SourceFile]:
        meter = _Meter(where, without)
        below = dict(_files(folder, top, meter))
        return below if policies is None else below | dict(_files(policies, top, meter))

    try:
        files = read_without_the_most(where, read)
    except TooLarge as found:
        raise _too_large(folder, found) from None
    return SourceTree(cluster_dir=where, files=dict(sorted(files.items())))


def read_files(paths: Iterable[str]) -> Iterator[tuple[str, SourceFile]]:
    """YAML files, and those below folders, each once. Links are skipped, as their targets have paths of their own; but
    a folder that itself leads out of the repository is reported.

    Raises SourceUnavailable GPU8014 for a folder that exceeds the bounds.
    """
    seen = set[str]()
    for name in paths:
        path = Path(name)
        found = [(name, _file(path, path.parent.resolve(), inside=True))]
        if path.is_dir():
            try:
                found = list(_files(path, _top(path), _Meter(path.as_posix())))
            except TooLarge as beyond:
                raise _too_large(path, beyond) from None
        for each, file in sorted(found, key=itemgetter(0)):
            is_left_alone = Path(each).is_symlink() and not (each == path.as_posix() and path.is_dir())
            if each not in seen and not is_left_alone:
                seen.add(each)
                yield each, file


def secret_in(path: Path) -> str:
    """The text of a file as it is now, without the space around it; "" for no file, or more than MOST_SECRET_BYTES."""
    with suppress(OSError, ValueError):
        content = read_regular(path, MOST_SECRET_BYTES)
        return "" if len(content) > MOST_SECRET_BYTES else content.decode().strip()
    return ""


def read_regular(path: Path | str, most_bytes: int) -> bytes:
    """The content of a file; of a larger one `most_bytes` plus one. Raises OSError for anything else: a device, a
    pipe."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(number)
        if not S_ISREG(facts.st_mode):
            raise OSError(EINVAL, "it is not a file")
        content = os.read(number, min(facts.st_size, most_bytes) + 1)
        while len(content) <= most_bytes and (more := os.read(number, most_bytes + 1 - len(content))):
            content += more
    finally:
        os.close(number)
    return content


def write_private(path: Path, content: bytes) -> None:
    """Write a file that no other user may read; an existing file keeps its rights. May raise OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as out:
        out.write(content)


def replace_file(path: Path, root: Path, before: bytes | None, after: bytes | None) -> None:
    """Replace a file at once, create it or delete it; through a link, the file that it leads to.

    Raises NotEdited: GPU6103 for a file outside of `root`, or that can't be written; GPU6106 for one that is not as
    `before` says.
    """
    try:
        file = path.resolve(strict=path.is_symlink())
        if not is_inside(file, root.resolve()):
            raise not_edited("GPU6103", path=str(path), why="it leads out of the repository")
        if before != (read_regular(file, MAX_FILE_BYTES) if file.exists() else None):
            raise not_edited("GPU6106", path=str(path))
        if after is None:
            file.unlink()
        else:
            _write(file, after)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        why = getattr(error, "strerror", None) or str(error)
        raise not_edited("GPU6103", path=str(path), why=why) from error


def _write(file: Path, content: bytes) -> None:
    """Write beside the file and rename: a reader finds the old content or the new, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = S_IMODE(file.stat().st_mode) if file.exists() else None
    beside = file.with_name(f".{file.name[:200]}.{os.getpid()}.tmp")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(number, "wb") as out:
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def top_of(folder: Path) -> Path:
    """The top of the Git working tree that holds the folder; without Git, the folder itself."""
    return _top(folder) or folder.resolve()


def _top(folder: Path) -> Path | None:
    """The top of the Git working tree that contains the folder; if a link leads out of a working tree, that one."""
    return left_by_link(folder) or holder(folder)


def _policies(folder: Path, top: Path | None) -> Path | None:
    """The nearest `policies/` folder, named relative to the folder as the caller gave it."""
    resolved = folder.resolve()
    for steps, parent in enumerate((resolved, *resolved.parents)):
        if (parent / "policies").is_dir():
            return _above(folder, steps, parent) / "policies"
        if parent == top:
            break
    return None


def _above(folder: Path, steps: int, parent: Path) -> Path:
    """The folder this many steps up, in the caller's terms as long as those lead there."""
    named = folder
    for _ in range(steps):
        named = named.parent if named.name not in {"", ".."} else named / ".."
    return named if named.resolve() == parent else parent


class _Meter:
    """Counts what was read for one cluster without some projects. Raises TooLarge beyond the bounds."""

    def __init__(self, where: str, without: Collection[str] = ()) -> None:
        self._where = where
        self._without = without
        self._entries, self._files, self._bytes = 0, 0, 0
        self._of_entries, self._of_files, self._of_bytes = Tally(where), Tally(where), Tally(where)

    def enters(self, folder: str) -> bool:
        """Whether a folder is read."""
        return not self._without or folder_project(self._where, f"{folder}/") not in self._without

    def entry(self, path: str) -> None:
        """Count an entry of a folder."""
        self._entries += 1
        self._of_entries.add(path)
        if bound := exceeded(entries=self._entries):
            raise self._of_entries.too_large(bound)

    def file(self, path: str, file: SourceFile) -> SourceFile:
        """Count a declaration file that was read."""
        self._files, self._bytes = self._files + 1, self._bytes + len(file.content)
        self._of_files.add(path)
        self._of_bytes.add(path, len(file.content))
        if bound := exceeded(files=self._files):
            raise self._of_files.too_large(bound)
        if bound := exceeded(size_bytes=self._bytes):
            raise self._of_bytes.too_large(bound)
        return file


def _too_large(folder: Path, found: TooLarge) -> SourceUnavailable:
    params = {"path": folder.as_posix(), "revision": "working tree", "bound": found.bound}
    return SourceUnavailable("GPU8014", message("GPU8014", params))


def _files(folder: Path, top: Path | None, meter: _Meter) -> Iterator[tuple[str, SourceFile]]:
    """The declaration files below a folder. A folder outside of the tree yields only that fact.

    Cost: a third of the time that a Path for each of ten thousand files would take.
    """
    root = top or folder.resolve()
    if not is_inside(folder.resolve(), root):
        yield folder.as_posix(), SourceFile(content=b"", fault=SourceFault.ESCAPES)
        return
    waiting = [folder.as_posix()]
    while waiting:
        here = waiting.pop()
        inside = is_inside(Path(here).resolve(), root)
        before = "" if here == "." else f"{here.rstrip('/')}/"
        for entry in _entries(here):
            path = before + entry.name
            meter.entry(path)
            if not _is_folder(entry):
                if entry.name.endswith(YAML_SUFFIXES):
                    yield path, meter.file(path, _entry(entry, path, root, inside=inside))
                elif is_misnamed(entry.name):
                    yield path, meter.file(path, SourceFile(content=b"", fault=SourceFault.MISNAMED))
            elif entry.is_symlink() and not entry.name.startswith("."):
                yield from _linked_folder(Path(path), root)
            elif not entry.name.startswith(".") and meter.enters(path):
                waiting.append(path)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, one by one, as there may be too many to hold. Empty for an unreadable folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder, or a link to one; False for a link in a circle."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _linked_folder(path: Path, root: Path) -> Iterator[tuple[str, SourceFile]]:
    """Report a linked folder, which is not read, if it leaves the tree or is named like a file."""
    inside = is_inside(path.resolve(), root)
    if not inside or path.name.endswith(YAML_SUFFIXES):
        fault = SourceFault.UNREADABLE if inside else SourceFault.ESCAPES
        yield path.as_posix(), SourceFile(content=b"", fault=fault)


def is_inside(target: Path, root: Path) -> bool:
    """Whether the tree contains the target; Git's own folder is outside."""
    return target.is_relative_to(root) and not target.is_relative_to(root / ".git")


def _entry(entry: os.DirEntry[str], path: str, root: Path, *, inside: bool) -> SourceFile:
    """One entry of a folder that is not a folder itself."""
    if not inside or not entry.is_file(follow_symlinks=False):
        return _file(Path(path), root, inside=inside)
    return _content(path)


def _file(path: Path, root: Path, *, inside: bool) -> SourceFile:
    """One file, checked before it is read: where its links lead, what it is, how large it is.

    `inside`: whether the tree contains its folder.
    """
    try:
        facts = path.lstat()
        if S_ISLNK(facts.st_mode):
            facts = path.stat()  # first, as the system follows no more than forty links
            inside = is_inside(path.resolve(strict=True), root)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return SourceFile(content=b"", fault=SourceFault.DANGLING if path.is_symlink() else SourceFault.UNREADABLE)
    if not inside:
        return SourceFile(content=b"", fault=SourceFault.ESCAPES)
    if not S_ISREG(facts.st_mode):
        return SourceFile(content=b"", fault=SourceFault.UNREADABLE)
    return _content(path)


def _content(path: Path | str) -> SourceFile:
    try:
        content = read_regular(path, MAX_FILE_BYTES)
    except OSError:
        return SourceFile(content=b"", fault=SourceFault.UNREADABLE)
    if len(content) > MAX_FILE_BYTES:
        return SourceFile(content=b"", fault=SourceFault.TOO_LARGE)
    return SourceFile(content=content)
