"""What the compiler reads: bytes by path. No filesystem handle, so a Git tree and a folder look alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.model.ids import NO_REVISION, Revision

YAML_SUFFIXES = (".yaml", ".yml")
"""How the names of declaration files end."""
WORKING_TREE = "working tree"
"""The name of files that are not committed, in place of a revision."""
MAX_FILE_BYTES = 4 * 1024 * 1024
"""A larger file is not read: its content stays empty and its fault says why. No list of jobs comes near."""
MAX_LINK_BYTES = 4096
"""A symbolic link that says more leads nowhere: no path of a filesystem is longer."""
MAX_ENTRIES = 200_000
MAX_FILES = 50_000
MAX_TREE_BYTES = 32 * 1024 * 1024
"""Of a tree with more below the cluster's folder and in its policies, the project that has the most is not read, nor is
the tree where the rest is still more: files and folders of any kind, declaration files, and what those hold together.
Compiling takes some 15 bytes of memory for a byte of YAML."""
MOST_LEFT_OUT = 8
"""Projects of one tree. The tree is looked at again for each."""


class SourceFault(StrEnum):
    """Why a file's content is not offered to the compiler."""

    ESCAPES = "a symbolic link that leaves the tree"
    DANGLING = "a symbolic link to nothing"
    TOO_LARGE = "larger than the compiler reads"
    UNREADABLE = "not readable"
    LEFT_OUT = "in the folder of a project that has too much"
    MISNAMED = "called .yaml or .yml in capital letters"


def is_misnamed(path: str) -> bool:
    """Whether a file is passed over for its name alone: `a.YAML`, `a.Yml`. As with kubectl and Flux it declares
    nothing, but that is told."""
    return path.lower().endswith(YAML_SUFFIXES) and not path.endswith(YAML_SUFFIXES)


class TooLarge(Exception):
    """A tree has more than is read of one; `bound` says more than what. `project` has the most of it in its folder; ""
    where no project has any."""

    def __init__(self, bound: str, project: str = "") -> None:
        super().__init__(bound)
        self.bound = bound
        self.project = project


def exceeded(*, entries: int = 0, files: int = 0, size_bytes: int = 0) -> str:
    """The first bound of a tree that so much exceeds, in words; "" when it is within all."""
    if entries > MAX_ENTRIES:
        return f"{MAX_ENTRIES} files and folders"
    if files > MAX_FILES:
        return f"{MAX_FILES} declaration files"
    return f"{MAX_TREE_BYTES >> 20} MiB of declarations" if size_bytes > MAX_TREE_BYTES else ""


def folder_project(cluster_dir: str, path: str) -> str | None:
    """`p` for a path below the cluster's `projects/p/`."""
    root = "" if cluster_dir in {"", "."} else f"{cluster_dir}/"
    first, _, rest = path.removeprefix(root).partition("/")
    project, slash, _ = rest.partition("/")
    return project if path.startswith(root) and first == "projects" and slash else None


class Tally:
    """How much of a tree was seen, in any unit, by the projects in whose folders it is."""

    def __init__(self, cluster_dir: str, amounts: Mapping[str, int] | None = None) -> None:
        """`amounts`: those that are known, by path."""
        self._cluster_dir = cluster_dir
        self._of: Counter[str] = Counter()
        for path, amount in (amounts or {}).items():
            self.add(path, amount)

    def add(self, path: str, amount: int = 1) -> None:
        """So much is at a path."""
        project = folder_project(self._cluster_dir, path)
        if project:
            self._of[project] += amount

    def too_large(self, bound: str) -> TooLarge:
        """What is raised where the tree has more than that."""
        return TooLarge(bound, max(sorted(self._of), key=self._of.__getitem__, default=""))


def left_out(cluster_dir: str, project: str) -> tuple[str, SourceFile]:
    """What stands in a tree for the folder of a project that is left out: its first file, which can't be read."""
    root = "" if cluster_dir in {"", "."} else f"{cluster_dir}/"
    return f"{root}projects/{project}/project.yaml", SourceFile(content=b"", fault=SourceFault.LEFT_OUT)


def read_without_the_most(
    cluster_dir: str, read: Callable[[Collection[str]], Mapping[str, SourceFile]]
) -> dict[str, SourceFile]:
    """The files of a tree; where they are too much, without the projects that have the most in their folders.

    `read` reads all but the folders of some projects, and raises TooLarge. Raises TooLarge where the rest is too much
    as well. Cost: that of `read`, and once more for each project that is left out.
    """
    without = set[str]()
    while True:
        try:
            files = read(without)
        except TooLarge as found:
            if not found.project or found.project in without or len(without) >= MOST_LEFT_OUT:
                raise
            without.add(found.project)
        else:
            return {**files, **dict(left_out(cluster_dir, project) for project in without)}


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
