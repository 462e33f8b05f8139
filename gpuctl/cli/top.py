"""`gpuctl top`: what is allocated of nodes, and what the GPUs of jobs and projects do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuctl.cli.clusters import Where, cluster_options, read_live
from gpuctl.cli.command import ExampleGroup, command, context_clock
from gpuctl.cli.declared_names import project_option
from gpuctl.cli.defaults import default_project
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show
from gpuctl.diag.escapes import printable
from gpuctl.model.ids import ProjectName

if TYPE_CHECKING:
    from gpuctl.app.inspect import Live


output_option = click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table")


class _Top(ExampleGroup):
    """`top nodes` is `top node`, as with kubectl."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or of its plural."""
        return super().get_command(ctx, cmd_name.removesuffix("s"))


@click.group("top", cls=_Top, examples=("gpuctl top node", "gpuctl top job", "gpuctl top project"))
def top() -> None:
    """Show what nodes have allocated, and what GPUs do."""


@command("node", examples=("gpuctl top node", "gpuctl top node dgx1-1 -d", "gpuctl top node -o json"))
@click.argument("names", metavar="[NODE]...", nargs=-1)
@click.option("-d", "--details", is_flag=True, help="One line for each GPU, with its jobs.")
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "name"]), default="table")
@cluster_options
def node(names: tuple[str, ...], output: str, where: Where, *, details: bool) -> None:
    """Show the allocated GPUs, CPU and memory of nodes.

    Allocated are the requests of jobs and of other pods (Others), not their utilisation. Jobs that you may not see have
    no name; where you may not read nodes, what the controller publishes of them is shown.
    """
    from gpuctl.k8s import kinds  # noqa: PLC0415 - only now
    from gpuctl.views.nodes import device_table, node_form, node_table, node_views  # noqa: PLC0415
    from gpuctl.views.published import published_nodes  # noqa: PLC0415

    current = read_live(where, (kinds.NODE, kinds.POD), or_published=True)
    if current.unread and current.overview is not None:
        views = published_nodes(current.overview, current.jobs)
    else:
        views = node_views(current.state)
    unknown = sorted(set(names) - {view.name for view in views})
    if unknown:
        raise Failure("GPU9003", f"there is no node {unknown[0]} in this cluster", hint="gpuctl top node shows all")
    views = tuple(view for view in views if not names or view.name in names)
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)({"nodes": [node_form(view) for view in views]})
    elif output == "name":
        show("".join(f"{printable(view.name)}\n" for view in views))
    elif not views:
        say("No nodes found.", err=True)
    else:
        show((device_table if details else node_table)(views, wide=output == "wide"))


@command("job", examples=("gpuctl top job", "gpuctl top job -p team-a", "gpuctl top job -o json"))
@project_option(help="Jobs of this project. Default: that of `gpuctl config project`, else all.")
@click.option("-A", "--all-projects", is_flag=True, help="Jobs of all projects.")
@output_option
@cluster_options
def job(project: str | None, output: str, where: Where, *, all_projects: bool) -> None:
    """Show what the GPUs of jobs do.

    Utilisation, memory, and for how long they have been idle: the jobs that are idle longest come first. Measured by
    NVIDIA's DCGM exporter, which the controller reads; memory is that of whole GPUs. A job is idle once its GPUs have
    done nothing for five minutes. The jobs of a sweep are one row, with how many of them hold GPUs.
    """
    from gpuctl.views.sweeps import folded  # noqa: PLC0415
    from gpuctl.views.top import job_use_form, job_use_table, most_idle_first  # noqa: PLC0415

    if project and all_projects:
        raise Failure("GPU9002", "-p and -A exclude each other", hint="gpuctl top job --help")
    project = project or (None if all_projects else default_project())
    current = read_live(where, project=project)
    jobs = most_idle_first(current.of_project(ProjectName(project) if project else None))
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)({"jobs": [job_use_form(each) for each in jobs]})
        return
    _say_if_unmeasured(current)
    if not jobs:
        say("No job holds GPUs.", err=True)
    else:
        show(job_use_table(folded(jobs), context_clock().now_ms(), wide=output == "wide"))


@command("project", examples=("gpuctl top project", "gpuctl top project -o json"))
@output_option
@cluster_options
def project(output: str, where: Where) -> None:
    """Show what the GPUs of projects do.

    Utilisation is that of the measured GPUs. Of projects that you may not see, what the controller publishes is shown.
    """
    from gpuctl.k8s import kinds  # noqa: PLC0415 - only now
    from gpuctl.views.projects import project_views, with_uses  # noqa: PLC0415
    from gpuctl.views.published import published_projects  # noqa: PLC0415
    from gpuctl.views.top import project_use_form, project_use_table  # noqa: PLC0415

    needed = (kinds.NAMESPACE, kinds.JOB, kinds.DEPLOYMENT, kinds.POD)
    current = read_live(where, needed, or_published=True)
    views = project_views(current.state, current.jobs)
    if current.overview is not None:
        views = published_projects(current.overview, views, add=bool(current.unread))
    views = with_uses(views, current.uses or {})
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)({"projects": [project_use_form(each) for each in views]})
        return
    _say_if_unmeasured(current)
    if not views:
        say("No projects found.", err=True)
    else:
        show(project_use_table(views, wide=output == "wide"))


def _say_if_unmeasured(current: Live) -> None:
    if current.utilisation is None:
        say("note: what GPUs do is not measured; gpuctl reconcile --help: --utilisation-prometheus", err=True)


top.add_command(node)
top.add_command(job)
top.add_command(project)
