"""`gpuctl render`: the Kubernetes objects that a cluster's declarations ask for."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.command import command
from gpuctl.cli.declarations import compiled_folder, tell
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say, show


@command(
    "render",
    examples=(
        "gpuctl render clusters/tr4858",
        "gpuctl render clusters/tr4858 --output manifests",
        "gpuctl render clusters/tr4858 --target kueue",
    ),
)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--output", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="A file for each object."
)
@click.option(
    "--target", type=click.Choice(["kueue", "kai"]), help="Another engine that decides which of the jobs run."
)
def render(folder: str, output: Path | None, target: str | None) -> None:
    """Print the Kubernetes objects of declarations.

    One YAML stream, the same bytes for the same declarations. No cluster is read and nothing is scheduled: all jobs are
    suspended, as when they are created.

    With --target the objects are for a cluster where Kueue or KAI decides. What can't be said to it is told on standard
    error, each at its place in the declarations.
    """
    from gpuctl.app.other_engine import target_objects, waiting_manifests  # noqa: PLC0415 - only now
    from gpuctl.targets import Engine  # noqa: PLC0415
    from gpuctl.views.yamltext import yaml_document, yaml_stream  # noqa: PLC0415

    declared = compiled_folder(folder)
    if target is None:
        manifests = waiting_manifests(declared)
    else:
        found = target_objects(declared, Engine(target))
        tell(found.unsaid)
        manifests = found.manifests
    if output is None:
        show(yaml_stream(manifests))
        return
    for item in manifests.items:
        ref = item.ref
        file = output / (ref.namespace or "_cluster") / f"{ref.kind.lower()}-{ref.name.replace(':', '-')}.yaml"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yaml_document(item.body), encoding="utf-8")
        except OSError as error:
            raise Failure("GPU9004", f"{file} can't be written: {error.strerror}") from error
    say(f"{counted(len(manifests.items), 'object')} in {output}")
