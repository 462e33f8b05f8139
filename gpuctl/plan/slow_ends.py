"""Notices about deleted things that remain: a project's namespace, a run whose pods stay, and a pod.

The first two wait for finalizers of others, which gpuctl never removes. The Job controller stops no pod of a deleted
Job, so its GPUs would be held as long as the finalizer is there: the pods of such a run are deleted before the Job. A
pod that does not end waits for its node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.k8s import names
from gpuctl.k8s.objects import instant, is_deleting, labels_of, text
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.k8s.workloads import keeps_its_pods
from gpuctl.model.change import Change
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunKey
from gpuctl.model.state import Body, ClusterState, RunPhase
from gpuctl.model.units import Instant
from gpuctl.plan.guard import listed
from gpuctl.plan.obstacles import ending_spaces, held_facts
from gpuctl.plan.prune import is_ours
from gpuctl.plan.writes import delete

STAYS_MS = 60_000
"""How long a deleted object may remain without a notice. The grace period of its pods begins once it is gone."""
_ENDED = frozenset({"Succeeded", "Failed"})


def slow_ends(
    declared: Declared, state: ClusterState, spaces: Mapping[ObjectRef, Body], now_ms: Instant
) -> Iterator[Diagnostic]:
    """A notice for each deleted thing that remains. `spaces`: the live namespaces. Cost: linear in namespaces and
    runs."""
    ending = {ref.name for ref, body in spaces.items() if is_deleting(body)}
    if ending:
        places = {project.name: project.span for project in declared.projects}
        for project, reason in ending_spaces(declared, spaces):
            yield _notice(reason.code, dict(reason.params), places[project], Severity.ERROR)
        yield from _of_removed(declared, spaces, now_ms)
    stopping = {(run.job, run.digest) for run in state.runs if run.phase is RunPhase.STOPPING}
    leaving = stopping | {(run.job, run.digest) for run in state.runs if run.leaving is not None}
    if not leaving:
        return
    spans = {job.id: job.span for job in declared.jobs}
    yield from _of_pods(state, leaving, spans, declared.cluster.span, now_ms)
    for ref, own in state.own.items():
        if own.run in stopping and ref.namespace not in ending:
            yield from _of_run(ref, own.run[0], state.live[ref], spans.get(own.run[0], declared.cluster.span), now_ms)


def _of_removed(declared: Declared, spaces: Mapping[ObjectRef, Body], now_ms: Instant) -> Iterator[Diagnostic]:
    """Notices about namespaces of projects that are no longer declared."""
    known = {project.name for project in declared.projects}
    for ref, body in sorted(spaces.items()):
        project, deleted_ms = text(labels_of(body), names.PROJECT_LABEL), instant(body, "metadata", "deletionTimestamp")
        is_slow = deleted_ms is not None and now_ms - deleted_ms >= STAYS_MS
        if is_slow and project not in known and is_ours(body, declared.cluster.name, project):
            facts = {"namespace": ref.name, "project": project, "since": format_seconds(deleted_ms or 0)}
            yield _notice("GPU7023", facts, declared.cluster.span, Severity.WARNING)


def _of_run(ref: ObjectRef, job: JobId, body: Body, span: SourceSpan, now_ms: Instant) -> Iterator[Diagnostic]:
    deleted_ms, facts = instant(body, "metadata", "deletionTimestamp"), held_facts(ref, job, body)
    if deleted_ms is not None and now_ms - deleted_ms >= STAYS_MS and facts is not None:
        yield _notice("GPU7024", facts, span, Severity.WARNING)


def _of_pods(
    state: ClusterState,
    runs: Collection[RunKey],
    spans: Mapping[JobId, SourceSpan],
    elsewhere: SourceSpan,
    now_ms: Instant,
) -> Iterator[Diagnostic]:
    """A notice for each of these runs with pods that should have ended long ago."""
    late: dict[JobId, list[tuple[Instant, str]]] = defaultdict(list)
    for ref, run in state.pods.items():
        over_ms = _over_ms(state.live[ref]) if run in runs else None
        if over_ms is not None and now_ms - over_ms >= STAYS_MS:
            node = text(state.live[ref], "spec", "nodeName")
            late[run[0]].append((over_ms, f"{ref.namespace}/{ref.name} on node {node}"))
    for job, pods in sorted(late.items()):
        facts = {"job": str(job), "since": format_seconds(min(pods)[0]), "pods": listed(sorted(pod for _, pod in pods))}
        yield _notice("GPU7027", facts, spans.get(job, elsewhere), Severity.WARNING)


def _over_ms(pod: Body) -> Instant | None:
    """When the grace period of a deleted pod ends; None: the pod holds nothing, or is not deleted."""
    holds = text(pod, "spec", "nodeName") and text(pod, "status", "phase") not in _ENDED
    return instant(pod, "metadata", "deletionTimestamp") if holds else None


def unended(state: ClusterState, untouched: Collection[ProjectName], now_ms: Instant) -> Iterator[Change]:
    """Delete once more each run's object that finalizers have kept for long while its pods still run: with this
    deletion the garbage collector deletes the pods first. Cost: linear in runs, and in pods where such a run stops."""
    stopping = {(run.job, run.digest) for run in state.runs if run.phase is RunPhase.STOPPING}
    found = {
        own.run: ref
        for ref, own in (state.own.items() if stopping else ())
        if own.run in stopping and own.run[0].project not in untouched and _is_kept(ref, state.live[ref], now_ms)
    }
    going_on = {run for ref, run in state.pods.items() if run in found and _goes_on(state.live[ref])} if found else ()
    for run in sorted(going_on):
        ref = found[run]
        yield delete(ref, state.live[ref], run[0].project, "its pods go on though it was deleted")


def _is_kept(ref: ObjectRef, body: Body, now_ms: Instant) -> bool:
    deleted_ms = instant(body, "metadata", "deletionTimestamp")
    return deleted_ms is not None and now_ms - deleted_ms >= STAYS_MS and keeps_its_pods(ref, body)


def _goes_on(pod: Body) -> bool:
    return not is_deleting(pod) and text(pod, "status", "phase") not in _ENDED


def _notice(code: str, facts: Mapping[str, str | int], span: SourceSpan, severity: Severity) -> Diagnostic:
    return Diagnostic(code=code, message=message(code, facts), span=span, severity=severity)
