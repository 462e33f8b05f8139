"""Shared by logs, exec and bash: find the job's container, and run a command in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.clusters import Where, one_job, project_of, told_live
from gpuctl.cli.declared_names import job_names, project_option
from gpuctl.cli.defaults import project_meant
from gpuctl.cli.terminal import say
from gpuctl.k8s.names import MAIN_CONTAINER
from gpuctl.model.ids import ObjectRef

if TYPE_CHECKING:
    from gpuctl.app.ports import Cluster
    from gpuctl.app.session_ports import CommandRequest


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name a job's container: JOB, its project, its worker."""

    @click.argument("job", shell_complete=job_names)
    @project_option(help="The job's project; not needed with PROJECT/JOB. Default: `config project`.")
    @click.option("--worker", type=click.IntRange(min=0), default=0, metavar="I", help="Which worker. Default: 0.")
    @functools.wraps(function)
    def with_job(*args: Any, **options: Any) -> Any:
        options["project"] = project_meant(options["job"], options["project"])
        return function(*args, **options)

    return with_job


container_option = click.option(
    "-c", "--container", default=MAIN_CONTAINER, metavar="NAME",
    help="An init container, a sidecar, or git-sync. Default: the job's own.",
)  # fmt: skip


def pod_meant(cluster: Cluster, job: str, project: str | None, worker: int, *, running: bool) -> ObjectRef:
    """The pod of that worker of the job's current run. Raises Unreachable with the reason if there is none."""
    from gpuctl.app.inspect import pod_of  # noqa: PLC0415 - only now
    from gpuctl.k8s import kinds  # noqa: PLC0415

    view = one_job(job, project, cluster, told_live(cluster, None))
    return ObjectRef(*kinds.POD, view.ref.namespace, pod_of(view, worker, started=running).name)


def run_there(where: Where, job: str, project: str | None, worker: int, request: CommandRequest) -> None:
    """Run a command in a container of the job and exit with its exit code."""
    from gpuctl import wiring  # noqa: PLC0415 - only now

    console = wiring.console()
    with where.sessions(project_of(job, project)) as (cluster, sessions):
        pod = pod_meant(cluster, job, project, worker, running=True)
        if request.tty and not (request.stdin and console.is_terminal):
            say("note: standard input is not a terminal, so the command runs without one", err=True)
            request = replace(request, tty=False)
        with console.raw() if request.tty else nullcontext():
            code = sessions.run(pod, request, console)
    raise click.exceptions.Exit(code)
