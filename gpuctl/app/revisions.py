"""Composes the declarations in force, part by part: each project, and the cluster's own files, at its last good commit.

The newest commit is taken whole if it compiles. If not, each blamed part stays at its last good commit and the others
move on: one broken project never blocks another. The last good parts are kept in memory and, over a restart, in the
ledgers as commits to read again. A project that can't be read at any good commit is pinned: its runs are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain

from gpuctl.app.kept_back import notes
from gpuctl.app.ports import Source, SourceUnavailable
from gpuctl.compile import CompileCache, Compiled, DeclaredSize, compile_tree, content_digest, declared_size, within
from gpuctl.diag.diagnostic import Diagnostic, Severity, sorted_diagnostics
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s.names import CLUSTER_LEDGER
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NO_REVISION, ProjectName, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Ledger
from gpuctl.observe import Records

OWN = ProjectName(CLUSTER_LEDGER)
"""The owner of the cluster's own files, in place of a project."""
_NOWHERE = SourceSpan(file="")
_NO_CLUSTER = "."
"""Stands for an unknown cluster name: no cluster can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One owner's files, their commit, and the cluster's folder in it."""

    revision: Revision
    folder: str
    files: Mapping[str, SourceFile]

    def says_the_same(self, other: Part | None) -> bool:
        """Whether the other part has the same files, at any commit."""
        return (
            other is not None
            and self.files.keys() == other.files.keys()
            and all(file.says_the_same(other.files[path]) for path, file in self.files.items())
        )


Parts = dict[ProjectName, Part]
Changes = Mapping[ProjectName, Part | None]
"""Parts to set, by owner; None: the part is removed."""
Compiling = Callable[[SourceTree], Compiled]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The declarations to enforce. `diagnostics`: the newest commit's, with one for each part that is kept back.

    `declared` None: no declarations that compile are known. `kept_back`: each part that stays at an earlier commit,
    with that commit. `head_files`: the files of each part in the newest commit. `files`: the files that `declared` was
    compiled from; `folder`: the cluster's among them. `size`: how much of the memory the jobs of `declared` take.
    `confirmations`: those that count, of all commits up to the revision.
    """

    revision: Revision = NO_REVISION
    declared: Declared | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    kept_back: Mapping[ProjectName, Revision] = field(default_factory=dict)
    head_files: Mapping[ProjectName, Collection[str]] = field(default_factory=dict)
    files: Mapping[str, SourceFile] = field(default_factory=dict)
    folder: str = ""
    size: DeclaredSize = field(default_factory=DeclaredSize)
    confirmations: frozenset[str] = frozenset()


def contents_of(tree: SourceTree, compiled: Compiled, cache: CompileCache) -> Mapping[ProjectName, str]:
    """Digests of the declarations of each project, as ledgers will have them once the tree is committed and enforced.

    Empty for a tree with errors. `cache`: the one it was compiled with.
    """
    return {} if compiled.declared is None else _contents(compiled.declared, _parts(tree, compiled.owners), cache)


def content_of(declared: Declared, project: ProjectName) -> str:
    """The digest of one project's declarations. Cost: linear in all jobs."""
    only = replace(
        declared,
        projects=(declared.project(project),),
        jobs=tuple(job for job in declared.jobs if job.id.project == project),
    )
    return _contents(only, {}, CompileCache())[project]


def sound_parts(tree: SourceTree, compiled: Compiled, cache: CompileCache) -> tuple[Compiled, list[ProjectName]] | None:
    """The part of a tree with errors that compiles, and the projects that are left out; None if the cluster's own files
    have errors or are missing.

    Cost: one compilation; one for each project where the projects without an error of their own don't compile either.
    """
    parts, blamed = _parts(tree, compiled.owners), _blamed(compiled, compiled.owners)
    if OWN not in parts or OWN in blamed:
        return None
    kept = {owner: part for owner, part in parts.items() if owner not in blamed}
    grown = _grow({OWN: parts[OWN]}, _each(kept), partial(compile_tree, cache=cache))
    return None if grown.compiled is None else (grown.compiled, sorted(parts.keys() - grown.parts.keys()))


