"""`gpuctl bench`: how fast gpuctl is on this machine, on made-up input."""

from __future__ import annotations

import dataclasses

import click

from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.output import print_json
from gpuctl.diag.wording import thousandths


@click.group("bench", cls=ExampleGroup, examples=("gpuctl bench compile",))
def bench() -> None:
    """Measure gpuctl on made-up input."""


@command("compile", examples=("gpuctl bench compile", "gpuctl bench compile --jobs 1000 -o json"))
@click.option("--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Jobs to make.")
@click.option("--projects", type=click.IntRange(1, 1000), default=40, show_default=True, help="Projects they are of.")
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Runs; the median counts.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def compile_(jobs: int, projects: int, runs: int, output: str) -> None:
    """Time compiling made-up jobs against merely parsing their YAML."""
    from gpuctl.app.bench_compile import bench_compile  # noqa: PLC0415 - only now

    measured = bench_compile(jobs, projects, runs)
    if output == "json":
        print_json(dataclasses.asdict(measured))
        return
    mib = measured.size_bytes / (1 << 20)
    click.echo(f"{measured.jobs} jobs in {measured.projects} projects, {measured.files} files, {mib:.1f} MiB")
    click.echo(f"parse    {measured.parse_ms:>6} ms  PyYAML's fastest loader, the same bytes")
    click.echo(f"compile  {measured.compile_ms:>6} ms  {thousandths(measured.ratio_milli)} times the parse")
    click.echo(f"memory   {measured.peak_mib:>6} MiB at most")


bench.add_command(compile_)
