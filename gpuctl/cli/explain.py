"""`gpuctl explain`: what a code means, or why a job is where it is."""

from __future__ import annotations

import difflib
import re

import click

from gpuctl.cli.clusters import Where, cluster_options, namespace_option, one_job, read_live
from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import explain_code

_CODE = re.compile(r"(?i)gpu\d+")


@command("explain", examples=("gpuctl explain GPU5011", "gpuctl explain team-b/b-4-gg"))
@click.argument("subject", metavar="CODE|JOB")
@click.option("-p", "--project", help="The job's project; not needed with PROJECT/JOB.")
@namespace_option
@cluster_options
def explain(subject: str, project: str | None, where: Where) -> None:
    """Explain a code, or why a job waits or runs.

    CODE is one of any message; JOB is a name or PROJECT/NAME.
    """
    if _CODE.fullmatch(subject):
        code = subject.upper()
        if code not in CODES:
            near = difflib.get_close_matches(code, CODES, n=1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise Failure("GPU9003", f"there is no code {code}", hint=hint)
        click.echo(explain_code(code), nl=False)
        return
    from gpuctl import wiring  # noqa: PLC0415 - only for jobs
    from gpuctl.views.explain import explain_job  # noqa: PLC0415

    for line in explain_job(one_job(subject, project, read_live(where)), wiring.now_ms()):
        click.echo(line)
