"""Collects the declarations in a tree's files, one a document, and the project that each file belongs to.

A document with a mistake still counts as declared under its name, and an unreadable one under the names in its text. So
a mistake in one file is not reported again as a missing declaration in all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from posixpath import splitext
from typing import Any, Generic, TypeVar

from gpuctl.compile.builder import Fragment
from gpuctl.compile.document import MAX_MISTAKES, MOST_TOLD, UNREAD, Document
from gpuctl.compile.fields_v1 import API_VERSION, Spec
from gpuctl.compile.lower_kinds import workload_kind
from gpuctl.compile.manifest_v1 import JobKinds, is_known
from gpuctl.compile.reading import read_file
from gpuctl.compile.scalars import kind_of
from gpuctl.compile.shape import MOST_ASKED, MOST_NAMES, check_shape, nearest
from gpuctl.compile.spec_v1 import ClusterV1, DepartmentV1, JobV1, PolicyV1, ProjectV1
from gpuctl.compile.template_v1 import TemplateV1
from gpuctl.compile.templates import Templated, check_template, expand, read_templated
from gpuctl.compile.text import SourceText, diagnose
from gpuctl.diag.bug import told_bug
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.model.ids import ProjectName
from gpuctl.model.memo import Memo
from gpuctl.model.source import MAX_FILE_BYTES, SourceFault, SourceFile, SourceTree, folder_project
from gpuctl.model.workload_kind import WorkloadKind

Model_co = TypeVar("Model_co", bound=Spec, covariant=True)

KINDS: Mapping[str, type[Spec]] = {
    "Cluster": ClusterV1,
    "Department": DepartmentV1,
    "Project": ProjectV1,
    "Job": JobV1,
    "Template": TemplateV1,
    "Policy": PolicyV1,
}
_OF_A_PROJECT = frozenset({"Job", "Template"})
"""Kinds whose metadata may name a project."""
_FAULTS = {
    SourceFault.ESCAPES: "GPU1017",
    SourceFault.DANGLING: "GPU1018",
    SourceFault.TOO_LARGE: "GPU1007",
    SourceFault.UNREADABLE: "GPU1019",
    SourceFault.LEFT_OUT: "GPU1024",
}
POLICIES = "policies"
EXAMPLES = "examples"
"""`policies/` holds policies, and an `examples/` folder below it their examples."""
_NAMED = re.compile(r"\b(kind|name|project)[\"']?:[ \t]+[\"']?([A-Za-z0-9.-]+)")


@dataclass(frozen=True, slots=True, eq=False)
class Declaration(Generic[Model_co]):
    """A document of the right shape, with its model."""

    document: Document
    model: Model_co


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The name that a document declares, right or not. `project`: if the document names one; `broken`: it declares
    nothing usable."""

    kind: str
    name: str
    project: str
    document: Document
    broken: bool


@dataclass(frozen=True, slots=True, eq=False)
class FileDeclarations:
    """The content of one file by itself: its declarations with their kinds, and its mistakes.

    `guessed` and `owner` are as in Declarations.
    """

    declared: tuple[tuple[str, Declaration[Any]], ...] = ()
    templated: tuple[Templated, ...] = ()
    claims: tuple[Claim, ...] = ()
    guessed: frozenset[str] = frozenset()
    owner: ProjectName | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(slots=True)
