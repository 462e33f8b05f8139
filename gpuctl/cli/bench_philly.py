"""`gpuctl bench philly`: the engine beside other modes of scheduling on a month of Microsoft's Philly cluster."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.adapters.collector import collect_seldom
from gpuctl.app.bench.philly import DAYS, FIRST_DAY, WHOLE_TRACE, Span, bench_philly, days_from, philly_order
from gpuctl.app.replay import FROM_HISTORY
from gpuctl.cli.amounts import DurationType
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED
from gpuctl.cli.output import print_json
from gpuctl.cli.simulate_trace import bound, quotas_of, show_report, trace_file
from gpuctl.cli.terminal import say
from gpuctl.simulate.modes import ModeName
from gpuctl.simulate.replay import PauseCost
from gpuctl.simulate.replay_report import document

MODES = [mode.value for mode in ModeName]
SIZES = "512,640,768"


def _sizes(_ctx: click.Context, _param: click.Parameter, value: str) -> list[int]:
    sizes = value.split(",")
    if not all(size.isdecimal() and int(size) >= 8 and int(size) % 8 == 0 for size in sizes):
        raise click.BadParameter(f"{value!r}: write numbers of GPUs, multiples of 8: {SIZES}")
    return [int(size) for size in sizes]


@command(
    "philly",
    examples=(
        "gpuctl bench philly --trace traces/philly.csv",
        "gpuctl bench philly --trace traces/philly.csv --gpus 640 --mode floor --mode fair --until 14d -o json",
        "gpuctl bench philly --trace traces/philly.csv --gpus 512 --from 2017-10-16 --until 2017-10-18 --quotas equal",
    ),
)
@click.option("--trace", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The table.")
@click.option("--gpus", default=SIZES, show_default=True, callback=_sizes, help="Sizes of the cluster, in nodes of 8.")
@click.option("--mode", "modes", type=click.Choice(MODES), multiple=True, help="Default: all of them.")
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    help="Leave out jobs before this: a date (2017-10-16), or a number of days after 2017-10-09 (7d). What they used"
    " counts for quotas from history.",
)
@click.option("--until", "end", metavar="TIME", help="Leave out jobs from then on. Default: 28d.")
@click.option("--days", type=click.IntRange(1, DAYS), help="The same as --until, as a number of days after --from.")
@click.option(
    "--quotas",
    metavar="from-history|equal|FILE",
    default=FROM_HISTORY,
    show_default=True,
    help="By usage before the first job; or equal; or a table with the columns project and quota.",
)
@click.option(
    "--stop", type=DurationType(), default="30s", show_default=True, help="The time that a paused job takes to stop."
)
@click.option(
    "--checkpoint",
    type=DurationType(),
    default="30m",
    show_default=True,
    help="Interval of checkpoints; 0s: a pause loses nothing.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def philly(  # noqa: PLR0913, PLR0917 - one argument an option
    trace: Path,
    gpus: list[int],
    modes: tuple[str, ...],
    begin: str | None,
    end: str | None,
    days: int | None,
    quotas: str,
    stop: int,
    checkpoint: int,
    output: str,
) -> None:
    """Replay a month of Philly's jobs in several modes.

    The trace has 28 days from 2017-10-09 on: 38,489 jobs of 13 teams. Quotas are each team's part of the usage before:
    in the five weeks before the trace, and in the days before --from. A paused job resumes from its last checkpoint.

    LONGEST: the longest wait of a job within quota. YOUNG: the part of all reclaims that stop a run younger than a
    minute; STARTS: how often the job was started that was started most often. DISPLACED: work of paused jobs since
    their last start; WASTED: the part of it that is repeated, and the GPU time that they held while stopping. OF FLOOR:
    the mean wait divided by that of the mode `floor`, which counts GPUs without nodes and never pauses a job.
    """
    collect_seldom()
    chosen = [ModeName(mode) for mode in dict.fromkeys(modes or sorted(MODES, key="floor".__ne__))]
    span = _span(begin, end, days)
    table, quotas_file = trace_file(str(trace)), quotas_of(quotas)
    pause_cost = PauseCost(stop_ms=stop, checkpoint_ms=checkpoint)
    bench = bench_philly(philly_order(table, size, chosen, pause_cost, quotas=quotas_file, span=span) for size in gpus)
    tell(bench.diagnostics)
    if not bench.runs:
        raise click.exceptions.Exit(EXIT_FAILED)
    if output == "json":
        print_json([{"gpus": run.gpus, "cpuMs": run.cpu_ms, **document(run.report)} for run in bench.runs])
        return
    for run in bench.runs:
        show_report(run.report, "table")
        took = ", ".join(f"{mode} {cpu_ms // 1000}.{cpu_ms % 1000 // 100} s" for mode, cpu_ms in run.cpu_ms.items())
        say(f"CPU: {took}")
        say()


def _span(begin: str | None, end: str | None, days: int | None) -> Span:
    if end is not None and days is not None:
        raise click.UsageError("give --until or --days, not both")
    first = bound(begin, "--from", FIRST_DAY.ms) or FIRST_DAY
    if days is not None:
        return days_from(first, days)
    return first, bound(end, "--until", FIRST_DAY.ms) or WHOLE_TRACE[1]
