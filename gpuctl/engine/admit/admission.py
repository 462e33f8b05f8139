"""Who starts, who waits, and who is paused for whom: the jobs that could start take their turns until none is left.

Each turn tries, in this order: what is free, what is coming free anyway, what may be reclaimed from other projects,
what may be preempted in its own, what others leave who can go on elsewhere. A job that can't start is passed over and
blocks nobody; but for who has waited longest a place is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.admit.attempts import attempt_all
from gpuctl.engine.admit.head_reservation import HeadReservations, is_guarded
from gpuctl.engine.admit.outcome import Outcome, Pause, Shift, loss
from gpuctl.engine.admit.regain_workers import Asked, WorkerRegain
from gpuctl.engine.admit.repacking import Repacking
from gpuctl.engine.admit.reservations import in_the_way, is_free, may_pause_all, promised
from gpuctl.engine.admit.schedulability import Schedulability
from gpuctl.engine.admit.under_scaled import UnderScaled
from gpuctl.engine.admit.waitlist import Waitlist
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place_in
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import ProjectQueue
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import beyond_quota, forbidden, is_owed, standing
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.consolidation import Consolidation, MigrationSearch, clear
from gpuctl.engine.victims.elastic import exchange_for, smaller_options, victims_for
from gpuctl.engine.victims.preempt import Preemption
from gpuctl.engine.victims.reclaim import claims_of
from gpuctl.engine.victims.rules import Rule
from gpuctl.engine.victims.search import place_without
from gpuctl.model.decision import Reason, TraceStep
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.ids import JobId
from gpuctl.model.units import GpuMilli

Promises: TypeAlias = list[tuple[PendingJob, Assignment]]
"""Who was promised which place."""

MAX_ROUNDS = 2
"""Passes over those that wait: a second one when a tighter layout has opened new room."""


class Admission:
    """The turns of one cycle over its snapshot; without `asks` nobody is given one."""

    __slots__ = ("_asks", "_layout", "_mover", "_policy", "_settled", "_snapshot", "guards", "outcome")

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, *, asks: bool = True) -> None:
        self._asks = asks
        self._snapshot = snapshot
        self._policy = policy
        self._layout = Repacking(snapshot)
        self.guards = HeadReservations(snapshot)
        self._mover = MigrationSearch(snapshot)
        self._settled: set[JobId] = set()
        self.outcome = Outcome()

    def run(self, waitlist: Waitlist, lacking: Iterable[UnderScaled], asked: Asked) -> Outcome:
        """Promises first, then what elastic runs are owed, then turns for everybody who may have a chance, then the
        layout once more as a whole."""
        lineup = waitlist.lineup
        coming, occupied = self._keep_promises(lineup)
        WorkerRegain(self._snapshot, lineup, asked, self.outcome, self._make_way).take(lacking)
        self._await_promises(coming, occupied)
        for _ in range(MAX_ROUNDS if self._asks else 0):
            may_move = self._policy.consolidation
            lines = lineup.lines.values()
            check = Schedulability(self._snapshot, self.guards, self._layout, self._mover, lines, may_move=may_move)
            attempt_all(lines, check, self._snapshot, self._settled, self._turn)
            if not self._layout.compact():
                break
        for waiting, seat in self._layout.seats.items():
            _, reason = self.outcome.started[waiting.job.id]
            self.outcome.started[waiting.job.id] = (seat, reason)
        self.outcome.laid_anew = self._layout.is_anew
        self._guard(lineup)
        self.outcome.lanes = waitlist.queue.without(self._settled)
        return self.outcome

    def _guard(self, lineup: PendingJobs) -> None:
        """Keep a place for who has waited longest."""
        taken = chain(self.outcome.started.items(), self.outcome.reserved.items())
        starts = ((lineup.find(job)[0], seat) for job, (seat, _) in taken)
        self.guards.choose(lineup.left(self._settled), self._policy.starvation_guard_ms, starts)
        for guard in self.guards:
            job = guard.waiting.job.id
            self.outcome.kept[job] = guard.seat, reasons.kept_for_oldest(guard.pool)
            self._note(guard.waiting, "keep", guard.seat.option)

    # Promises

    def _keep_promises(self, lineup: PendingJobs) -> tuple[Promises, Promises]:
        """Hold every place promised that is free or coming free; those that are coming, and those still occupied.

        A loose promise is given up, and its job takes a turn, while somebody else waits for what is owed to them.
        """
        coming, occupied, loose = Promises(), Promises(), Promises()
        for waiting in (queue := lineup.promised()):
            seat = None if is_guarded(waiting) else promised(waiting, self._snapshot)
            if seat is None or self._forbidden(waiting, seat.option):
                continue
            if self._is_loose(waiting, seat.option):
                loose.append((waiting, seat))
            else:
                self._hold(waiting, seat, coming, occupied)
        for waiting, seat in loose:
            if not self._is_owed_to_others(waiting, lineup):
                self._hold(waiting, seat, coming, occupied)
        self.guards.keep(queue)
        return coming, occupied

    def _hold(self, waiting: PendingJob, seat: Assignment, coming: Promises, occupied: Promises) -> None:
        """Start it in its place, or hold the place while that comes free."""
        if is_free(self._snapshot.idle, seat):
            self._start(waiting, seat)
        elif is_free(self._snapshot.future_idle, seat):
            self._snapshot.occupy(waiting.job, seat)
            coming.append((waiting, seat))
        else:
            occupied.append((waiting, seat))

    def _is_loose(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Nobody was paused for its place, and it is more than its project is guaranteed."""
        said = waiting.run.reason if waiting.run else None
        return said is not None and said.code in reasons.UNPAID and not self._is_owed(waiting, option)

    def _is_owed(self, waiting: PendingJob, option: PoolOption) -> bool:
        """It asks for GPUs, and its project stays within the guarantee with them."""
        domain, milli = self._snapshot.capacity.domain_of[option.pool.name], option.request.total_milli
        return milli > 0 and is_owed(self._snapshot.accounts, domain, waiting.job.id.project, milli)

    def _is_owed_to_others(self, waiting: PendingJob, lineup: PendingJobs) -> bool:
        """A job of another project is owed a place, and has none. Cost: O(lanes), and kinds of projects owed any."""
        lines = (line for line in lineup.lines.values() if line.project != waiting.job.id.project)
        others = (group.first for line in lines if self._may_be_owed(line) for group in line.groups.values())
        return any(
            other.run is not None
            and other.run.placement is None
            and any(self._is_owed(other, o) for o in other.options)
            for other in others
        )

    def _may_be_owed(self, line: ProjectQueue) -> bool:
        """The project stays within its guarantee with the least that any of these asks for."""
        needs, accounts = line.needs(self._snapshot.capacity), self._snapshot.accounts
        return any(is_owed(accounts, domain, line.project, needs.gpu_milli) for domain in needs.domains)

    def _await_promises(self, coming: Promises, occupied: Promises) -> None:
        """Start sooner elsewhere, else wait; whose place is occupied needs those in it paused still."""
        for waiting, seat in coming:
            self._snapshot.vacate(waiting.job, seat)
            if not self._start_on_idle(waiting, [o for o in waiting.options if not self._forbidden(waiting, o)]):
                self._snapshot.occupy(waiting.job, seat)
                self._reserve(waiting, seat, self._awaited(waiting))
        for waiting, seat in occupied:
            self._keep_occupied(waiting, seat)

    def _awaited(self, waiting: PendingJob) -> Reason:
        """Why a promise is still waited for: as it was said when it was made."""
        said = waiting.run.reason if waiting.run else None
        return said if said is not None and said.code == reasons.FOR_PAUSED else reasons.waits_for_stopping()

    def _keep_occupied(self, waiting: PendingJob, seat: Assignment) -> bool:
        """Start elsewhere if that is free now, else pause who is in the promised place, if that is still right."""
        if self._forbidden(waiting, seat.option):
            return False
        if self._start_on_idle(waiting, [o for o in waiting.options if not self._forbidden(waiting, o)]):
            return True
        allocations = in_the_way(self._snapshot, seat)
        if allocations is None:
            return False
        for rule in self._rules(waiting, seat.option):
            if may_pause_all(self._snapshot, rule, allocations):
                self._pause(waiting, seat, allocations, rule)
                return True
        return self._may_have_moved(waiting, seat.option) and self._shift(
            waiting, clear(self._snapshot, seat, allocations, waiting.job.id)
        )

    # Turns

    def _turn(self, waiting: PendingJob) -> bool:
        """Its turn; a place that is kept for it is free for it meanwhile, and is not kept any longer if it has one."""
        self._snapshot.effort.turns += 1
        guard = self.guards.of(waiting)
        if guard is None:
            return self._ask(waiting)
        self.guards.lift(guard)
        placed = self._ask(waiting)
        if placed:
            self.guards.drop(guard)
        else:
            self.guards.hold(guard)
        return placed

    def _ask(self, waiting: PendingJob) -> bool:
        """Start it, or make room for it, if that can be."""
        options = [option for option in waiting.options if self._forbidden(waiting, option) is None]
        if self._start_on_idle(waiting, options):
            return True
        if self._past_guards(waiting, options, lambda option: self._start_on_idle(waiting, [option])):
            return True
        # Nobody is paused for a run that may never come to be: its object could be refused.
        known = waiting.run is not None
        if known and any(self._make_room(waiting, option) for option in options if option.request.gpu_milli):
            return True
        owed = [option for option in options if self.guards and known and self._is_owed(waiting, option)]
        if self._past_guards(waiting, owed, lambda option: self._make_room(waiting, option)):
            return True
        if waiting.job.is_elastic and any(self._start_smaller(waiting, option) for option in waiting.options):
            return True
        if known and not options and any(self._exchange(waiting, option) for option in waiting.options):
            return True
        return known and any(self._bring_together(waiting, option) for option in options if option.request.gpu_milli)

    def _forbidden(self, waiting: PendingJob, option: PoolOption) -> Reason | None:
        """The ceiling that the job would break now."""
        domain, milli = self._snapshot.capacity.domain_of[option.pool.name], option.request.total_milli
        return forbidden(self._snapshot.accounts, waiting.job, domain, milli)

    def _start_on_idle(self, waiting: PendingJob, options: Sequence[PoolOption]) -> bool:
        """Start it on what is free."""
        if not options:
            return False
        held = {option.pool.name: self._held_with(waiting, option) for option in options}
        seat = self._layout.admit(waiting, options)
        if seat is None:
            return False
        self.outcome.in_vain = False
        self._note(waiting, "start", seat.option)
        reason = self._standing(waiting, seat.option, held[seat.option.pool.name])
        self.outcome.started[waiting.job.id] = (seat, reason)
        self._settled.add(waiting.job.id)
        return True

    def _past_guards(
        self, waiting: PendingJob, options: Sequence[PoolOption], attempt: Callable[[PoolOption], bool]
    ) -> bool:
        """Try something as if a place were not kept for another, where that is not in the job's way."""
        for guard, option in self.guards.in_the_way(waiting):
            if option not in options or not self.guards.yields(guard, waiting, option):
                continue
            self.guards.lift(guard)
            done = attempt(option)
            self.guards.hold(guard)
            if done:
                return True
        return False

    def _make_room(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Reserve what is coming free anyway, or pause runs and reserve their place, by the first rule that can."""
        coming = place_in(self._snapshot.future_idle, option)
        for rule in self._rules(waiting, option):
            if coming is not None:
                if rule.may_wait:
                    self._pause(waiting, Assignment(option, coming), (), rule)
                    return True
                continue
            victims = victims_for(self._snapshot, option, rule)
            placement = place_without(self._snapshot, option, victims) if victims else None
            if victims and placement is not None:
                self._pause(waiting, Assignment(option, placement), victims, rule)
                return True
        return False

    def _start_smaller(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Start an elastic job with fewer workers: as many as it is entitled to, else as many as are idle."""
        fewer = [found for size in option.sizes[1:] if (found := option.sized(size)) is not None]
        legal = [found for found in fewer if self._forbidden(waiting, found) is None]
        known = waiting.run is not None and option.request.gpu_milli > 0
        snapshot, job = self._snapshot, waiting.job.id
        claimed = [found for found in legal if known and (found is legal[-1] or any(claims_of(snapshot, job, found)))]
        for smaller in smaller_options(snapshot, legal, claimed):
            if self._start_on_idle(waiting, [smaller]) or (known and self._make_room(waiting, smaller)):
                return True
        return False

    def _exchange(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Under a ceiling that is used up, pause lower-ranking work of the same project for as many GPUs."""
        project, milli = waiting.job.id.project, option.request.total_milli
        accounts, domain = self._snapshot.accounts, self._snapshot.capacity.domain_of[option.pool.name]
        over_milli = accounts.over_limits(domain, project, milli)
        rule = Preemption(self._snapshot, waiting.job, domain, milli)
        if over_milli <= 0 or beyond_quota(accounts, waiting.job, domain, milli) is not None:
            return False
        victims = exchange_for(self._snapshot, option, rule, over_milli)
        placement = None if victims is None else place_without(self._snapshot, option, victims)
        if victims is None or placement is None:
            return False
        self._pause(waiting, Assignment(option, placement), victims, rule)
        return True

    def _bring_together(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Have others moved out of its way who can go on elsewhere."""
        return self._may_have_moved(waiting, option) and self._shift(
            waiting, self._mover.consolidate(option, waiting.job.id)
        )

    def _may_have_moved(self, waiting: PendingJob, option: PoolOption) -> bool:
        """Its project stays within the fair share with it."""
        return self._policy.consolidation and next(claims_of(self._snapshot, waiting.job.id, option), None) is not None

    def _rules(self, waiting: PendingJob, option: PoolOption) -> Iterator[Rule]:
        """By what right the job may have others paused, the strongest first."""
        yield from islice(claims_of(self._snapshot, waiting.job.id, option), 1)
        domain = self._snapshot.capacity.domain_of[option.pool.name]
        yield Preemption(self._snapshot, waiting.job, domain, option.request.total_milli)

    # Outcomes

    def _start(self, waiting: PendingJob, seat: Assignment) -> None:
        reason = self._standing(waiting, seat.option, self._held_with(waiting, seat.option))
        self._snapshot.occupy(waiting.job, seat)
        self._note(waiting, "start where promised", seat.option)
        self.outcome.started[waiting.job.id] = (seat, reason)
        self._settled.add(waiting.job.id)

    def _reserve(self, waiting: PendingJob, seat: Assignment, reason: Reason) -> None:
        self._note(waiting, "reserve", seat.option)
        self.outcome.reserved[waiting.job.id] = (seat, reason)
        self._settled.add(waiting.job.id)

    def _pause(self, waiting: PendingJob, seat: Assignment, victims: Sequence[Allocation], rule: Rule) -> None:
        """Pause the victims and reserve the seat, which is free once they have left."""
        self.outcome.in_vain = False
        self._stop(victims, rule, waiting.job.id)
        if victims:
            self._snapshot.exchange(victims, waiting.job, seat)
        else:
            self._snapshot.occupy(waiting.job, seat)
        paused = dict.fromkeys(allocation.run.job for allocation in victims)
        self._reserve(waiting, seat, reasons.waits_for_paused(paused) if paused else reasons.waits_for_stopping())

    def _stop(self, victims: Sequence[Allocation], rule: Rule, beneficiary: JobId) -> None:
        """Enter who is paused, and what each project loses by it as it stands before that."""
        steps: dict[JobId, tuple[str, Allocation, GpuMilli]] = {}
        alike: dict[object, Mapping[str, str | int]] = {}
        for allocation in victims:
            job, pause = allocation.run.job, Pause(allocation, rule.paused(allocation), beneficiary)
            if allocation.surplus:
                self.outcome.given_up.setdefault(job, []).append(pause)
            else:
                self.outcome.pauses[job] = pause
            milli = steps[job][2] if job in steps else 0
            steps[job] = pause.reason.code, allocation, milli + allocation.total_milli
        for code, allocation, milli in steps.values():
            kind = allocation.domain, allocation.project, milli
            if kind not in alike:
                alike[kind] = loss(self._snapshot.accounts, allocation, milli, beneficiary)
            self.outcome.trace.append(TraceStep(job=allocation.run.job, rule=code, numbers=alike[kind]))

    def _make_way(self, victims: Sequence[Allocation], rule: Rule, beneficiary: JobId) -> None:
        """Pause the victims for one who takes their place bit by bit."""
        self._stop(victims, rule, beneficiary)
        self._snapshot.pause(victims)

    def _shift(self, waiting: PendingJob, found: Consolidation | None) -> bool:
        """Move who is to be moved, if anybody, and reserve the seat, which is free once they have left."""
        self.outcome.in_vain &= found is None and not self._mover.has_looked
        if found is None:
            return False
        for move in found.moves:
            allocation, reason = move.allocation, reasons.moved_for(waiting.job.id)
            self.outcome.shifts[allocation.run.job] = Shift(move, reason, waiting.job.id)
            numbers = loss(self._snapshot.accounts, allocation, allocation.total_milli, waiting.job.id)
            self.outcome.trace.append(TraceStep(job=allocation.run.job, rule=reason.code, numbers=numbers))
        self._snapshot.pause([move.allocation for move in found.moves])
        self._snapshot.occupy(waiting.job, found.seat)
        for move in found.moves:
            if move.allocation.job is not None:
                self._snapshot.occupy(move.allocation.job, move.seat)
        self._reserve(waiting, found.seat, reasons.waits_for_paused(move.allocation.run.job for move in found.moves))
        return True

    def _held_with(self, waiting: PendingJob, option: PoolOption) -> GpuMilli:
        """What its project holds once the job has what it asks for, too."""
        domain = self._snapshot.capacity.domain_of[option.pool.name]
        return self._snapshot.accounts.held(domain, project_owner(waiting.job.id.project)) + option.request.total_milli

    def _standing(self, waiting: PendingJob, option: PoolOption, held_milli: GpuMilli) -> Reason:
        """Why it may run."""
        domain = self._snapshot.capacity.domain_of[option.pool.name]
        if not option.request.total_milli:
            return reasons.runs_without_gpu()
        return standing(self._snapshot.accounts, domain, waiting.job.id.project, held_milli)

    def _note(self, waiting: PendingJob, rule: str, option: PoolOption) -> None:
        owner = project_owner(waiting.job.id.project)
        domain = self._snapshot.capacity.domain_of[option.pool.name]
        numbers: dict[str, str | int] = {
            "pool": option.pool.name,
            "gpuMilli": option.request.total_milli,
            "heldMilli": self._snapshot.accounts.held(domain, owner),
            "shareMilli": self._snapshot.accounts.portion(domain, owner).share_milli,
        }
        self.outcome.trace.append(TraceStep(job=waiting.job.id, rule=rule, numbers=numbers))
