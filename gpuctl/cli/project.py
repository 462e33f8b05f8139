"""`gpuctl project`: the projects of a cluster, and edits of their declarations."""

from __future__ import annotations

from importlib import import_module

import click

from gpuctl.cli.clusters import Where, cluster_options, read_live
from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show
from gpuctl.diag.escapes import printable

_EDITS = {"set-quota": "set_quota", "set": "set_project"}


class _Project(ExampleGroup):
    """A group whose editing commands are imported only when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, the reading ones first."""
        return [*super().list_commands(ctx), *_EDITS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in _EDITS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module("gpuctl.cli.project_set"), _EDITS[cmd_name])
        return command


@click.group("project", cls=_Project, examples=("gpuctl project list", "gpuctl project set-quota team-a 6"))
def project() -> None:
    """Look at projects, and edit their declarations."""


@command("list", examples=("gpuctl project list", "gpuctl project list -o json"))
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "name"]), default="table")
@cluster_options
def list_projects(output: str, where: Where) -> None:
    """List projects: their quotas, held GPUs, and jobs.

    As recorded in the cluster. Quotas by node pool are shown for each pool. Of projects that you may not see, what the
    controller publishes is shown.
    """
    from gpuctl.k8s import kinds  # noqa: PLC0415 - only now
    from gpuctl.views.projects import project_form, project_table, project_views  # noqa: PLC0415
    from gpuctl.views.published import published_projects  # noqa: PLC0415

    needed = (kinds.NAMESPACE, kinds.JOB, kinds.DEPLOYMENT, kinds.POD)
    current = read_live(where, needed, or_published=True)
    views = project_views(current.state, current.jobs)
    if current.overview is not None:
        views = published_projects(current.overview, views, add=bool(current.unread))
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)({"projects": [project_form(view) for view in views]})
    elif output == "name":
        show("".join(f"{printable(view.name)}\n" for view in views))
    elif not views:
        say("No projects found.", err=True)
    else:
        show(project_table(views, wide=output == "wide"))


project.add_command(list_projects)
