"""`gpuctl logs`: what a job prints."""

from __future__ import annotations

from typing import Any

import click

from gpuctl.cli.amounts import DurationType
from gpuctl.cli.clusters import Where, cluster_options, namespace_option, project_of
from gpuctl.cli.command import command
from gpuctl.cli.sessions import container_option, job_options, pod_meant


@command("logs", examples=("gpuctl logs a-1-g -p team-a", "gpuctl logs team-a/a-1-g -f --tail 100"))
@job_options
@container_option
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the job writes more.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="The last N lines. Default: all.")
@click.option("--since", type=DurationType(), help="Only lines that are not older than this: 5m.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@click.option("--previous", is_flag=True, help="The log of the previous container, after a restart.")
@namespace_option
@cluster_options
def logs(job: str, project: str | None, worker: int, where: Where, **options: Any) -> None:
    """Print the log of a job's current run.

    JOB is a name or PROJECT/NAME. For a gang it is the log of worker 0, unless --worker is given.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.session_ports import LogRequest  # noqa: PLC0415

    request = LogRequest(
        container=options["container"],
        follow=options["follow"],
        previous=options["previous"],
        timestamps=options["timestamps"],
        tail=options["tail"],
        since_ms=options["since"],
    )
    console = wiring.console()
    with where.sessions(project_of(job, project)) as (cluster, sessions):
        pod = pod_meant(cluster, job, project, worker, running=False)
        for part in sessions.logs(pod, request):
            console.write(part)
