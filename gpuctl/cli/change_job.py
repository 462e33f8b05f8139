"""`gpuctl delete`, `suspend` and `resume`: edits of a job's declaration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from gpuctl.cli.command import command
from gpuctl.cli.defaults import job_named
from gpuctl.cli.editing import How, carry_out, edit_options, working_tree


def _job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.argument("job", metavar="JOB")
    @click.option("-p", "--project", help="The job's project. Default: that of `gpuctl config project`.")
    @edit_options
    @functools.wraps(function)
    def with_job(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return with_job


@command("delete", examples=("gpuctl delete a-1-g -p team-a", "gpuctl delete team-a/a-1-g --branch less --push"))
@_job_options
def delete(job: str, project: str | None, how: How) -> None:
    """Remove a job's declaration from its file.

    The rest of the file stays as it is, byte for byte; a file that declares nothing else is deleted. The job is stopped
    once the commit is merged. JOB is a name or PROJECT/NAME.
    """
    from gpuctl.app import editing  # noqa: PLC0415 - only now

    target = job_named(job, project)
    working = working_tree(how.path, target)
    carry_out(working, lambda: editing.delete(working, target), how)


@command("suspend", examples=("gpuctl suspend a-1-g -p team-a --push", "gpuctl suspend team-a/a-1-g --dry-run"))
@_job_options
def suspend(job: str, project: str | None, how: How) -> None:
    """Suspend a job: set `suspend: true` in its declaration.

    Its pods are stopped once the commit is merged, and it gives its GPUs back. JOB is a name or PROJECT/NAME.
    """
    _suspend(job, project, how, suspended=True)


@command("resume", examples=("gpuctl resume a-1-g -p team-a --push", "gpuctl resume team-a/a-1-g --dry-run"))
@_job_options
def resume(job: str, project: str | None, how: How) -> None:
    """Resume a suspended job: set `suspend: false` in its declaration.

    It queues again once the commit is merged. JOB is a name or PROJECT/NAME.
    """
    _suspend(job, project, how, suspended=False)


def _suspend(job: str, project: str | None, how: How, *, suspended: bool) -> None:
    from gpuctl.app import editing  # noqa: PLC0415 - only now

    target = job_named(job, project)
    working = working_tree(how.path, target)
    carry_out(working, lambda: editing.suspend(working, target, suspended=suspended), how)
