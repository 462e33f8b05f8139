"""`gpuctl bench engine`: the scheduling engine by itself, on made-up values."""

from __future__ import annotations

import dataclasses
import os
import platform

import click

from gpuctl.adapters.collector import collect_seldom
from gpuctl.app.bench.engine import WORKLOADS, Figure, bench_engine
from gpuctl.cli.command import command
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say, show
from gpuctl.diag.wording import thousandths
from gpuctl.views.tables import table

_HEADER = ("WORKLOAD", "MEASURED", "CPU MS", "AIM", "COUNTED")


@command("engine", examples=("gpuctl bench engine", "gpuctl bench engine --workload reclaim -o json"))
@click.option(
    "--workload", "names", type=click.Choice([*WORKLOADS]), multiple=True, help="One, or several. Default: all."
)
@click.option(
    "--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Runs of each; the median counts."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def engine(names: tuple[str, ...], runs: int, output: str) -> None:
    """Time the scheduling engine alone."""
    collect_seldom()
    figures = list(bench_engine(names or tuple(WORKLOADS), runs))
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if output == "json":
        print_json({"machine": machine, "runs": runs, "figures": [dataclasses.asdict(each) for each in figures]})
        return
    say(machine)
    show(table(_HEADER, [_row(figure) for figure in figures]))


def _row(figure: Figure) -> tuple[str, str, str, str, str]:
    aim = "" if figure.aim_microseconds is None else thousandths(figure.aim_microseconds)
    counted = ", ".join(f"{name} {count}" for name, count in figure.counts.items() if count)
    return figure.workload, figure.what, thousandths(figure.microseconds), aim, counted