class Declarations:
    """Everything declared, in order of path and line. Templates are filled in in the jobs that use them.

    - `guessed`: words used as kind, name or project in unreadable documents, and the names of documents that may not
      be in their folder.
    - `kinds`: the kinds that a job's manifest may be.
    - `owners`: as in Compiled.
    """

    clusters: list[Declaration[ClusterV1]] = field(default_factory=list)
    departments: list[Declaration[DepartmentV1]] = field(default_factory=list)
    projects: list[Declaration[ProjectV1]] = field(default_factory=list)
    jobs: list[Declaration[JobV1]] = field(default_factory=list)
    templates: list[Declaration[TemplateV1]] = field(default_factory=list)
    policies: list[Declaration[PolicyV1]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    guessed: set[str] = field(default_factory=set)
    kinds: JobKinds = field(default_factory=JobKinds)
    owners: dict[str, ProjectName | None] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def of_kinds(self) -> Mapping[str, list[Any]]:
        """The declarations by their kinds."""
        return {
            "Cluster": self.clusters,
            "Department": self.departments,
            "Project": self.projects,
            "Job": self.jobs,
            "Template": self.templates,
            "Policy": self.policies,
        }


class ReadCache:
    """Cache of the content of files, and of the jobs made from templates."""

    __slots__ = ("files", "jobs", "kinds")

    def __init__(self) -> None:
        self.files: Memo[str, FileDeclarations] = Memo()
        self.kinds: Memo[str, FileDeclarations] = Memo()
        self.jobs: Memo[Templated, tuple[Declaration[JobV1] | None, list[Diagnostic]]] = Memo()


def collect(tree: SourceTree, cache: ReadCache) -> Declarations:
    """Read the files of a tree, except the examples of policies.

    Cost: linear in the bytes of the files that are not in the cache.
    """
    cache.files.turn()
    cache.kinds.turn()
    cache.jobs.turn()
    examples = {path for path in tree.files if is_example(path)}
    out = collect_files(tree, tree.files.keys() - examples, cache)
    for path in examples:
        folder = folder_project(tree.cluster_dir, path)
        out.owners[path] = ProjectName(folder) if folder else None
    return out


def collect_files(tree: SourceTree, paths: Iterable[str], cache: ReadCache) -> Declarations:
    """Read some files of a tree."""
    out = Declarations(kinds=_kinds(tree, cache))
    of_kinds = out.of_kinds()
    templated: list[Templated] = []
    counts = Counter[str | None]()
    for path in sorted(paths):
        file, folder = tree.files[path], folder_project(tree.cluster_dir, path)
        told = MOST_TOLD if counts[folder] >= MOST_TOLD else 0
        make = partial(_isolated, path, file, tree.cluster_dir, out.kinds, told)
        read = cache.files.get(path, (file, tree.cluster_dir, out.kinds, told), make)
        counts[folder] += len(read.diagnostics)
        for kind, declaration in read.declared:
            of_kinds[kind].append(declaration)
        templated.extend(read.templated)
        out.claims.extend(read.claims)
        out.guessed |= read.guessed
        out.diagnostics.extend(read.diagnostics)
        out.owners[path] = read.owner
    if templated:
        _add_templated(out, templated, tree.cluster_dir, cache)
    return out


def _add_templated(out: Declarations, templated: Iterable[Templated], cluster_dir: str, cache: ReadCache) -> None:
    """Add the jobs that use templates. A template of the job's project is preferred to one of the cluster."""
    templates: dict[tuple[str, str], Declaration[TemplateV1]] = {}
    for template in out.templates:
        metadata = template.model.metadata
        folder = folder_project(cluster_dir, template.document.name.file)
        if folder in {None, metadata.project}:  # a template in another project's folder does not count
            templates.setdefault((metadata.project or "", metadata.name), template)
    claimed = {(claim.project, claim.name) for claim in out.claims if claim.kind == "Template"}
    counts, asked = Counter[str](), Counter[str]()
    for job in templated:
        names = (job.project, job.use.name), ("", job.use.name)
        found = next((templates[name] for name in names if name in templates), None)
        if found is not None:
            most = MAX_MISTAKES if counts[job.project] < MOST_TOLD else 1
            make = partial(_expanded, job, found, out.kinds, most)
            made, diagnostics = cache.jobs.get(job, (found, out.kinds, most), make)
            counts[job.project] += len(diagnostics)
            out.jobs.extend([] if made is None else [made])
            out.diagnostics.extend(diagnostics)
        elif claimed.isdisjoint(names) and job.use.name not in out.guessed:
            asked[job.project] += 1
            compared = len(templates) <= MOST_NAMES and asked[job.project] <= MOST_ASKED
            own = [name for project, name in templates if compared and project in {"", job.project}]
            params = {"template": job.use.name, "project": job.project}
            fix = nearest(job.use.name, own)
            out.diagnostics.append(job.document.mistake("GPU3080", ("spec", "template", "name"), params, fix))
    out.jobs.sort(key=lambda job: (job.document.name.file, job.document.name.line))


def _expanded(
    job: Templated, template: Declaration[TemplateV1], kinds: JobKinds, most: int
) -> tuple[Declaration[JobV1] | None, list[Diagnostic]]:
    """Make the job of a template, or report its first `most` mistakes. A bug of gpuctl on the way is reported at the
    job, as a bug in reading is at its file."""
    try:
        document, model, diagnostics = expand(job, template.document, template.model, kinds)
    except Exception as error:  # noqa: BLE001 - a bug may raise anything
        return None, [job.document.mistake("GPU9001", (), {"what": told_bug(error)})]
    return _declared(document, model, kinds), diagnostics[:most]


def _declared(document: Document, model: Any, kinds: JobKinds) -> Declaration[Any] | None:
    """The declaration. None for a job whose kind is not known yet: the mistake is in the file that may declare the
    kind."""
    if model is None or (isinstance(model, JobV1) and not is_known(model.spec.manifest, kinds)):
        return None
    return Declaration(document, model)


_DECLARES_KINDS = b"workloadKinds"


def _kinds(tree: SourceTree, cache: ReadCache) -> JobKinds:
    """The kinds that a manifest may be. They are read before all else: the reading of a job's manifest depends on them.

    Cost: a search in each file, and reading those that may declare kinds.
    """
    rows: list[WorkloadKind] = []
    all_known = True
    for path in sorted(tree.files):
        file = tree.files[path]
        if _DECLARES_KINDS not in file.content or folder_project(tree.cluster_dir, path) is not None:
            continue
        read = cache.kinds.get(
            path, (file, tree.cluster_dir), partial(_isolated, path, file, tree.cluster_dir, JobKinds(), 0)
        )
        all_known = all_known and not any(one.kind == "Cluster" and one.broken for one in read.claims)
        for kind, declaration in read.declared:
            if kind == "Cluster":
                rows += map(workload_kind, declaration.model.spec.workload_kinds)
    return JobKinds(tuple(rows), all_known)


def is_example(path: str) -> bool:
    """Whether a file is an example of a policy, `policies/examples/NAME/good-1.yaml`: only `policy test` reads
    those."""
    _, is_below, rest = f"/{path}".partition(f"/{POLICIES}/")
    return bool(is_below) and f"/{EXAMPLES}/" in f"/{rest}"


def _isolated(path: str, file: SourceFile, cluster_dir: str, kinds: JobKinds, told: int) -> FileDeclarations:
    """Read a file. A bug of gpuctl on the way is reported at this file, and the other files are still read: otherwise
    one team's file could block the declarations of all others.
    """
    try:
        return _read(path, file, cluster_dir, kinds, told)
    except Exception as error:  # noqa: BLE001 - a bug may raise anything
        return _unread(path, file, folder_project(cluster_dir, path), "GPU9001", {"what": told_bug(error)})


def _unread(
    path: str, file: SourceFile, folder: str | None, code: str, params: Mapping[str, str | int]
) -> FileDeclarations:
    """The declarations of a file that can't be read: only the folder it is in, and the reason."""
    source = SourceText(path, "", file.revision)
    told = diagnose(source, code, source.span(1, 1), params)
    owner = ProjectName(folder) if folder else None
    return FileDeclarations(owner=owner, guessed=frozenset({folder} if folder else ()), diagnostics=(told,))


def _read(path: str, file: SourceFile, cluster_dir: str, kinds: JobKinds, told: int) -> FileDeclarations:
    folder = folder_project(cluster_dir, path)
    owner = ProjectName(folder) if folder else None
    if file.fault is SourceFault.MISNAMED:
        source = SourceText(path, "", file.revision)
        found = diagnose(source, "GPU1026", source.span(1, 1), {"ending": splitext(path)[1]})
        return FileDeclarations(owner=owner, diagnostics=(replace(found, severity=Severity.WARNING),))
    if file.fault is not None or not path.isprintable():
        code = "GPU1023" if file.fault is None else _FAULTS[file.fault]
        return _unread(path, file, folder, code, {"limit": MAX_FILE_BYTES, "project": folder or ""})
    read = read_file(path, file.content, file.revision, told=told)
    taken, told = list[_Taken](), told + len(read.diagnostics)
    for each in read.documents:
        document = each if told < MOST_TOLD else replace(each, most=1)
        taken.append(_document(document, kinds) if folder is None else _in_folder(document, folder, kinds))
        told += len(taken[-1].diagnostics)
    claims = tuple(one.claim for one in taken if one.claim is not None)
    words = [_words(fragment) for fragment in read.fragments]
    guessed = {word for _, word in chain.from_iterable(words)} | {one.guessed for one in taken if one.guessed}
    if folder is not None:
        guessed.update({folder} if words else ())
    elif len(projects := {one.project for one in taken} | {_seeming_project(found) for found in words}) == 1:
        (only,) = projects
        owner = ProjectName(only) if only else None
    return FileDeclarations(
        declared=tuple((one.claim.kind, one.declaration) for one in taken if one.claim and one.declaration),
        templated=tuple(one.templated for one in taken if one.templated),
        claims=claims,
        guessed=frozenset(guessed),
        owner=owner,
        diagnostics=(
            *read.diagnostics,
            *chain.from_iterable(one.diagnostics for one in taken),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """The reading of one document. `project`: the one it belongs to, or ""; `guessed`: the name it would declare."""

    claim: Claim | None = None
    declaration: Declaration[Any] | None = None
    templated: Templated | None = None
    project: str = ""
    guessed: str = ""
    diagnostics: Sequence[Diagnostic] = ()


def _document(document: Document, kinds: JobKinds) -> _Taken:
    data = document.data
    if data is UNREAD:
        return _Taken()
    if not isinstance(data, dict):
        return _Taken(diagnostics=[document.diagnostic("GPU2001", document.name, {"found": kind_of(data)})])
    kind, version = data.get("kind"), data.get("apiVersion")
    if not isinstance(kind, str) or kind not in KINDS:
        return _Taken(diagnostics=list(_kind_diagnostics(document, kind)))
    declaration, templated = None, None
    if isinstance(version, str) and version != API_VERSION:
        fix = "" if "gpuctl" not in version else f"write {API_VERSION}"
        diagnostics = [document.diagnostic("GPU2002", document.span(("apiVersion",)), {"found": version}, fix)]
    elif kind == "Job" and _names_a_template(data):
        templated, diagnostics = read_templated(document, kinds)
    else:
        model, diagnostics = check_shape(document, KINDS[kind], KINDS, kinds)
        if isinstance(model, TemplateV1) and document.sound:
            diagnostics = check_template(document, model, kinds)
        declaration = _declared(document, model, kinds) if document.sound and not diagnostics else None
    metadata = data.get("metadata")
    name, project = _text(metadata, "name"), _text(metadata, "project")
    return _Taken(
        claim=Claim(kind=kind, name=name, project=project, document=document, broken=declaration is None),
        declaration=declaration,
        templated=templated,
        project=name if kind == "Project" else project if kind in _OF_A_PROJECT else "",
        diagnostics=diagnostics,
    )


def _names_a_template(data: Mapping[str, Any]) -> bool:
    spec = data.get("spec")
    return isinstance(spec, dict) and spec.get("template") is not None


def _in_folder(document: Document, folder: str, kinds: JobKinds) -> _Taken:
    """Read a document in a project's folder, where no kind of the cluster may be declared."""
    taken = _document(document, kinds)
    kind = "" if taken.claim is None else taken.claim.kind
    if taken.claim is None or not (kind in {"Cluster", "Department"} or (kind == "Template" and not taken.project)):
        return taken
    fix = f"write project: {folder} in its metadata" if kind == "Template" else ""
    found = document.mistake("GPU3029", ("kind",), {"folder": folder, "kind": kind}, fix)
    return _Taken(guessed=taken.claim.name, diagnostics=[found])


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


def _words(fragment: Fragment) -> list[tuple[str, str]]:
    """The kinds, names and projects that an unreadable document seems to name."""
    return _NAMED.findall(fragment.text)


def _seeming_project(found: Iterable[tuple[str, str]]) -> str:
    """The project that an unreadable document seems to belong to; "" if it seems to belong to none."""
    words: dict[str, str] = {}
    for key, word in found:
        words.setdefault(key, word)
    return words.get(
        "project" if words.get("kind") in _OF_A_PROJECT else "name" if words.get("kind") == "Project" else "", ""
    )
