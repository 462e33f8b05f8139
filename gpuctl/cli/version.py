"""`gpuctl version`: what is installed."""

from __future__ import annotations

import platform

import click

from gpuctl import __version__
from gpuctl.cli.command import command
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say


@command("version", examples=("gpuctl version -o json",))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def version(output: str) -> None:
    """Print versions: gpuctl, Python, the machine."""
    facts = {
        "version": __version__,
        "apiVersion": "gpuctl.dev/v1",
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if output == "json":
        print_json(facts)
        return
    say(f"gpuctl {__version__} (gpuctl.dev/v1, Python {facts['python']}, {facts['platform']})")
