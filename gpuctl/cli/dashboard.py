"""`gpuctl dashboard`: pages of a cluster for a browser."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from gpuctl.adapters.collector import collect_seldom
from gpuctl.cli.clusters import Where, cluster_options
from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.cli.saved import saved_objects
from gpuctl.cli.terminal import say

if TYPE_CHECKING:
    from gpuctl.wiring import Shown


class NetworkType(click.ParamType[IPv4Network | IPv6Network]):
    """An IP address, or a network as ADDRESS/BITS."""

    name = "cidr"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> IPv4Network | IPv6Network:
        """Read it."""
        try:
            return ip_network(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _ip(value: str) -> str:
    """An IP address, as it is."""
    return str(ip_address(value))


IP = click.types.FuncParamType(_ip)
"""The type of an option that is an IP address."""


@command(
    "dashboard",
    examples=(
        "gpuctl dashboard --context prod",
        "gpuctl dashboard --embedded cluster.db",
        "gpuctl dashboard --address :8090 --host gpus.example.com --user-header X-Forwarded-User --proxy-from 10.0.0.7",
    ),
)
@click.option("--address", default="127.0.0.1:8090", show_default=True, help="Listen at HOST:PORT.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Another name by which browsers may ask for it.")
@click.option(
    "--user-header",
    metavar="NAME",
    help="Refuse requests without this header, which an authenticating proxy in front sets.",
)
@click.option(
    "--proxy-from",
    "proxies",
    multiple=True,
    type=NetworkType(),
    help="With --user-header: the proxy's address, or the network it is in. Others are refused. Repeatable.",
)
@click.option(
    "--proxy-secret",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="With --user-header: refuse requests without this text, 16 characters at least, in X-Proxy-Secret.",
)
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the past too: the file of `gpuctl reconcile --history FILE`.",
)
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The cluster's folder in a Git working tree: for What if, and plans of branches.",
)
@click.option("--state", type=click.File(), help="Show saved objects: what `kubectl get -o json` printed.")
@cluster_options
def dashboard(address: str, state: IO[str] | None, where: Where, **options: Any) -> None:
    """Serve pages for a browser that show a cluster.

    Overview, projects, jobs, nodes, queue, and allocation over time. The pages are read-only and follow the cluster by
    themselves. Without an authenticating proxy they are served to this machine alone.

    A proxy is known by its address, by a secret that it sends, or by both: else any client could name a user.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    user_header, proxies, proxy_secret = (options[name] for name in ("user_header", "proxies", "proxy_secret"))
    is_known = user_header is not None and (proxies or proxy_secret)
    if not is_known and not is_loopback(address):
        raise Failure(
            "GPU9002",
            f"--address {address} could be reached from other machines, by anybody",
            hint="name a loopback address, or behind an authenticating proxy --user-header with --proxy-from or "
            "--proxy-secret",
        )
    if user_header is None and (proxies or proxy_secret):
        raise Failure("GPU9002", "--proxy-from and --proxy-secret are for --user-header", hint="--user-header NAME")
    allowed = wiring.Allowed(hosts=options["hosts"], user_header=user_header, proxies=proxies, secret_file=proxy_secret)
    collect_seldom()
    shown = replace(_shown(where, state), history=options["history"], folder=options["folder"])
    with wiring.dashboard(shown, address, allowed) as served:
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


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT can be reached only from this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
