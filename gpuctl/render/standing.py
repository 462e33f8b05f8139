"""What a decision means for a run's object: released or suspended, where, until when, and its annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from gpuctl.diag.wording import reason_text
from gpuctl.k8s import names
from gpuctl.k8s.annotations import encode_placement, encode_reason, encode_record
from gpuctl.model.decision import (
    NOT_YET,
    Admit,
    Decision,
    Displace,
    Finished,
    Keep,
    Move,
    Pending,
    Placement,
    Preempt,
    Reason,
    Reclaim,
    Resize,
    RunRecord,
    Suspended,
    TimeOut,
)
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A run that has not finished. `placement`: where it runs, or the place reserved for it while it waits.

    `placement` is also None for a run that goes on without a known place (released by hand, not bound yet).
    `deadline_s`: seconds it may be active from now on, or None. `reserved`: places for workers that it lacks.
    `further`: nodes besides those of its start that its pods may go to.
    """

    running: bool
    placement: Placement | None
    deadline_s: int | None
    reason: Reason
    record: RunRecord
    reserved: Placement | None = None
    further: tuple[NodeName, ...] = ()

    @property
    def place(self) -> Placement | None:
        """Where its pods go; a reservation sends none anywhere yet."""
        return self.placement if self.running else None

    def workers_of(self, job: Job) -> int:
        """The number of released workers: as many as have a place, else all."""
        return len(self.place.workers) if self.place is not None else job.workers

    @property
    def facts(self) -> Mapping[str, str]:
        """The annotations that carry it to the next cycle, and tell people why it waits.

        The sentence changes only with the reason, and so in the same write.
        """
        facts = {names.REASON_ANNOTATION: encode_reason(self.reason), **encode_record(self.record)}
        if not self.running:
            facts[names.MESSAGE_ANNOTATION] = reason_text(self.reason)
        if self.placement is not None:
            facts[names.PLACEMENT_ANNOTATION] = encode_placement(self.placement)
        if self.reserved is not None:
            facts[names.RESERVED_ANNOTATION] = encode_placement(self.reserved)
        return facts


def standing_of(decision: Decision, job: Job) -> Standing | None:
    """What a decision means for the run's object; None for a finished run, whose object is left alone."""
    match decision:
        case Admit() | Keep() | Resize():
            place = _within(job.workers, decision.placement)
            reserved = decision.reserved if isinstance(decision, Keep) else None
            standing = _standing(decision, placement=place, running=True, deadline_s=_left_s(decision, job))
            further = decision.further if isinstance(decision, Admit) else ()
            return replace(standing, reserved=reserved, further=further)
        case Pending() | Move() | Reclaim() | Preempt():
            return _standing(decision, placement=decision.reserved)
        case Displace() | Suspended():
            return _standing(decision)
        case TimeOut():
            # A Job ends itself within a second, as DeadlineExceeded. Other kinds end only by having no pods.
            return _standing(decision, running=job.has_deadline, deadline_s=1)
        case Finished():
            return None
        case _:
            assert_never(decision)


def _standing(
    decision: Decision, *, placement: Placement | None = None, running: bool = False, deadline_s: int | None = None
) -> Standing:
    return Standing(
        running=running,
        placement=placement if placement is not None and placement.workers else None,
        deadline_s=deadline_s,
        reason=decision.reason,
        record=decision.record,
    )


def _within(workers: int, placement: Placement | None) -> Placement | None:
    """The run's place, without pods beyond its workers that a person added by hand."""
    if placement is None or len(placement.workers) <= workers:
        return placement
    return Placement(workers=placement.workers[:workers])


def _left_s(decision: Admit | Keep | Resize, job: Job) -> int | None:
    """The rest of maxDuration when this start began, in whole seconds rounded up, at least one.

    The clock of activeDeadlineSeconds starts anew with each resume, so earlier running time is subtracted. The clock
    begins with the start, so the time of a slow start is added; until such a start is over there is no deadline.
    """
    record = decision.record
    if job.max_duration_ms is None or record.starting_ms == NOT_YET:
        return None
    return max(1, -(-(job.max_duration_ms - record.ran_ms + record.starting_ms) // 1000))
