"""`gpuctl validate`: report every mistake in the declarations, at its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl import __version__
from gpuctl.adapters.collector import OBJECTS_OF_A_COMMAND, collect_seldom
from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure, exit_code_of
from gpuctl.cli.output import counted, tally
from gpuctl.cli.terminal import say, show, show_diagnostics
from gpuctl.diag import text
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.forms import github, gitlab, junit, sarif
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message

if TYPE_CHECKING:
    from gpuctl.adapters.clusterfolders import Found
    from gpuctl.app.validation import Validation
    from gpuctl.model.source import SourceTree

FORMS: dict[str, Callable[[Sequence[Diagnostic]], None]] = {
    "text": show_diagnostics,
    "json": lambda diagnostics: show(text.json_form(diagnostics)),
    "github": lambda diagnostics: show(github.workflow_commands(diagnostics)),
    "sarif": lambda diagnostics: show(sarif.sarif(diagnostics, __version__)),
    "junit": lambda diagnostics: show(junit.junit(diagnostics)),
    "gitlab": lambda diagnostics: show(gitlab.code_quality(diagnostics)),
}


@command(
    "validate",
    examples=(
        "gpuctl validate clusters/tr4858",
        "gpuctl validate --changed-since origin/main --head HEAD -o github",
        "gpuctl validate clusters/tr4858/projects/team-a/jobs/a-1-g.yaml",
        "gpuctl validate --expanded clusters/tr4858/projects/team-a",
        "gpuctl validate --changed-since origin/main --jobs 10000",
    ),
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(exists=True))
@click.option(
    "--changed-since",
    "revision",
    metavar="REV",
    help="Check the clusters that the change touches, and tell only mistakes that are new or in changed files.",
)
@click.option(
    "--head",
    metavar="REV",
    help="With --changed-since: check this revision, as the reconciler will read it, instead of the working tree.",
)
@click.option(
    "--no-cache",
    is_flag=True,
    envvar="GPUCTL_NO_CACHE",
    help="Compile also what was validated before. Or GPUCTL_NO_CACHE=1.",
)
@click.option(
    "--expanded",
    is_flag=True,
    help="Print the jobs with the defaults of their project and cluster, each with its file and line.",
)
@click.option(
    "--jobs",
    "most_jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Tell also what a reconciler of `install --jobs N` has no memory for. Default: any number is right.",
)
@click.option("-o", "--output", "--format", "form", type=click.Choice(list(FORMS)), default="text", show_default=True)
def validate(  # noqa: PLR0913 - an argument for each option
    paths: tuple[str, ...],
    revision: str | None,
    *,
    head: str | None,
    no_cache: bool,
    expanded: bool,
    most_jobs: int | None,
    form: str,
) -> None:
    """Check declarations, and report every mistake.

    PATH is the folder of a cluster, or a file or folder in one: its whole cluster is checked, since a mistake in one
    file can break another. Without PATH, every folder in clusters/ is checked.

    --changed-since compares the working tree with the commit where it left REV: what REV has gained meanwhile is no
    part of the change. Mistakes that were there before, in files that did not change, are counted and not told, and do
    not fail the check. Paths are told from the top of the repository. With --head REV the files of that commit are
    checked instead, as the reconciler will read them: a .gitattributes can have Git make other files of a commit, and
    the working tree can have a folder by a link or a submodule where the commit has none.

    --expanded prints the jobs declared in PATH as YAML, and what is wrong to standard error. A default has a comment
    with its file and line.

    --jobs N is for the check of a pull request: with the N that `gpuctl install` was given, 10000 without one, a
    project that the reconciler would hold back for want of memory is an error here too. It holds for each cluster by
    itself.

    What was found is kept for files, versions and paths that are the same to the byte, in the user's cache folder.

    Exit code: 0 valid, 1 invalid, 2 usage or internal error.
    """
    from gpuctl.adapters.clusterfolders import clusters_of  # noqa: PLC0415 - nothing else of the shell is needed

    if head is not None and revision is None:
        raise Failure("GPU9002", "--head goes with --changed-since")
    found = clusters_of(paths or cluster_folders())
    if expanded:
        if revision is not None or form != "text":
            raise Failure("GPU9002", "--expanded goes neither with --changed-since nor with -o")
        _expand(found, paths or found.folders, most_jobs)
        return
    change = None if revision is None else Change(since=revision, head=head)
    validation = _validation(found.folders, change, most_jobs, cached=not no_cache)
    strangers = tuple(_stranger(path) for path in found.strangers)
    validation = replace(validation, diagnostics=(*strangers, *validation.diagnostics))
    FORMS[form](validation.diagnostics)
    if form == "text":
        if validation.diagnostics:
            say()
        say(f"{_what(found.folders)}: {_verdict(validation)}")
    if not validation.valid:
        raise click.exceptions.Exit(exit_code_of(validation.diagnostics))


def _expand(found: Found, paths: Sequence[str], most_jobs: int | None) -> None:
    """Print jobs with their defaults; for a cluster with a mistake, none."""
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415
    from gpuctl.app.validate import expand  # noqa: PLC0415
    from gpuctl.views.expanded import expanded_text  # noqa: PLC0415

    validation, jobs = expand(found.folders, read_tree, most_jobs)
    strangers = tuple(map(_stranger, found.strangers))
    show_diagnostics((*strangers, *validation.diagnostics), err=True)
    wanted = [os.path.normpath(path) for path in paths]
    for job in jobs:
        if any(_is_in(os.path.normpath(job.at.file), path) for path in wanted):
            show(expanded_text(job))
    if strangers or not validation.valid:
        raise click.exceptions.Exit(exit_code_of(validation.diagnostics))


def _is_in(file: str, path: str) -> bool:
    return path in {".", file} or file.startswith(path + os.sep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change to check: what `head`, else the working tree, has changed since it left `since`."""

    since: str
    head: str | None


