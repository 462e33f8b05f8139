"""`gpuctl get`: one job in full."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuctl.cli.clusters import (
    Where,
    cluster_options,
    namespace_option,
    one_job,
    one_sweep,
    project_of,
    told_live,
    with_other_engine,
)
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declared_names import job_names, project_option
from gpuctl.cli.defaults import project_meant
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuctl.app.session_ports import Sessions
    from gpuctl.views.events import EventView
    from gpuctl.views.jobs import JobView

MOST_PODS = 8
"""The most pods of a gang whose events are shown."""


@command("get", examples=("gpuctl get a-1-g -p team-a", "gpuctl get team-a/a-1-g -o yaml"))
@click.argument("job", shell_complete=job_names)
@project_option(help="The job's project; not needed with PROJECT/JOB. Default: `config project`.")
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json", "yaml", "name"]), default="text")
@click.option("--log-progress", is_flag=True, help="Look for its progress in the end of its log, too.")
@namespace_option
@cluster_options
def get(job: str, project: str | None, output: str, where: Where, *, log_progress: bool) -> None:
    """Show one job in full, or a sweep with all its jobs.

    Its state and the reason, its placement, its progress, its pods and its events. JOB is a name or PROJECT/NAME.

    The progress is what the job says of itself: by the annotation gpuctl.dev/progress of its pod (0.42 or 42%); with
    --log-progress also by a line `gpuctl: progress 0.42` among the last 200 of its log, if you may read that.
    """
    from gpuctl.views.events import event_table  # noqa: PLC0415
    from gpuctl.views.listing import job_form, job_table, job_text  # noqa: PLC0415

    events: tuple[EventView, ...] = ()
    project = project_meant(job, project)
    with where.looking(project_of(job, project)) as (cluster, sessions):
        current = with_other_engine(cluster, told_live(cluster, sessions))
        jobs = one_sweep(job, project, current)
        if jobs:
            _show_sweep(jobs, output)
            return
        view = one_job(job, project, cluster, current)
        if output == "text" and sessions is not None:
            events = _events(view, sessions)
        if log_progress and sessions is not None:
            view = _with_logged_progress(view, sessions)
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)(job_form(view))
    elif output == "name":
        say(str(view.id))
    elif output == "wide":
        show(job_table([view], context_clock().now_ms(), wide=True))
    else:
        show(job_text(view, context_clock().now_ms()))
        if events:
            show(f"\nEvents:\n{event_table(events, context_clock().now_ms())}")


def _show_sweep(jobs: Iterable[JobView], output: str) -> None:
    from gpuctl.views.listing import job_form, job_table, name_lines  # noqa: PLC0415
    from gpuctl.views.sweeps import sweep_form, sweep_of, sweep_text  # noqa: PLC0415

    sweep = sweep_of(jobs)
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)(sweep_form(sweep, list(map(job_form, sweep.jobs))))
    elif output == "name":
        show(name_lines(sweep.jobs))
    elif output == "wide":
        show(job_table(sweep.jobs, context_clock().now_ms(), wide=True))
    else:
        show(sweep_text(sweep, context_clock().now_ms()))


def _with_logged_progress(view: JobView, sessions: Sessions) -> JobView:
    """The job with the progress in its log, if no annotation has it. Cost: a request for a running job."""
    from gpuctl.app.inspect import Unreachable, pod_of  # noqa: PLC0415 - only now
    from gpuctl.app.ports import ClusterUnavailable, Forbidden  # noqa: PLC0415
    from gpuctl.app.session_ports import LogRequest  # noqa: PLC0415
    from gpuctl.k8s import kinds  # noqa: PLC0415
    from gpuctl.k8s.progress import MOST_LOG_LINES, progress_in_log  # noqa: PLC0415
    from gpuctl.model.decision import JobState  # noqa: PLC0415
    from gpuctl.model.ids import ObjectRef  # noqa: PLC0415

    if view.progress_ppm is not None or view.state is not JobState.RUNNING:
        return view
    with suppress(Unreachable, Forbidden, ClusterUnavailable):
        pod = ObjectRef(*kinds.POD, view.ref.namespace, pod_of(view, 0, started=True).name)
        return replace(view, progress_ppm=progress_in_log(sessions.logs(pod, LogRequest(tail=MOST_LOG_LINES))))
    return view


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
