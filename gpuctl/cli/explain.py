"""`gpuctl explain`: what a code means, or why a job is in its state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from gpuctl.cli.clusters import (
    Where,
    cluster_options,
    namespace_option,
    one_job,
    project_of,
    tell_other_cluster,
    told_live,
)
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declarations import compiled_folder
from gpuctl.cli.declared_names import job_names, project_option
from gpuctl.cli.defaults import project_meant
from gpuctl.cli.failures import Failure
from gpuctl.cli.nearest import nearest, nearest_job
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say, show
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import explain_code, one_of
from gpuctl.model.decision import JobState
from gpuctl.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuctl.app.inspect import Live
    from gpuctl.app.ports import Cluster
    from gpuctl.model.declared import Declared
    from gpuctl.model.explanation import Explanation
    from gpuctl.targets import Engine
    from gpuctl.views.jobs import JobView

_CODE = re.compile(r"(?i)gpu\d+")
_WAITS = frozenset({JobState.PENDING, JobState.PREEMPTED})


@command(
    "explain",
    examples=("gpuctl explain GPU5011", "gpuctl explain team-b/b-4-gg", "gpuctl explain team-b/b-4-gg clusters/tr4858"),
)
@click.argument("subject", metavar="CODE|JOB", shell_complete=job_names)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False))
@project_option(help="The job's project; not needed with PROJECT/JOB. Default: `config project`.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@namespace_option
@cluster_options
def explain(subject: str, folder: str | None, project: str | None, output: str, where: Where) -> None:
    """Explain a code, or why a job waits or runs.

    CODE is the code of a message; JOB is a name or PROJECT/NAME. With DIR, the cluster's declarations, the engine
    computes the next decision for the job as it would if DIR were the newest commit: the rule and its numbers, the
    position in the queue, what would start the job, and when it starts if nothing else changes. Nothing is written.

    Where another engine decides (reconcile --target), it tells what Kueue says of the job, or how KAI is asked; the
    engine's explanation with DIR is refused there.
    """
    if _CODE.fullmatch(subject):
        _explain_code(subject.upper())
        return
    project = project_meant(subject, project)
    if output == "json":
        if folder is None:
            raise Failure("GPU9002", "-o json needs the declarations", hint="gpuctl explain JOB DIR -o json")
        from gpuctl.views.explanation import document  # noqa: PLC0415 - only now

        print_json(document(_asked(subject, project, folder, where)))
    elif folder is None:
        _explain_live(subject, project, where)
    else:
        from gpuctl.views.explanation import explanation_text, headline  # noqa: PLC0415 - only now

        told = _asked(subject, project, folder, where)
        say(headline(told))
        for line in explanation_text(told):
            say(line)


def _explain_code(code: str) -> None:
    if code not in CODES:
        near = nearest(code, (each for each in CODES if each[: len("GPU1")] == code[: len("GPU1")]))
        raise Failure("GPU9003", f"there is no code {code}", hint=near or "codes are GPU and four digits: GPU1001")
    show(explain_code(code))


def _explain_live(subject: str, project: str | None, where: Where) -> None:
    """Explain a job by its objects and by published data, which works with rights for one namespace only."""
    from gpuctl.app.inspect import is_in_deleted_namespace  # noqa: PLC0415
    from gpuctl.k8s.objects import labels_of  # noqa: PLC0415
    from gpuctl.targets import engine_of  # noqa: PLC0415
    from gpuctl.views.explain import explain_job, explain_left  # noqa: PLC0415
    from gpuctl.views.published import turn_text  # noqa: PLC0415

    with where.looking(project_of(subject, project)) as (cluster, sessions):
        current = told_live(cluster, sessions)
        view, now_ms = one_job(subject, project, cluster, current), context_clock().now_ms()
        engine = engine_of(labels_of(current.state.live.get(view.ref, {})))
        words = _words(cluster, current, view, engine) if engine is not None else ()
    ending = is_in_deleted_namespace(current, view.ref)
    told = explain_job(view, now_ms, in_deleted_namespace=ending)
    for line in told if engine is None else explain_left(view, now_ms, engine.called, words):
        say(line)
    if view.state in _WAITS and engine is None:
        for line in turn_text(view, current.state, current.overview, now_ms) if current.overview else ():
            say(line)
        say(f"What would start it, and when, by the engine: gpuctl explain {view.id} DIR")


def _words(cluster: Cluster, current: Live, view: JobView, engine: Engine) -> Iterator[str]:
    """Another engine's explanation of a job, or the command that shows it."""
    from gpuctl.app.kueue_words import words_of_kueue  # noqa: PLC0415 - only now
    from gpuctl.app.ports import Forbidden  # noqa: PLC0415
    from gpuctl.targets import Engine  # noqa: PLC0415

    kind = "workloads.kueue.x-k8s.io" if engine is Engine.KUEUE else "podgroups.scheduling.run.ai"
    show = f"What it waits for: kubectl -n {view.ref.namespace} describe {kind}"
    if engine is not Engine.KUEUE:
        return iter((show,))
    try:
        found = words_of_kueue(cluster, current, view)
    except Forbidden as fault:
        return iter((f"{fault.code}: {fault}.", show))
    if not found:
        return iter((f"{engine.called} has no Workload of it.", show))
    return (f"{each.workload}: {each.sentence}" for each in found)


def _asked(subject: str, project: str | None, folder: str, where: Where) -> Explanation:
    """The engine's own explanation, from the declarations and the cluster."""
    from gpuctl import wiring  # noqa: PLC0415 - only for jobs
    from gpuctl.app.explaining import explain_live  # noqa: PLC0415
    from gpuctl.app.other_engine import deciding_engine  # noqa: PLC0415

    if where.namespace is not None:
        raise Failure("GPU9002", "with DIR the whole cluster is read", hint="leave out -n, or leave out DIR")
    declared = compiled_folder(folder)
    job = _declared_job(declared, folder, subject, project)
    with where.reading() as cluster:
        tell_other_cluster(cluster, declared)
        engine = deciding_engine(cluster, declared.cluster.name)
        if engine is not None:
            said = f"{engine.called} decides in this cluster, and gpuctl's engine does not"
            raise Failure("GPU9002", said, hint=f"without DIR it tells what {engine.called} says: gpuctl explain {job}")
        told = explain_live(declared, cluster, context_clock(), job, wiring.sessions_of(cluster))
    if told is None:
        raise Failure("GPU9003", f"there is no decision for {job}")
    return told


def _declared_job(declared: Declared, folder: str, subject: str, project: str | None) -> JobId:
    name = f"{project}/{subject}" if project and "/" not in subject else subject
    found = [str(job.id) for job in declared.jobs if name in {str(job.id), job.id.name}]
    if len(found) > 1:
        raise Failure("GPU9003", f"{name} could be {one_of(found)}", hint="name the project: -p PROJECT")
    indices = [str(job.id) for job in declared.jobs if job.sweep and name in {str(job.declared_as), job.sweep.sweep}]
    if not found and indices:
        said = f"{name} is a sweep of {len(indices)} jobs"
        raise Failure("GPU9003", said, hint=f"name one of them: {indices[0]}; gpuctl get {name} shows all")
    if not found:
        near = nearest_job(name, (job.id for job in declared.jobs))
        raise Failure(
            "GPU9003", f"no job {name} is declared in {folder}", hint=near or "gpuctl list shows the jobs of a cluster"
        )
    return JobId.parse(found[0])
