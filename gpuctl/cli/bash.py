"""`gpuctl bash`: a shell in a job's container."""

from __future__ import annotations

from gpuctl.cli.clusters import Where, cluster_options, namespace_option
from gpuctl.cli.command import command
from gpuctl.cli.sessions import job_options, run_there


@command("bash", examples=("gpuctl bash a-1-g -p team-a", "gpuctl bash team-b/gang --worker 1"))
@job_options
@namespace_option
@cluster_options
def bash(job: str, project: str | None, worker: int, where: Where) -> None:
    """Open a shell in a running job's container.

    The same as `gpuctl exec -it JOB -- bash`.
    """
    run_there(where, job, project, worker, ("bash",), stdin=True, tty=True)
