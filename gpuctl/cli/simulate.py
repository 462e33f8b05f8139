"""`gpuctl simulate`: run scenario files in virtual time, and check their expectations."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import click

from gpuctl.adapters.collector import collect_seldom
from gpuctl.app.narrative import moment, news
from gpuctl.cli.amounts import DurationType
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED
from gpuctl.cli.files import named_file
from gpuctl.cli.output import counted, print_json
from gpuctl.cli.storyboard import LINE_WIDTH, Storyboard
from gpuctl.cli.terminal import say, show
from gpuctl.diag.wording import duration, thousandths
from gpuctl.model.source import MAX_FILE_BYTES
from gpuctl.simulate.report import SimulationReport, document
from gpuctl.views.styled import Segment

TEXT_WIDTH = 32
CHART_WIDTH = 80
FAILED = Segment("failed", "bad")


@command(
    "simulate",
    examples=(
        "gpuctl simulate tests/scenarios/tr4858/whole-story.yaml",
        "gpuctl simulate tests/scenarios/*/*.yaml -o json",
        "gpuctl simulate --trace philly.csv --nodes 80x8 --mode fair --mode fifo --mode static --mode drf --until 2d",
        "gpuctl simulate --trace openb_pod_list_default.csv --nodes 8x8 --from 100d -o chart",
    ),
)
@click.argument("scenarios", metavar="[SCENARIO...]", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "chart", "svg"]), default="table", show_default=True
)
@click.option("--trace", type=click.Path(exists=True, dir_okay=False), help="Replay this trace, in place of scenarios.")
@click.option("--format", "format_", type=click.Choice(["philly", "openb"]), help="Default: by its columns.")
@click.option("--nodes", default="64x8", show_default=True, help="Number of nodes x GPUs of each, for the trace.")
@click.option(
    "--quotas",
    metavar="from-history|equal|FILE",
    help="By usage before the first job; or equal, the default without such usage; or a table with the columns project"
    " and quota.",
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(["fair", "fifo", "static", "drf", "floor"]),
    default=("fair",),
    show_default=True,
    help="How the trace is scheduled. Repeatable; modes are shown side by side.",
)
@click.option(
    "--from", "begin", metavar="TIME", help="Leave out jobs before this: a date, or a duration after the first."
)
@click.option("--until", "end", metavar="TIME", help="Leave out jobs from then on.")
@click.option(
    "--stop", type=DurationType(), default="30s", show_default=True, help="The time that a paused job takes to stop."
)
@click.option(
    "--checkpoint",
    type=DurationType(),
    default="0s",
    show_default=True,
    help="The interval of checkpoints, from the last of which a paused job resumes; 0s: it loses nothing.",
)
@click.option(
    "--min-runtime",
    type=DurationType(),
    help="The cluster's scheduling.minRuntime, one duration. Default: that of a cluster that declares none.",
)
def simulate(scenarios: tuple[str, ...], output: str, trace: str | None, **options: Any) -> None:
    """Run scenario files, or a trace, in virtual time.

    Scenarios run in the ordinary compiler and reconciler, against the embedded cluster. With -o json the report of one
    file is one document, those of several are a list. Charts show GPUs by project over time.

    A trace is scheduled by the engine alone (fair), or by simpler modes to compare with: fifo, first come, first
    served; static, the same within each quota, without lending; drf, next is the project that holds the fewest GPUs;
    floor, next is the project that holds the smallest part of its quota, counting GPUs without nodes. These modes never
    pause a job.

    UNFAIR and BELOW QUOTA: what projects were short of their fluid share, and of min(quota, demand), in parts of all
    work. VIOLATIONS: jobs within quota that waited longer than a pause takes; LONGEST: the longest such wait. YOUNG:
    the part of all reclaims that stop a run younger than a minute; STARTS: how often the job was started that was
    started most often. DISPLACED: work that paused jobs had done since their start; WASTED: the part of it that was
    repeated, and the GPU time that they held while stopping. OF FLOOR: the mean wait divided by that of floor. USED:
    the part of all GPU time that was used while jobs were submitted.

    All nodes of a trace are alike: a pod of openb that names GPU models (gpu_spec) is placed on any of them.

    Exit code: 0 all as expected, 1 an expectation failed or a file is wrong, 2 usage or internal error.
    """
    if (trace is None) is not bool(scenarios):
        raise click.UsageError("give scenario files, or --trace FILE")
    if trace is not None:
        from gpuctl.cli.simulate_trace import replay  # noqa: PLC0415 - only now

        collect_seldom()
        replay(trace, output, options)
        return
    reports, all_right = [], True
    for path in scenarios:
        report = _simulated(path)
        all_right = all_right and report is not None and report.ok
        if report is None:
            continue
        reports.append(report)
        if output == "table":
            _print(report)
        elif output in {"chart", "svg"}:
            _draw(report, output)
    if output == "json":
        documents = [document(report) for report in reports]
        print_json(documents[0] if len(scenarios) == 1 and documents else documents)
    if not all_right:
        raise click.exceptions.Exit(EXIT_FAILED)


def _simulated(path: str) -> SimulationReport | None:
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.simulation import simulate_file  # noqa: PLC0415

    content = named_file(path, MAX_FILE_BYTES)
    simulated = simulate_file(path, content, wiring.scenario_reader(Path(path)), wiring.sandbox)
    tell(simulated.diagnostics)
    return simulated.report


def _draw(report: SimulationReport, output: str) -> None:
    """Print GPUs by project over time."""
    from gpuctl.simulate.series import series_of  # noqa: PLC0415 - only now
    from gpuctl.views.chart import svg_chart, text_chart  # noqa: PLC0415

    drawn = series_of(report, CHART_WIDTH)
    steps = max((len(means) for means in drawn.held_milli.values()), default=0)
    ends = duration(drawn.from_ms), duration(drawn.from_ms + steps * drawn.step_ms)
    if output == "svg":
        show(svg_chart(drawn.held_milli, drawn.capacity_milli, *ends))
        return
    say(Segment(report.name, "strong"))
    for line in text_chart(drawn.held_milli, drawn.capacity_milli, *ends):
        say(*line)


def _print(report: SimulationReport) -> None:
    """Print a line for each checkpoint with what led to it, then the failed expectations."""
    board = Storyboard(TEXT_WIDTH, most_sentences=4)
    board.open(report.name)
    if report.why:
        show(fill(" ".join(report.why.split()), LINE_WIDTH) + "\n")
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
        say(FAILED, f" at {outcome.at}: {outcome.path}: want {outcome.want}, got {outcome.got}")
    if not report.stable:
        say(FAILED, ": the cluster did not come to rest")
    if report.lost_gpu_ms:
        say(f"pauses cost {thousandths(report.lost_gpu_ms // 3600)} GPU-hours of work since checkpoints")
    met = len(report.outcomes) - len(report.failed)
    verdict = Segment("ok", "good") if report.ok else FAILED
    say(verdict, f": {met} of {counted(len(report.outcomes), 'expectation')} met, {report.cycles} cycles")
    say()
