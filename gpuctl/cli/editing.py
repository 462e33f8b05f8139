"""Shared by the commands that edit declarations: their options, the cluster that is meant, and what is told."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure, world_failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import message, one_of

if TYPE_CHECKING:
    from gpuctl.app.editing import Done, Edit, Judgement, Wish, WorkingTree
    from gpuctl.app.ports import WorldFault
    from gpuctl.edit import Target

_SHOWN_REVISION = 10
_SEVERAL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The options of every edit. `path`: the cluster's folder."""

    path: str | None
    wish: Wish
    dry_run: bool


def edit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an edit; the command gets them as one argument `how`."""

    @click.option("--path", metavar="DIR", help="The cluster's folder. Default: the one in clusters/ that is meant.")
    @click.option("--dry-run", is_flag=True, help="Print the difference; write nothing.")
    @click.option("--commit", is_flag=True, help="Commit the edited files, and nothing else.")
    @click.option("-m", "--message", metavar="TEXT", help="The commit's message. Default: what was done.")
    @click.option("--branch", metavar="NAME", help="Commit on a new branch, and switch to it.")
    @click.option("--push", is_flag=True, help="Commit, and push the branch.")
    @click.option("--pull-request", is_flag=True, help="Commit, push, and open a pull or merge request.")
    @functools.wraps(function)
    def with_edit(  # noqa: PLR0913 - an argument for each option
        *args: Any,
        path: str | None,
        message: str | None,
        branch: str | None,
        dry_run: bool,
        commit: bool,
        push: bool,
        pull_request: bool,
        **options: Any,
    ) -> Any:
        from gpuctl.app.editing import Wish  # noqa: PLC0415 - only now

        push = push or pull_request
        commit = commit or push or branch is not None
        if message is not None and not commit:
            raise Failure("GPU9002", "-m is the message of a commit", hint="add --commit, or leave out -m")
        wish = Wish(commit=commit, push=push, review=pull_request, branch=branch, text=message)
        return function(*args, how=How(path=path, wish=wish, dry_run=dry_run), **options)

    return with_edit


def working_tree(path: str | None, meant: Target | None = None) -> WorkingTree:
    """The declarations of the cluster that is meant: the named one, that of the current folder, the only one in
    clusters/, or the only one there that declares the job's project."""
    from gpuctl.adapters.files import read_tree, top_of  # noqa: PLC0415 - only now
    from gpuctl.app.editing import WorkingTree  # noqa: PLC0415
    from gpuctl.edit import Target  # noqa: PLC0415

    if path is not None:
        if not Path(path).is_dir():
            raise _not_known(f"{path} is no folder")
        return WorkingTree(read_tree(path))
    here = Path.cwd()
    clusters = top_of(here) / "clusters"
    folders = sorted(each for each in clusters.glob("*") if each.is_dir() and not each.name.startswith("."))
    within = [each for each in folders if here.is_relative_to(each)]
    if not folders:
        raise _not_known(f"there is no folder in {os.path.relpath(clusters)}")
    trees = [WorkingTree(read_tree(os.path.relpath(each))) for each in within or folders]
    if len(trees) > 1 and meant is None:
        raise _not_known(f"it could be {one_of(tree.tree.cluster_dir for tree in trees)}")
    if len(trees) > 1 and meant is not None:
        project = Target(kind="Project", name=meant.project or meant.name)
        told = [tree for tree in trees if tree.has(meant)] or [tree for tree in trees if tree.has(project)]
        if len(told) != 1:
            names = one_of(each.tree.cluster_dir for each in told or trees)
            raise _not_known(f"{meant} could be of {names}" if told else f"none of {names} declares {project}")
        trees = told
    return trees[0]


def _not_known(why: str) -> Failure:
    return Failure("GPU6107", message("GPU6107", {"why": why}), hint="name its folder: --path clusters/NAME")


def carry_out(working: WorkingTree, make: Callable[[], Edit], how: How) -> None:
    """Make the edit, and print its result and the next step."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app import editing  # noqa: PLC0415
    from gpuctl.edit import Refused  # noqa: PLC0415

    try:
        edit = make()
    except Refused as refused:
        tell([refused.diagnostic])
        raise click.exceptions.Exit(EXIT_FAILED) from refused
    if edit.is_nothing:
        say(f"{edit.what}: nothing to do, it is so already")
        return
    judged = working.judge(edit)
    if judged.added:
        tell(judged.added)
        params = {"what": edit.what, "errors": counted(len(judged.added), "error")}
        raise Failure("GPU6117", message("GPU6117", params), hint=CODES["GPU6117"].fix, exit_code=EXIT_FAILED)
    if how.dry_run:
        _show(edit)
        tell(judged.diagnostics)
        _tell_guards(judged)
        say("Nothing is written: --dry-run", err=True)
        return
    done = editing.carry_out(edit, judged, how.wish, wiring.checkout(working.tree.cluster_dir))
    tell(judged.diagnostics)
    _report(edit, done)
    _tell_guards(judged)
    if done.failed is not None:
        raise _failed(done.failed)
    _say_next(working, judged, done)


def _tell_guards(judged: Judgement) -> None:
    """Print what guards would refuse of an edit that stops several jobs, on the declared nodes."""
    if judged.stopped < _SEVERAL or judged.after is None:
        return
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.effects import on_inventory  # noqa: PLC0415

    for refused in on_inventory(judged.before, judged.after, wiring.blueprint).refusals.new:
        say(f"a guard will hold this: {refused.code}: {refused.message}", err=True)
        for line in filter(None, refused.help.splitlines()):
            say(f"  {line}", err=True)


def _failed(fault: WorldFault) -> Failure:
    failure = world_failure(fault)
    failure.exit_code = EXIT_FAILED  # type: ignore[misc] # click reads it off the instance
    return failure


def _show(edit: Edit) -> None:
    from gpuctl.views.file_diff import file_diff  # noqa: PLC0415 - only now

    for file in edit.files:
        for line in file_diff(file.path, file.before, file.after):
            say(*line)


def _report(edit: Edit, done: Done) -> None:
    became = [
        f"{file.path} {'removed' if file.after is None else 'created' if file.before is None else 'written'}"
        for file in edit.files
    ]
    say(f"{edit.title} ({became[0]})" if len(became) == 1 else edit.title)
    for line in became if len(became) > 1 else ():
        say(f"  {line}")
    if done.made is not None:
        say(f"Committed {done.made.revision[:_SHOWN_REVISION]} on {done.made.branch}")
    if done.pushed_to:
        say(f"Pushed to {done.pushed_to}")
    if done.review is not None:
        say(f"{'Opened' if done.review.is_new else 'Open already:'} {done.review.url}")


def _say_next(working: WorkingTree, judged: Judgement, done: Done) -> None:
    """Print the command that shows what the edit does to jobs."""
    folder = quote(working.tree.cluster_dir)  # others may have named it, and the branch
    if not judged.is_valid:
        say(f"next: correct the errors; gpuctl validate {folder}")
        return
    made = done.made
    base, head = "HEAD", ""
    if made is not None:
        is_new = made.previous not in {"", made.branch}
        base, head = quote(made.previous) if is_new else f"{quote(made.branch)}~1", f" --head {quote(made.branch)}"
    say(f"next: gpuctl plan {folder} --base {base}{head}")
