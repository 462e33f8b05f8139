"""`gpuctl port-forward`: ports of a job's container on this machine."""

from __future__ import annotations

import click

from gpuctl.app.ports import WorldFault
from gpuctl.cli.clusters import Where, cluster_options, namespace_option, one_job, project_of, told_live
from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.cli.sessions import job_options
from gpuctl.cli.terminal import say
from gpuctl.diag.wording import message


@command("port-forward", examples=("gpuctl port-forward a-1-g -p team-a", "gpuctl port-forward team-a/a-1-g 9000:8888"))
@job_options
@click.argument("ports", metavar="[[LOCAL:]REMOTE]...", nargs=-1)
@namespace_option
@cluster_options
def port_forward(job: str, project: str | None, worker: int, ports: tuple[str, ...], where: Where) -> None:
    """Reach ports of a running job's container on this machine.

    As kubectl port-forward does it. Without ports, all that the job exposes. LOCAL 0: any free port. Ctrl-C ends it.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.forwarding import PortPair, declared_ports, pair_of  # noqa: PLC0415
    from gpuctl.app.inspect import pod_of  # noqa: PLC0415
    from gpuctl.k8s import kinds  # noqa: PLC0415
    from gpuctl.model.ids import ObjectRef  # noqa: PLC0415

    try:
        pairs = [pair_of(each) for each in ports]
    except ValueError as error:
        raise Failure("GPU9002", f"{error} is no port: [LOCAL:]REMOTE, up to 65535", hint="8888, 9000:8888") from error
    with where.sessions(project_of(job, project)) as (cluster, sessions):
        current = told_live(cluster, None)
        view = one_job(job, project, cluster, current)
        pairs = pairs or [PortPair(port, port) for port in declared_ports(current.state.live[view.ref])]
        if not pairs:
            told = message("GPU7064", {"job": str(view.id)})
            raise WorldFault("GPU7064", told)
        pod = ObjectRef(*kinds.POD, view.ref.namespace, pod_of(view, worker, started=True).name)
        wiring.forwarder(sessions).forward(pod, pairs, say)
