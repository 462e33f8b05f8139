"""`gpuctl validate`: report every mistake in the declarations, at its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from gpuctl import __version__
from gpuctl.cli.command import command
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import counted, tally
from gpuctl.cli.terminal import say, show, show_diagnostics
from gpuctl.diag import text
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.forms import github, gitlab, junit, sarif

FORMS: dict[str, Callable[[Sequence[Diagnostic]], None]] = {
    "text": show_diagnostics,
    "json": lambda diagnostics: show(text.json_form(diagnostics)),
    "github": lambda diagnostics: show(github.workflow_commands(diagnostics)),
    "sarif": lambda diagnostics: show(sarif.sarif(diagnostics, __version__)),
    "junit": lambda diagnostics: show(junit.junit(diagnostics)),
    "gitlab": lambda diagnostics: show(gitlab.code_quality(diagnostics)),
}


@command("validate", examples=("gpuctl validate clusters/tr4858", "gpuctl validate --format github"))
@click.argument("dirs", metavar="[CLUSTER_DIR]...", nargs=-1, type=click.Path(exists=True, file_okay=False))
@click.option("-o", "--output", "--format", "form", type=click.Choice(list(FORMS)), default="text", show_default=True)
def validate(dirs: tuple[str, ...], form: str) -> None:
    """Check declarations, and report every mistake.

    Without CLUSTER_DIR, every folder in clusters/ is checked.
    Exit code: 0 valid, 1 invalid, 2 usage or internal error.
    """
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415 - nothing else of the shell is needed
    from gpuctl.app.validate import validate as check  # noqa: PLC0415

    folders = dirs or tuple(cluster_folders())
    found = check(folders, read_tree)
    FORMS[form](found.diagnostics)
    if form == "text":
        what = folders[0] if len(folders) == 1 else counted(len(folders), "cluster")
        verdict = f"valid, {counted(found.jobs, 'job')}" if found.valid else tally(found.diagnostics)
        if found.diagnostics:
            say()
        say(f"{what}: {verdict}")
    if not found.valid:
        raise click.exceptions.Exit(EXIT_FAILED)


def cluster_folders() -> list[str]:
    """The folders in clusters/."""
    folders = sorted(str(path) for path in Path("clusters").glob("*") if path.is_dir())
    if not folders:
        raise Failure("GPU9002", "there is no folder in clusters/ here", hint="gpuctl validate CLUSTER_DIR")
    return folders
