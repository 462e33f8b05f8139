"""`gpuctl bash`: a shell in a job's container."""

from __future__ import annotations

from gpuctl.cli.clusters import Where, cluster_options, namespace_option
from gpuctl.cli.command import command
from gpuctl.cli.sessions import container_option, job_options, run_there


@command("bash", examples=("gpuctl bash a-1-g -p team-a", "gpuctl bash team-b/gang --worker 1"))
@job_options
@container_option
@namespace_option
@cluster_options
def bash(job: str, project: str | None, worker: int, container: str, where: Where) -> None:
    """Open a shell in a running job's container.

    The same as `gpuctl exec -it JOB -- bash`.
    """
    from gpuctl.app.session_ports import CommandRequest  # noqa: PLC0415 - only now

    request = CommandRequest(command=("bash",), container=container, stdin=True, tty=True)
    run_there(where, job, project, worker, request)
