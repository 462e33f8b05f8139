"""`gpuctl import`: declarations of what another system's cluster holds."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.declarations import tell
from gpuctl.cli.editing import working_tree
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.files import named_file
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import message

if TYPE_CHECKING:
    from gpuctl.app.importing import Imported
    from gpuctl.scaffold.foreign import Found, Item, Place


@click.group(
    "import",
    cls=ExampleGroup,
    examples=("gpuctl import runai projects.json workloads.json", "gpuctl import kubectl cluster.json --dry-run"),
    failed=EXIT_FAILED,
)
def import_() -> None:
    """Declare the projects and jobs of a running cluster."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.argument("files", metavar="FILE...", nargs=-1, required=True)
    @click.option("--path", metavar="DIR", help="The cluster's folder. Default: the one in clusters/ that is meant.")
    @click.option("--dry-run", is_flag=True, help="Print the files; write nothing.")
    @functools.wraps(function)
    def with_files(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return with_files


@command("runai", examples=("gpuctl import runai projects.json workloads.json --path clusters/prod",))
@_options
def runai(files: tuple[str, ...], path: str | None, *, dry_run: bool) -> None:
    """Declare Run:ai's departments, projects and workloads.

    Each FILE is the JSON of `kubectl get projects.run.ai,departments.run.ai -o json`, of `kubectl get
    trainingworkloads,interactiveworkloads -A -o json`, or of Run:ai's API (/api/v1/org-unit/projects). All is declared
    in new files, the jobs suspended, for they run where they were found. What no field says is a comment in its file,
    and is listed.

    Exit code: 0 done, 1 failed.
    """
    from gpuctl.scaffold.foreign import of_runai  # noqa: PLC0415 - only now

    _import(files, path, of_runai, dry_run=dry_run)


@command("kubectl", examples=("gpuctl import kubectl cluster.json --path clusters/prod --dry-run",))
@_options
def kubectl(files: tuple[str, ...], path: str | None, *, dry_run: bool) -> None:
    """Declare namespaces as projects, and their jobs.

    A namespace is a project if it has a GPU quota or a job.

    FILE is what `kubectl get namespaces,resourcequotas,jobs,deployments -A -o json` printed. All is declared in new
    files, the jobs suspended, for they run where they were found. What no field says is a comment in its file, and is
    listed.

    Exit code: 0 done, 1 failed.
    """
    from gpuctl.scaffold.foreign import of_kubectl  # noqa: PLC0415 - only now

    _import(files, path, of_kubectl, dry_run=dry_run)


def _import(files: tuple[str, ...], path: str | None, read: Callable[[Any, Place], Found], *, dry_run: bool) -> None:
    from gpuctl.app.editing_ports import NotEdited  # noqa: PLC0415 - only now

    try:
        _declare(files, path, read, dry_run=dry_run)
    except NotEdited as fault:
        raise Failure(fault.code, str(fault), hint=CODES[fault.code].fix, exit_code=EXIT_FAILED) from fault


def _declare(files: tuple[str, ...], path: str | None, read: Callable[[Any, Place], Found], *, dry_run: bool) -> None:
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app import importing  # noqa: PLC0415

    working = working_tree(path)
    read_files = [_Read(file) for file in files]
    items = [item for each in read_files for item in each.items]
    found = importing.imported(working, read(items, importing.place_in(working)))
    if found.errors:
        tell(found.errors)
        text = message("GPU6141", {"errors": counted(len(found.errors), "error")})
        raise Failure("GPU6141", text, hint=CODES["GPU6141"].fix, exit_code=EXIT_FAILED)
    folder = working.tree.cluster_dir
    if dry_run:
        _show(found)
    elif found.files:
        importing.write(found, folder, wiring.new_files(folder))
        say(f"Declared in {folder}: {_counts(found)}")
        for name in found.files:
            say(f"  {name}")
    _report(found, read_files)
    if dry_run:
        say("Nothing is written: --dry-run", err=True)
    elif not found.files:
        say(f"Nothing new to declare in {folder}", err=True)
    else:
        say(f"next: gpuctl plan {quote(folder)} --base HEAD")


class _Read:
    """A file that was read: its objects, and their places in it."""

    def __init__(self, file: str) -> None:
        from gpuctl.scaffold.foreign import MOST_BYTES, Places, items  # noqa: PLC0415 - only now

        content = named_file(file, MOST_BYTES)
        try:
            self.items: list[Item] = items(content)
        except ValueError as error:
            text = message("GPU6140", {"path": file, "why": str(error)})
            raise Failure("GPU6140", text, hint=CODES["GPU6140"].fix, exit_code=EXIT_FAILED) from error
        self._paths = {id(item.data): item.path for item in self.items}
        self._places = Places(file, content)

    def place(self, origin: object, told: str) -> str | None:
        """The place of a report about an object, if the object is in this file."""
        path = self._paths.get(id(origin))
        return None if path is None else self._places.of(path, told)


def _counts(found: Imported) -> str:
    kinds = Counter(thing.target.kind for thing in found.things.values())
    return ", ".join(counted(count, kind.lower()) for kind, count in kinds.items())


def _show(found: Imported) -> None:
    from gpuctl.views.file_diff import file_diff  # noqa: PLC0415 - only now

    for path, content in found.files.items():
        for line in file_diff(path, None, content):
            say(*line)


def _report(found: Imported, read: Sequence[_Read]) -> None:
    """Print the parts of things that are not declared, each with its place; and the things that are not declared."""
    for thing in found.things.values():
        for each in thing.unsaid:
            places = (file.place(thing.origin, each) for file in read)
            place = next((found for found in places if found is not None), None)
            say(
                f"{place}: not said: {thing.target}: {each}" if place else f"not said: {thing.target}: {each}", err=True
            )
    for left in found.left:
        say(f"not declared: {left.what}: {left.why}", err=True)


import_.add_command(runai)
import_.add_command(kubectl)
