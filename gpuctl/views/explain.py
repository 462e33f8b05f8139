"""Why a job is where it is, in sentences: as it is written on the job, and as the engine explains it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import duration, reason_text
from gpuctl.model.decision import JobState
from gpuctl.model.units import Instant, format_gpus
from gpuctl.views.jobs import JobView

_SECOND_MS = 1000


def explain_job(view: JobView, now_ms: Instant) -> Iterator[str]:
    """What a job asks for, how it stands, why, for whom it was paused, and what to do about it."""
    asked = format_gpus(view.run.gpu_milli * view.asked_workers)
    yield f"{view.id} asks for {asked} GPUs{_workers(view)} and is {view.state.value}."
    if view.placement is not None:
        places = (f"{worker.node} (GPU {_devices(worker.gpus)})" for worker in view.placement.workers)
        yield f"It is on {', '.join(places)} since {_ago(now_ms - view.since_ms)}."
    elif view.state in {JobState.PENDING, JobState.PREEMPTED}:
        yield f"It waits since {_ago(now_ms - view.run.queued_at_ms)}; so far it was started {_times(view.run.starts)}."
    if view.run.paused_for is not None:
        yield f"It was paused for {view.run.paused_for}."
    reason = view.run.reason
    if reason is None:
        yield "No decision is recorded on it yet."
        return
    yield f"{reason.code}: {reason_text(reason)}."
    if view.run.placement is not None and view.placement is None:
        nodes = ", ".join(sorted(view.run.placement.nodes))
        yield f"A place on {nodes} is reserved for it."
    entry = CODES.get(reason.code)
    if entry is not None:
        yield f"Why: {entry.why}"
        yield f"Fix: {entry.fix}"


def _workers(view: JobView) -> str:
    asked = f" in {view.asked_workers} workers" if view.asked_workers > 1 else ""
    return f"{asked}, goes on with {view.workers} of them," if view.workers < view.asked_workers else asked


def _devices(gpus: tuple[int, ...]) -> str:
    return ", ".join(str(gpu) for gpu in gpus) or "none"


def _ago(ms: int) -> str:
    return duration(max(0, ms) // _SECOND_MS * _SECOND_MS)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
