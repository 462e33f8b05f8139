"""Why a job is in its state, in sentences, from its objects in the cluster alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import duration, reason_text
from gpuctl.model.decision import JobState
from gpuctl.model.state import ACTIVE
from gpuctl.model.units import Instant, count_gpus
from gpuctl.views.explanation import on_devices
from gpuctl.views.jobs import JobView
from gpuctl.views.pod_problems import problem_text, remedy_of

_SECOND_MS = 1000


def explain_job(view: JobView, now_ms: Instant, *, in_deleted_namespace: bool = False) -> Iterator[str]:
    """The job's request, its state and the reason, the job it was paused for, and what to do."""
    asked = count_gpus(view.gpu_milli // max(1, view.workers) * view.asked_workers)
    yield f"{view.id} requests {asked}{_workers(view)} and is {view.state.value}."
    if view.placement is not None:
        places = ", ".join(map(on_devices, view.placement.workers))
        yield f"It has been on {places} for {_ago(now_ms - view.since_ms)}."
    elif view.state in {JobState.PENDING, JobState.PREEMPTED}:
        yield f"Waiting for {_ago(now_ms - view.run.queued_at_ms)}; {_starts(view.run.starts)}."
    if view.run.problem is not None:
        yield f"Its pods: {problem_text(view.run.problem)}."
        yield f"Fix: {remedy_of(view.run.problem)}"
    if view.run.paused_for is not None:
        yield f"It {'made room' if view.run.phase in ACTIVE else 'was paused'} for {view.run.paused_for}."
    if view.state is JobState.FAILED:
        yield "It has ended, and a higher spec.runIndex runs it again."
    if view.state in {JobState.FAILED, JobState.SUCCEEDED}:
        return
    if in_deleted_namespace:
        yield from _going(view)
        return
    reason = view.reason
    if reason is None:
        yield "No decision is recorded on it yet."
        return
    yield f"{reason.code}: {reason_text(reason)}."
    if view.run.placement is not None and view.placement is None:
        nodes = ", ".join(sorted(view.run.placement.nodes))
        yield f"It has a reservation on {nodes}."
    entry = CODES.get(reason.code)
    is_fine = view.run.problem is None or view.placement is None
    if entry is not None and is_fine:  # else the reason only says why it has its GPUs, and nothing has to be done
        yield f"Why: {entry.why}"
        yield f"Fix: {entry.fix}"


def _going(view: JobView) -> Iterator[str]:
    """What happens to a run whose namespace is being deleted: the reason on its object is out of date."""
    yield f"Namespace {view.ref.namespace} is being deleted, and the run with it."
    yield "Fix: once the namespace is there again, a higher spec.runIndex runs it again. More: gpuctl explain GPU7023"


def explain_left(view: JobView, now_ms: Instant, engine: str, words: Iterable[str]) -> Iterator[str]:
    """The same for a job that another engine decides about: that engine's words, in place of gpuctl's decision."""
    asked = count_gpus(view.gpu_milli // max(1, view.workers) * view.asked_workers)
    yield f"{view.id} requests {asked}{_workers(view)} and is {view.state.value}. {engine} decides when it runs."
    if view.placement is not None:
        places = ", ".join(map(on_devices, view.placement.workers))
        yield f"It has been on {places} for {_ago(now_ms - view.since_ms)}."
    if view.run.problem is not None:
        yield f"Its pods: {problem_text(view.run.problem)}."
        yield f"Fix: {remedy_of(view.run.problem)}"
    if view.state is JobState.FAILED:
        yield "It has ended, and a higher spec.runIndex runs it again."
    if view.state not in {JobState.FAILED, JobState.SUCCEEDED}:
        yield from words


def _workers(view: JobView) -> str:
    asked = f" in {view.asked_workers} workers" if view.asked_workers > 1 else ""
    return f"{asked}, has {view.workers} of them" if view.workers < view.asked_workers else asked


def _ago(ms: int) -> str:
    return duration(max(0, ms) // _SECOND_MS * _SECOND_MS)


def _starts(count: int) -> str:
    if not count:
        return "not started yet"
    return f"started { ({1: 'once', 2: 'twice'}.get(count, f'{count} times')) } so far"
