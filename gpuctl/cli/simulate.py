"""`gpuctl simulate`: scenario files in virtual time, and whether what they expect came true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from gpuctl.app.narrative import news
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import counted, print_json
from gpuctl.cli.terminal import paint
from gpuctl.diag.wording import duration
from gpuctl.model.units import format_gpus
from gpuctl.simulate.report import Checkpoint, SimulationReport, Transition, document
from gpuctl.views.story import sentences
from gpuctl.views.tables import table

COLUMNS = ("AT", "AFTER", "GPUs", "FREE", "QUEUED", "WHAT HAPPENED")
SHOWN_SENTENCES = 4


@command(
    "simulate",
    examples=(
        "gpuctl simulate tests/scenarios/tr4858/whole-story.yaml",
        "gpuctl simulate tests/scenarios/*/*.yaml -o json",
    ),
)
@click.argument(
    "scenarios", metavar="SCENARIO...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False)
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def simulate(scenarios: tuple[str, ...], output: str) -> None:
    """Run scenario files through the ordinary reconciler in virtual time.

    With -o json one report is one document; of several files, a list. Exit code: 0 all as expected, 1 an expectation
    failed or a file is wrong, 2 wrong use or internal error.
    """
    reports, all_right = [], True
    for path in scenarios:
        report = _simulated(path)
        all_right = all_right and report is not None and report.ok
        if report is None:
            continue
        reports.append(report)
        if output == "table":
            _print(report)
    if output == "json":
        documents = [document(report) for report in reports]
        print_json(documents[0] if len(scenarios) == 1 and documents else documents)
    if not all_right:
        raise click.exceptions.Exit(EXIT_FAILED)


def _simulated(path: str) -> SimulationReport | None:
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.simulation import simulate_file  # noqa: PLC0415

    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise Failure("GPU3904", f"{path} can't be read: {error.strerror}") from error
    simulated = simulate_file(path, content, wiring.scenario_reader(file), wiring.sandbox)
    tell(simulated.diagnostics)
    return simulated.report


def _print(report: SimulationReport) -> None:
    """A line a checkpoint with what led to it, then what was expected and is not so."""
    click.echo(f"{paint(report.name, 'strong')}  {' '.join(report.why.split())}".rstrip())
    rows, since = [], 0
    for checkpoint in report.checkpoints:
        led_here = [t for t in report.transitions[since:] if t.at_ms <= checkpoint.at_ms]
        since += len(led_here)
        rows.append(_row(checkpoint, led_here))
    click.echo(table(COLUMNS, rows), nl=False)
    for outcome in report.failed:
        click.echo(f"{paint('FAILED', 'bad')} at {outcome.at}: {outcome.path}: want {outcome.want}, got {outcome.got}")
    if not report.stable:
        click.echo(f"{paint('FAILED', 'bad')} the cluster did not come to rest")
    met = len(report.outcomes) - len(report.failed)
    verdict = paint("ok", "good") if report.ok else paint("failed", "bad")
    click.echo(f"{verdict}  {met} of {counted(len(report.outcomes), 'expectation')} met, {report.cycles} cycles\n")


def _row(checkpoint: Checkpoint, led_here: Sequence[Transition]) -> tuple[str, ...]:
    held = " ".join(
        f"{row.name} {format_gpus(row.allocated_milli)}/{format_gpus(row.quota_milli)}" for row in checkpoint.projects
    )
    queued = " ".join(name for row in checkpoint.projects for name in row.pending)
    said = sentences(news(led_here, checkpoint))
    more = f"; and {len(said) - SHOWN_SENTENCES} more" if len(said) > SHOWN_SENTENCES else ""
    what = "; ".join(said[:SHOWN_SENTENCES]) + more
    free = format_gpus(checkpoint.free_milli)
    return (duration(checkpoint.at_ms), checkpoint.label, held, free, queued or "-", what or "-")
