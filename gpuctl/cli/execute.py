"""`gpuctl exec`: a command in a job's container."""

from __future__ import annotations

from typing import Any

import click

from gpuctl.cli.clusters import Where, cluster_options, namespace_option
from gpuctl.cli.command import command
from gpuctl.cli.sessions import container_option, job_options, run_there


@command("exec", examples=("gpuctl exec a-1-g -p team-a -- nvidia-smi", "gpuctl exec team-a/a-1-g -it -- python3"))
@job_options
@container_option
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True)
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input to the command.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@namespace_option
@cluster_options
def exec_(job: str, project: str | None, worker: int, words: tuple[str, ...], where: Where, **options: Any) -> None:
    """Run a command in a running job's container.

    The exit code is the command's. JOB is a name or PROJECT/NAME.
    """
    from gpuctl.app.session_ports import CommandRequest  # noqa: PLC0415 - only now

    run_there(where, job, project, worker, CommandRequest(command=words, **options))