class Revisions:
    """Remembers the last good parts and composes the declarations to enforce.

    Cost: one compilation for a good commit; for a bad one, one more for each commit in a ledger and for each part that
    changed. A compilation costs what is new in its files.
    """

    def __init__(self, source: Source, most_jobs: int | None = None) -> None:
        """`most_jobs`: how many declared jobs this process has memory for; None: not known."""
        self._source, self.most_jobs = source, most_jobs
        self._good: Parts = {}
        self._files: Mapping[str, SourceFile] = {}
        self._cache = CompileCache()
        self._compile: Compiling = partial(compile_tree, cache=self._cache, most_jobs=most_jobs)
        self._last: Declared | None = None

    def compose(self, newest: SourceTree | None, records: Records) -> Desired:
        """Compose the declarations to enforce. `newest` None: it can't be read, so the last good parts count."""
        if newest is None:
            ledgers = records.of(self._cluster_name({}, records) or _NO_CLUSTER).ledgers
            return self._desired(None, _grow({}, _each(self._known(ledgers)), self._compile), ledgers)
        newest = within(newest, self.most_jobs)
        newest = replace(newest, files=as_seen(newest.files, self._files))
        self._files = newest.files
        compiled = self._compile(newest)
        head = _head(newest, compiled)
        if compiled.declared is not None:
            ledgers = records.of(compiled.declared.cluster.name).ledgers
            return self._desired(head, _Grown(head.parts, compiled), ledgers)
        ledgers = records.of(self._cluster_name(head.parts, records) or _NO_CLUSTER).ledgers
        base = _grow({}, _each(self._known(ledgers)), self._compile)
        head = _head(newest, compiled, _still_theirs(compiled, base.parts))
        suspected: frozenset[ProjectName] = frozenset()
        taken = _taken(base, head, suspected, self._compile)
        while more := _suspects(base, taken, head) - suspected - head.blamed:
            suspected |= more
            taken = _taken(base, head, suspected, self._compile)
        return self._desired(head, taken, ledgers)

    def _desired(self, head: _Head | None, taken: _Grown, ledgers: Mapping[ProjectName, Ledger]) -> Desired:
        """The taken parts, as they are enforced and reported."""
        told = () if head is None else head.diagnostics
        revision = NO_REVISION if head is None else head.revision
        if taken.compiled is None or taken.compiled.declared is None:
            return Desired(revision=revision, diagnostics=told)
        self._good = taken.parts
        removed = ledgers.keys() - head.parts.keys() if head is not None and head.own_is_right(taken) else set()
        pinned = frozenset(ledgers.keys() - taken.parts.keys() - removed - {OWN})
        kept_back = {
            owner: part.revision
            for owner, part in taken.parts.items()
            if head is not None and not part.says_the_same(head.parts.get(owner))
        }
        files = {} if head is None else {owner: part.files for owner, part in head.parts.items()}
        declared = replace(self._stamped(taken.compiled.declared, taken.parts, ledgers), pinned=pinned)
        self._last = declared = _as_before(declared, self._last)
        return Desired(
            revision=revision,
            declared=declared,
            diagnostics=sorted_diagnostics([*told, *notes(kept_back, pinned, told, revision, files)]),
            kept_back=kept_back,
            head_files=files,
            files={path: file for part in taken.parts.values() for path, file in part.files.items()},
            folder=next((part.folder for part in taken.parts.values()), ""),
            size=declared_size(taken.compiled.jobs, self.most_jobs),
        )

    def _stamped(self, declared: Declared, parts: Parts, ledgers: Mapping[ProjectName, Ledger]) -> Declared:
        """Add the commit of each part: the one in its ledger, if that commit declares the same."""
        contents = _contents(declared, parts, self._cache)
        revisions = {
            owner: ledgers[owner].revision
            if owner in ledgers and ledgers[owner].content == content
            else parts[owner].revision
            for owner, content in contents.items()
            if owner in parts
        }
        return replace(declared, project_revisions=revisions, project_contents=contents)

    def _cluster_name(self, newest: Parts, records: Records) -> str:
        """The cluster's name; "" if none is known, so that no ledger counts as this cluster's.

        It is read from the newest of the cluster's own files that compile: of the newest commit, of the last good one,
        or of the commit in a ledger of that very name. Else it is read from any of these files that state a name, with
        the newest commit's last: the name may be the mistake.
        """
        newer, good = [("", newest)], [("", self._good)]
        return _named(chain(newer, good, self._recorded(records)), _sound_name) or _named(
            chain(good, self._recorded(records), newer), _stated_name
        )

    def _recorded(self, records: Records) -> Iterator[tuple[str, Parts]]:
        """The clusters' own files at the commits in their ledgers, each with the ledger's cluster name."""
        for name, known in sorted(records.by_cluster.items()):
            if OWN in known.ledgers and known.ledgers[OWN].revision:
                yield name, self._read(OWN, known.ledgers[OWN].revision)

    def _known(self, ledgers: Mapping[ProjectName, Ledger]) -> Parts:
        """The last good parts: from memory, else at the commits in the ledgers."""
        known = dict(self._good)
        for owner, ledger in sorted(ledgers.items()):
            if owner not in known and ledger.revision:
                known |= self._read(owner, ledger.revision)
        return known

    def _read(self, owner: ProjectName, revision: Revision) -> Parts:
        try:
            tree = within(self._source.tree(revision), self.most_jobs)
        except SourceUnavailable:
            return {}
        part = _parts(tree, self._compile(tree).owners).get(owner)
        return {} if part is None else {owner: part}


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest commit. `blamed`: the owners of the files with errors. `is_vague`: one of these files no longer states
    its owner, so it is not known what else is in it."""

    revision: Revision
    parts: Parts
    diagnostics: tuple[Diagnostic, ...]
    blamed: frozenset[ProjectName]
    is_vague: bool = False

    def own_is_right(self, taken: _Grown) -> bool:
        """Whether the cluster's own files are right. An error in them may come from a change in a project: if they
        compile with the parts that were taken, they are right."""
        own = self.parts.get(OWN)
        return OWN not in self.blamed or (own is not None and own.says_the_same(taken.parts.get(OWN)))


@dataclass(frozen=True, slots=True)
class _Grown:
    """Parts that compile together, and their compiled result; `compiled` None: not even the first parts compile."""

    parts: Parts
    compiled: Compiled | None = None


def _head(newest: SourceTree, compiled: Compiled, theirs: Mapping[str, ProjectName] | None = None) -> _Head:
    """The newest commit. `theirs`: files that belong to a project without saying so."""
    owners = {**compiled.owners, **(theirs or {})}
    blamed = _blamed(compiled, owners)
    return _Head(newest.revision, _parts(newest, owners), compiled.diagnostics, blamed, is_vague=bool(theirs))


def _still_theirs(compiled: Compiled, good: Parts) -> Mapping[str, ProjectName]:
    """Files with errors that no longer state their owner, but were one project's when it was last good.

    An error that the project's team made in them holds back that project, not the cluster's own part.
    """
    before = {path: owner for owner, part in good.items() if owner != OWN for path in part.files}
    files = {d.span.file for d in compiled.diagnostics if d.severity is Severity.ERROR}
    return {path: before[path] for path in files if path in before and compiled.owners.get(path) is None}


def _as_before(declared: Declared, before: Declared | None) -> Declared:
    """Replace cluster and projects by the earlier objects where they are equal, so that caches stay valid after a
    commit that only changes jobs."""
    if before is None:
        return declared
    whole = ("cluster", "domains", "departments", "projects")
    same = {name: getattr(before, name) for name in whole if getattr(before, name) == getattr(declared, name)}
    return replace(declared, **same)


def as_seen(files: Mapping[str, SourceFile], before: Mapping[str, SourceFile]) -> dict[str, SourceFile]:
    """The files, each with the first commit since which it is unchanged. Compiled values carry the commit of their
    file; with the newest commit all of them would change for nothing."""
    return {
        path: known if (known := before.get(path)) is not None and known.says_the_same(file) else file
        for path, file in files.items()
    }


def _each(changes: Changes) -> list[Changes]:
    """One step for each change, in the order of names."""
    return [{owner: changes[owner]} for owner in sorted(changes)]


def _grow(parts: Parts, steps: Sequence[Changes], compiling: Compiling) -> _Grown:
    """Take the changes that leave a tree that compiles: all at once, else step by step, without the failing steps."""
    grown = _tried(parts, {owner: part for step in steps for owner, part in step.items()}, compiling)
    if grown is not None:
        return grown
    grown = _Grown(parts)
    for step in steps:
        grown = _tried(grown.parts, step, compiling) or grown
    return grown if grown.compiled is not None else _Grown(parts, _compiled(parts, compiling))


def _tried(parts: Parts, changes: Changes, compiling: Compiling) -> _Grown | None:
    merged = {**parts, **changes}
    kept = {owner: part for owner, part in merged.items() if part is not None}
    compiled = _compiled(kept, compiling)
    return None if compiled is None else _Grown(kept, compiled)


def _compiled(parts: Parts, compiling: Compiling) -> Compiled | None:
    """Compile the parts as one tree; None if it has errors."""
    if OWN not in parts:
        return None
    files = {path: file for _, part in sorted(parts.items()) for path, file in part.files.items()}
    tree = SourceTree(cluster_dir=parts[OWN].folder, revision=parts[OWN].revision, files=files)
    compiled = compiling(tree)
    return compiled if compiled.declared is not None else None


def _named(candidates: Iterable[tuple[str, Parts]], name_of: Callable[[Compiled], str]) -> str:
    """The first name in a cluster's own files that equals the name of their ledger, if they come from one; else ""."""
    for known_by, parts in candidates:
        if OWN in parts:
            own = parts[OWN]
            tree = SourceTree(cluster_dir=own.folder, revision=own.revision, files=own.files)
            name = name_of(compile_tree(tree))
            if name and known_by in {"", name}:
                return name
    return ""


