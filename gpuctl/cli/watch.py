"""`gpuctl watch`: a live screen of a cluster, for a terminal."""

from __future__ import annotations

import sys

from gpuctl.cli.clusters import Where, cluster_options, namespace_option
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declared_names import project_option
from gpuctl.cli.failures import Failure


@command("watch", examples=("gpuctl watch", "gpuctl watch --context prod", "gpuctl watch -p team-a"))
@project_option(help="Only this project's jobs.")
@namespace_option
@cluster_options
def watch(project: str | None, where: Where) -> None:
    """Follow a cluster on a live screen.

    GPUs that are allocated and that work, projects, running and pending jobs, read every two seconds, of a large
    cluster less often. While that fails, the screen says why and stays as it was. A sweep is one row of each table.
    The arrows move, q ends it.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.cli.readings import readings  # noqa: PLC0415
    from gpuctl.model.ids import ProjectName  # noqa: PLC0415
    from gpuctl.views.clusters import cluster_view, with_use  # noqa: PLC0415
    from gpuctl.views.screen import screen  # noqa: PLC0415
    from gpuctl.views.tables import age  # noqa: PLC0415

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("GPU9002", "gpuctl watch needs a terminal", hint="gpuctl list --watch prints what changes")
    found = readings(where, project)
    reading = next(found)  # before the screen is taken over, so that its messages stay readable
    read_ms = context_clock().now_ms()
    with wiring.terminal_screen() as shown:
        while True:
            current, wait_ms, fault = reading
            now_ms = context_clock().now_ms()
            read_ms = read_ms if fault else now_ms
            missed = f"not read since {age(now_ms - read_ms)}: {fault}" if fault else ""
            jobs = current.of_project(ProjectName(project) if project else None)
            view = cluster_view(current.state, jobs, now_ms, (), current.overview)
            if not shown.show(screen(with_use(view, current.uses), now_ms, shown.width, missed), wait_ms):
                return
            reading = next(found)
