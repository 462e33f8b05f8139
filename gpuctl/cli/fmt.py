"""`gpuctl fmt`: the stable form of declarations."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say
from gpuctl.diag.wording import message

_FOLDERS = ("clusters", "policies")


@command("fmt", examples=("gpuctl fmt", "gpuctl fmt clusters/tr4858 policies", "gpuctl fmt --check"))
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(exists=True))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is not formatted.")
@click.option("--dry-run", is_flag=True, help="Print the differences; write nothing.")
def fmt(paths: tuple[str, ...], *, check: bool, dry_run: bool) -> None:
    """Format declarations: YAML files, or all in a folder.

    Two spaces a level, keys in the order of the schema, quotes only where they are needed; comments stay with the field
    below or beside them. What is declared stays the same. Without PATH: clusters/ and policies/.

    Exit code: 0 done, 1 a file can't be formatted or with --check is not, 2 usage or internal error.
    """
    from gpuctl.adapters.files import read_files, replace_file, top_of  # noqa: PLC0415 - only now
    from gpuctl.edit import Refused, format_file  # noqa: PLC0415
    from gpuctl.model.source import SourceFault  # noqa: PLC0415

    names = paths or tuple(name for name in _FOLDERS if Path(name).is_dir())
    if not names:
        raise Failure("GPU9002", "there is no folder clusters/ here", hint="gpuctl fmt PATH")
    refused, changed, seen = [], 0, 0
    for path, file in read_files(names):
        if file.fault is SourceFault.MISNAMED:
            continue  # `gpuctl validate` reports it
        seen += 1
        if file.fault is not None:
            raise Failure("GPU6121", message("GPU6121", {"path": path, "why": f"it is {file.fault.value}"}))
        try:
            made = format_file(path, file.content)
        except Refused as error:
            refused.append(error.diagnostic)
            continue
        if made == file.content:
            continue
        changed += 1
        if dry_run:
            _show(path, file.content, made)
        elif check:
            say(message("GPU6120", {"path": path}))
        else:
            replace_file(Path(path), top_of(Path(path).parent), file.content, made)
            say(f"formatted {path}")
    tell(refused)
    verb = "would be" if check or dry_run else "were" if changed != 1 else "was"
    say(f"{counted(changed, 'file')} of {seen} {verb} formatted", err=True)
    if refused or (check and changed):
        raise click.exceptions.Exit(EXIT_FAILED)


def _show(path: str, before: bytes, after: bytes) -> None:
    from gpuctl.views.file_diff import file_diff  # noqa: PLC0415 - only now

    for line in file_diff(path, before, after):
        say(*line)
