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
from gpuctl.engine.victims.elastic import exchange_for, smaller_offers, victims_for
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
    """The turns of one cycle over its books; without `asks` nobody is given one."""

    __slots__ = (
        "_asks", "_books", "_layout", "_mover", "_policy", "_settled", "guards", "outcome",
    )  # fmt: skip

    def __init__(self, books: Snapshot, policy: SchedulingPolicy, *, asks: bool = True) -> None:
        self._asks = asks
        self._books = books
        self._policy = policy
        self._layout = Repacking(books)
        self.guards = HeadReservations(books)
        self._mover = MigrationSearch(books)
        self._settled: set[JobId] = set()
        self.outcome = Outcome()

    def run(self, waitlist: Waitlist, lacking: Iterable[UnderScaled], asked: Asked) -> Outcome:
        """Promises first, then what elastic runs are owed, then turns for everybody who may have a chance, then the
        layout once more as a whole."""
        lineup = waitlist.lineup
        coming, occupied = self._keep_promises(lineup)
        WorkerRegain(self._books, lineup, asked, self.outcome, self._make_way).take(lacking)
        self._await_promises(coming, occupied)
        for _ in range(MAX_ROUNDS if self._asks else 0):
            may_move = self._policy.consolidation
            lines = lineup.lines.values()
            check = Schedulability(self._books, self.guards, self._layout, self._mover, lines, may_move=may_move)
            attempt_all(lines, check, self._books, self._settled, self._turn)
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
            self._note(guard.waiting, "keep", guard.seat.offer)

    # Promises

    def _keep_promises(self, lineup: PendingJobs) -> tuple[Promises, Promises]:
        """Hold every place promised that is free or coming free; those that are coming, and those still occupied.

        A loose promise is given up, and its job takes a turn, while somebody else waits for what is owed to them.
        """
        coming, occupied, loose = Promises(), Promises(), Promises()
        for waiting in (queue := lineup.promised()):
            seat = None if is_guarded(waiting) else promised(waiting, self._books)
            if seat is None or self._forbidden(waiting, seat.offer):
                continue
            if self._is_loose(waiting, seat.offer):
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
        if is_free(self._books.now, seat):
            self._start(waiting, seat)
        elif is_free(self._books.soon, seat):
            self._books.occupy(waiting.job, seat)
            coming.append((waiting, seat))
        else:
            occupied.append((waiting, seat))

    def _is_loose(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """Nobody was paused for its place, and it is more than its project is guaranteed."""
        said = waiting.run.reason if waiting.run else None
        return said is not None and said.code in reasons.UNPAID and not self._is_owed(waiting, offer)

    def _is_owed(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """It asks for GPUs, and its project stays within the guarantee with them."""
        domain, milli = self._books.capacity.domain_of[offer.pool.name], offer.request.total_milli
        return milli > 0 and is_owed(self._books.accounts, domain, waiting.job.id.project, milli)

    def _is_owed_to_others(self, waiting: PendingJob, lineup: PendingJobs) -> bool:
        """A job of another project is owed a place, and has none. Cost: O(lanes), and kinds of projects owed any."""
        lines = (line for line in lineup.lines.values() if line.project != waiting.job.id.project)
        others = (group.first for line in lines if self._may_be_owed(line) for group in line.groups.values())
        return any(
            other.run is not None and other.run.placement is None and any(self._is_owed(other, o) for o in other.offers)
            for other in others
        )

    def _may_be_owed(self, line: ProjectQueue) -> bool:
        """The project stays within its guarantee with the least that any of these asks for."""
        needs, accounts = line.needs(self._books.capacity), self._books.accounts
        return any(is_owed(accounts, domain, line.project, needs.gpu_milli) for domain in needs.domains)

    def _await_promises(self, coming: Promises, occupied: Promises) -> None:
        """Start sooner elsewhere, else wait; whose place is occupied needs those in it paused still."""
        for waiting, seat in coming:
            self._books.vacate(waiting.job, seat)
            if not self._start_on_idle(waiting, [o for o in waiting.offers if not self._forbidden(waiting, o)]):
                self._books.occupy(waiting.job, seat)
                self._reserve(waiting, seat, self._awaited(waiting))
        for waiting, seat in occupied:
            self._keep_occupied(waiting, seat)

    def _awaited(self, waiting: PendingJob) -> Reason:
        """Why a promise is still waited for: as it was said when it was made."""
        said = waiting.run.reason if waiting.run else None
        return said if said is not None and said.code == reasons.FOR_PAUSED else reasons.waits_for_stopping()

    def _keep_occupied(self, waiting: PendingJob, seat: Assignment) -> bool:
        """Start elsewhere if that is free now, else pause who is in the promised place, if that is still right."""
        if self._forbidden(waiting, seat.offer):
            return False
        if self._start_on_idle(waiting, [o for o in waiting.offers if not self._forbidden(waiting, o)]):
            return True
        holders = in_the_way(self._books, seat)
        if holders is None:
            return False
        for rule in self._rules(waiting, seat.offer):
            if may_pause_all(self._books, rule, holders):
                self._pause(waiting, seat, holders, rule)
                return True
        return self._may_have_moved(waiting, seat.offer) and self._shift(
            waiting, clear(self._books, seat, holders, waiting.job.id)
        )

    # Turns

    def _turn(self, waiting: PendingJob) -> bool:
        """Its turn; a place that is kept for it is free for it meanwhile, and is not kept any longer if it has one."""
        self._books.effort.turns += 1
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
        offers = [offer for offer in waiting.offers if self._forbidden(waiting, offer) is None]
        if self._start_on_idle(waiting, offers):
            return True
        if self._past_guards(waiting, offers, lambda offer: self._start_on_idle(waiting, [offer])):
            return True
        # Nobody is paused for a run that may never come to be: its object could be refused.
        known = waiting.run is not None
        if known and any(self._make_room(waiting, offer) for offer in offers if offer.request.gpu_milli):
            return True
        owed = [offer for offer in offers if self.guards and known and self._is_owed(waiting, offer)]
        if self._past_guards(waiting, owed, lambda offer: self._make_room(waiting, offer)):
            return True
        if waiting.job.is_elastic and any(self._start_smaller(waiting, offer) for offer in waiting.offers):
            return True
        if known and not offers and any(self._exchange(waiting, offer) for offer in waiting.offers):
            return True
        return known and any(self._bring_together(waiting, offer) for offer in offers if offer.request.gpu_milli)

    def _forbidden(self, waiting: PendingJob, offer: PoolOption) -> Reason | None:
        """The ceiling that the job would break now."""
        domain, milli = self._books.capacity.domain_of[offer.pool.name], offer.request.total_milli
        return forbidden(self._books.accounts, waiting.job, domain, milli)

    def _start_on_idle(self, waiting: PendingJob, offers: Sequence[PoolOption]) -> bool:
        """Start it on what is free."""
        if not offers:
            return False
        held = {offer.pool.name: self._held_with(waiting, offer) for offer in offers}
        seat = self._layout.admit(waiting, offers)
        if seat is None:
            return False
        self.outcome.in_vain = False
        self._note(waiting, "start", seat.offer)
        reason = self._standing(waiting, seat.offer, held[seat.offer.pool.name])
        self.outcome.started[waiting.job.id] = (seat, reason)
        self._settled.add(waiting.job.id)
        return True

    def _past_guards(
        self, waiting: PendingJob, offers: Sequence[PoolOption], attempt: Callable[[PoolOption], bool]
    ) -> bool:
        """Try something as if a place were not kept for another, where that is not in the job's way."""
        for guard, offer in self.guards.in_the_way(waiting):
            if offer not in offers or not self.guards.yields(guard, waiting, offer):
                continue
            self.guards.lift(guard)
            done = attempt(offer)
            self.guards.hold(guard)
            if done:
                return True
        return False

    def _make_room(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """Reserve what is coming free anyway, or pause runs and reserve their place, by the first rule that can."""
        coming = place_in(self._books.soon, offer)
        for rule in self._rules(waiting, offer):
            if coming is not None:
                if rule.may_wait:
                    self._pause(waiting, Assignment(offer, coming), (), rule)
                    return True
                continue
            victims = victims_for(self._books, offer, rule)
            placement = place_without(self._books, offer, victims) if victims else None
            if victims and placement is not None:
                self._pause(waiting, Assignment(offer, placement), victims, rule)
                return True
        return False

    def _start_smaller(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """Start an elastic job with fewer workers: as many as it is entitled to, else as many as are idle."""
        fewer = [found for size in offer.sizes[1:] if (found := offer.sized(size)) is not None]
        legal = [found for found in fewer if self._forbidden(waiting, found) is None]
        known = waiting.run is not None and offer.request.gpu_milli > 0
        books, job = self._books, waiting.job.id
        claimed = [found for found in legal if known and (found is legal[-1] or any(claims_of(books, job, found)))]
        for smaller in smaller_offers(books, legal, claimed):
            if self._start_on_idle(waiting, [smaller]) or (known and self._make_room(waiting, smaller)):
                return True
        return False

    def _exchange(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """Under a ceiling that is used up, pause lower-ranking work of the same project for as many GPUs."""
        project, milli = waiting.job.id.project, offer.request.total_milli
        accounts, domain = self._books.accounts, self._books.capacity.domain_of[offer.pool.name]
        over_milli = accounts.over_limits(domain, project, milli)
        rule = Preemption(self._books, waiting.job, domain, milli)
        if over_milli <= 0 or beyond_quota(accounts, waiting.job, domain, milli) is not None:
            return False
        victims = exchange_for(self._books, offer, rule, over_milli)
        placement = None if victims is None else place_without(self._books, offer, victims)
        if victims is None or placement is None:
            return False
        self._pause(waiting, Assignment(offer, placement), victims, rule)
        return True

    def _bring_together(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """Have others moved out of its way who can go on elsewhere."""
        return self._may_have_moved(waiting, offer) and self._shift(
            waiting, self._mover.consolidate(offer, waiting.job.id)
        )

    def _may_have_moved(self, waiting: PendingJob, offer: PoolOption) -> bool:
        """Its project stays within the fair share with it."""
        return self._policy.consolidation and next(claims_of(self._books, waiting.job.id, offer), None) is not None

    def _rules(self, waiting: PendingJob, offer: PoolOption) -> Iterator[Rule]:
        """By what right the job may have others paused, the strongest first."""
        yield from islice(claims_of(self._books, waiting.job.id, offer), 1)
        domain = self._books.capacity.domain_of[offer.pool.name]
        yield Preemption(self._books, waiting.job, domain, offer.request.total_milli)

    # Outcomes

    def _start(self, waiting: PendingJob, seat: Assignment) -> None:
        reason = self._standing(waiting, seat.offer, self._held_with(waiting, seat.offer))
        self._books.occupy(waiting.job, seat)
        self._note(waiting, "start where promised", seat.offer)
        self.outcome.started[waiting.job.id] = (seat, reason)
        self._settled.add(waiting.job.id)

    def _reserve(self, waiting: PendingJob, seat: Assignment, reason: Reason) -> None:
        self._note(waiting, "reserve", seat.offer)
        self.outcome.reserved[waiting.job.id] = (seat, reason)
        self._settled.add(waiting.job.id)

    def _pause(self, waiting: PendingJob, seat: Assignment, victims: Sequence[Allocation], rule: Rule) -> None:
        """Pause the victims and reserve the seat, which is free once they have left."""
        self.outcome.in_vain = False
        self._stop(victims, rule, waiting.job.id)
        if victims:
            self._books.exchange(victims, waiting.job, seat)
        else:
            self._books.occupy(waiting.job, seat)
        paused = dict.fromkeys(holder.run.job for holder in victims)
        self._reserve(waiting, seat, reasons.waits_for_paused(paused) if paused else reasons.waits_for_stopping())

    def _stop(self, victims: Sequence[Allocation], rule: Rule, beneficiary: JobId) -> None:
        """Enter who is paused, and what each project loses by it as it stands before that."""
        steps: dict[JobId, tuple[str, Allocation, GpuMilli]] = {}
        alike: dict[object, Mapping[str, str | int]] = {}
        for holder in victims:
            job, pause = holder.run.job, Pause(holder, rule.paused(holder), beneficiary)
            if holder.surplus:
                self.outcome.given_up.setdefault(job, []).append(pause)
            else:
                self.outcome.pauses[job] = pause
            milli = steps[job][2] if job in steps else 0
            steps[job] = pause.reason.code, holder, milli + holder.total_milli
        for code, holder, milli in steps.values():
            kind = holder.domain, holder.project, milli
            if kind not in alike:
                alike[kind] = loss(self._books.accounts, holder, milli, beneficiary)
            self.outcome.trace.append(TraceStep(job=holder.run.job, rule=code, numbers=alike[kind]))

    def _make_way(self, victims: Sequence[Allocation], rule: Rule, beneficiary: JobId) -> None:
        """Pause the victims for one who takes their place bit by bit."""
        self._stop(victims, rule, beneficiary)
        self._books.pause(victims)

    def _shift(self, waiting: PendingJob, found: Consolidation | None) -> bool:
        """Move who is to be moved, if anybody, and reserve the seat, which is free once they have left."""
        self.outcome.in_vain &= found is None and not self._mover.has_looked
        if found is None:
            return False
        for move in found.moves:
            holder, reason = move.holder, reasons.moved_for(waiting.job.id)
            self.outcome.shifts[holder.run.job] = Shift(move, reason, waiting.job.id)
            numbers = loss(self._books.accounts, holder, holder.total_milli, waiting.job.id)
            self.outcome.trace.append(TraceStep(job=holder.run.job, rule=reason.code, numbers=numbers))
        self._books.pause([move.holder for move in found.moves])
        self._books.occupy(waiting.job, found.seat)
        for move in found.moves:
            if move.holder.job is not None:
                self._books.occupy(move.holder.job, move.seat)
        self._reserve(waiting, found.seat, reasons.waits_for_paused(move.holder.run.job for move in found.moves))
        return True

    def _held_with(self, waiting: PendingJob, offer: PoolOption) -> GpuMilli:
        """What its project holds once the job has what it asks for, too."""
        domain = self._books.capacity.domain_of[offer.pool.name]
        return self._books.accounts.held(domain, project_owner(waiting.job.id.project)) + offer.request.total_milli

    def _standing(self, waiting: PendingJob, offer: PoolOption, held_milli: GpuMilli) -> Reason:
        """Why it may run."""
        domain = self._books.capacity.domain_of[offer.pool.name]
        if not offer.request.total_milli:
            return reasons.runs_without_gpu()
        return standing(self._books.accounts, domain, waiting.job.id.project, held_milli)

    def _note(self, waiting: PendingJob, rule: str, offer: PoolOption) -> None:
        owner = project_owner(waiting.job.id.project)
        domain = self._books.capacity.domain_of[offer.pool.name]
        numbers: dict[str, str | int] = {
            "pool": offer.pool.name,
            "gpuMilli": offer.request.total_milli,
            "heldMilli": self._books.accounts.held(domain, owner),
            "shareMilli": self._books.accounts.portion(domain, owner).share_milli,
        }
        self.outcome.trace.append(TraceStep(job=waiting.job.id, rule=rule, numbers=numbers))
