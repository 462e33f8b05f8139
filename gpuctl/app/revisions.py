"""Which commit is in force, part by part: each project, and the cluster's own files, at its last good one.

The newest commit is taken whole when it compiles. When it does not, each part that is to blame stays at the commit that
was last good for it, and the others move on: one broken project never blocks another. What was good is remembered in
memory, and over a restart in the ledgers, as a commit to read again. A part that can't be read at any good commit is
pinned: its runs are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain

from gpuctl.app.ports import Source, SourceUnavailable
from gpuctl.compile import CompileCache, Compiled, compile_tree
from gpuctl.diag.diagnostic import Diagnostic, Severity, sorted_diagnostics
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.k8s.names import CLUSTER_LEDGER
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NO_REVISION, JobId, ProjectName, Revision
from gpuctl.model.job import Job
from gpuctl.model.memo import Memo
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Ledger
from gpuctl.observe import Records

OWN = ProjectName(CLUSTER_LEDGER)
"""The cluster's own files, where a project would stand."""

_NOWHERE = SourceSpan(file="")
_NO_CLUSTER = "."
"""Where a cluster's name would stand that is not known: no cluster is called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One owner's files, the commit they are from and the cluster's folder there."""

    revision: Revision
    folder: str
    files: Mapping[str, SourceFile]

    def says_the_same(self, other: Part | None) -> bool:
        """Whether the other part has the same files, at whatever commit."""
        return (
            other is not None
            and self.files.keys() == other.files.keys()
            and all(file.says_the_same(other.files[path]) for path, file in self.files.items())
        )


Parts = dict[ProjectName, Part]
Changes = Mapping[ProjectName, Part | None]
"""Parts as they are to be; None: to be no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What is to be enforced. `diagnostics` are the newest commit's, and which parts are kept back because of them.

    `declared` None: nothing that compiles is known. `kept_back` maps a part that is not at the newest commit to the one
    it is at.
    """

    revision: Revision = NO_REVISION
    declared: Declared | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    kept_back: Mapping[ProjectName, Revision] = field(default_factory=dict)


def contents_of(tree: SourceTree, compiled: Compiled) -> Mapping[ProjectName, str]:
    """The digests of what the projects of a commit declare, as they are known by once it is enforced; none for what
    is no commit or has errors."""
    if compiled.declared is None or tree.revision == NO_REVISION:
        return {}
    return _contents(compiled.declared, _parts(tree, compiled.owners), Memo())


