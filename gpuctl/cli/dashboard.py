"""`gpuctl dashboard`: pages of a cluster for a browser."""

from __future__ import annotations

from ipaddress import ip_address
from typing import IO, TYPE_CHECKING

import click

from gpuctl.cli.clusters import Where, cluster_options
from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.cli.saved import saved_objects
from gpuctl.cli.terminal import say

if TYPE_CHECKING:
    from gpuctl.wiring import Shown


@command(
    "dashboard",
    examples=(
        "gpuctl dashboard --context prod",
        "gpuctl dashboard --embedded cluster.db",
        "gpuctl dashboard --address 0.0.0.0:8090 --host gpus.example.com --user-header X-Forwarded-User",
    ),
)
@click.option("--address", default="127.0.0.1:8090", show_default=True, help="Listen at HOST:PORT.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Another name by which browsers may ask for it.")
@click.option(
    "--user-header",
    metavar="NAME",
    help="Refuse requests without this header, which an authenticating proxy in front sets.",
)
@click.option("--state", type=click.File(), help="Show saved objects: what `kubectl get -o json` printed.")
@cluster_options
def dashboard(
    address: str, hosts: tuple[str, ...], user_header: str | None, state: IO[str] | None, where: Where
) -> None:
    """Serve pages for a browser that show a cluster.

    Overview, projects, jobs, nodes, queue, and allocation over time. The pages are read-only and follow the cluster by
    themselves. Without an authenticating proxy they are served to this machine alone.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    if user_header is None and not _is_loopback(address):
        raise Failure(
            "GPU9002",
            f"--address {address} could be reached from other machines, by anybody",
            hint="name a loopback address, or --user-header NAME behind an authenticating proxy",
        )
    with wiring.dashboard(_shown(where, state), address, hosts, user_header) as served:
        say(f"Serving http://{address.rpartition(':')[0] or 'localhost'}:{served.port}/ (Ctrl-C ends it)")
        served.serve()


def _shown(where: Where, state: IO[str] | None) -> Shown:
    from gpuctl.wiring import Shown  # noqa: PLC0415 - only now

    if state is not None:
        if where.embedded or where.kubeconfig or where.context:
            raise Failure("GPU9002", "--state and another option each name a cluster", hint="name one cluster")
        return Shown(objects=tuple(saved_objects(state)))
    embedded = None if where.embedded is None else str(where.embedded)
    return Shown(embedded=embedded, kubeconfig=where.kubeconfig, context=where.context)


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
