"""`gpuctl delete`, `suspend` and `resume`: edits of jobs' declarations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.command import command
from gpuctl.cli.declared_names import job_names, project_option
from gpuctl.cli.defaults import HOW, default_project, job_named
from gpuctl.cli.editing import How, carry_out, edit_options, working_tree
from gpuctl.cli.failures import Failure
from gpuctl.cli.instead import without_kind

if TYPE_CHECKING:
    from gpuctl.app.editing import WorkingTree
    from gpuctl.edit import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The jobs that a command is for: named ones, or all of a project."""

    jobs: tuple[str, ...]
    project: str | None
    every: bool

    def found(self, how: How) -> tuple[WorkingTree, list[Target]]:
        """The declarations, and the chosen jobs among them."""
        from gpuctl.edit import Target  # noqa: PLC0415 - only now

        if bool(self.jobs) is self.every:
            text = "jobs are named, and --all too" if self.jobs else "no job is named"
            raise Failure("GPU9002", text, hint="name jobs, or all of a project: -p PROJECT --all")
        if kind := without_kind((click.get_current_context().info_name or "", *self.jobs)) if self.jobs[1:] else "":
            raise Failure("GPU9002", f"{self.jobs[0]} is a kind, not a job", hint=kind)
        if not self.every:
            targets = list(dict.fromkeys(job_named(job, self.project) for job in self.jobs))
            return working_tree(how.path, targets[0]), targets
        project = self.project or default_project()
        if project is None:
            raise Failure("GPU9002", "the project of --all is not named", hint=HOW)
        working = working_tree(how.path, Target(kind="Project", name=project))
        found = [job for job, _ in working.documents("Job") if job.project == project]
        if not found:
            raise Failure("GPU9002", f"project {project} declares no job", hint="gpuctl project list")
        return working, found


def _job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.argument("jobs", metavar="JOB...", nargs=-1, shell_complete=job_names)
    @project_option(help="The jobs' project. Default: that of `gpuctl config project`.")
    @click.option("--all", "every", is_flag=True, help="All jobs that the project declares.")
    @edit_options
    @functools.wraps(function)
    def with_jobs(*args: Any, jobs: tuple[str, ...], project: str | None, every: bool, **options: Any) -> Any:
        return function(*args, which=Which(jobs=jobs, project=project, every=every), **options)

    return with_jobs


@command("delete", examples=("gpuctl delete a-1-g -p team-a", "gpuctl delete -p team-a --all --branch less --push"))
@_job_options
def delete(which: Which, how: How) -> None:
    """Remove jobs' declarations from their files.

    The rest of a file stays as it is, byte for byte; a file that declares nothing else is deleted. The jobs are stopped
    once the commit is merged. JOB is a name or PROJECT/NAME.
    """
    from gpuctl.app import editing  # noqa: PLC0415 - only now

    working, jobs = which.found(how)
    carry_out(working, lambda: editing.delete(working, jobs), how)


@command("suspend", examples=("gpuctl suspend a-1-g a-2-gg -p team-a --push", "gpuctl suspend team-a/a-1-g --dry-run"))
@_job_options
def suspend(which: Which, how: How) -> None:
    """Suspend jobs: set `suspend: true` in their declarations.

    Their pods are stopped once the commit is merged, and they give their GPUs back. JOB is a name or PROJECT/NAME.
    """
    _suspend(which, how, suspended=True)


@command("resume", examples=("gpuctl resume a-1-g -p team-a --push", "gpuctl resume -p team-a --all --dry-run"))
@_job_options
def resume(which: Which, how: How) -> None:
    """Resume jobs: take `suspend` out of their declarations.

    A line of it that has a comment says `suspend: false`. They queue again once the commit is merged. JOB is a
    name or PROJECT/NAME.
    """
    _suspend(which, how, suspended=False)


def _suspend(which: Which, how: How, *, suspended: bool) -> None:
    from gpuctl.app import editing  # noqa: PLC0415 - only now

    working, jobs = which.found(how)
    carry_out(working, lambda: editing.suspend(working, jobs, suspended=suspended), how)