class Revisions:
    """What was last good, part by part. Cost: one compilation for a good commit; for a bad one, one more for each
    commit a ledger names and for each part that changed. A compilation costs what is new in its files."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._good: Parts = {}
        self._files: Mapping[str, SourceFile] = {}
        self._cache = CompileCache()
        self._digests: Memo[JobId, bytes] = Memo()
        self._last: Declared | None = None

    def compose(self, newest: SourceTree | None, records: Records) -> Desired:
        """What to enforce now that `newest` is the newest commit; None: it can't be read, keep to what was good."""
        if newest is None:
            ledgers = records.of(self._cluster_name({}, records) or _NO_CLUSTER).ledgers
            return self._desired(None, _grow({}, _each(self._known(ledgers)), self._cache), ledgers)
        newest = replace(newest, files=as_seen(newest.files, self._files))
        self._files = newest.files
        compiled = compile_tree(newest, self._cache)
        head = _Head(newest.revision, _parts(newest, compiled.owners), compiled.diagnostics, _blamed(compiled))
        if compiled.declared is not None:
            ledgers = records.of(compiled.declared.cluster.name).ledgers
            return self._desired(head, _Grown(head.parts, compiled), ledgers)
        ledgers = records.of(self._cluster_name(head.parts, records) or _NO_CLUSTER).ledgers
        base = _grow({}, _each(self._known(ledgers)), self._cache)
        suspected: frozenset[ProjectName] = frozenset()
        taken = _taken(base, head, suspected, self._cache)
        while more := _suspects(base, taken, head) - suspected - head.blamed:
            suspected |= more
            taken = _taken(base, head, suspected, self._cache)
        return self._desired(head, taken, ledgers)

    def _desired(self, head: _Head | None, taken: _Grown, ledgers: Mapping[ProjectName, Ledger]) -> Desired:
        """What is taken, as it is to be enforced and told."""
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
        declared = replace(self._stamped(taken.compiled.declared, taken.parts, ledgers), pinned=pinned)
        self._last = declared = _as_before(declared, self._last)
        return Desired(
            revision=revision,
            declared=declared,
            diagnostics=sorted_diagnostics([*told, *_notes(kept_back, pinned, told, revision)]),
            kept_back=kept_back,
        )

    def _stamped(self, declared: Declared, parts: Parts, ledgers: Mapping[ProjectName, Ledger]) -> Declared:
        """With the commit each part is from. A commit that says what the recorded one says does not take its place."""
        contents = _contents(declared, parts, self._digests)
        revisions = {
            owner: ledgers[owner].revision
            if owner in ledgers and ledgers[owner].content == content
            else parts[owner].revision
            for owner, content in contents.items()
            if owner in parts
        }
        return replace(declared, project_revisions=revisions, project_contents=contents)

    def _cluster_name(self, newest: Parts, records: Records) -> str:
        """The cluster's name by the newest of its files that are right: those of the newest commit, those that were
        good, those at the commit that a ledger of that very name has. Else by those of them that state a name at all,
        the newest last: it may be what is wrong. "": no ledger is known to be ours."""
        newer, good = [("", newest)], [("", self._good)]
        return _named(chain(newer, good, self._recorded(records)), _sound_name) or _named(
            chain(good, self._recorded(records), newer), _stated_name
        )

    def _recorded(self, records: Records) -> Iterator[tuple[str, Parts]]:
        """Clusters' own files as their ledgers know them, by the ledgers' names."""
        for name, known in sorted(records.by_cluster.items()):
            if OWN in known.ledgers and known.ledgers[OWN].revision:
                yield name, self._read(OWN, known.ledgers[OWN].revision)

    def _known(self, ledgers: Mapping[ProjectName, Ledger]) -> Parts:
        """The last good parts: those in memory, else those at the ledgers' commits."""
        known = dict(self._good)
        for owner, ledger in sorted(ledgers.items()):
            if owner not in known and ledger.revision:
                known |= self._read(owner, ledger.revision)
        return known

    def _read(self, owner: ProjectName, revision: Revision) -> Parts:
        try:
            tree = self._source.tree(revision)
        except SourceUnavailable:
            return {}
        part = _parts(tree, compile_tree(tree, self._cache).owners).get(owner)
        return {} if part is None else {owner: part}


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest commit, and the owners of the files that its errors are in."""

    revision: Revision
    parts: Parts
    diagnostics: tuple[Diagnostic, ...]
    blamed: frozenset[ProjectName]

    def own_is_right(self, taken: _Grown) -> bool:
        """Whether the cluster's own files are as they should be. An error in them may be of what a project has made of
        itself: they are right if they are taken nevertheless."""
        own = self.parts.get(OWN)
        return OWN not in self.blamed or (own is not None and own.says_the_same(taken.parts.get(OWN)))


@dataclass(frozen=True, slots=True)
class _Grown:
    """Parts that compile together, and what they compile to; None when not even the first does."""

    parts: Parts
    compiled: Compiled | None = None


def _as_before(declared: Declared, before: Declared | None) -> Declared:
    """With the very same cluster and projects as before, as far as they are equal: a commit that only concerns jobs
    leaves all standing that a cycle knows of the others."""
    if before is None:
        return declared
    whole = ("cluster", "domains", "departments", "projects")
    same = {name: getattr(before, name) for name in whole if getattr(before, name) == getattr(declared, name)}
    return replace(declared, **same)


def as_seen(files: Mapping[str, SourceFile], before: Mapping[str, SourceFile]) -> dict[str, SourceFile]:
    """The files, each with the first commit of a row in which it was seen to be as it is.

    What is made of a file says its commit, so that a later one which says the same would change all of it.
    """
    return {
        path: known if (known := before.get(path)) is not None and known.says_the_same(file) else file
        for path, file in files.items()
    }


def _each(changes: Changes) -> list[Changes]:
    """Every change for itself, in the order of names."""
    return [{owner: changes[owner]} for owner in sorted(changes)]


def _grow(parts: Parts, steps: Sequence[Changes], cache: CompileCache) -> _Grown:
    """Take the changes that leave a tree that compiles: all at once, else each step that can be."""
    grown = _tried(parts, {owner: part for step in steps for owner, part in step.items()}, cache)
    if grown is not None:
        return grown
    grown = _Grown(parts)
    for step in steps:
        grown = _tried(grown.parts, step, cache) or grown
    return grown if grown.compiled is not None else _Grown(parts, _compiled(parts, cache))


def _tried(parts: Parts, changes: Changes, cache: CompileCache) -> _Grown | None:
    merged = {**parts, **changes}
    kept = {owner: part for owner, part in merged.items() if part is not None}
    compiled = _compiled(kept, cache)
    return None if compiled is None else _Grown(kept, compiled)


def _compiled(parts: Parts, cache: CompileCache | None = None) -> Compiled | None:
    """The parts as one tree, compiled; None when it has errors."""
    if OWN not in parts:
        return None
    files = {path: file for _, part in sorted(parts.items()) for path, file in part.files.items()}
    tree = SourceTree(cluster_dir=parts[OWN].folder, revision=parts[OWN].revision, files=files)
    compiled = compile_tree(tree, cache)
    return compiled if compiled.declared is not None else None


def _named(candidates: Iterable[tuple[str, Parts]], name_of: Callable[[Compiled], str]) -> str:
    """The first name that cluster's own files have, and that is the one they are known by, if they are; else ""."""
    for known_by, parts in candidates:
        if OWN in parts:
            own = parts[OWN]
            tree = SourceTree(cluster_dir=own.folder, revision=own.revision, files=own.files)
            name = name_of(compile_tree(tree))
            if name and known_by in {"", name}:
                return name
    return ""


