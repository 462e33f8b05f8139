"""`gpuctl explain`: what a code means, or why a job is where it is."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import click

from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import explain_code

_CODE = re.compile(r"(?i)gpu\d+")


@command("explain", examples=("gpuctl explain GPU5011", "gpuctl explain team-b/b-4-gg --embedded cluster.db"))
@click.argument("subject", metavar="CODE|JOB")
@click.option("-p", "--project", help="The job's project; not needed with PROJECT/JOB.")
@click.option(
    "--embedded",
    "file",
    metavar="FILE",
    envvar="GPUCTL_EMBEDDED",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The embedded cluster's file, for a job. Or set GPUCTL_EMBEDDED.",
)
def explain(subject: str, project: str | None, file: Path | None) -> None:
    """Explain a code, or why a job waits or runs.

    CODE is one of any message; JOB is a name or PROJECT/NAME, with the cluster it is in.
    """
    if _CODE.fullmatch(subject):
        code = subject.upper()
        if code not in CODES:
            near = difflib.get_close_matches(code, CODES, n=1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise Failure("GPU9003", f"there is no code {code}", hint=hint)
        click.echo(explain_code(code), nl=False)
        return
    if file is None:
        raise Failure("GPU9002", f"{subject} is no code; for a job name its cluster", hint="--embedded FILE")
    from gpuctl import wiring  # noqa: PLC0415 - only for jobs
    from gpuctl.cli.clusters import one_job, read_live  # noqa: PLC0415
    from gpuctl.views.explain import explain_job  # noqa: PLC0415

    for line in explain_job(one_job(subject, project, read_live(file)), wiring.now_ms()):
        click.echo(line)
