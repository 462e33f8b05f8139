"""`gpuctl reconcile`: the controller. Follows a branch and makes a cluster as it says, until told to stop."""

from __future__ import annotations

import sys
from typing import Any

import click

from gpuctl.cli.amounts import DurationType
from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure

IN_MEMORY = ":memory:"
LEAST_INTERVAL_MS = 1000


@command(
    "reconcile",
    examples=(
        "gpuctl reconcile --repo https://git.example.com/gpus.git --path clusters/tr4858 --embedded cluster.db",
        "gpuctl reconcile --repo . --path clusters/tr4858 --embedded --once",
    ),
)
@click.option("--repo", metavar="URL", required=True, help="A Git repository: a folder, or a file, https or ssh URL.")
@click.option("--path", metavar="DIR", required=True, help="The cluster's folder in the repository.")
@click.option("--branch", help="The branch to follow. Default: the one the repository has checked out.")
@click.option("--once", is_flag=True, help="Fetch and reconcile once; exit 1 if an error stands then.")
@click.option("--interval", type=DurationType(), default="30s", show_default=True, help="How often Git is asked.")
@click.option(
    "--embedded",
    metavar="[FILE]",
    is_flag=False,
    flag_value=IN_MEMORY,
    help="Reconcile the embedded cluster, kept in FILE; in memory without FILE.",
)
@click.option("--workdir", metavar="DIR", type=click.Path(file_okay=False), help="Keeps the clone. Default: the cache.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def reconcile(embedded: str | None, interval: int, log_format: str, **options: Any) -> None:
    """Follow a branch and make a cluster like it.

    It runs until SIGTERM or SIGINT. A bad commit stops only the projects it breaks: they stay at their last good
    commit. One line is logged for each
    thing that happens, on standard error.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    if embedded is None:
        raise Failure("GPU9002", "name the cluster: --embedded [FILE]", hint="gpuctl reconcile --help")
    if interval < LEAST_INTERVAL_MS:
        raise Failure("GPU9002", "--interval is at least 1s", hint="gpuctl reconcile --help")
    code = wiring.reconcile(
        wiring.Follow(
            url=options["repo"],
            path=options["path"],
            branch=options["branch"],
            workdir=options["workdir"],
            once=options["once"],
            interval_ms=interval,
        ),
        embedded=None if embedded == IN_MEMORY else embedded,
        log_format=log_format,
        write=_write,
    )
    raise click.exceptions.Exit(code)


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
