"""What the compiler reads: bytes by path. No filesystem handle, so a Git tree and a folder look alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.model.ids import NO_REVISION, Revision

MAX_FILE_BYTES = 4 * 1024 * 1024
"""A larger file is not read: its content stays empty and its fault says why. No list of jobs comes near."""


class SourceFault(StrEnum):
    """Why a file's content is not offered to the compiler."""

    ESCAPES = "a symbolic link that leaves the tree"
    DANGLING = "a symbolic link to nothing"
    TOO_LARGE = "larger than the compiler reads"
    UNREADABLE = "not readable"


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
