"""`gpuctl get`: one job in full."""

from __future__ import annotations

import click

from gpuctl.cli.clusters import Where, cluster_options, namespace_option, one_job, read_live
from gpuctl.cli.command import command
from gpuctl.cli.output import print_json, print_yaml


@command("get", examples=("gpuctl get a-1-g -p team-a", "gpuctl get team-a/a-1-g -o yaml"))
@click.argument("job")
@click.option("-p", "--project", help="The job's project; not needed with PROJECT/JOB.")
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json", "yaml", "name"]), default="text")
@namespace_option
@cluster_options
def get(job: str, project: str | None, output: str, where: Where) -> None:
    """Show one job in full.

    Its state and why, its place, its pods. JOB is a name or PROJECT/NAME."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.views.listing import job_form, job_table, job_text  # noqa: PLC0415

    view = one_job(job, project, read_live(where))
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)(job_form(view))
    elif output == "name":
        click.echo(str(view.id))
    elif output == "wide":
        click.echo(job_table([view], wiring.now_ms(), wide=True), nl=False)
    else:
        click.echo(job_text(view, wiring.now_ms()), nl=False)
