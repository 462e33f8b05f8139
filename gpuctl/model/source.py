"""What the compiler reads: bytes by path. No filesystem handle, so a Git tree and a folder look alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.model.ids import NO_REVISION, Revision

WORKING_TREE = "working tree"
"""The name of files that are not committed, in place of a revision."""
MAX_FILE_BYTES = 4 * 1024 * 1024
"""A larger file is not read: its content stays empty and its fault says why. No list of jobs comes near."""
MAX_LINK_BYTES = 4096
"""A symbolic link that says more leads nowhere: no path of a filesystem is longer."""
MAX_ENTRIES = 200_000
MAX_FILES = 50_000
MAX_TREE_BYTES = 32 * 1024 * 1024
"""A tree with more below the cluster's folder and in its policies is not read: files and folders of any kind,
declaration files, and what those hold together. Compiling takes some 15 bytes of memory for a byte of YAML."""


class SourceFault(StrEnum):
    """Why a file's content is not offered to the compiler."""

    ESCAPES = "a symbolic link that leaves the tree"
    DANGLING = "a symbolic link to nothing"
    TOO_LARGE = "larger than the compiler reads"
    UNREADABLE = "not readable"


def exceeded(*, entries: int = 0, files: int = 0, size_bytes: int = 0) -> str:
    """The first bound of a tree that so much exceeds, in words; "" when it is within all."""
    if entries > MAX_ENTRIES:
        return f"{MAX_ENTRIES} files and folders"
    if files > MAX_FILES:
        return f"{MAX_FILES} declaration files"
    return f"{MAX_TREE_BYTES >> 20} MiB of declarations" if size_bytes > MAX_TREE_BYTES else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file and a commit in which it is so; `fault` says why `content` is empty, when it is for a reason."""

    content: bytes
    revision: Revision = NO_REVISION
    fault: SourceFault | None = None

    def says_the_same(self, other: SourceFile) -> bool:
        """Whether the other file has the same content, or the same fault, at whatever commit."""
        return self is other or (self.content == other.content and self.fault is other.fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """The files below a cluster's folder and its `policies/` folder.

    `files` maps the path that messages name (relative to the repository or the working directory, with `/`) to the
    file. `cluster_dir` is the cluster's folder in the same terms, without a trailing slash; "." is the root.
    """

    cluster_dir: str
    revision: Revision = NO_REVISION
    files: Mapping[str, SourceFile] = field(default_factory=dict)
