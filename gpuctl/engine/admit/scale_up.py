"""Scale-up: a run with too few workers is a pending entry of its project's queue, and gets them by the rights of a job.

The rules are in docs/concepts.md, "Regaining workers" and "Elastic jobs". Workers are attempted one after another: on
GPUs that are idle on the nodes that its pods may use, then on GPUs coming free there, then on what victims leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from gpuctl.engine import reasons
from gpuctl.engine.admit.outcome import Outcome
from gpuctl.engine.admit.reservations import is_free, is_place_for
from gpuctl.engine.capacity.gang import Assignment, place, place_in
from gpuctl.engine.jobs.pending_jobs import QueueKey
from gpuctl.engine.jobs.project_queue import JobOptions, PendingJob, ProjectQueue
from gpuctl.engine.jobs.runs import NOWHERE, Allocation
from gpuctl.engine.jobs.under_scaled import UnderScaled
from gpuctl.engine.shares.entitlement import reason_to_run
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Room
from gpuctl.engine.victims.room import IsDue, find_room_in_place
from gpuctl.engine.victims.rules import rules_of
from gpuctl.model.decision import Placement, Resize, TraceStep
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import RunPhase
from gpuctl.model.units import Instant

T = TypeVar("T")

AFTER_ALL: Instant = 1 << 62
"""When a run's missing workers count as queued: jobs of equal priority that wait come first."""


class ScaleUp:
    """The under-scaled runs of one cycle, and what they gain in its outcome. `allocations`: all runs in place."""

    def __init__(self, snapshot: Snapshot, runs: Iterable[UnderScaled], allocations: Iterable[Allocation]) -> None:
        self.runs = {run.job.id: run for run in runs if run.can_grow}
        self._snapshot = snapshot
        self.outcome = Outcome()
        changing = (each for each in (allocations if self.runs else ()) if each.leaving or each.run.unbound)
        self._unrest = {node for each in changing for node in each.placement.nodes}

    def keep(self) -> None:
        """Reserve again the places of the last cycle that are idle or coming free, within every ceiling."""
        for run in self.runs.values():
            for worker in (run.allocation.run.reserved or NOWHERE).workers:
                place = Placement(workers=(worker,))
                is_open = is_place_for(run.option, place, self._snapshot) and run.can_use(worker)
                is_due = is_open and run.missing(self._snapshot.capacity) and self._snapshot.allows(run.job, run.option)
                if is_due and is_free(self._snapshot.future_idle, Assignment(run.option, place)):
                    self._gain(run, place, is_paid=True)

    def queues(self, queues: Mapping[QueueKey, ProjectQueue]) -> Iterable[ProjectQueue]:
        """The queues with an entry for each run that lacks workers. Cost: O(jobs of projects with such runs)."""
        found = dict(queues)
        for name, run in self.runs.items():
            if run.allocation.run.phase is RunPhase.RUNNING and run.missing(self._snapshot.capacity):
                domain = run.option.domain
                key = run.allocation.project, domain
                if found.get(key) is queues.get(key):
                    found[key] = ProjectQueue(*key, queues.get(key))
                options = JobOptions(run.job, (run.option,))
                found[key].join((name,), [PendingJob(run.job, run.allocation.run, AFTER_ALL, options, domain)])
        return found.values()

    def attempt(self, job: JobId, is_due: IsDue) -> bool:
        """Attempt one more worker, or the workers for which one set of victims makes room. Returns whether it gained
        any.

        No run is paused if idle GPUs will do. Cost: O(its nodes), and a victim search for each halving of the number of
        workers.
        """
        run, outcome = self.runs[job], self.outcome
        missing = run.missing(self._snapshot.capacity)
        if not missing or job in outcome.pauses or job in outcome.given_up:
            return False
        place = place_in(run.usable(self._snapshot.idle), run.option)
        if place is not None and self._snapshot.allows(run.job, run.option):
            may_gain = is_due(run.option, ())
            if may_gain:
                self._gain(run, place)
            return may_gain
        most = missing if run.option.request.gpu_milli else 0
        best = _for_most(0, most, lambda count: self._room(run, count, is_due))
        if best is None:
            return False
        outcome.pause(best, job)
        self._snapshot.pause(best.victims)
        if best.victims:
            self._snapshot.leave_alone(job)
        self._gain(run, best.assignment.placement, is_paid=bool(best.victims))
        return True

    def _room(self, run: UnderScaled, count: int, is_due: IsDue) -> Room | None:
        """Places coming free for this many workers, or room that can be made for them."""
        snapshot, option = self._snapshot, run.option.of(count)
        if not snapshot.is_open(run.job, option):
            return None
        rules = rules_of(snapshot, run.job, option)
        entitled = next((rule for rule in rules if rule.is_entitled and rule.is_plain), None)
        if entitled is not None and is_due(option, ()):
            coming = place_in(run.usable(snapshot.future_idle), option)
            if coming is not None:
                return Room(Assignment(option, coming), entitled)
        return find_room_in_place(snapshot, run, count, is_due)

    def _gain(self, run: UnderScaled, place: Placement, *, is_paid: bool = False) -> None:
        """Enter places that a run gains. `is_paid`: other runs were paused for them."""
        assignment = Assignment(run.option.of(len(place.workers)), place)
        is_idle = is_free(self._snapshot.idle, assignment)
        self._snapshot.occupy(run.job, assignment)
        self.outcome.regained[run.job.id] = run
        run.gained += place.workers
        run.paid += place.workers if is_paid else ()
        run.coming += 0 if is_idle else len(place.workers)

    # Decisions

    def resizes(self) -> Iterator[Resize]:
        """The runs that go on with fewer workers, and the under-scaled runs that go on with more.

        What a run gained that can't scale up now stays in the outcome. Its new pods may go to any node that its pods
        name, so it scales up only if nothing else is about to take a place on one of these.
        """
        outcome, snapshot = self.outcome, self._snapshot
        yield from _given_up(outcome)
        unrest, growing = self._unrest | _taken_nodes(outcome), set[NodeName]()
        hindered: dict[JobId, str] = {}
        for name, run in {**outcome.regained, **self.runs}.items():
            if name in outcome.pauses or name in outcome.given_up:
                continue
            if run.coming:
                numbers: dict[str, str | int] = {"free": len(run.gained) - run.coming, "coming": run.coming}
                outcome.trace.append(TraceStep(job=name, rule="regain", numbers=numbers))
                continue
            neighbour = None if growing.isdisjoint(run.nodes) else "neighbour"
            is_at_rest = run.allocation.run.phase is RunPhase.RUNNING and unrest.isdisjoint(run.nodes)
            hindrance = neighbour if is_at_rest else "unrest"
            if run.gained and hindrance is None:
                numbers = {"from": len(run.workers), "to": len(run.workers) + len(run.gained)}
                outcome.trace.append(TraceStep(job=name, rule="grow", numbers=numbers))
                run.workers += run.gained
                growing |= run.nodes
                del outcome.regained[name]
                record = run.allocation.run.record
                is_whole = len(run.workers) == run.job.workers
                yield Resize(
                    job=name,
                    reason=reason_to_run(
                        snapshot.accounts, run.option.domain, run.job.id.project, run.option.request.gpu_milli
                    ),
                    record=record._replace(paused_for=None) if is_whole else record,
                    placement=Placement(workers=tuple(run.workers)),
                )
            if len(run.workers) < run.job.workers:
                hindered[name] = hindrance or ("room" if snapshot.allows(run.job, run.option) else "ceiling")
        for name in sorted(hindered):
            run = self.runs[name]
            numbers = {"workers": len(run.workers), "most": run.most(snapshot.capacity), "asked": run.job.workers}
            numbers["because"] = hindered[name]
            outcome.trace.append(TraceStep(job=name, rule="stay small", numbers=numbers))


