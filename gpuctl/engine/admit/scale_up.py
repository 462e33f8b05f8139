"""Elastic runs that grow again: into what was regained for them, and into what is idle once everybody has had a turn.

The one furthest below its share is first. Where a run can't grow it has all its workers at its next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from gpuctl.engine import reasons
from gpuctl.engine.admit.outcome import Outcome, Regained
from gpuctl.engine.admit.under_scaled import UnderScaled
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.jobs.runs import Allocation, record_of
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import forbidden, standing
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Placement, Reason, Resize, TraceStep
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import RunPhase


class Hindrance(StrEnum):
    """What keeps a run from more workers in a cycle."""

    UNREST = "unrest"
    """Somebody starts, is promised a place or leaves one on its nodes, or it starts itself."""
    NEIGHBOUR = "neighbour"
    """Another run grows on its nodes."""
    CEILING = "ceiling"
    """Its project may hold no more."""
    ROOM = "room"
    """Nothing is free where its pods can go."""


def grow(
    runs: Iterable[UnderScaled], snapshot: Snapshot, restless: set[NodeName], regained: Mapping[JobId, Regained]
) -> tuple[list[UnderScaled], dict[JobId, Hindrance]]:
    """Give them workers one by one, within every ceiling, those first that have a place already: those that grew, and
    what keeps those that lack some still, but for who waits for what was regained for it.

    A new pod may go to any node its run's pods name, so nothing else may be about to start on one of these.
    """
    left: list[UnderScaled] = []
    kept_from: dict[JobId, Hindrance] = {}
    for run in runs:
        if restless.isdisjoint(run.nodes):
            left.append(run)
        elif run.job.id not in regained:
            kept_from[run.job.id] = Hindrance.UNREST
    grown: dict[JobId, UnderScaled] = {}
    for run in sorted(left, key=lambda run: run.rank(snapshot)):
        kept = regained.get(run.job.id)
        if kept is not None and _is_apart(run, grown):
            run.workers += kept.now
            grown[run.job.id] = run
    asking = (run for run in left if run.job.id in grown or run.job.id not in regained)
    left = [run for run in asking if len(run.workers) < run.job.workers]
    while left:
        first = min(left, key=lambda run: run.rank(snapshot))
        hindrance = _hindrance(first, snapshot, grown)
        worker = None if hindrance else first.next_worker(snapshot)
        if worker is None:
            left.remove(first)
            kept_from[first.job.id] = hindrance or Hindrance.ROOM
            continue
        snapshot.occupy(first.job, Assignment(first.option, Placement(workers=(worker,))))
        first.workers.append(worker)
        grown[first.job.id] = first
        if len(first.workers) == first.job.workers:
            left.remove(first)
    return list(grown.values()), kept_from


def _hindrance(run: UnderScaled, snapshot: Snapshot, grown: Mapping[JobId, UnderScaled]) -> Hindrance | None:
    """What keeps a run from one worker more, besides room."""
    if not _is_apart(run, grown):
        return Hindrance.NEIGHBOUR
    return Hindrance.CEILING if _is_forbidden(run, snapshot) else None


def _is_apart(run: UnderScaled, grown: Mapping[JobId, UnderScaled]) -> bool:
    """No other that grows has a node in common with it."""
    return all(other is run or run.nodes.isdisjoint(other.nodes) for other in grown.values())


def _is_forbidden(run: UnderScaled, snapshot: Snapshot) -> bool:
    domain = run.allocation.domain
    return domain is None or forbidden(snapshot.accounts, run.job, domain, run.option.request.gpu_milli) is not None


def resizes(
    outcome: Outcome, smaller: Iterable[UnderScaled], snapshot: Snapshot, allocations: Iterable[Allocation]
) -> Iterator[Resize]:
    """Who goes on with fewer workers, for the first that some were given up for; and who grows, into what was regained
    for it and into what is left.

    `allocations` are all runs in place.
    """
    for job, gone in outcome.given_up.items():
        if job in outcome.pauses:
            continue
        run, declared = gone[0].allocation.run, gone[0].allocation.job
        workers = run.placement.workers[: -len(gone)] if run.placement else ()
        most = declared.workers if declared else len(workers)
        yield Resize(
            job=job,
            reason=reasons.gave_up_workers(gone[0].beneficiary, len(workers), most),
            record=record_of(run, snapshot.now_ms),
            placement=Placement(workers=workers),
            beneficiary=gone[0].beneficiary,
        )
    busy = outcome.pauses.keys() | outcome.given_up.keys() | outcome.shifts.keys()
    left = [run for run in smaller if run.job.id not in busy]
    more, kept_from = grow(left, snapshot, _restless(outcome, allocations) if left else set(), outcome.regained)
    for grown in more:
        outcome.regained.pop(grown.job.id, None)
        numbers = {"from": len(grown.allocation.placement.workers), "to": len(grown.workers)}
        outcome.trace.append(TraceStep(job=grown.job.id, rule="grow", numbers=numbers))
        yield Resize(
            job=grown.job.id,
            reason=_standing(grown, snapshot),
            record=record_of(grown.allocation.run, snapshot.now_ms),
            placement=Placement(workers=tuple(grown.workers)),
        )
    for stays in sorted((run for run in left if run.job.id in kept_from), key=lambda run: run.job.id):
        outcome.trace.append(_step_of(stays, kept_from[stays.job.id], snapshot))


def _step_of(run: UnderScaled, kept_from: Hindrance, snapshot: Snapshot) -> TraceStep:
    """Why it has no more workers, and with how many it could go on at the most without a new start."""
    numbers: dict[str, str | int] = {
        "workers": len(run.workers),
        "most": run.most(snapshot.capacity),
        "asked": run.job.workers,
        "because": kept_from.value,
    }
    return TraceStep(job=run.job.id, rule="stay small", numbers=numbers)


def _restless(outcome: Outcome, allocations: Iterable[Allocation]) -> set[NodeName]:
    """Nodes on which somebody starts, is promised a place, or is leaving one."""
    seats = [seat.placement for seat, _ in (*outcome.started.values(), *outcome.reserved.values())]
    moved = [shift.move.seat.placement for shift in outcome.shifts.values()]
    coming = [Placement(workers=places.coming) for places in outcome.regained.values()]
    going = [h.placement for h in allocations if h.leaving or h.run.phase is RunPhase.STARTING]
    return {worker.node for placement in (*seats, *moved, *coming, *going) for worker in placement.workers}


def _standing(grown: UnderScaled, snapshot: Snapshot) -> Reason:
    """Why it may run with all it has now."""
    domain, project = grown.allocation.domain, grown.allocation.project
    if domain is None or not grown.option.request.gpu_milli:
        return reasons.runs_without_gpu()
    return standing(snapshot.accounts, domain, project, snapshot.accounts.held(domain, project_owner(project)))