def _sound_name(own: Compiled) -> str:
    """The name in files that are right by themselves."""
    return own.cluster if own.declared is not None else ""


def _stated_name(own: Compiled) -> str:
    """The name in files that need others: jobs that are declared there may be of projects that have their own."""
    return own.cluster


def _parts(tree: SourceTree, owners: Mapping[str, ProjectName | None]) -> Parts:
    grouped: dict[ProjectName, dict[str, SourceFile]] = {}
    for path, file in sorted(tree.files.items()):
        grouped.setdefault(owners.get(path) or OWN, {})[path] = file
    return {
        owner: Part(revision=tree.revision, folder=tree.cluster_dir, files=files) for owner, files in grouped.items()
    }


def _blamed(compiled: Compiled) -> frozenset[ProjectName]:
    errors = [d for d in compiled.diagnostics if d.severity is Severity.ERROR]
    return frozenset(compiled.owners.get(d.span.file) or OWN for d in errors)


def _changes(good: Parts, head: _Head) -> dict[ProjectName, Part | None]:
    """What the newest commit says otherwise."""
    changed = {owner: part for owner, part in head.parts.items() if not part.says_the_same(good.get(owner))}
    return {**changed, **dict.fromkeys(good.keys() - head.parts.keys())}


def _taken(base: _Grown, head: _Head, suspected: frozenset[ProjectName], cache: CompileCache) -> _Grown:
    """What can be taken of the newest commit. Those to blame come last; with them, or not at all, the suspected.

    Where the cluster's own files are to blame it is not believed that projects are removed, unless these files are
    taken: a project may be declared in one that can't be read.
    """
    changes = _changes(base.parts, head)
    removed = {owner for owner, part in changes.items() if part is None and OWN in head.blamed}
    to_blame = {owner: part for owner, part in changes.items() if owner in head.blamed | suspected | removed}
    harmless = {owner: part for owner, part in changes.items() if owner not in to_blame}
    taken = _grow(base.parts, _each(harmless), cache)
    # An error two parts make together is found in one of them, not always in the one that changed.
    if OWN not in head.blamed:
        return _grow(taken.parts, [to_blame] if suspected else _each(to_blame), cache)
    own = {owner: part for owner, part in to_blame.items() if owner == OWN or owner in suspected - removed}
    taken = _grow(taken.parts, _with_removals(own, sorted(removed)), cache)
    left = {owner: part for owner, part in to_blame.items() if owner not in own}
    if not head.own_is_right(taken):
        left = {owner: part for owner, part in left.items() if part is not None}
    return _grow(taken.parts, _each(left), cache)


