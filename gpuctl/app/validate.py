"""`validate`: reports every mistake of one or several clusters at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuctl.app.ports import SourceUnavailable
from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, has_errors, sorted_diagnostics
from gpuctl.diag.span import SourceSpan
from gpuctl.model.source import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The diagnostics of all trees, each mistake once, and how many jobs the valid trees declare."""

    diagnostics: tuple[Diagnostic, ...]
    clusters: int
    jobs: int

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


def _compiled(folder: str, read: Callable[[str], SourceTree]) -> Compiled:
    try:
        return compile_tree(read(folder))
    except SourceUnavailable as fault:
        place, fix = SourceSpan(file=folder), CODES[fault.code].fix
        found = Diagnostic(code=fault.code, message=str(fault), span=place, help=fix)
        return Compiled(declared=None, diagnostics=(found,))
