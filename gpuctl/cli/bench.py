"""`gpuctl bench`: how fast gpuctl is on this machine, on made-up input."""

from __future__ import annotations

import dataclasses

import click

from gpuctl.adapters.collector import OBJECTS_OF_A_COMMAND, collect_seldom
from gpuctl.cli.bench_cluster import cluster
from gpuctl.cli.bench_engine import engine
from gpuctl.cli.bench_openb import openb
from gpuctl.cli.bench_philly import philly
from gpuctl.cli.bench_review import review
from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say
from gpuctl.diag.wording import thousandths
from gpuctl.simulate.scenario import EPOCH_MS


@click.group(
    "bench", cls=ExampleGroup, examples=("gpuctl bench compile", "gpuctl bench cluster --kubeconfig kwok.yaml")
)
def bench() -> None:
    """Measure gpuctl on made-up input."""


JOBS = click.option(
    "--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Jobs to make."
)
PROJECTS = click.option(
    "--projects", type=click.IntRange(1, 1000), default=40, show_default=True, help="Projects they are of."
)
RUNS = click.option(
    "--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Runs; the median counts."
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


@command("compile", examples=("gpuctl bench compile", "gpuctl bench compile --jobs 1000 -o json"))
@JOBS
@PROJECTS
@RUNS
@OUTPUT
def compile_(jobs: int, projects: int, runs: int, output: str) -> None:
    """Time compiling made-up jobs, and parsing their YAML alone."""
    from gpuctl.app.bench.compile import bench_compile  # noqa: PLC0415 - only now

    collect_seldom(OBJECTS_OF_A_COMMAND)  # as the commands that compile do
    measured = bench_compile(jobs, projects, runs)
    if output == "json":
        print_json(dataclasses.asdict(measured))
        return
    mib = measured.size_bytes / (1 << 20)
    say(f"{measured.jobs} jobs in {measured.projects} projects, {measured.files} files, {mib:.1f} MiB")
    say(f"parse    {measured.parse_ms:>6} ms  PyYAML's fastest loader, the same bytes")
    say(f"compile  {measured.compile_ms:>6} ms  {thousandths(measured.ratio_milli)} times the parse")
    say(f"memory   {measured.peak_mib:>6} MiB at most")


@command("cycle", examples=("gpuctl bench cycle", "gpuctl bench cycle --jobs 1000 -o json"))
@JOBS
@PROJECTS
@RUNS
@OUTPUT
def cycle(jobs: int, projects: int, runs: int, output: str) -> None:
    """Time reconcile cycles over made-up jobs that have not changed."""
    from gpuctl.app.bench.cycle import bench_cycle  # noqa: PLC0415 - only now
    from gpuctl.wiring import sandbox  # noqa: PLC0415 - only now

    collect_seldom()
    measured = bench_cycle(sandbox(EPOCH_MS), jobs, projects, runs)
    if output == "json":
        print_json(dataclasses.asdict(measured))
        return
    where = f"{measured.running} of them running on the embedded cluster"
    say(f"{measured.jobs} jobs in {measured.projects} projects, {where}")
    first = f"{measured.first_writes} writes in {measured.first_cycles} cycles, to rest"
    say(f"first      {measured.first_ms:>6} ms  {first}")
    told = {
        "cold": (measured.cold, "a process's first cycle"),
        "unchanged": (measured.unchanged, f"{measured.unchanged_writes} writes in {measured.runs} cycles"),
        "event": (measured.event, f"a job ends, another starts: {measured.changes} writes"),
    }
    for kind, (costs, what) in told.items():
        say(f"{kind:<9}  {costs.all_ms:>6} ms  {what}")
        stages = dataclasses.asdict(costs) | {"all_ms": None}
        shown = (f"{stage.removesuffix('_ms')} {ms}" for stage, ms in stages.items() if ms is not None)
        say(f"           {'':>6}     {', '.join(shown)}")
    say(f"memory     {measured.peak_mib:>6} MiB at most")


bench.add_command(compile_)
bench.add_command(cycle)
bench.add_command(review)
bench.add_command(engine)
bench.add_command(openb)
bench.add_command(philly)
bench.add_command(cluster)
