"""Files of the working directory as a source tree. The only module that reads declarations from the filesystem."""

from __future__ import annotations

import os
from collections.abc import Iterator
from errno import EINVAL
from pathlib import Path
from stat import S_ISLNK, S_ISREG

from gpuctl.model.source import MAX_FILE_BYTES, SourceFault, SourceFile, SourceTree

YAML_SUFFIXES = (".yaml", ".yml")


def read_tree(cluster_dir: str) -> SourceTree:
    """Every YAML file below a cluster's folder, and below the nearest `policies/` folder at or above it.

    Policies are searched up to the top of the Git working tree, without Git up to the filesystem's root. Paths are as
    the caller gave the folder. A folder that isn't there is an empty tree. Hidden folders are not looked into.
    """
    folder = Path(cluster_dir)
    top = _top(folder)
    files = dict(_files(folder, top))
    policies = _policies(folder, top)
    if policies is not None:
        files.update(_files(policies, top))
    return SourceTree(cluster_dir=folder.as_posix(), files=dict(sorted(files.items())))


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a file; of a larger one `most_bytes` and one more. OSError where it is none: a device, a pipe."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(EINVAL, "it is not a file")
        return file.read(most_bytes + 1)


def _top(folder: Path) -> Path | None:
    """The top of the Git working tree that holds the folder."""
    resolved = folder.resolve()
    return next((parent for parent in (resolved, *resolved.parents) if (parent / ".git").exists()), None)


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
    """The folder that many steps up, in the caller's terms as long as those lead there."""
    named = folder
    for _ in range(steps):
        named = named.parent if named.name not in {"", ".."} else named / ".."
    return named if named.resolve() == parent else parent


def _files(folder: Path, top: Path | None) -> Iterator[tuple[str, SourceFile]]:
    root = top or folder.resolve()
    for where, folders, names in os.walk(folder):
        here = Path(where)
        inside = _inside(here.resolve(), root)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(YAML_SUFFIXES):
                path = here / name
                yield path.as_posix(), _file(path, root, inside=inside)
        for name in folders:
            if (here / name).is_symlink():
                yield from _linked_folder(here / name, root)


def _linked_folder(path: Path, root: Path) -> Iterator[tuple[str, SourceFile]]:
    """A linked folder is not looked into; that it leaves the tree, or that a file was meant, is told."""
    inside = _inside(path.resolve(), root)
    if not inside or path.name.endswith(YAML_SUFFIXES):
        fault = SourceFault.UNREADABLE if inside else SourceFault.ESCAPES
        yield path.as_posix(), SourceFile(content=b"", fault=fault)


def _inside(target: Path, root: Path) -> bool:
    """True for what the tree holds; what Git keeps for itself is outside."""
    return target.is_relative_to(root) and not target.is_relative_to(root / ".git")


def _file(path: Path, root: Path, *, inside: bool) -> SourceFile:
    """One file, looked at before it is read: where its links lead, what it is, how large it is.

    `inside`: whether the tree holds the folder it is in.
    """
    try:
        facts = path.lstat()
        if S_ISLNK(facts.st_mode):
            inside, facts = _inside(path.resolve(strict=True), root), path.stat()
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return SourceFile(content=b"", fault=SourceFault.DANGLING if path.is_symlink() else SourceFault.UNREADABLE)
    if not inside:
        return SourceFile(content=b"", fault=SourceFault.ESCAPES)
    if not S_ISREG(facts.st_mode):
        return SourceFile(content=b"", fault=SourceFault.UNREADABLE)
    if facts.st_size > MAX_FILE_BYTES:
        return SourceFile(content=b"", fault=SourceFault.TOO_LARGE)
    try:
        content = read_regular(path, MAX_FILE_BYTES)
    except OSError:
        return SourceFile(content=b"", fault=SourceFault.UNREADABLE)
    if len(content) > MAX_FILE_BYTES:
        return SourceFile(content=b"", fault=SourceFault.TOO_LARGE)
    return SourceFile(content=content)
