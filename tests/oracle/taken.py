"""What a schedule takes: the places that jobs get, what runs lose, and the set taken for a job as a way."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.model.decision import Admit, Decision, Move, Pending, Placement, Preempt, Reclaim, Resize, Schedule
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job

from .enumeration import Way
from .rules import Claim, Loss, rights
from .view import View

HEAD_RESERVATION = "GPU5080"
"""The reason for a place that is kept as it empties, for the longest-waiting job: no room was made yet."""


def place_of(decision: Decision) -> Placement | None:
    """The place where a job starts, or the one kept for it while others leave."""
    if isinstance(decision, Admit):
        return decision.placement
    is_kept = isinstance(decision, Pending) and decision.reason.code != HEAD_RESERVATION
    return decision.reserved if isinstance(decision, Pending) and is_kept else None


def others_placed(made: Schedule, job: JobId) -> bool:
    """Whether other waiting jobs get a place too: those before it in order may have what it had."""
    stopped = {d.job for d in made.decisions if isinstance(d, Reclaim | Preempt | Move)}
    return any(place_of(d) is not None and d.job not in stopped and d.job != job for d in made.decisions)


def taken_for(view: View, job: Job, placement: Placement, made: Schedule) -> Way:
    """The set that the engine takes for a job, as a way; its rights are not judged."""
    losses = tuple(loss for loss, beneficiary in losses_of(view, made) if beneficiary == job.id)
    movers = {d.job for d in made.decisions if isinstance(d, Move) and d.beneficiary == job.id}
    moved = tuple(held for held in view.held if held.job.id in movers)
    claim = Claim(view, job, job.gpu_milli * len(placement.workers), losses)
    return Way(claim, len(placement.workers), moved, frozenset((rights(claim) or {}).values()))


def losses_of(view: View, made: Schedule) -> Iterator[tuple[Loss, JobId | None]]:
    """What runs lose in a cycle, and for which job."""
    held = {each.job.id: each for each in view.held}
    for decision in made.decisions:
        if isinstance(decision, Reclaim | Preempt | Resize):
            each = held[decision.job]
            left = len(decision.placement.workers) if isinstance(decision, Resize) else 0
            if left < len(each.workers):
                yield Loss(each, len(each.workers) - left), decision.beneficiary
