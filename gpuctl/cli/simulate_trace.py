"""`gpuctl simulate --trace`: replay a trace in virtual time, in one mode of scheduling or several."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED
from gpuctl.cli.files import named_file
from gpuctl.cli.output import counted, print_json
from gpuctl.cli.terminal import say, show
from gpuctl.diag.wording import duration
from gpuctl.model.units import Instant, format_gpus
from gpuctl.views.chart import svg_chart, svg_sheet, text_chart

if TYPE_CHECKING:
    from gpuctl.app.replay import Bound, File
    from gpuctl.simulate.replay_report import Figures, ReplayReport
    from gpuctl.simulate.workload import Layout

WORDS = frozenset({"from-history", "equal"})
"""The values of --quotas that are not a file."""


MOST_MS = 36_500 * 86_400_000
"""The longest duration that a bound may have."""


def replay(trace: str, output: str, options: Mapping[str, Any]) -> None:
    """Replay a trace and print the report. `options` are those of the command, by name."""
    from gpuctl.app.replay import Order, replay_trace  # noqa: PLC0415 - only now
    from gpuctl.model.declared import USUAL_MIN_RUNTIME, MinRuntime, SchedulingPolicy  # noqa: PLC0415
    from gpuctl.simulate.modes import ModeName  # noqa: PLC0415
    from gpuctl.simulate.replay import PauseCost  # noqa: PLC0415

    checkpoint, least = options["checkpoint"], options["min_runtime"]
    replayed = replay_trace(
        Order(
            trace=trace_file(trace),
            format=options["format_"],
            layout=_layout(options["nodes"]),
            quotas=quotas_of(options["quotas"]),
            modes=[ModeName(mode) for mode in dict.fromkeys(options["modes"])],
            begin=bound(options["begin"], "--from"),
            end=bound(options["end"], "--until"),
            pause_cost=PauseCost(stop_ms=options["stop"], checkpoint_ms=checkpoint),
            policy=SchedulingPolicy(min_runtime=USUAL_MIN_RUNTIME if least is None else MinRuntime.of_all(least)),
        )
    )
    tell(replayed.diagnostics)
    if replayed.report is None:
        raise click.exceptions.Exit(EXIT_FAILED)
    show_report(replayed.report, output)


def show_report(report: ReplayReport, output: str) -> None:
    """Print a report as a table, JSON or charts."""
    from gpuctl.simulate.replay_report import document  # noqa: PLC0415 - only now

    match output:
        case "json":
            print_json(document(report))
        case "svg":
            charts = {figures.mode.value: _svg(figures) for figures in report.modes}
            show(svg_sheet(charts) if len(charts) > 1 else "".join(charts.values()))
        case "chart":
            for figures in report.modes:
                say(figures.mode.value)
                _chart(figures)
        case _:
            _table(report)


def _chart(figures: Figures) -> None:
    for line in text_chart(figures.series.held_milli, figures.series.capacity_milli, *_ends(figures)):
        say(*line)


def _svg(figures: Figures) -> str:
    return svg_chart(figures.series.held_milli, figures.series.capacity_milli, *_ends(figures))


def _ends(figures: Figures) -> tuple[str, str]:
    series = figures.series
    steps = max((len(means) for means in series.held_milli.values()), default=0)
    return _day(series.from_ms), _day(series.from_ms + steps * series.step_ms)


def _day(at_ms: Instant) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M}"


def _table(report: ReplayReport) -> None:
    from gpuctl.views.replay import ModeRow, mode_table  # noqa: PLC0415 - only now

    gpus, tenths = format_gpus(report.capacity_milli), report.work // 100 // 3_600_000
    hours = f"{tenths // 10}.{tenths % 10}" if tenths < 100 else str(tenths // 10)
    say(
        f"{report.name}: {counted(report.jobs, 'job')} of {hours} GPU-hours on {report.layout} = {gpus} GPUs,"
        f" {_day(report.window[0])} to {_day(report.window[1])};"
        f" a paused job stops within {duration(report.pause_cost.stop_ms)}; quotas {_source(report)}"
    )
    rows = [
        ModeRow(
            mode=figures.mode.value,
            mean_wait_ms=figures.mean_wait_ms,
            p95_wait_ms=figures.p95_wait_ms,
            of_floor_milli=report.wait_ratio_milli(figures),
            unfair_ppm=figures.unfair_ppm,
            below_quota_ppm=figures.below_quota_ppm,
            violations=figures.violations,
            longest_ms=figures.longest_ms,
            pauses=figures.pauses,
            young_ppm=figures.young_ppm,
            most_starts=figures.most_starts,
            displaced_ppm=figures.displaced_ppm,
            wasted_ppm=figures.wasted_ppm,
            used_ppm=figures.used_ppm,
            unfinished=figures.unfinished,
        )
        for figures in report.modes
    ]
    show(mode_table(rows))


def _source(report: ReplayReport) -> str:
    """The source of the quotas, in words."""
    named = {"from-history": "by usage before", "equal": "equal"}
    return named.get(report.quotas_from, f"from {report.quotas_from}")


def quotas_of(text: str | None) -> str | File | None:
    """The value of --quotas: one of WORDS, or the file that holds them."""
    return text if text is None or text in WORDS else trace_file(text)


def trace_file(path: str) -> File:
    """A trace or a table of quotas, with its path."""
    from gpuctl.app.replay import File  # noqa: PLC0415 - only now
    from gpuctl.simulate.trace import MOST_BYTES  # noqa: PLC0415 - only now

    return File(path=path, content=named_file(path, MOST_BYTES))


def _layout(text: str) -> Layout:
    from gpuctl.simulate.workload import Layout  # noqa: PLC0415 - only now

    layout = Layout.parse(text)
    if layout is None:
        raise click.BadParameter(f"{text!r} is not a layout; write nodes x GPUs: 64x8", param_hint="--nodes")
    return layout


def bound(text: str | None, option: str, day_one_ms: Instant | None = None) -> Bound | None:
    """A date or time, in UTC, or a duration after `day_one_ms`; None: after the first job."""
    from gpuctl.app.replay import Bound  # noqa: PLC0415 - only now
    from gpuctl.compile.amounts import duration as read_duration  # noqa: PLC0415

    if text is None:
        return None
    from gpuctl.simulate.trace_philly import instant_of  # noqa: PLC0415 - only now

    at_ms = instant_of(text)
    if at_ms is not None:
        return Bound(ms=at_ms, after_first=False)
    try:
        after_ms = read_duration(text)
    except ValueError:
        after_ms = MOST_MS + 1
    if after_ms > MOST_MS:
        since = "the first job" if day_one_ms is None else _day(day_one_ms)
        wanted = f"write 2017-10-16, 2017-10-16T12:00:00 (UTC), or 7d after {since}"
        raise click.BadParameter(f"{text!r} is not a time; {wanted}", param_hint=option)
    if day_one_ms is None:
        return Bound(ms=after_ms, after_first=True)
    return Bound(ms=day_one_ms + after_ms, after_first=False)
