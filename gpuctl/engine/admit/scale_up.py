"""Scale-up: elastic runs that get more workers in place, once all attempts of the cycle are over.

A run gets the workers it regained, then idle GPUs on the nodes that its pods may use; the run of the project furthest
below its share first. A run that can't scale up in place has all its workers at its next start.
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
from gpuctl.engine.shares.entitlement import forbidden, reason_to_run
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Placement, Reason, Resize, TraceStep
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import RunPhase


class Hindrance(StrEnum):
    """Why a run gets no more workers in a cycle. The values are shown in the trace."""

    UNREST = "unrest"
    """On its nodes a run starts, has a reservation or is leaving, or the run itself is starting."""
    NEIGHBOUR = "neighbour"
    """On its nodes another run scales up."""
    CEILING = "ceiling"
    """Its project may hold no more."""
    ROOM = "room"
    """Nothing is idle where its pods can go."""


def resizes(
    outcome: Outcome, runs: Iterable[UnderScaled], snapshot: Snapshot, allocations: Iterable[Allocation]
) -> Iterator[Resize]:
    """The runs that go on with fewer workers, and the under-scaled `runs` that go on with more.

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
    left = [run for run in runs if run.job.id not in busy]
    grown, hindered = grow(left, snapshot, _busy_nodes(outcome, allocations) if left else set(), outcome.regained)
    for each in grown:
        outcome.regained.pop(each.job.id, None)
        numbers = {"from": len(each.allocation.placement.workers), "to": len(each.workers)}
        outcome.trace.append(TraceStep(job=each.job.id, rule="grow", numbers=numbers))
        yield Resize(
            job=each.job.id,
            reason=_reason_to_run(each, snapshot),
            record=record_of(each.allocation.run, snapshot.now_ms),
            placement=Placement(workers=tuple(each.workers)),
        )
    for run_left in sorted((run for run in left if run.job.id in hindered), key=lambda run: run.job.id):
        outcome.trace.append(_step_of(run_left, hindered[run_left.job.id], snapshot))


def grow(
    runs: Iterable[UnderScaled], snapshot: Snapshot, busy_nodes: set[NodeName], regained: Mapping[JobId, Regained]
) -> tuple[list[UnderScaled], dict[JobId, Hindrance]]:
    """Add workers to runs one by one, within every ceiling; the runs that grew, and what hinders the other ones.

    A new pod may go to any node that its run's pods name, so nothing else may be about to start on one of these. Runs
    that wait for regained places are in neither result.
    """
    left: list[UnderScaled] = []
    hindered: dict[JobId, Hindrance] = {}
    for run in runs:
        if busy_nodes.isdisjoint(run.nodes):
            left.append(run)
        elif run.job.id not in regained:
            hindered[run.job.id] = Hindrance.UNREST
    grown: dict[JobId, UnderScaled] = {}
    for run in sorted(left, key=lambda run: run.rank(snapshot)):
        places = regained.get(run.job.id)
        if places is not None and _is_apart(run, grown):
            run.workers += places.now
            grown[run.job.id] = run
    asking = (run for run in left if run.job.id in grown or run.job.id not in regained)
    left = [run for run in asking if len(run.workers) < run.job.workers]
    while left:
        first = min(left, key=lambda run: run.rank(snapshot))
        hindrance = _hindrance(first, snapshot, grown)
        worker = None if hindrance else first.next_worker(snapshot)
        if worker is None:
            left.remove(first)
            hindered[first.job.id] = hindrance or Hindrance.ROOM
            continue
        snapshot.occupy(first.job, Assignment(first.option, Placement(workers=(worker,))))
        first.workers.append(worker)
        grown[first.job.id] = first
        if len(first.workers) == first.job.workers:
            left.remove(first)
    return list(grown.values()), hindered


def _hindrance(run: UnderScaled, snapshot: Snapshot, grown: Mapping[JobId, UnderScaled]) -> Hindrance | None:
    """What hinders a run, besides room, from one worker more."""
    if not _is_apart(run, grown):
        return Hindrance.NEIGHBOUR
    domain, milli = run.allocation.domain, run.option.request.gpu_milli
    if domain is None or forbidden(snapshot.accounts, run.job, domain, milli) is not None:
        return Hindrance.CEILING
    return None


def _is_apart(run: UnderScaled, grown: Mapping[JobId, UnderScaled]) -> bool:
    """Whether no other run that grows has a node in common with it."""
    return all(other is run or run.nodes.isdisjoint(other.nodes) for other in grown.values())


def _step_of(run: UnderScaled, hindrance: Hindrance, snapshot: Snapshot) -> TraceStep:
    numbers: dict[str, str | int] = {
        "workers": len(run.workers),
        "most": run.most(snapshot.capacity),
        "asked": run.job.workers,
        "because": hindrance.value,
    }
    return TraceStep(job=run.job.id, rule="stay small", numbers=numbers)


def _busy_nodes(outcome: Outcome, allocations: Iterable[Allocation]) -> set[NodeName]:
    """The nodes on which a run starts, has a reservation or is leaving."""
    assigned = [assignment.placement for assignment, _ in (*outcome.started.values(), *outcome.reserved.values())]
    moved = [shift.move.assignment.placement for shift in outcome.shifts.values()]
    coming = [Placement(workers=places.coming) for places in outcome.regained.values()]
    changing = [each.placement for each in allocations if each.leaving or each.run.phase is RunPhase.STARTING]
    return {worker.node for placement in (*assigned, *moved, *coming, *changing) for worker in placement.workers}


def _reason_to_run(run: UnderScaled, snapshot: Snapshot) -> Reason:
    """Why it may run with all workers it has now."""
    domain, project = run.allocation.domain, run.allocation.project
    if domain is None or not run.option.request.gpu_milli:
        return reasons.runs_without_gpu()
    return reason_to_run(snapshot.accounts, domain, project, snapshot.accounts.held(domain, project_owner(project)))
