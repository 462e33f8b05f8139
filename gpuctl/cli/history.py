"""`gpuctl history`: what held GPUs in the past, why, and by which commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.app.rights import RightMissing
from gpuctl.cli.amounts import DurationType
from gpuctl.cli.clusters import Where, cluster_options
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declared_names import job_names, project_option
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say, show
from gpuctl.views.rights import past_grant

if TYPE_CHECKING:
    from gpuctl.model.history import History, Subject

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command(
    "history",
    examples=(
        "gpuctl history team-a/a-1-g",
        "gpuctl history project team-a --since 7d",
        "gpuctl history cluster --since 30d -o csv",
        "gpuctl history cluster --file history.db",
    ),
)
@click.argument("words", metavar="PROJECT/JOB|project NAME|cluster", nargs=-1, required=True, shell_complete=job_names)
@project_option(metavar="PROJECT", help="The project of a job without one.")
@click.option("--since", type=DurationType(), default="24h", show_default=True, help="How far back.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--file", type=_FILE, help="The file of `gpuctl reconcile --history FILE`, instead of a cluster.")
@cluster_options
def history(  # noqa: PLR0913, PLR0917 - its options
    words: tuple[str, ...], project: str | None, since: int, output: str, file: Path | None, where: Where
) -> None:
    """Show what held GPUs, when, why, by which commit.

    Of a job: what happened to it. Of a project: each run of it that held GPUs, the jobs of a sweep together. Of the
    cluster: what each project used, was entitled to and waited for, on average. As csv, a line for each run, or for
    each project and minute or hour.

    The replica that leads is asked, by a port of its pod: this needs Role gpuctl-history in gpuctl-system, for it shows
    the jobs of all teams. Events and minutes are kept for 30 days, hours for two years, as long as the pod lives.
    The embedded cluster's file holds no past: --file reads what `gpuctl reconcile --embedded --history FILE` has kept.
    """
    from gpuctl.views.history import as_csv, event_table, holding_table, use_table  # noqa: PLC0415 - only now
    from gpuctl.views.history_form import document  # noqa: PLC0415

    subject = _subject(words, project)
    found = _found(subject, since, file, where)
    if output == "json":
        show(document(found).decode() + "\n")
    elif output == "csv":
        show(as_csv(found))
    elif subject.job is None and subject.project is None:
        show(use_table(found))
    else:
        show((holding_table if subject.job is None else event_table)(found))
    if not found.events and not found.periods:
        say("Nothing is known of that time.", err=True)
    if found.left_out:
        say(f"note: {counted(found.left_out, 'older event')} left out: ask for a shorter time", err=True)


def _subject(words: tuple[str, ...], project: str | None) -> Subject:
    from gpuctl.model.history import Subject  # noqa: PLC0415 - only now
    from gpuctl.model.ids import JobId, ProjectName  # noqa: PLC0415

    if words == ("cluster",) and project is None:
        return Subject()
    if len(words) == 2 and words[0] == "project":
        return Subject(project=ProjectName(words[1]))
    if len(words) == 1:
        try:
            return Subject(job=JobId.parse(f"{project}/{words[0]}" if project and "/" not in words[0] else words[0]))
        except ValueError:
            raise Failure(
                "GPU9003", f"which project is job {words[0]} of?", hint=f"gpuctl history PROJECT/{words[0]}"
            ) from None
    raise Failure("GPU9002", f"{' '.join(words)!r} is no history", hint="PROJECT/JOB, project NAME, or cluster")


def _found(subject: Subject, since: int, file: Path | None, where: Where) -> History:
    from gpuctl import wiring  # noqa: PLC0415 - only now

    now_ms = context_clock().now_ms() + 1
    since_ms = max(0, now_ms - since)
    if file is not None:
        return wiring.past_in_file(file, subject, since_ms, now_ms)
    if where.embedded is not None:
        raise Failure("GPU9002", "the past is not kept in the embedded cluster's file", hint="--file HISTORY")
    try:
        return wiring.past_in_cluster(where.kubeconfig, where.context, subject, since_ms, now_ms)
    except RightMissing as fault:
        raise Failure(fault.code, str(fault), hint=past_grant(fault.right)) from fault
