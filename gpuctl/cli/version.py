"""`gpuctl version`: what is installed."""

from __future__ import annotations

import json
import platform

import click

from gpuctl import __version__
from gpuctl.cli.command import command


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
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"gpuctl {__version__} (gpuctl.dev/v1, Python {facts['python']}, {facts['platform']})")
