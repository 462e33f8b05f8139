"""`gpuctl simulate`: scenario files in virtual time, and whether what they expect came true."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import click

from gpuctl.app.narrative import moment, news
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import counted, print_json
from gpuctl.cli.storyboard import LINE_WIDTH, Storyboard
from gpuctl.cli.terminal import paint
from gpuctl.diag.wording import duration
from gpuctl.simulate.report import SimulationReport, document

TEXT_WIDTH = 32


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
    """Run scenario files in virtual time.

    They go through the ordinary compiler and reconciler, against the embedded cluster. With -o json the report of one
    file is one document, those of several are a list.

    Exit code: 0 all as expected, 1 an expectation failed or a file is wrong, 2 wrong use or internal error.
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
    board = Storyboard(TEXT_WIDTH, most_sentences=4)
    board.open(report.name)
    if report.why:
        click.echo(fill(" ".join(report.why.split()), LINE_WIDTH))
    since = 0
    for index, checkpoint in enumerate(report.checkpoints):
        led_here = [t for t in report.transitions[since:] if t.at_ms <= checkpoint.at_ms]
        since += len(led_here)
        repeated = index and not led_here and checkpoint.at_ms == report.checkpoints[index - 1].at_ms
        if not repeated:
            time = duration(checkpoint.begun_ms)
            text = time if time == checkpoint.label else f"{time:<7} {checkpoint.label}"
            board.show(text, moment(checkpoint), news(led_here, checkpoint))
    for outcome in report.failed:
        click.echo(f"{paint('failed', 'bad')} at {outcome.at}: {outcome.path}: want {outcome.want}, got {outcome.got}")
    if not report.stable:
        click.echo(f"{paint('failed', 'bad')}: the cluster did not come to rest")
    met = len(report.outcomes) - len(report.failed)
    verdict = paint("ok", "good") if report.ok else paint("failed", "bad")
    click.echo(f"{verdict}: {met} of {counted(len(report.outcomes), 'expectation')} met, {report.cycles} cycles\n")
