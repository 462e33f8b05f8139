"""`gpuctl project list`: the projects of a cluster."""

from __future__ import annotations

import click

from gpuctl.cli.clusters import Where, cluster_options, read_live
from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show
from gpuctl.diag.escapes import printable


@click.group("project", cls=ExampleGroup, examples=("gpuctl project list",))
def project() -> None:
    """Look at projects."""


@command("list", examples=("gpuctl project list", "gpuctl project list -o json"))
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "name"]), default="table")
@cluster_options
def list_projects(output: str, where: Where) -> None:
    """List projects: their quotas, held GPUs, and jobs.

    As recorded in the cluster. Quotas by node pool are shown for each pool.
    """
    from gpuctl.k8s import kinds  # noqa: PLC0415 - only now
    from gpuctl.views.projects import project_form, project_table, project_views  # noqa: PLC0415

    current = read_live(where, (kinds.NAMESPACE, kinds.JOB, kinds.DEPLOYMENT, kinds.POD))
    views = project_views(current.state, current.jobs)
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)({"projects": [project_form(view) for view in views]})
    elif output == "name":
        show("".join(f"{printable(view.name)}\n" for view in views))
    elif not views:
        say("No projects found.", err=True)
    else:
        show(project_table(views))


project.add_command(list_projects)
