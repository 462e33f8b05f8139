"""Validate: every mistake of one or several clusters at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuctl.compile import compile_tree
from gpuctl.diag.diagnostic import Diagnostic, has_errors, sorted_diagnostics
from gpuctl.model.source import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What is wrong with the trees, each mistake once; how many jobs the valid ones declare."""

    diagnostics: tuple[Diagnostic, ...]
    clusters: int
    jobs: int

    @property
    def valid(self) -> bool:
        """True when there is no error; warnings are none."""
        return not has_errors(self.diagnostics)


def validate(trees: Iterable[SourceTree]) -> Validation:
    """Compile each tree on its own."""
    compiled = [compile_tree(tree) for tree in trees]
    return Validation(
        diagnostics=sorted_diagnostics(d for one in compiled for d in one.diagnostics),
        clusters=len(compiled),
        jobs=sum(len(one.declared.jobs) for one in compiled if one.declared is not None),
    )