def _sound_name(own: Compiled) -> str:
    """The name in files that compile by themselves; else ""."""
    return own.cluster if own.declared is not None else ""


def _stated_name(own: Compiled) -> str:
    """The name in files that may need other files to compile, as for jobs of projects with files of their own."""
    return own.cluster


def _parts(tree: SourceTree, owners: Mapping[str, ProjectName | None]) -> Parts:
    grouped: dict[ProjectName, dict[str, SourceFile]] = {}
    for path, file in sorted(tree.files.items()):
        grouped.setdefault(owners.get(path) or OWN, {})[path] = file
    return {
        owner: Part(revision=tree.revision, folder=tree.cluster_dir, files=files) for owner, files in grouped.items()
    }


def _blamed(compiled: Compiled, owners: Mapping[str, ProjectName | None]) -> frozenset[ProjectName]:
    errors = [d for d in compiled.diagnostics if d.severity is Severity.ERROR]
    return frozenset(owners.get(d.span.file) or OWN for d in errors)


def _changes(good: Parts, head: _Head) -> dict[ProjectName, Part | None]:
    """The parts that the newest commit changes or removes."""
    changed = {owner: part for owner, part in head.parts.items() if not part.says_the_same(good.get(owner))}
    return {**changed, **dict.fromkeys(good.keys() - head.parts.keys())}


