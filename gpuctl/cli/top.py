"""`gpuctl top node`: the capacity of nodes, and what is allocated of it."""

from __future__ import annotations

import click

from gpuctl.cli.clusters import Where, cluster_options, read_live
from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show
from gpuctl.diag.escapes import printable


class _Top(ExampleGroup):
    """`top nodes` is `top node`, as with kubectl."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or of its plural."""
        return super().get_command(ctx, cmd_name.removesuffix("s"))


@click.group("top", cls=_Top, examples=("gpuctl top node", "gpuctl top node -d"))
def top() -> None:
    """Show the allocated resources of nodes."""


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


top.add_command(node)
