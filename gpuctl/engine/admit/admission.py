"""Admission: which jobs start, which wait, and which runs are paused for which job.

Reservations of the last cycle come first. Then jobs, and elastic runs that lack workers, are attempted until none is
left that could be scheduled: first those that stay within their project's fair share, then the others. An attempt
tries, in this order: idle GPUs, GPUs that come free by themselves, the cheapest set of victims, fewer workers,
migration of runs that can go on elsewhere. A job that can't start is skipped and blocks no other; only for the
longest-waiting job of each pool a place is reserved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.attempts import attempt_all
from gpuctl.engine.admit.head_reservation import HeadReservations, is_head
from gpuctl.engine.admit.outcome import Outcome, gain_step
from gpuctl.engine.admit.repacking import Repacking
from gpuctl.engine.admit.reservations import (
    assignment_in,
    is_free,
    is_loose,
    place_to_go_on,
    reserved_for,
    stays_guaranteed,
    waits_for,
    yields,
)
from gpuctl.engine.admit.scale_up import ScaleUp, larger_start
from gpuctl.engine.admit.schedulability import Schedulability
from gpuctl.engine.capacity.gang import Assignment, PoolOption, has_place, place_in
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import PendingJob
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.consolidation import MigrationSearch
from gpuctl.engine.victims.elastic import smaller_options
from gpuctl.engine.victims.eviction import Room
from gpuctl.engine.victims.room import find_room, find_room_to_go_on, in_precedence, room_rank
from gpuctl.engine.victims.rules import rules_of
from gpuctl.model.decision import Placement, Reason
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.ids import JobId

Reserved: TypeAlias = list[tuple[PendingJob, Assignment]]
"""Pending jobs and the places that the last cycle reserved for them."""

_workers: Callable[[PoolOption], int] = attrgetter("request.workers")

MAX_ROOMS = 10
"""The most paused runs of a cycle for which room is searched; the others wait for the next cycle."""
MAX_PASSES = 2
"""The most passes over the pending jobs: a second one if repacking has made room."""


class Admission:
    """The attempts of one cycle over its snapshot. `attempts=False`: none is made."""

    def __init__(
        self, snapshot: Snapshot, policy: SchedulingPolicy, scale_up: ScaleUp, *, attempts: bool = True
    ) -> None:
        self.attempts = attempts
        self._snapshot = snapshot
        self._policy = policy
        self._repacking = Repacking(snapshot)
        self.reservations = HeadReservations(snapshot)
        self._migrations = MigrationSearch(snapshot)
        self._decided: set[JobId] = set(snapshot.restraints.delayed)
        self._within_share = False
        self.scale_up = scale_up
        self.outcome = scale_up.outcome

    def run(self, pending_jobs: PendingJobs) -> Outcome:
        """Make all attempts."""
        coming, occupied = self._keep_reserved(pending_jobs)
        self.scale_up.keep()
        self._await_reserved(coming, occupied)
        for _ in range(MAX_PASSES if self.attempts else 0):
            queues, cut_off = self.scale_up.queues(pending_jobs.queues), self.outcome.cut_off
            migrations = self._migrations if self._policy.consolidation else None
            check = Schedulability(self._snapshot, self.reservations, self._repacking, migrations, queues, cut_off)
            # Within share first: jobs that put their projects above their shares get what is left.
            for self._within_share in (True, False):
                check.within_share = self._within_share
                found = attempt_all(queues, check, self._snapshot, self._decided, self._attempt)
                self.outcome.all_unschedulable &= not found
            if not self._repacking.compact():
                break
        for pending, assignment in self._repacking.assignments.items():
            _, reason = self.outcome.started[pending.job.id]
            self.outcome.started[pending.job.id] = (assignment, reason)
        self.outcome.all_unschedulable &= not self._migrations.has_looked
        self._reserve_next_places()
        self._reserve_for_longest_waiting(pending_jobs)
        self._enlarge_starts(pending_jobs)
        return self.outcome

    def _reserve_for_longest_waiting(self, pending_jobs: PendingJobs) -> None:
        taken = chain(self.outcome.started.items(), self.outcome.reserved.items())
        starts = ((pending_jobs.find(job), assignment) for job, (assignment, _) in taken)
        self.reservations.choose(pending_jobs.left(self._decided), self._policy.starvation_guard_ms, starts)
        for reservation in self.reservations:
            pending, assignment = reservation.pending, reservation.assignment
            reason = reasons.kept_for_oldest(assignment.option.pool.name)
            self.outcome.kept[pending.job.id] = assignment, reason
            self._note(pending, "keep", assignment.option)

    def _enlarge_starts(self, pending_jobs: PendingJobs) -> None:
        """Start elastic jobs with as many workers as idle GPUs allow, even beyond their projects' shares."""
        small = ((pending_jobs.find(job), assignment) for job, (assignment, _) in self.outcome.started.items())
        for pending, assignment in [each for each in small if each[0].job.is_elastic]:
            larger = larger_start(pending, assignment, self._snapshot)
            if larger is not assignment:
                self._start(pending, larger, "start")

    def _reserve_next_places(self) -> None:
        """Reserve next places for paused runs: what no pending job takes, else room that is made by their own rights.

        Runs that make way for a paused run come after it. Once a run finds no place, later ones no longer use free
        capacity: they could be paused again for that run. If elastic runs gave up workers, no place is reserved: they
        may take it.
        """
        pauses = {} if self.outcome.given_up else self.outcome.pauses
        open_to = (
            job for job, pause in pauses.items() if not (pause.goes_on or job in self._snapshot.restraints.delayed)
        )
        paused = deque(in_precedence((pauses[job].allocation for job in open_to), self._snapshot))
        is_open, rooms_left = True, MAX_ROOMS
        while paused and (is_open or rooms_left):
            run = paused.popleft()
            free = place_to_go_on(run, self._snapshot)
            assignment = free if is_open else None
            if free is None and rooms_left:
                rooms_left -= 1
                room = find_room_to_go_on(run, self._snapshot)
                if room is not None:
                    self.outcome.pause(room, run.run.job)
                    self._snapshot.pause(room.evicted)
                    paused.extend(in_precedence((v for v in room.victims if not v.is_extra), self._snapshot))
                    assignment = room.assignment
            if run.job is not None and assignment is not None:
                self._snapshot.occupy(run.job, assignment)
                pauses[run.run.job] = replace(pauses[run.run.job], goes_on=assignment)
            is_open &= assignment is not None

    # Reservations of the last cycle

    def _keep_reserved(self, pending_jobs: PendingJobs) -> tuple[Reserved, list[PendingJob]]:
        """Hold every reserved place that is free or coming free. Returns those that are coming, and the jobs of
        occupied ones.

        Places for which no run was paused come last, and may have to yield.
        """
        coming, occupied, loose = Reserved(), list[PendingJob](), Reserved()
        for pending in (queue := pending_jobs.reserved_before()):
            reserved = None if is_head(pending) else reserved_for(pending, self._snapshot)
            assignment = self._foreseen_place(pending, pending.options) or reserved
            if assignment is None or not self._snapshot.allows(pending.job, assignment.option):
                continue
            if is_loose(pending, pending_jobs, self._snapshot):
                loose.append((pending, assignment))
            else:
                self._hold(pending, assignment, coming, occupied)
        for pending, assignment in loose:
            if not yields(pending, assignment, pending_jobs, self._snapshot):
                self._hold(pending, assignment, coming, occupied)
        self.reservations.keep(queue)
        return coming, occupied

    def _hold(self, pending: PendingJob, assignment: Assignment, coming: Reserved, occupied: list[PendingJob]) -> None:
        """Start a job in its reserved place if that is free, or hold the place while it comes free."""
        if is_free(self._snapshot.idle, assignment):
            self._snapshot.occupy(pending.job, assignment)
            self._start(pending, assignment, "start in reservation")
        elif is_free(self._snapshot.future_idle, assignment):
            self._snapshot.occupy(pending.job, assignment)
            coming.append((pending, assignment))
        else:
            occupied.append(pending)

    def _await_reserved(self, coming: Reserved, occupied: list[PendingJob]) -> None:
        """Start the jobs elsewhere if possible now; else hold their places, or make new room, before all other jobs."""
        for pending, assignment in coming:
            self._snapshot.vacate(pending.job, assignment)
            # With no fewer workers than are reserved: otherwise runs were paused for workers that the job lacks.
            options = [option for option in pending.options if _workers(option) >= _workers(assignment.option)]
            if not self._start_on_idle(pending, [o for o in options if self._snapshot.allows(pending.job, o)]):
                self._snapshot.occupy(pending.job, assignment)
                self._reserve(pending, assignment, waits_for(pending, assignment, self._snapshot))
        for pending in occupied:
            self._try(pending)

    # Attempts

    def _attempt(self, pending: PendingJob) -> bool:
        """Attempt a job. Meanwhile its own head reservation is lifted; it ends if the job gains a place."""
        counters, reservation = self._snapshot.counters, self.reservations.of(pending)
        counters.attempts += 1
        if pending.job.id in self.scale_up.runs:
            return self.scale_up.attempt(pending.job.id, partial(self._is_due, pending))
        before = counters.cut_off
        if reservation is not None:
            self._snapshot.lift(reservation.assignment)
        placed = self._try(pending)
        if reservation is not None and placed:
            self.reservations.drop(reservation)
        elif reservation is not None:
            self._snapshot.hold(reservation.assignment)
        is_cut_off = not placed and counters.cut_off > before
        (self.outcome.cut_off.add if is_cut_off else self.outcome.cut_off.discard)(pending.job.id)
        return placed

    def _try(self, pending: PendingJob) -> bool:
        options = [option for option in pending.options if self._snapshot.is_open(pending.job, option)]
        startable = [option for option in options if self._may_start(pending, option)]
        most = max(map(_workers, pending.options))
        if self._start_on_idle(pending, [option for option in startable if _workers(option) == most]):
            return True
        if self._backfill(pending, startable, lambda option: self._start_on_idle(pending, [option])):
            return True
        if self._take_over(pending, [option for option in options if self._snapshot.allows(pending.job, option)]):
            return True
        whole = [option for option in options if option.request.gpu_milli and _workers(option) == most]
        if self._make_room_in_one(pending, whole):
            return True
        may_backfill = _is_known(pending) and bool(self.reservations)
        guaranteed = [o for o in options if may_backfill and stays_guaranteed(self._snapshot, pending, o)]
        if self._backfill(pending, guaranteed, lambda option: self._make_room(pending, [option])):
            return True
        if pending.job.is_elastic and self._start_smaller(pending, most):
            return True
        smaller = (option.fewest for option in pending.options if option.fewest is not option)
        fewest = [option for option in smaller if self._snapshot.is_open(pending.job, option)]
        return any(
            self._bring_together(pending, [each for each in alike if self._is_due(pending, each)])
            for alike in (options, fewest)
        )

    def _may_start(self, pending: PendingJob, option: PoolOption) -> bool:
        """Whether the job breaks no ceiling now, and may use idle GPUs in this pass."""
        return self._snapshot.allows(pending.job, option) and self._is_due(pending, option)

    def _is_due(self, pending: PendingJob, option: PoolOption, victims: Iterable[Allocation] = ()) -> bool:
        """Whether the job may have GPUs in this pass: in the first pass its project must stay within its share.

        Like its rights, that is judged after the job's own victims have left.
        """
        return not self._within_share or self._snapshot.stays_within_share(pending.job, option, victims)

    def _start_on_idle(self, pending: PendingJob, options: Sequence[PoolOption]) -> bool:
        assignment = self._foreseen_place(pending, options)
        if assignment is not None:
            self._snapshot.occupy(pending.job, assignment)
        else:
            assignment = self._repacking.admit(pending, options)
        if assignment is None:
            return False
        self._start(pending, assignment, "start")
        return True

    def _foreseen_place(self, pending: PendingJob, options: Sequence[PoolOption]) -> Assignment | None:
        """The idle place where looking ahead shows the job in the end, so that it need not start elsewhere and move."""
        for job, placement in self._snapshot.restraints.placed:
            assignment = assignment_in(placement, options, self._snapshot) if job == pending.job.id else None
            if assignment is not None and is_free(self._snapshot.idle, assignment):
                return assignment
        return None

    def _take_over(self, pending: PendingJob, options: Iterable[PoolOption]) -> bool:
        """Start a job within its project's share in place of starts of this cycle that it outranks: the next cycle
        would pause their runs for it. A project's jobs are in order only within each domain."""
        for option in options:
            held_back = self._repacking.make_way(pending, option)
            for other in held_back:
                self._decided.discard(other.job.id)
                self.outcome.hold_back(other.job.id, pending.job.id)
            if held_back:
                return self._start_on_idle(pending, [option])
        return False

    def _backfill(
        self, pending: PendingJob, options: Sequence[PoolOption], attempt: Callable[[PoolOption], bool]
    ) -> bool:
        """Backfill: attempt a job in a place reserved for another job, if that job loses nothing by it."""
        for reservation, option in self.reservations.in_the_way(pending):
            if option not in options or not self.reservations.yields(reservation, pending, option):
                continue
            self._snapshot.lift(reservation.assignment)
            done = attempt(option)
            self._snapshot.hold(reservation.assignment)
            if done:
                return True
        return False

    def _make_room_in_one(self, pending: PendingJob, options: Sequence[PoolOption]) -> bool:
        """Make room for an option; not in this pass if idle GPUs would do that the job may have only in the next."""
        idle = (each for each in options if not self._is_due(pending, each) and has_place(self._snapshot.idle, each))
        if any(self._snapshot.allows(pending.job, option) for option in idle):
            return False
        return self._make_room(pending, options)

    def _make_room(self, pending: PendingJob, options: Sequence[PoolOption]) -> bool:
        """If a place comes free by itself, reserve it for an entitled job. Otherwise pause the cheapest runs and
        reserve their place."""
        for option in options:
            coming = self._coming(pending, option)
            if coming is not None:
                rules = [rule for rule in rules_of(self._snapshot, pending.job, option)[:1] if rule.is_entitled]
                return self._take(pending, Room(Assignment(option, coming), rules[0]) if rules else None)
        if not _is_known(pending):
            return False
        room = find_room(self._snapshot, pending.job, options, partial(self._is_due, pending))
        # Moving runs is better than pausing one that straddles its project's guarantee.
        if room is not None and room.cost.price and self._bring_together(pending, options, most_price=0):
            return True
        return self._take(pending, room)

    def _coming(self, pending: PendingJob, option: PoolOption) -> Placement | None:
        """A place that is idle or comes free by itself, if the job breaks no ceiling there: no run stops for it."""
        allowed = self._snapshot.allows(pending.job, option)
        return place_in(self._snapshot.future_idle, option) if allowed else None

    def _start_smaller(self, pending: PendingJob, most: int) -> bool:
        """Start an elastic job with fewer workers than `most`: as many as it is entitled to, else as many as are idle.

        For each number of workers, idle GPUs of any pool come before room that is made. Places reserved for others come
        last.
        """
        options = list[PoolOption]()
        for option in pending.options:
            fewer = self._fewer(pending, option, most)
            startable = [each for each in fewer if self._may_start(pending, each)]
            options += smaller_options(self._snapshot, startable, fewer if option.request.gpu_milli else ())
        for _, same_size in groupby(sorted(options, key=_workers, reverse=True), key=_workers):
            alike = list(same_size)
            if self._start_on_idle(pending, [each for each in alike if self._may_start(pending, each)]):
                return True
            if self._make_room_in_one(pending, [each for each in alike if each.request.gpu_milli]):
                return True
        return self._backfill(pending, pending.options, lambda option: self._start_with_fewer(pending, option, most))

    def _start_with_fewer(self, pending: PendingJob, option: PoolOption, most: int) -> bool:
        """Start an elastic job in a pool with as many workers as idle GPUs allow, but fewer than `most`."""
        startable = [each for each in self._fewer(pending, option, most) if self._may_start(pending, each)]
        return self._start_on_idle(pending, list(smaller_options(self._snapshot, startable, ())))

    def _fewer(self, pending: PendingJob, option: PoolOption, most: int) -> list[PoolOption]:
        """The sizes of an elastic job in a pool with fewer workers than `most` that no quota forbids."""
        return [o for o in (option, *option.smaller()) if _workers(o) < most and self._snapshot.is_open(pending.job, o)]

    def _bring_together(self, pending: PendingJob, options: Iterable[PoolOption], most_price: int = 1) -> bool:
        """Move runs to make room for a job, with pauses of at most `most_price` besides."""
        found: list[Room] = []
        for option in options if _is_known(pending) and self._policy.consolidation else ():
            if not option.request.gpu_milli or self._coming(pending, option) is not None:
                continue
            rules = rules_of(self._snapshot, pending.job, option)
            room = self._migrations.consolidate(rules) if rules else None
            if room and room.cost.price <= most_price and self._is_due(pending, option, room.victims):
                found.append(room)
        return self._take(pending, min(found, key=room_rank, default=None))

    # Outcomes

    def _start(self, pending: PendingJob, assignment: Assignment, rule: str) -> None:
        self.outcome.start(pending.job.id, assignment, rule, self._snapshot)
        self._decided.add(pending.job.id)

    def _reserve(self, pending: PendingJob, assignment: Assignment, reason: Reason) -> None:
        self._note(pending, "reserve", assignment.option)
        self.outcome.reserved[pending.job.id] = (assignment, reason)
        self._decided.add(pending.job.id)

    def _take(self, pending: PendingJob, room: Room | None) -> bool:
        """Pause and move the runs that make room, if room was found, and reserve the place that they leave."""
        if room is None:
            return False
        self.outcome.pause(room, pending.job.id)
        self._snapshot.pause(room.evicted)
        self._snapshot.occupy(pending.job, room.assignment)
        for move in room.moves:
            if move.allocation.job is not None:
                self._snapshot.occupy(move.allocation.job, move.assignment)
        left = dict.fromkeys(allocation.run.job for allocation in room.evicted)
        self._reserve(pending, room.assignment, reasons.waits_for_paused(left) if left else reasons.WAITS_FOR_STOPPING)
        return True

    def _note(self, pending: PendingJob, rule: str, option: PoolOption) -> None:
        self.outcome.trace.append(gain_step(self._snapshot, pending.job.id, rule, option))


def _is_known(pending: PendingJob) -> bool:
    """Whether a job's object exists. No run is paused for a job without one, because the API server could refuse it."""
    return pending.run is not None
