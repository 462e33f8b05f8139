"""`gpuctl get`: one job in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuctl.cli.clusters import Where, cluster_options, namespace_option, one_job, project_of, told_live
from gpuctl.cli.command import command
from gpuctl.cli.defaults import project_meant
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show

if TYPE_CHECKING:
    from gpuctl.app.ports import Sessions
    from gpuctl.views.events import EventView
    from gpuctl.views.jobs import JobView

MOST_PODS = 8
"""The most pods of a gang whose events are shown."""


@command("get", examples=("gpuctl get a-1-g -p team-a", "gpuctl get team-a/a-1-g -o yaml"))
@click.argument("job")
@click.option("-p", "--project", help="The job's project; not needed with PROJECT/JOB. Default: `config project`.")
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json", "yaml", "name"]), default="text")
@namespace_option
@cluster_options
def get(job: str, project: str | None, output: str, where: Where) -> None:
    """Show one job in full.

    Its state and the reason, its placement, its pods and its events. JOB is a name or PROJECT/NAME."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.views.events import event_table  # noqa: PLC0415
    from gpuctl.views.listing import job_form, job_table, job_text  # noqa: PLC0415

    events: tuple[EventView, ...] = ()
    project = project_meant(job, project)
    with where.looking(project_of(job, project)) as (cluster, sessions):
        view = one_job(job, project, told_live(cluster, sessions))
        if output == "text" and sessions is not None:
            events = _events(view, sessions)
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)(job_form(view))
    elif output == "name":
        say(str(view.id))
    elif output == "wide":
        show(job_table([view], wiring.now_ms(), wide=True))
    else:
        show(job_text(view, wiring.now_ms()))
        if events:
            show(f"\nEvents:\n{event_table(events, wiring.now_ms())}")


def _events(view: JobView, sessions: Sessions) -> tuple[EventView, ...]:
    """The events of the run and its pods; a missing right to read them is noted on standard error."""
    from gpuctl.app.ports import Forbidden  # noqa: PLC0415 - only now
    from gpuctl.k8s import kinds  # noqa: PLC0415
    from gpuctl.model.ids import ObjectRef  # noqa: PLC0415
    from gpuctl.views.events import event_views  # noqa: PLC0415

    pods = [ObjectRef(*kinds.POD, view.ref.namespace, pod.name) for pod in view.pods[:MOST_PODS]]
    try:
        return event_views(sessions.events([view.ref, *pods]))
    except Forbidden as fault:
        say(f"note: {fault.code}: {fault}", err=True)
        return ()
