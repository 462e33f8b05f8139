"""Compile declarations for commands that need valid ones."""

from __future__ import annotations

from collections.abc import Sequence

import click

from gpuctl.cli.failures import EXIT_FAILED, exit_code_of
from gpuctl.cli.output import tally
from gpuctl.cli.terminal import say, show_diagnostics
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.declared import Declared


def compiled_folder(folder: str, *, exit_code: int = EXIT_FAILED) -> Declared:
    """The declarations of a folder; with mistakes, print diagnostics on standard error and exit with that code, or with
    the code for a bug of gpuctl if one of them is a bug.
    """
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415 - only now
    from gpuctl.compile import compile_tree  # noqa: PLC0415

    compiled = compile_tree(read_tree(folder))
    tell(compiled.diagnostics)
    if compiled.declared is None:
        say(f"{folder}: {tally(compiled.diagnostics)}", err=True)
        raise click.exceptions.Exit(exit_code_of(compiled.diagnostics, exit_code))
    return compiled.declared


def tell(diagnostics: Sequence[Diagnostic]) -> None:
    """Print diagnostics on standard error."""
    if diagnostics:
        show_diagnostics(diagnostics, err=True)
        say(err=True)
