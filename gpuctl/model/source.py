"""The compiler's input: bytes by path. No filesystem handle, so a Git tree and a folder look alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.model.ids import NO_REVISION, Revision

YAML_SUFFIXES = (".yaml", ".yml")
"""The endings of declaration files' names."""
WORKING_TREE = "working tree"
"""The name of files that are not committed, in place of a revision."""
MAX_FILE_BYTES = 4 * 1024 * 1024
"""A larger file is not read: its content stays empty, and its fault says why. No realistic list of jobs comes near."""
MAX_LINK_BYTES = 4096
"""A symbolic link with a longer target counts as leading nowhere: no path of a filesystem is longer."""
MAX_ENTRIES = 200_000
MAX_FILES = 50_000
MAX_TREE_BYTES = 32 * 1024 * 1024
"""The most entries, declaration files and bytes below the cluster's folder and in its policies. Of a larger tree, the
project that has the most is not read; if the rest is still too large, the tree is not read. Compiling takes some 15
bytes of memory for a byte of YAML."""
MOST_LEFT_OUT = 8
"""The most projects of one tree that are left out. The tree is read again for each."""


class SourceFault(StrEnum):
    """Why the compiler does not get a file's content."""

    ESCAPES = "a symbolic link that leaves the tree"
    DANGLING = "a symbolic link to nothing"
    TOO_LARGE = "larger than the compiler reads"
    UNREADABLE = "not readable"
    LEFT_OUT = "in the folder of a project that has too much"
    MISNAMED = "called .yaml or .yml in capital letters"


def is_misnamed(path: str) -> bool:
    """Whether a file is ignored only because of its name: `a.YAML`, `a.Yml`. As with kubectl and Flux it declares
    nothing; that is reported."""
    return path.lower().endswith(YAML_SUFFIXES) and not path.endswith(YAML_SUFFIXES)


class TooLarge(Exception):
    """A tree has more than may be read; `bound`: the bound, in words. `project`: the project with the most in its
    folder; "" if no project has any."""

    def __init__(self, bound: str, project: str = "") -> None:
        super().__init__(bound)
        self.bound = bound
        self.project = project


def exceeded(*, entries: int = 0, files: int = 0, size_bytes: int = 0) -> str:
    """The first bound of a tree that these amounts exceed, in words; "" if none."""
    if entries > MAX_ENTRIES:
        return f"{MAX_ENTRIES} files and folders"
    if files > MAX_FILES:
        return f"{MAX_FILES} declaration files"
    return f"{MAX_TREE_BYTES >> 20} MiB of declarations" if size_bytes > MAX_TREE_BYTES else ""


def folder_project(cluster_dir: str, path: str) -> str | None:
    """The project `p` of a path below the cluster's `projects/p/`; None for any other path."""
    root = "" if cluster_dir in {"", "."} else f"{cluster_dir}/"
    first, _, rest = path.removeprefix(root).partition("/")
    project, slash, _ = rest.partition("/")
    return project if path.startswith(root) and first == "projects" and slash else None


class Tally:
    """Counts how much of a tree, in any unit, is in the folder of each project."""

    def __init__(self, cluster_dir: str, amounts: Mapping[str, int] | None = None) -> None:
        """`amounts`: known amounts, by path."""
        self._cluster_dir = cluster_dir
        self._of: Counter[str] = Counter()
        for path, amount in (amounts or {}).items():
            self.add(path, amount)

    def add(self, path: str, amount: int = 1) -> None:
        """Count an amount at a path."""
        project = folder_project(self._cluster_dir, path)
        if project:
            self._of[project] += amount

    def too_large(self, bound: str) -> TooLarge:
        """The exception for a tree that exceeds this bound."""
        return TooLarge(bound, max(sorted(self._of), key=self._of.__getitem__, default=""))


def left_out(cluster_dir: str, project: str) -> tuple[str, SourceFile]:
    """The file that stands for the folder of a project that is left out: its first file, as one that can't be read."""
    root = "" if cluster_dir in {"", "."} else f"{cluster_dir}/"
    return f"{root}projects/{project}/project.yaml", SourceFile(content=b"", fault=SourceFault.LEFT_OUT)


def read_without_the_most(
    cluster_dir: str, read: Callable[[Collection[str]], Mapping[str, SourceFile]]
) -> dict[str, SourceFile]:
    """The files of a tree; if it is too large, without the projects that have the most in their folders.

    `read` reads everything but the folders of some projects, and raises TooLarge. Raises TooLarge if the rest is too
    large as well. Cost: that of `read`, once more for each project that is left out.
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
    """One file, and a commit that has it; `fault`: why `content` is empty, if there is a reason."""

    content: bytes
    revision: Revision = NO_REVISION
    fault: SourceFault | None = None

    def says_the_same(self, other: SourceFile) -> bool:
        """Whether another file has the same content, or the same fault; the commits may differ."""
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
