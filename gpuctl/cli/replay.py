"""`gpuctl replay`: a past cycle, decided again."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.app.rights import RightMissing
from gpuctl.cli.clusters import Where, cluster_options
from gpuctl.cli.command import command
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say
from gpuctl.views.rights import CONTROLLERS_OWN

_MOST_SHOWN = 20
_STDOUT = Path("-")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command(
    "replay",
    examples=(
        "gpuctl replay --at 2026-03-02T10:04:12Z --context prod --output report.gpuctl",
        "gpuctl replay --at 2026-03-02T10:04:12Z --history history.db",
        "gpuctl replay report.gpuctl --job team-a/train",
    ),
)
@click.argument("report", metavar="[REPORT]", type=_FILE, required=False)
@click.option("--at", metavar="TIME", help="The newest cycle up to then of which the inputs are kept.")
@click.option("--history", type=_FILE, help="The file of `gpuctl reconcile --history FILE`, instead of a cluster.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write the inputs there: a report. With - on standard output, and nothing is decided.",
)
@click.option("--job", metavar="PROJECT/JOB", help="Show what was decided of this job, and what is now.")
@cluster_options
def replay(  # noqa: PLR0913, PLR0917 - its options
    report: Path | None, at: str | None, history: Path | None, output: Path | None, job: str | None, where: Where
) -> None:
    """Decide a past cycle again, and compare.

    The controller keeps the inputs of cycles in which something happened, for two days: the declarations in force, the
    cluster's objects as far as it reads them, and the time. With --output they become one file, which has all that is
    needed to decide again, elsewhere and without the cluster. It has the whole text of the declarations, so look
    through it before you give it away: `zlib-flate -uncompress`, or Python's zlib, shows lines of JSON.

    Of a cluster, the replica that leads is asked, by a command in its pod: this needs to create pods/exec in
    gpuctl-system, which no role of gpuctl has, for the inputs have the environment variables of all jobs.

    Exit code: 0 the same decisions, 1 others, 2 error.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.replaying import decided_again  # noqa: PLC0415
    from gpuctl.k8s.timestamps import format_timestamp  # noqa: PLC0415

    content = _content(report, at, history, where)
    if output == _STDOUT:
        wiring.console().write(content)
        return
    inputs = wiring.inputs_of_report(content)
    if output is not None:
        try:
            wiring.write_report(output, content)
        except OSError as error:
            raise Failure("GPU9004", f"{output} can't be written: {error.strerror}") from error
    found = decided_again(inputs)
    changed = [line for line in (set(inputs.decided) ^ set(found)) if job is None or line.startswith(f'["{job}",')]
    then = set(inputs.decided)
    say(f"The cycle of {format_timestamp(inputs.at_ms)}, by gpuctl {inputs.version}: {counted(len(found), 'decision')}")
    for line in inputs.decided if job is not None else ():
        if line.startswith(f'["{job}",'):
            say(f"  {line}")
    if not changed:
        say("Decided again, all are the same.")
        return
    for line in sorted(changed)[:_MOST_SHOWN]:
        say(f"{'- then' if line in then else '+ now '} {line}")
    raise click.exceptions.Exit(EXIT_FAILED)


def _content(report: Path | None, at: str | None, history: Path | None, where: Where) -> bytes:
    """The chosen report: a file, or one of a time, from a history file or from the leader."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.k8s.timestamps import parse_timestamp  # noqa: PLC0415

    if report is not None:
        if at is not None or history is not None:
            raise Failure("GPU9002", "REPORT is one cycle: --at and --history are for another", hint="leave them out")
        return wiring.report_in(report)
    if at is None:
        raise Failure("GPU9002", "which cycle?", hint="name a report, or --at TIME")
    try:
        at_ms = parse_timestamp(at)
    except ValueError as error:
        raise Failure("GPU9002", f"--at: {error}", hint="--at 2026-03-02T10:04:12Z") from error
    if history is not None:
        return wiring.report_at(history, at_ms)
    if where.embedded is not None:
        raise Failure("GPU9002", "the past is not kept in the embedded cluster's file", hint="--history HISTORY")
    try:
        return wiring.report_in_cluster(where.kubeconfig, where.context, at_ms)
    except RightMissing as fault:
        raise Failure(fault.code, str(fault), hint=CONTROLLERS_OWN) from fault
