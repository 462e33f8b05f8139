"""`validate`: reports every mistake of one or several clusters at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.validation import Validation, Verdicts, all_of_them, key_of, read, written
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.fingerprint import known_by
from gpuctl.diag.span import SourceSpan
from gpuctl.model.source import SourceTree

if TYPE_CHECKING:
    from gpuctl.compile import Compiled, Expanded


def validate(
    folders: Iterable[str],
    read_tree: Callable[[str], SourceTree],
    verdicts: Verdicts | None = None,
    most_jobs: int | None = None,
) -> Validation:
    """Read and compile each folder by itself. For a folder that can't be read, that is its only mistake.

    `verdicts`: results for trees that were compiled before. They save compilations, and change no result. `most_jobs`:
    how many jobs the reconciler of each folder has memory for; None: not known.
    """
    return all_of_them(_folder(folder, read_tree, verdicts, most_jobs) for folder in folders)


def validate_change(
    folders: Iterable[str],
    read_trees: Callable[[str], tuple[SourceTree | None, SourceTree]],
    verdicts: Verdicts | None = None,
    most_jobs: int | None = None,
) -> Validation:
    """Compile each folder that a change touches. Reported are mistakes in files that the change touches, and mistakes
    in any file that were not there before.

    `read_trees` gives a cluster before the change (None if it did not exist) and after it, with the same paths.
    `most_jobs` holds for both: a lack of memory before the change is no fault of the change.

    Cost: a compilation of each touched cluster that is not in `verdicts`, and a second one of the changed parts.
    """
    return all_of_them(_change(*read_trees(folder), verdicts, most_jobs) for folder in folders)


def expand(
    folders: Iterable[str], read_tree: Callable[[str], SourceTree], most_jobs: int | None = None
) -> tuple[Validation, Sequence[Expanded]]:
    """The result of `validate`, and the jobs of the folders without a mistake, with their defaults."""
    from gpuctl.compile import compile_tree, expanded, within  # noqa: PLC0415 - as below

    jobs: list[Expanded] = []

    def found(folder: str) -> Validation:
        try:
            compiled = compile_tree(within(read_tree(folder), most_jobs), most_jobs=most_jobs)
        except SourceUnavailable as fault:
            return _unreadable(folder, fault)
        if compiled.declared is not None:
            jobs.extend(expanded(job.declaration, job.filled) for job in compiled.jobs)
        return _validation(compiled)

    return all_of_them(map(found, folders)), jobs


def changed_files(before: SourceTree | None, now: SourceTree) -> frozenset[str]:
    """The files that were changed, added or removed."""
    old = {} if before is None else before.files
    differ = {path for path, file in now.files.items() if path not in old or not file.says_the_same(old[path])}
    return frozenset(differ | (old.keys() - now.files.keys()))


def _folder(
    folder: str, read_tree: Callable[[str], SourceTree], verdicts: Verdicts | None, most_jobs: int | None
) -> Validation:
    try:
        tree = read_tree(folder)
    except SourceUnavailable as fault:
        return _unreadable(folder, fault)

    def found() -> Validation:
        from gpuctl.compile import compile_tree, within  # noqa: PLC0415 - slow, and not needed for what is known

        return _validation(compile_tree(within(tree, most_jobs), most_jobs=most_jobs))

    return _known(verdicts, (tree,), most_jobs, found)


def _unreadable(folder: str, fault: SourceUnavailable) -> Validation:
    place, fix = SourceSpan(file=folder), CODES[fault.code].fix
    return Validation(diagnostics=(Diagnostic(code=fault.code, message=str(fault), span=place, help=fix),))


def _validation(compiled: Compiled) -> Validation:
    jobs = 0 if compiled.declared is None else len(compiled.declared.jobs)
    return Validation(diagnostics=compiled.diagnostics, jobs=jobs)


def _change(before: SourceTree | None, now: SourceTree, verdicts: Verdicts | None, most_jobs: int | None) -> Validation:
    changed = changed_files(before, now)
    if not changed:
        return Validation(unchanged=1)

    def found() -> Validation:
        from gpuctl.app.revisions import as_seen  # noqa: PLC0415 - as above
        from gpuctl.compile import CompileCache, compile_tree, within  # noqa: PLC0415

        cache, base, kept = CompileCache(), None, within(now, most_jobs)
        if before is not None:  # unchanged files are read once: they get the file objects of now
            old = within(before, most_jobs)
            base = compile_tree(replace(old, files=as_seen(old.files, kept.files)), cache, most_jobs=most_jobs)
        after = compile_tree(kept, cache, base, most_jobs)
        made = tuple(_made(() if base is None else base.diagnostics, after.diagnostics, changed))
        jobs = 0 if after.declared is None else len(after.declared.jobs)
        return Validation(diagnostics=made, jobs=jobs, known=len(after.diagnostics) - len(made))

    return _known(verdicts, (before, now), most_jobs, found)


def _known(
    verdicts: Verdicts | None,
    trees: tuple[SourceTree | None, ...],
    most_jobs: int | None,
    found: Callable[[], Validation],
) -> Validation:
    """The stored result for trees with the same bytes and the same memory limit; else a new result, which is stored."""
    if verdicts is None:
        return found()
    key = key_of(*trees, most_jobs=most_jobs)
    body = verdicts.get(key)
    known = None if body is None else read(body)
    if known is None:
        known = found()
        verdicts.put(key, written(known))
    return known


def _made(before: Iterable[Diagnostic], after: Iterable[Diagnostic], changed: frozenset[str]) -> Iterator[Diagnostic]:
    """The diagnostics to report for a change. Of equal mistakes in equal lines, as many as before are known.

    A warning that becomes an error (the change makes a policy stricter) counts as new.
    """
    were = Counter((known_by(diagnostic), diagnostic.severity) for diagnostic in before)
    for diagnostic in after:
        key = known_by(diagnostic), diagnostic.severity
        were[key] -= 1
        if were[key] < 0 or diagnostic.span.file in changed:
            yield diagnostic