def _validation(folders: Sequence[str], change: Change | None, most_jobs: int | None, *, cached: bool) -> Validation:
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415
    from gpuctl.adapters.verdicts import verdict_folder  # noqa: PLC0415
    from gpuctl.app.validate import validate, validate_change  # noqa: PLC0415

    collect_seldom(OBJECTS_OF_A_COMMAND)
    verdicts = verdict_folder(os.environ) if cached else None
    if change is None:
        return validate(folders, read_tree, verdicts, most_jobs)
    from gpuctl.adapters.gitmerge import since  # noqa: PLC0415 - only this option needs Git

    def trees(folder: str) -> tuple[SourceTree | None, SourceTree]:
        return since(Path(folder), change.since, read_tree, change.head)

    return validate_change(folders, trees, verdicts, most_jobs)


def _stranger(path: str) -> Diagnostic:
    text, fix = message("GPU6301", {"path": path}), CODES["GPU6301"].fix
    return Diagnostic(code="GPU6301", message=text, span=SourceSpan(file=path), help=fix)


def _what(folders: Sequence[str]) -> str:
    return folders[0] if len(folders) == 1 else counted(len(folders), "cluster")


def _verdict(validation: Validation) -> str:
    said = f"valid, {counted(validation.jobs, 'job')}" if validation.valid else tally(validation.diagnostics)
    if validation.unchanged:
        said = f"{said}; not touched by the change: {counted(validation.unchanged, 'cluster')}"
    if validation.known:
        said = f"{said}; known before, in files that did not change: {validation.known}"
    return said


def cluster_folders() -> list[str]:
    """The folders in clusters/."""
    folders = sorted(str(path) for path in Path("clusters").glob("*") if path.is_dir())
    if not folders:
        raise Failure("GPU9002", "there is no folder in clusters/ here", hint="gpuctl validate CLUSTER_DIR")
    return folders