def _taken(base: _Grown, head: _Head, suspected: frozenset[ProjectName], compiling: Compiling) -> _Grown:
    """Take the parts of the newest commit that compile. Blamed parts come last; suspected ones with them, or never.

    If the cluster's own files are to blame, projects count as removed only if these files are taken: a project may be
    declared in a file that can't be read.
    """
    changes = _changes(base.parts, head)
    removed = {owner for owner, part in changes.items() if part is None and OWN in head.blamed}
    to_blame = {owner: part for owner, part in changes.items() if owner in head.blamed | suspected | removed}
    harmless = {owner: part for owner, part in changes.items() if owner not in to_blame}
    taken = _grow(base.parts, _each(harmless), compiling)
    # An error that two parts cause together is reported in one of them, not always in the one that changed.
    if OWN not in head.blamed:
        return _grow(taken.parts, [to_blame] if suspected else _each(to_blame), compiling)
    own = {owner: part for owner, part in to_blame.items() if owner == OWN or owner in suspected - removed}
    taken = _grow(taken.parts, _with_removals(own, sorted(removed)), compiling)
    left = {owner: part for owner, part in to_blame.items() if owner not in own}
    if not head.own_is_right(taken):
        left = {owner: part for owner, part in left.items() if part is not None}
    return _grow(taken.parts, _each(left), compiling)


def _with_removals(own: Changes, removed: Sequence[ProjectName]) -> list[Changes]:
    """The steps to try for the cluster's own files: with the removal of all projects that are gone; of all but one, in
    case these files still declare a job of it; and alone."""
    ways = [removed, *([name for name in removed if name != kept] for kept in removed), ()]
    return [{**own, **dict.fromkeys(names)} for names in ways]


def _suspects(base: _Grown, taken: _Grown, head: _Head) -> frozenset[ProjectName]:
    """Parts that seem to lose jobs, though their files may only have become unreadable.

    An unreadable file outside of `projects/` may declare any project, and jobs of any project. It counts as the file of
    the project that had it when it was last good, else as the cluster's own. Also, jobs of a blamed project that is
    kept back may have moved to it from a file that projects share, which is the cluster's own.
    """
    if base.compiled is None or base.compiled.declared is None:
        return frozenset()
    now = taken.compiled.declared if taken.compiled else None
    left = {job.id for job in now.jobs} if now else set()
    lost = frozenset(job.id.project for job in base.compiled.declared.jobs if job.id not in left)
    if OWN in head.blamed:
        return frozenset() if head.own_is_right(taken) else lost
    if head.is_vague:
        return lost | (base.parts.keys() - taken.parts.keys())
    kept_back = {owner for owner in head.blamed if not head.parts[owner].says_the_same(taken.parts.get(owner))}
    return frozenset({OWN}) if lost & kept_back else frozenset()


def _contents(declared: Declared, parts: Parts, cache: CompileCache) -> dict[ProjectName, str]:
    """A digest of each part's declarations, in whichever files; for the cluster's own files, of their bytes."""
    cache.contents.turn()
    found = {project.name: sha256(repr(replace(project, span=_NOWHERE)).encode()) for project in declared.projects}
    for job in declared.jobs:
        found[job.id.project].update(cache.contents.get(job.id, (job,), partial(content_digest, job)))
    if OWN in parts:
        own = sorted((path, file.content) for path, file in parts[OWN].files.items())
        found[OWN] = sha256(repr(own).encode())
    return {owner: digest.hexdigest()[:16] for owner, digest in found.items()}