def larger_start(pending: PendingJob, assignment: Assignment, snapshot: Snapshot) -> Assignment:
    """The same start with as many workers as idle GPUs and ceilings allow, in its pool or one as good.

    Once it runs, it could gain them on its nodes only, or not at all if its pods ask for GPUs by name. Cost: a search
    for a place in each pool for each halving of the workers that it lacks.
    """
    options = [option for option in pending.options if option.order == assignment.option.order]

    def find(workers: int) -> Assignment | None:
        sized = filter(None, (option.sized(workers) for option in options))
        return place(snapshot.idle, [each for each in sized if snapshot.allows(pending.job, each)])

    snapshot.vacate(pending.job, assignment)
    best = _for_most(len(assignment.placement.workers), pending.job.workers, find) or assignment
    snapshot.occupy(pending.job, best)
    return best


def _for_most(fewer: int, most: int, find: Callable[[int], T | None]) -> T | None:
    """The result of `find` for the most workers, above `fewer`, that have one; each smaller number has one too."""
    best = None
    while fewer < most:
        middle = (fewer + most + 1) // 2
        found = find(middle)
        best, fewer, most = (found, middle, most) if found is not None else (best, fewer, middle - 1)
    return best


def _given_up(outcome: Outcome) -> Iterator[Resize]:
    for job, gone in outcome.given_up.items():
        if job in outcome.pauses:
            continue
        run, declared = gone[0].allocation.run, gone[0].allocation.job
        count = sum(len(pause.allocation.placement.workers) for pause in gone)
        workers = run.placement.workers[:-count] if run.placement else ()
        most = declared.workers if declared else len(workers)
        yield Resize(
            job=job,
            reason=reasons.gave_up_workers(gone[0].beneficiary, len(workers), most),
            record=run.record._replace(paused_for=gone[0].beneficiary),
            placement=Placement(workers=workers),
            beneficiary=gone[0].beneficiary,
        )


def _taken_nodes(outcome: Outcome) -> set[NodeName]:
    """The nodes on which this cycle's decisions start a run, reserve a place or make a run leave."""
    placements = [assignment.placement for assignment, _ in (*outcome.started.values(), *outcome.reserved.values())]
    gone = (*outcome.pauses.values(), *(pause for pauses in outcome.given_up.values() for pause in pauses))
    placements += [pause.goes_on.placement for pause in gone if pause.goes_on is not None]
    placements += [pause.allocation.placement for pause in gone]
    return {worker.node for placement in placements for worker in placement.workers}
