"""Which cluster a command is about. So far it is the embedded one, in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gpuctl.app.inspect import Live, live
from gpuctl.cli.failures import Failure
from gpuctl.model.ids import JobId
from gpuctl.views.jobs import JobView

embedded_option: Callable[[Any], Any] = click.option(
    "--embedded",
    "file",
    metavar="FILE",
    required=True,
    envvar="GPUCTL_EMBEDDED",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The embedded cluster's file, as given to `gpuctl reconcile`. Or set GPUCTL_EMBEDDED.",
)


def read_live(file: Path) -> Live:
    """The cluster of a file as it is now."""
    from gpuctl import wiring  # noqa: PLC0415 - adapters are imported when they are needed

    return live(wiring.embedded_copy(str(file)))


def one_job(name: str, project: str | None, current: Live) -> JobView:
    """The newest run of the job that is meant; a bare name must be one project's only."""
    try:
        wanted: JobId | str = JobId.parse(f"{project}/{name}" if project and "/" not in name else name)
    except ValueError:
        wanted = name
    found = current.find(wanted)
    if not found:
        raise Failure("GPU9003", f"there is no job {wanted} in this cluster", hint="gpuctl list shows what there is")
    owners = sorted({str(view.id) for view in found})
    if len(owners) > 1:
        raise Failure("GPU9003", f"{name} could be {' or '.join(owners)}", hint="name the project: -p PROJECT")
    return found[0]
