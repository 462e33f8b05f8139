"""What the files of a tree declare, one declaration a document, and which project each file belongs to.

A document with a mistake is still known by its name, and one that is no YAML by the names in its text, so that a
mistake in one file is not reported again as a missing declaration in all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpuctl.compile.builder import Fragment
from gpuctl.compile.document import UNREAD, Document
from gpuctl.compile.fields_v1 import API_VERSION, Spec
from gpuctl.compile.reading import read_file
from gpuctl.compile.scalars import kind_of
from gpuctl.compile.shape import check_shape, nearest
from gpuctl.compile.spec_v1 import ClusterV1, DepartmentV1, JobV1, PolicyV1, ProjectV1
from gpuctl.compile.text import SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.ids import ProjectName
from gpuctl.model.source import MAX_FILE_BYTES, SourceFault, SourceTree

Model_co = TypeVar("Model_co", bound=Spec, covariant=True)

KINDS: Mapping[str, type[Spec]] = {
    "Cluster": ClusterV1,
    "Department": DepartmentV1,
    "Project": ProjectV1,
    "Job": JobV1,
    "Policy": PolicyV1,
}
_FAULTS = {
    SourceFault.ESCAPES: "GPU1017",
    SourceFault.DANGLING: "GPU1018",
    SourceFault.TOO_LARGE: "GPU1007",
    SourceFault.UNREADABLE: "GPU1019",
}
_NAMED = re.compile(r"\b(kind|name|project)[\"']?:[ \t]+[\"']?([A-Za-z0-9.-]+)")


@dataclass(frozen=True, slots=True, eq=False)
class Declaration(Generic[Model_co]):
    """A document of the right shape."""

    document: Document
    model: Model_co


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The name a document gives itself, right or not. `project` as far as it says; `broken`: the rest is unusable."""

    kind: str
    name: str
    project: str
    document: Document
    broken: bool


@dataclass(slots=True)
class Declarations:
    """Everything declared, in order of path and line.

    `guessed` are the words that documents which are no YAML have as kind, name or project. `owners` is as in Compiled.
    """

    clusters: list[Declaration[ClusterV1]] = field(default_factory=list)
    departments: list[Declaration[DepartmentV1]] = field(default_factory=list)
    projects: list[Declaration[ProjectV1]] = field(default_factory=list)
    jobs: list[Declaration[JobV1]] = field(default_factory=list)
    policies: list[Declaration[PolicyV1]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    guessed: set[str] = field(default_factory=set)
    owners: dict[str, ProjectName | None] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(self, kind: str, declaration: Declaration[Any]) -> None:
        """Put a declaration with its like."""
        lists: dict[str, list[Any]] = {
            "Cluster": self.clusters,
            "Department": self.departments,
            "Project": self.projects,
            "Job": self.jobs,
            "Policy": self.policies,
        }
        lists[kind].append(declaration)


def collect(tree: SourceTree) -> Declarations:
    """Read every file of a tree. Cost: linear in its bytes."""
    out = Declarations()
    for path in sorted(tree.files):
        _file(path, tree, out)
    return out


def folder_project(tree: SourceTree, path: str) -> str | None:
    """`p` for a path below the cluster's `projects/p/`."""
    root = "" if tree.cluster_dir in {"", "."} else f"{tree.cluster_dir}/"
    first, _, rest = path.removeprefix(root).partition("/")
    project, slash, _ = rest.partition("/")
    return project if path.startswith(root) and first == "projects" and slash else None


def _file(path: str, tree: SourceTree, out: Declarations) -> None:
    file = tree.files[path]
    folder = folder_project(tree, path)
    out.owners[path] = ProjectName(folder) if folder else None
    if file.fault is not None:
        source = SourceText(path, "", file.revision)
        code, span = _FAULTS[file.fault], source.span(1, 1)
        out.diagnostics.append(diagnose(source, code, span, {"limit": MAX_FILE_BYTES}))
        out.guessed.update({folder} if folder else ())
        return
    read = read_file(path, file.content, file.revision)
    out.diagnostics.extend(read.diagnostics)
    projects = {_document(document, out) for document in read.documents}
    for fragment in read.fragments:
        projects.add(_guess(fragment, out))
        out.guessed.update({folder} if folder else ())
    if folder is None and len(projects) == 1:
        (only,) = projects
        out.owners[path] = ProjectName(only) if only else None


def _document(document: Document, out: Declarations) -> str:
    """Take in a document; returns the project it belongs to, or "" for none."""
    data = document.data
    if not isinstance(data, dict):
        if data is not UNREAD:
            out.diagnostics.append(document.diagnostic("GPU2001", document.name, {"found": kind_of(data)}))
        return ""
    kind, version = data.get("kind"), data.get("apiVersion")
    if not isinstance(kind, str) or kind not in KINDS:
        out.diagnostics.extend(_kind_diagnostics(document, kind))
        return ""
    if isinstance(version, str) and version != API_VERSION:
        fix = "" if "gpuctl" not in version else f"write {API_VERSION}"
        span = document.span(("apiVersion",))
        out.diagnostics.append(document.diagnostic("GPU2002", span, {"found": version}, fix))
        declaration = None
    else:
        model, diagnostics = check_shape(document, KINDS[kind])
        out.diagnostics.extend(diagnostics)
        declaration = Declaration(document, model) if model is not None and document.sound else None
    metadata = data.get("metadata")
    name, project = _text(metadata, "name"), _text(metadata, "project")
    if declaration is not None:
        out.add(kind, declaration)
    out.claims.append(Claim(kind=kind, name=name, project=project, document=document, broken=declaration is None))
    return name if kind == "Project" else project if kind == "Job" else ""


def _kind_diagnostics(document: Document, kind: Any) -> Iterator[Diagnostic]:
    if kind is UNREAD:
        return
    if kind is None:
        yield document.diagnostic("GPU2005", document.key_span(()), {"field": "kind"})
        return
    found = f'"{kind}"' if isinstance(kind, str) else kind_of(kind)
    fix = nearest(kind, KINDS) if isinstance(kind, str) else ""
    yield document.diagnostic("GPU2003", document.span(("kind",)), {"found": found}, fix)


def _text(metadata: Any, key: str) -> str:
    value = metadata.get(key) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def _guess(fragment: Fragment, out: Declarations) -> str:
    """Remember what an unreadable document seems to name; returns the project it seems to belong to, or ""."""
    words: dict[str, str] = {}
    for key, word in _NAMED.findall(fragment.text):
        out.guessed.add(word)
        words.setdefault(key, word)
    return words.get("project" if words.get("kind") == "Job" else "name" if words.get("kind") == "Project" else "", "")
