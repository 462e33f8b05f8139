"""`gpuctl list`: the jobs of a cluster, in Run:ai's columns."""

from __future__ import annotations

import sys

import click

from gpuctl.cli.clusters import Where, cluster_options, namespace_option, told_live, with_other_engine
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declared_names import project_option
from gpuctl.cli.defaults import default_project
from gpuctl.cli.failures import Failure
from gpuctl.cli.nearest import nearest
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.terminal import say, show
from gpuctl.model.ids import JobId, ProjectName


@command(
    "list",
    examples=(
        "gpuctl list -p team-a",
        "gpuctl list -A -o json",
        "gpuctl list --watch",
        "gpuctl list -n gpu-a --context prod",
    ),
)
@project_option(help="Jobs of this project. Default: that of `gpuctl config project`, else all.")
@click.option("-A", "--all-projects", is_flag=True, help="Jobs of all projects.")
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "name"]), default="table")
@click.option("-w", "--watch", "watches", is_flag=True, help="Then print each job that changes, until Ctrl-C.")
@namespace_option
@cluster_options
def list_jobs(project: str | None, output: str, where: Where, *, all_projects: bool, watches: bool) -> None:
    """List jobs, the newest start first.

    A sweep is one row, with how many of its jobs are in which state. The columns are Run:ai's, all of them with -o
    wide. Without it a line has at most 120 characters, and longer names lose their middles. AGE is that of the job's
    object, SINCE when it last started or began to wait. USER is always "-": jobs are declared in Git, and `git log
    FILE` has the author of a declaration; gpuctl writes no names of people onto objects.
    """
    from gpuctl.views.listing import heading, job_form, job_table, name_lines  # noqa: PLC0415
    from gpuctl.views.sweeps import folded  # noqa: PLC0415

    if project and all_projects:
        raise Failure("GPU9002", "-p and -A exclude each other", hint="gpuctl list --help")
    project = project or (None if all_projects else default_project())
    chosen = ProjectName(project) if project else None
    if watches:
        if output not in {"table", "wide"}:
            raise Failure("GPU9002", "--watch is for -o table and wide", hint="gpuctl list --help")
        _watch(where, project, chosen, wide=output == "wide")
        return
    with where.looking(project) as (cluster, sessions):
        current = with_other_engine(cluster, told_live(cluster, sessions))
    views = current.of_project(chosen)
    if output in {"json", "yaml"}:
        (print_json if output == "json" else print_yaml)({"jobs": [job_form(view) for view in views]})
    elif output == "name":
        show(name_lines(views))
    elif not views:
        say(f"No jobs found{f' in project {project}' if project else ''}.", err=True)
        if project and project not in current.state.ledgers:
            near = nearest(project, current.state.ledgers) or "gpuctl project list shows all"
            say(f"help: the project is unknown in this cluster; {near}", err=True)
    else:
        if current.unread and current.overview is not None and chosen is None:
            say("note: jobs that you may not see are left out; gpuctl project list shows what projects hold", err=True)
        say(heading(chosen, where.namespace))
        show(job_table(folded(views), context_clock().now_ms(), wide=output == "wide"))


def _watch(where: Where, project: str | None, chosen: ProjectName | None, *, wide: bool) -> None:
    """Print the list, then a line for each job that differs from the reading before, without end.

    A line says once that the cluster can't be read, and once that it can again.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.cli.readings import readings  # noqa: PLC0415
    from gpuctl.views.listing import heading, job_rows, told_apart  # noqa: PLC0415
    from gpuctl.views.sweeps import folded  # noqa: PLC0415

    clock = wiring.passing_clock()
    before: dict[JobId, tuple[object, ...]] | None = None
    missed = False
    for current, wait_ms, fault in readings(where, project):
        if missed != bool(fault):
            missed = not missed
            say(f"note: {fault}; trying again" if fault else "note: the cluster is read again", err=True)
        now_ms, views = context_clock().now_ms(), folded(current.of_project(chosen))
        marks = {view.id: told_apart(view) for view in reversed(views)}
        changed = [view for view in views if before is None or before.get(view.id) != marks[view.id]]
        header, *rows = job_rows(changed, now_ms, wide=wide)
        if before is None:
            say(heading(chosen, where.namespace))
            show(header)
        show("".join(rows))
        for gone in sorted((before or {}).keys() - marks.keys()):
            say(f"{gone} is gone")
        before = marks
        sys.stdout.flush()
        clock.advance_to(clock.now_ms() + wait_ms)
