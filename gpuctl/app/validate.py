"""`validate`: reports every mistake of one or several clusters at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpuctl.app.ports import SourceUnavailable
from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, has_errors, sorted_diagnostics
from gpuctl.diag.fingerprint import known_by
from gpuctl.diag.span import SourceSpan
from gpuctl.model.source import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The diagnostics of all trees, each mistake once, and how many jobs the valid trees declare.

    `known`: mistakes that are not among the diagnostics because a change did not make them. `unchanged`: clusters that
    were not compiled because the change touches none of their files.
    """

    diagnostics: tuple[Diagnostic, ...]
    clusters: int
    jobs: int
    known: int = 0
    unchanged: int = 0

    @property
    def valid(self) -> bool:
        """Whether there is no error. Warnings are no errors."""
        return not has_errors(self.diagnostics)


def validate(folders: Iterable[str], read: Callable[[str], SourceTree]) -> Validation:
    """Read and compile each folder by itself. For a folder that can't be read, that is its only mistake."""
    compiled = [_compiled(folder, read) for folder in folders]
    return Validation(
        diagnostics=sorted_diagnostics(d for one in compiled for d in one.diagnostics),
        clusters=len(compiled),
        jobs=sum(len(one.declared.jobs) for one in compiled if one.declared is not None),
    )


def validate_change(folders: Iterable[str], read: Callable[[str], tuple[SourceTree | None, SourceTree]]) -> Validation:
    """Compile each folder that a change touches. What is told are mistakes in files that the change touches, and those
    that were not there before it, in whatever file.

    `read` gives a cluster before the change, None if it was not there, and after it, with the same paths.
    Cost: two compilations of each cluster that is touched.
    """
    told: list[Diagnostic] = []
    clusters = jobs = known = unchanged = 0
    for folder in folders:
        clusters += 1
        before, now = read(folder)
        changed = changed_files(before, now)
        if not changed:
            unchanged += 1
            continue
        base = None if before is None else compile_tree(before)
        after = compile_tree(now, before=base)
        made = list(_made(() if base is None else base.diagnostics, after.diagnostics, changed))
        told.extend(made)
        known += len(after.diagnostics) - len(made)
        jobs += 0 if after.declared is None else len(after.declared.jobs)
    return Validation(
        diagnostics=sorted_diagnostics(told), clusters=clusters, jobs=jobs, known=known, unchanged=unchanged
    )


def changed_files(before: SourceTree | None, now: SourceTree) -> frozenset[str]:
    """The files that are not as before: changed, new or gone."""
    old = {} if before is None else before.files
    differ = {path for path, file in now.files.items() if path not in old or not file.says_the_same(old[path])}
    return frozenset(differ | (old.keys() - now.files.keys()))


def _made(before: Iterable[Diagnostic], after: Iterable[Diagnostic], changed: frozenset[str]) -> Iterator[Diagnostic]:
    """What is told of a change. Of equal mistakes in equal lines, as many are known as there were."""
    were = Counter(known_by(diagnostic) for diagnostic in before)
    for diagnostic in after:
        key = known_by(diagnostic)
        were[key] -= 1
        if were[key] < 0 or diagnostic.span.file in changed:
            yield diagnostic


def _compiled(folder: str, read: Callable[[str], SourceTree]) -> Compiled:
    try:
        return compile_tree(read(folder))
    except SourceUnavailable as fault:
        place, fix = SourceSpan(file=folder), CODES[fault.code].fix
        found = Diagnostic(code=fault.code, message=str(fault), span=place, help=fix)
        return Compiled(declared=None, diagnostics=(found,))
