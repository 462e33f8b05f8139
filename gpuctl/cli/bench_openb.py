"""`gpuctl bench openb`: GPUs allocated on Alibaba's traces, by the engine and by published policies."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Any

import click

from gpuctl.app.bench.openb import FIRST_SEED, OpenbCase, OpenbFigure, bench_openb
from gpuctl.app.bench.openb_policies import ENGINE, POLICIES
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED
from gpuctl.cli.files import named_file
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say, show
from gpuctl.simulate.trace import MOST_BYTES
from gpuctl.simulate.trace_openb import read_nodes, read_pods
from gpuctl.views.tables import table

NODE_LIST = "openb_node_list_gpu_node.csv"
_POD_LIST = "openb_pod_list_"
_HEADER = ("LIST", "POLICY", "AT 100 %", "PUBLISHED", "DIFFERENCE", "AT 130 %", "LEAST", "MOST", "CPU MS A RUN")


@command(
    "openb",
    examples=(
        "gpuctl bench openb --traces traces/openb",
        "gpuctl bench openb --traces traces/openb --list default --policy gpuctl --seeds 1 -o json",
    ),
)
@click.option(
    "--traces",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"The folder with {NODE_LIST} and the pod lists.",
)
@click.option("--list", "lists", metavar="NAME", multiple=True, help="A pod list: default, cpu250 ... Default: all.")
@click.option("--policy", "policies", type=click.Choice([*POLICIES]), multiple=True, help="Default: all of them.")
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=10, show_default=True, help=f"Runs, from {FIRST_SEED} on."
)
@click.option("--blind", is_flag=True, help="Policies learn from the pods so far, not from the whole list.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Runs at a time.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def openb(  # noqa: PLR0913, PLR0917 - one argument an option
    traces: Path,
    lists: tuple[str, ...],
    policies: tuple[str, ...],
    seeds: int,
    blind: bool,  # noqa: FBT001
    processes: int,
    output: str,
) -> None:
    """Fill a cluster until nothing fits, by several policies.

    The experiment of FGD (ATC 2023) on Alibaba's openb traces. Pods arrive and never end; pods that do not fit are
    lost. The figure is the part of the GPUs that is allocated when 100 % of them have been requested: the mean of all
    runs and twice its standard error. Beside it stands what the paper's authors published, and the difference to it;
    for gpuctl's own policy, both are those of their FGD.

    A pod that names GPU models (gpu_spec) is placed on nodes with one of these. For gpuctl the nodes of each model are
    a pool; a pod that names no model may use them all. Without such pods in a list, all nodes are one pool.
    """
    nodes, mistakes = read_nodes(*_file(traces / NODE_LIST))
    names = lists or tuple(sorted(path.stem.removeprefix(_POD_LIST) for path in traces.glob(f"{_POD_LIST}*.csv")))
    cases = []
    for name in names:
        pods, wrong = read_pods(*_file(traces / f"{_POD_LIST}{name}.csv"), {node.model for node in nodes})
        mistakes += wrong
        cases += [
            OpenbCase(pod_list=name, nodes=nodes, pods=pods, policy=policy, seeds=seeds, blind=blind)
            for policy in policies or tuple(POLICIES)
        ]
    tell(mistakes)
    if mistakes:
        raise click.exceptions.Exit(EXIT_FAILED)
    figures = list(bench_openb(cases, processes))
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if output == "json":
        print_json({"machine": machine, "blind": blind, "figures": [_document(each) for each in figures]})
        return
    say(f"{machine}; {seeds} runs each")
    show(table(_HEADER, [_row(figure) for figure in figures]))


def _file(path: Path) -> tuple[str, bytes]:
    return str(path), named_file(path, MOST_BYTES)


def _document(figure: OpenbFigure) -> dict[str, Any]:
    return {**dataclasses.asdict(figure), "difference": figure.difference}


def _row(figure: OpenbFigure) -> tuple[str, ...]:
    runs = [run.allocated_at_100 for run in figure.runs]
    cpu = sorted(run.cpu_ms for run in figure.runs)[len(figure.runs) // 2]
    published = "" if figure.published is None else _about(figure.published, figure.published_error)
    beside = f"{published} (FGD)" if figure.policy == ENGINE and published else published
    return (
        figure.pod_list,
        figure.policy,
        _about(figure.mean_at_100, figure.error_at_100),
        beside,
        "" if figure.difference is None else _signed(figure.difference),
        _percent(figure.mean_at_130),
        _percent(min(runs)),
        _percent(max(runs)),
        str(cpu),
    )


def _about(millionths: int, error: int | None) -> str:
    """A figure with twice its standard error: most means of as many runs lie within that of the true one."""
    return _percent(millionths) if error is None else f"{_percent(millionths)} ± {_percent(2 * error)}"


def _signed(millionths: int) -> str:
    return f"{'-' if millionths < 0 else '+'}{_percent(abs(millionths))}"


def _percent(millionths: int) -> str:
    """A percentage, rounded to hundredths."""
    hundredths = (millionths + 50) // 100
    return f"{hundredths // 100}.{hundredths % 100:02d}"
