"""The verbs that edit declarations: the new text of a file, whether the cluster compiles with it, and the commit.

An edit is a value: files before and after. It is judged by compiling the whole cluster with it; an edit that adds
errors is not written. Files and commits are behind ports.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from gpuctl.app.editing_ports import Checkout, Committed, Draft, NotEdited, ReviewPlace, not_edited
from gpuctl.app.forge_ports import Forge, OpenRequest, ReviewRequest
from gpuctl.app.ports import WorldFault
from gpuctl.compile import CompileCache, compile_tree
from gpuctl.compile.declarations import collect
from gpuctl.compile.document import Document
from gpuctl.compile.shape import most_similar
from gpuctl.diag.diagnostic import Diagnostic, Severity, has_errors
from gpuctl.diag.wording import all_of
from gpuctl.edit import REMOVED, Changes, Refused, Target, Value, add, remove, set_field, set_fields
from gpuctl.model.declared import Declared
from gpuctl.model.source import YAML_SUFFIXES, SourceFile, SourceTree

API_VERSION = "gpuctl.dev/v1"
_NAMED_JOBS = 3
_SUSPEND = ("spec", "suspend")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """A file before and after an edit; None: the file does not exist."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The files that an edit changes. `title`: the subject of its commit."""

    files: tuple[FileEdit, ...]
    title: str

    @property
    def is_nothing(self) -> bool:
        """Whether all files stay as they are."""
        return all(file.before == file.after for file in self.files)

    @property
    def what(self) -> str:
        """The path of the file, or the number of files if there are several."""
        return self.files[0].path if len(self.files) == 1 else f"{len(self.files)} files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The compiler's diagnostics of the cluster with an edit. `added`: errors that the cluster does not have without
    it.

    `before` and `after`: the declarations without and with the edit; None where there are errors.
    """

    diagnostics: tuple[Diagnostic, ...]
    added: tuple[Diagnostic, ...]
    before: Declared | None = None
    after: Declared | None = None

    @property
    def stopped(self) -> int:
        """How many jobs the edit removes or suspends."""
        if self.before is None or self.after is None:
            return 0
        kept = {job.id for job in self.after.jobs if not job.suspend}
        return sum(not job.suspend and job.id not in kept for job in self.before.jobs)

    @property
    def is_valid(self) -> bool:
        """Whether there is no error."""
        return not has_errors(self.diagnostics)


class WorkingTree:
    """The declarations of one cluster as they are in the working tree."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self._cache = CompileCache()
        self._claims = collect(tree, self._cache.reading).claims
        self._documents: dict[Target, list[Document]] = {}
        for claim in self._claims:
            named = Target(kind=claim.kind, name=claim.name, project=claim.project)
            self._documents.setdefault(named, []).append(claim.document)

    def documents(self, kind: str) -> Sequence[tuple[Target, Document]]:
        """All declarations of a kind, valid or not, in order of path and line."""
        return [
            (Target(kind=kind, name=claim.name, project=claim.project), claim.document)
            for claim in self._claims
            if claim.kind == kind
        ]

    def declared_in(self, path: str) -> int:
        """How many declarations a file has."""
        return sum(claim.document.source.path == path for claim in self._claims)

    def has(self, target: Target) -> bool:
        """Whether something of this kind, name and project is declared."""
        return target in self._documents

    def find(self, target: Target) -> Document:
        """The one document that declares the target. Raises NotEdited."""
        found = self._documents.get(target, [])
        if not found:
            raise self.undeclared(target)
        if len(found) > 1:
            raise not_edited("GPU6109", what=str(target), places=all_of(str(each.name) for each in found))
        return found[0]

    def undeclared(self, target: Target) -> NotEdited:
        """The fault for a target that is not declared; it suggests the most similar name."""
        beside = {found.name for found, _ in self.documents(target.kind) if found.project == target.project}
        near = most_similar(target.name, beside)
        meant = f"; did you mean {near}?" if near else ""
        return not_edited("GPU6105", what=str(target), folder=self.tree.cluster_dir, meant=meant)

    def judge(self, edit: Edit) -> Judgement:
        """Compile the cluster without and with an edit; policies about changes judge the difference.

        Cost: two compilations; the second compiles only the edited files.
        """
        before = compile_tree(self.tree, self._cache)
        changed = {file.path: file.after for file in edit.files}
        files = {path: file for path, file in self.tree.files.items() if path not in changed}
        files |= {path: SourceFile(content=after) for path, after in changed.items() if after is not None}
        after = compile_tree(replace(self.tree, files=files), self._cache, before)
        return Judgement(
            diagnostics=after.diagnostics,
            added=added_errors(before.diagnostics, after.diagnostics),
            before=before.declared,
            after=after.declared,
        )