def _with_removals(own: Changes, removed: Sequence[ProjectName]) -> list[Changes]:
    """The cluster's own files with the removal of all projects that are gone; of all but one, in case these files
    still declare a job of it; and alone. Each that compiles can be taken."""
    ways = [removed, *([name for name in removed if name != kept] for kept in removed), ()]
    return [{**own, **dict.fromkeys(names)} for names in ways]


def _suspects(base: _Grown, taken: _Grown, head: _Head) -> frozenset[ProjectName]:
    """Parts in which jobs seem to be removed that may only have become unreadable.

    A file outside of `projects/` that can't be read counts as the cluster's own, and may be anybody's. And jobs of a
    project that is to blame may have moved to it from a file that it shared with others, which is the cluster's own.
    """
    if base.compiled is None or base.compiled.declared is None:
        return frozenset()
    now = taken.compiled.declared if taken.compiled else None
    left = {job.id for job in now.jobs} if now else set()
    lost = frozenset(job.id.project for job in base.compiled.declared.jobs if job.id not in left)
    if OWN in head.blamed:
        return frozenset() if head.own_is_right(taken) else lost
    return frozenset({OWN}) if lost & head.blamed else frozenset()


def _contents(declared: Declared, parts: Parts, digests: Memo[JobId, bytes]) -> dict[ProjectName, str]:
    """A digest of what each part says, wherever its files say it; the cluster's own files count by their bytes."""
    digests.turn()
    found = {project.name: sha256(repr(replace(project, span=_NOWHERE)).encode()) for project in declared.projects}
    for job in declared.jobs:
        found[job.id.project].update(digests.get(job.id, (job,), partial(_digest, job)))
    if OWN in parts:
        own = sorted((path, file.content) for path, file in parts[OWN].files.items())
        found[OWN] = sha256(repr(own).encode())
    return {owner: digest.hexdigest()[:16] for owner, digest in found.items()}


def _digest(job: Job) -> bytes:
    return sha256(repr(replace(job, span=_NOWHERE)).encode()).digest()


def _notes(
    kept_back: Mapping[ProjectName, Revision],
    pinned: Iterable[ProjectName],
    told: Iterable[Diagnostic],
    head: Revision,
) -> list[Diagnostic]:
    """A diagnostic for every part that does not follow the newest commit, placed on one of its errors."""
    errors = sorted_diagnostics(d for d in told if d.severity is Severity.ERROR)
    notes = []
    for code, severity, owners in (
        ("GPU8009", Severity.WARNING, kept_back),
        ("GPU8010", Severity.ERROR, dict.fromkeys(pinned, NO_REVISION)),
    ):
        for owner, revision in sorted(owners.items()):
            params = {"owner": _title(owner), "revision": revision[:12], "head": head[:12]}
            place = next((d.span for d in errors if f"/projects/{owner}/" in f"/{d.span.file}"), None)
            place = place or (errors[0].span if errors else _NOWHERE)
            notes.append(Diagnostic(code=code, message=message(code, params), span=place, severity=severity))
    return notes


def _title(owner: ProjectName) -> str:
    return f"project {owner}" if owner != OWN else "the cluster's own part"
