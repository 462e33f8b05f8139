"""The verb that begins a repository: its files are compiled, then written, all or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gpuctl.app.editing_ports import NotEdited, not_edited
from gpuctl.compile import compile_tree
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.wording import message
from gpuctl.model.source import SourceFile, SourceTree


class Taken(NotEdited):
    """GPU6401: a file or folder exists already where new files are to be written. `paths`: all such paths, however
    many."""

    def __init__(self, paths: Sequence[str], files: int) -> None:
        super().__init__("GPU6401", message("GPU6401", {"taken": len(paths), "files": files}))
        self.paths = tuple(paths)


class NewRepository(Protocol):
    """The folder that becomes the top of a repository."""

    def outer(self) -> str:
        """The top of the repository that contains this folder; empty if this folder is a repository's top, or in no
        repository."""
        ...

    def taken(self, paths: Iterable[str]) -> list[str]:
        """The paths that cannot be created: something exists there, or a link or a file is in the way of a parent
        folder."""
        ...

    def create(self, files: Mapping[str, bytes]) -> bool:
        """Make a repository if there is none, and write all files or none. Returns whether a repository was made.
        Raises NotEdited GPU6404."""
        ...


def mistakes(files: Mapping[str, bytes], cluster_dir: str) -> Sequence[Diagnostic]:
    """The compiler's diagnostics for these files as the declarations of a cluster."""
    declared = {
        path: SourceFile(content=content)
        for path, content in files.items()
        if path.startswith((f"{cluster_dir}/", "policies/"))
    }
    return compile_tree(SourceTree(cluster_dir=cluster_dir, files=declared)).diagnostics


def begin(files: Mapping[str, bytes], place: NewRepository) -> bool:
    """Write the files, none of which may exist yet. Returns whether a repository was made.

    Raises NotEdited: Taken; GPU6405 for a folder inside another repository; GPU6404 for a file that can't be written.
    """
    outer = place.outer()
    if outer:
        raise not_edited("GPU6405", top=outer)
    taken = place.taken(files)
    if taken:
        raise Taken(taken, len(files))
    return place.create(files)