def added_errors(before: Sequence[Diagnostic], after: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The errors that were not there before. Two errors are equal without their lines, which an edit above them
    moves."""
    known = Counter(map(_told, before))
    added = []
    for found in after:
        if found.severity is Severity.ERROR and known[_told(found)] <= 0:
            added.append(found)
        known[_told(found)] -= 1
    return tuple(added)


def _told(found: Diagnostic) -> tuple[str, str, str]:
    return found.code, found.span.file, found.message


def submit(working: WorkingTree, job: Target, spec: Mapping[str, Value], file: str | None = None) -> Edit:
    """Declare a job. `file`: the file to put it in, instead of beside the project's other jobs. Raises NotEdited,
    Refused."""
    if working.has(job):
        raise not_edited("GPU6104", job=f"{job.project}/{job.name}", place=str(working.find(job).name))
    if not working.has(Target(kind="Project", name=job.project)):
        raise working.undeclared(Target(kind="Project", name=job.project))
    body: dict[str, Value] = {
        "apiVersion": API_VERSION,
        "kind": job.kind,
        "metadata": {"name": job.name, "project": job.project},
        "spec": dict(spec),
    }
    path = place_of_new_job(working, job) if file is None else _named_place(working.tree, file)
    before = _content(working.tree, path)
    return _edit(path, before, add(path, before, body), f"Submit {job}")


def delete(working: WorkingTree, jobs: Sequence[Target]) -> Edit:
    """Remove declarations from their files. Raises NotEdited, Refused."""
    return _in_files(working, jobs, "Delete", lambda path, content, here: remove(path, content, *here))


def assign(working: WorkingTree, target: Target, changes: Changes, title: str) -> Edit:
    """Give fields of a declaration other values. Raises NotEdited, Refused."""
    path = working.find(target).source.path
    before = working.tree.files[path].content
    return _edit(path, before, set_fields(path, before, target, changes), title)


def suspend(working: WorkingTree, jobs: Sequence[Target], *, suspended: bool) -> Edit:
    """Set `suspend` of jobs, or remove it. A job that is already so stays unchanged."""

    def changed(path: str, content: bytes, here: Sequence[Target]) -> bytes:
        others = [job for job in here if _is_suspended(working.find(job)) is not suspended]
        if not others:
            return content
        return set_field(path, content, others, (_SUSPEND, True)) if suspended else _resumed(path, content, others)

    return _in_files(working, jobs, "Suspend" if suspended else "Resume", changed)


def _resumed(path: str, content: bytes, jobs: Sequence[Target]) -> bytes:
    """The file with the jobs resumed: without their `suspend`, as it was before they were suspended. `suspend: false`
    takes its place where the line can't be removed alone, or has a comment.

    Cost: linear in the file, and again for each such line.
    """
    try:
        without = set_field(path, content, jobs, (_SUSPEND, REMOVED))
    except Refused:
        without = content
    if without != content and content.count(b"#") == without.count(b"#"):
        return without
    half = len(jobs) // 2
    if not half:
        return set_field(path, content, jobs, (_SUSPEND, False))
    return _resumed(path, _resumed(path, content, jobs[:half]), jobs[half:])


def _is_suspended(document: Document) -> bool:
    spec = document.data.get("spec")
    return isinstance(spec, dict) and spec.get("suspend") is True


def _edit(path: str, before: bytes | None, after: bytes | None, title: str) -> Edit:
    return Edit(files=(FileEdit(path=path, before=before, after=after),), title=title)


def _in_files(
    working: WorkingTree,
    jobs: Sequence[Target],
    verb: str,
    change: Callable[[str, bytes, Sequence[Target]], bytes | None],
) -> Edit:
    """Change the declarations of each file in one step. Raises NotEdited, Refused."""
    by_file: dict[str, list[Target]] = {}
    for job in jobs:
        by_file.setdefault(working.find(job).source.path, []).append(job)
    now = {path: change(path, working.tree.files[path].content, here) for path, here in by_file.items()}
    edits = [FileEdit(path=path, before=working.tree.files[path].content, after=after) for path, after in now.items()]
    files = tuple(file for file in edits if file.before != file.after) or tuple(edits)
    return Edit(files=files, title=f"{verb} {jobs[0] if len(jobs) == 1 else _several(jobs)}")


def _several(jobs: Sequence[Target]) -> str:
    if len(jobs) <= _NAMED_JOBS:
        return f"jobs {all_of(f'{job.project}/{job.name}' for job in jobs)}"
    return f"{len(jobs)} jobs of {all_of(sorted({job.project for job in jobs}))}"


def place_of_new_job(working: WorkingTree, job: Target) -> str:
    """The file in which a project's next job is declared.

    If one file has all jobs of the project and declares several things, that file. Else a new file named after the job:
    in the folder with most of the project's jobs, or in `projects/<project>/jobs/` if the project has none.
    """
    tree = working.tree
    jobs = [document.source.path for names, document in working.documents("Job") if names.project == job.project]
    if len(set(jobs)) == 1 and working.declared_in(jobs[0]) > 1:
        return jobs[0]
    folders = Counter(map(posixpath.dirname, jobs))
    usual = posixpath.join(tree.cluster_dir, "projects", job.project, "jobs")
    folder = min(folders, key=lambda each: (-folders[each], each), default=usual)
    path = posixpath.normpath(posixpath.join(folder, f"{job.name}.yaml"))
    if path in tree.files:
        raise not_edited("GPU6108", path=path, why="the file exists already, and declares something else")
    return path


def _named_place(tree: SourceTree, file: str) -> str:
    """The path within the tree of a file that a person named."""
    path, top = posixpath.normpath(file), posixpath.normpath(tree.cluster_dir)
    below = path if top == "." else posixpath.relpath(path, top)
    if below.startswith(("../", "/")) or below in {".", ".."}:
        raise not_edited("GPU6108", path=file, why=f"it is not below {tree.cluster_dir}")
    if not path.endswith(YAML_SUFFIXES):
        raise not_edited("GPU6108", path=file, why="it does not end in .yaml or .yml")
    if any(part.startswith(".") for part in below.split("/")):
        raise not_edited("GPU6108", path=file, why="files in hidden folders are not read")
    if not path.isprintable():
        raise not_edited("GPU6108", path=file, why="its name has invisible characters")
    return next((known for known in tree.files if posixpath.normpath(known) == path), posixpath.join(top, below))


def _content(tree: SourceTree, path: str) -> bytes | None:
    file = tree.files.get(path)
    if file is not None and file.fault is not None:
        raise not_edited("GPU6108", path=path, why=f"it is {file.fault.value}")
    return file.content if file is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to do with an edit.

    `branch` and `push` need a commit; `review` (a pull or merge request) needs a push. `text` None: the edit's title.
    """

    commit: bool = False
    push: bool = False
    review: bool = False
    branch: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done with an edit. `failed`: the fault that came after the file was written, if any."""

    made: Committed | None = None
    pushed_to: str = ""
    review: OpenRequest | None = None
    failed: WorldFault | None = None


def carry_out(edit: Edit, judged: Judgement, wish: Wish, checkout: Checkout) -> Done:
    """Write the edit, all files or none, and commit it if that is wished and the cluster compiles.

    Everything that can be known to forbid the commit is checked before a file is written. Raises NotEdited,
    SourceUnavailable.
    """
    before = {file.path: file.before for file in edit.files}
    draft = checkout.draft(before, wish.branch) if wish.commit else None
    place = draft.review_place() if draft is not None and wish.review else None
    with checkout.forge(place) if place is not None else nullcontext() as forge:
        _write(edit, checkout)
        if draft is None:
            return Done()
        return _commit(edit, judged, wish, draft, _Reviews(place, forge) if place and forge else None)


def _write(edit: Edit, checkout: Checkout) -> None:
    """Write all files. Where one can't be written, the files written before it are restored."""
    done: list[FileEdit] = []
    try:
        for file in edit.files:
            checkout.write(file.path, file.before, file.after)
            done.append(file)
    except NotEdited:
        for file in reversed(done):
            checkout.write(file.path, file.after, file.before)
        raise


@dataclass(frozen=True, slots=True)
class _Reviews:
    """Where the review is opened, and the code host that opens it."""

    place: ReviewPlace
    forge: Forge


def _commit(edit: Edit, judged: Judgement, wish: Wish, draft: Draft, reviews: _Reviews | None) -> Done:
    """Commit the written files, push, and open a review."""
    if not judged.is_valid:
        errors = sum(found.severity is Severity.ERROR for found in judged.diagnostics)
        words = "1 error" if errors == 1 else f"{errors} errors"
        return Done(failed=not_edited("GPU6118", path=edit.what, errors=words))
    made, pushed_to, text = None, "", wish.text or edit.title
    try:
        made = draft.commit({file.path: file.after for file in edit.files}, text)
        pushed_to = draft.push(made) if wish.push else ""
        if reviews is None:
            return Done(made=made, pushed_to=pushed_to)
        title, _, body = text.strip().partition("\n")
        wanted = ReviewRequest(source=made.branch, target=reviews.place.target, title=title, body=body.strip())
        return Done(made=made, pushed_to=pushed_to, review=reviews.forge.open_request(wanted))
    except WorldFault as fault:
        return Done(made=made, pushed_to=pushed_to, failed=fault)
