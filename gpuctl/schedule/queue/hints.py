"""Who may have a chance: the waiting jobs that are worth asking, told from what all of a kind have in common.

A hint errs on one side only: who is left out could neither start nor make room as the books stand. Of thousands that
wait for GPUs that nobody gives up, none is asked. (kube-scheduler's queueing hints are for the same.)

What a right or a rank is good for is the same for a whole cohort; what is free is looked for by sorts of wishes.
Cost: a look at each line of `claimants`, and at the cohorts and the kinds that may have room there; some places looked
for, once a cycle, for each sort of wish.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import CpuMilli, GpuMilli, MemBytes
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.line import Cohort, Group, Line
from gpuctl.schedule.jobs.ordering import Rank, Waiting, is_first_class, rank_of
from gpuctl.schedule.places.gang import Offer, Wish, has_place
from gpuctl.schedule.places.sized import Fits
from gpuctl.schedule.promises.layout import Layout
from gpuctl.schedule.promises.starvation import Guard, Guards
from gpuctl.schedule.queue.claimants import Right, ranks_above_some
from gpuctl.schedule.queue.rooms import Room, Rooms
from gpuctl.schedule.queue.waitlist import Waitlist
from gpuctl.schedule.shares.accounts import project_owner
from gpuctl.schedule.shares.rights import beyond_quota, forbidden, is_owed, rights_of
from gpuctl.schedule.victims.consolidation import Mover
from gpuctl.schedule.victims.reclaim import Claim, claims_of, overdrawn, slack
from gpuctl.schedule.victims.search import finds_nobody


class Chance(Enum):
    """Who of a cohort may have GPUs made free for them."""

    NONE = 0
    SOME = 1
    """Those for whom nobody was looked in vain yet who could be moved."""
    ALL = 2


class Reach(NamedTuple):
    """What could be had of a domain by a claim, in places that fit or not: what is free or comes free; whether anybody
    who can be paused holds more than is guaranteed, for then a run of any size may go; what those hold beyond their
    shares, which is all they may lose by fairness."""

    free_milli: GpuMilli
    above_guarantee: bool
    beyond_shares_milli: GpuMilli


class Worth(NamedTuple):
    """What a turn may come to for any of a cohort: whether it is hopeless, runs of the project may make way, or others,
    and whether they may start where a place is kept for another."""

    is_hopeless: bool
    outranks: bool
    may_win: bool
    may_pass: bool


class _Found:
    """What was found out as the books stand: it holds until they change."""

    __slots__ = ("chances", "changes", "gathering", "reach", "worth")

    def __init__(self, changes: int) -> None:
        self.changes = changes
        self.chances: dict[Cohort, Chance] = {}
        self.gathering: dict[Cohort, Fits] = {}
        self.reach: dict[DomainName, Reach] = {}
        self.worth: dict[Cohort, Worth] = {}


class Hints:
    """What is known when the turns begin. From then on idle room only shrinks; what is held is read as it stands."""

    __slots__ = (
        "_books", "_claimants", "_found", "_guards", "_layout", "_lineup", "_may_move", "_mover", "_open", "_rooms",
        "_roomy", "_sources",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - all that the turns are about
        self, books: Books, guards: Guards, layout: Layout, waitlist: Waitlist, mover: Mover, *, may_move: bool
    ) -> None:
        self._books = books
        self._claimants = waitlist.claimants
        self._guards = guards
        self._layout = layout
        self._lineup = waitlist.lineup
        self._mover = mover
        self._may_move = may_move
        self._sources: tuple[int, dict[DomainName, tuple[bool, bool, GpuMilli]]] = (-1, {})
        self._found = _Found(books.changes)
        self._rooms = Rooms(books, guards, layout, self._lineup.wishes)
        self._open: dict[Line, bool] = {}
        self._roomy: dict[Line, dict[Group, None]] = {}
        for wish in self._rooms.wishes():
            for group in self._lineup.wishes.groups_of(wish):
                self._roomy.setdefault(group.line, {})[group] = None

    def _as_books_stand(self) -> _Found:
        if self._found.changes != self._books.changes:
            self._found = _Found(self._books.changes)
        return self._found

    def lines(self) -> Iterable[Line]:
        """The lines in which somebody may have a chance, as far as that is told without a look at each."""
        guarded = (line for guard in self._guards for line in self._lineup.lines_of(guard.waiting.job.id.project))
        self._open = {
            line: not ranks and not any(right.guaranteed for right in rights)
            for line, ranks, rights in self._claimants.lines()
            if ranks or any(map(self._may_claim, rights))
        }
        self._open.update(dict.fromkeys(guarded, False))
        return self._open.keys() | dict.fromkeys(self._roomy if self._rooms.wishes() else ())

    def cohorts_of(self, line: Line) -> Iterable[Cohort]:
        """The cohorts of one of these lines of which some may have a chance without room of their own."""
        return line.cohorts.values() if line in self._open and not self._is_closed(line) else ()

    def _is_closed(self, line: Line) -> bool:
        """Whether nobody of a line can have anything before somebody is paused, whoever gets something meanwhile.

        So it is where nothing is idle, and all they have are claims in fairness that are known to find nobody: what
        gets something by a claim keeps within its share, and loses nothing by fairness. (But a department may not.)
        """
        may_start, has_departments = self._rooms.wishes() or self._layout.seats, self._books.accounts.tree.parents
        if may_start or has_departments or self._may_move or not self._open[line]:
            return False
        return not any(self._worth_of(cohort).may_win for cohort in line.cohorts.values())

    def alone_in(self, line: Line) -> Iterable[Group]:
        """The groups of one of these lines that may have a chance whatever their cohort has: there is room for them."""
        alone = {group: None for group in self._roomy.get(line, ()) if self._rooms.has_some(group)}
        for guard in self._guards if line in self._open else ():
            group = self._lineup.find(guard.waiting.job.id)[1]
            if group.line is line:
                alone[group] = None
        return alone

    def may_have_a_chance(self, group: Group) -> bool:
        """Whether the group is worth a turn as the books stand."""
        return self._has_chance_alone(group) or self.may_claim(group)

    def has_chance_alone(self, group: Group) -> bool:
        """Whether one of those that may have a chance whatever their cohort has is worth a turn as the books stand."""
        return self._has_chance_alone(group) or (group.line not in self._open and self.may_claim(group))

    def _has_chance_alone(self, group: Group) -> bool:
        self._books.effort.looks += 1
        waiting, domain_of = group.first, self._books.capacity.domain_of
        if self._guards.of(waiting) is not None:
            return True
        for wish, offer in group.wishes() if self._rooms.has_some(group) else ():
            room, domain = self._rooms.look(wish, offer), domain_of[offer.pool.name]
            may_start = room is Room.IDLE or (room is Room.KEPT and self._may_pass(waiting.job, offer))
            if may_start and forbidden(self._books.accounts, waiting.job, domain, offer.least_milli) is None:
                return True
        return False

    def may_claim(self, group: Group) -> bool:
        """Whether the group may have GPUs made free for it."""
        chance = self.chance_of(group.cohort)
        if chance is not Chance.SOME:
            return chance is Chance.ALL
        return self._may_be_brought_together(group.cohort)(*group.first.offers[0].request.sizes[1:3])

    def claiming(self, cohort: Cohort, since: Rank) -> list[tuple[Rank, Group]]:
        """Those of a cohort of which some may have GPUs made free for them that may, from a rank on."""
        fitting = cohort.sizes.fitting(self._may_be_brought_together(cohort))
        return sorted((rank, group) for group in fitting if (rank := rank_of(group.first)) >= since)

    def chance_of(self, cohort: Cohort) -> Chance:
        """Who of a cohort may have GPUs made free for them, as the books stand."""
        found = self._as_books_stand().chances
        if cohort not in found:
            found[cohort] = self._chance_of(cohort)
        return found[cohort]

    def _chance_of(self, cohort: Cohort) -> Chance:
        self._books.effort.looks += 1
        rights = {self._right(cohort.first, offer) for offer in _asking(cohort.first)}
        if any(map(self._may_take, rights)) or self._outranks(cohort.first):
            return Chance.ALL
        return Chance.SOME if any(map(self._may_gather, rights)) else Chance.NONE

    def is_worth_asking(self, group: Group) -> bool:
        """Whether the turn that the group has now could come to anything: a closer look than who is next depends on."""
        waiting = group.first
        own = self._guards.of(waiting)
        if any(self._may_start(waiting, wish, offer, own) for wish, offer in group.wishes()):
            return not self._is_hopeless(waiting)
        worth = self._worth_of(group.cohort)
        if worth.is_hopeless:
            return False
        if worth.outranks:
            return True
        if own is not None or worth.may_win:
            return any(self._may_win(waiting, o, own) for o in _asking(waiting)) or self._may_be_moved_for(waiting)
        return False

    def are_worth_asking(self, cohort: Cohort) -> bool:
        """Whether that may be so of any of a cohort, but for those that may have a chance alone."""
        worth = self._worth_of(cohort)
        return not worth.is_hopeless and (worth.outranks or worth.may_win or worth.may_pass)

    def _worth_of(self, cohort: Cohort) -> Worth:
        """As the books stand."""
        found = self._as_books_stand().worth
        if cohort not in found:
            first = cohort.first
            cpu_milli, mem_bytes = cohort.sizes.least
            least = [offer.of_size(cpu_milli, mem_bytes) for offer in _asking(first)]
            found[cohort] = Worth(
                is_hopeless=self._is_hopeless(first),
                outranks=self._outranks(first),
                may_win=any(self._may_move_or_win(first, offer) for offer in least),
                may_pass=bool(self._layout.seats) and any(self._may_be_let_pass(first, o) for o in first.offers),
            )
        return found[cohort]

    def _outranks(self, waiting: Waiting) -> bool:
        """Whether runs of its project may make way for it."""
        job, domain_of = waiting.job, self._books.capacity.domain_of
        domains = {domain_of[offer.pool.name] for offer in _asking(waiting)}
        is_fixed = is_first_class(job)
        return any(ranks_above_some(self._books, d, job.id.project, job.priority, is_fixed=is_fixed) for d in domains)

    def _is_hopeless(self, waiting: Waiting) -> bool:
        """Whether it can't be paused, and is more than its project's quota leaves, with however few workers."""
        job, accounts, domain_of = waiting.job, self._books.accounts, self._books.capacity.domain_of
        return not job.preemptible and all(
            beyond_quota(accounts, job, domain_of[offer.pool.name], offer.least_milli) is not None
            for offer in waiting.offers
        )

    def _may_be_let_pass(self, waiting: Waiting, offer: Offer) -> bool:
        """Whether one like it may start where a place is kept for another: if it ends in time, or may anyway."""
        guard = self._guards.in_pool(offer.pool.name)
        if guard is None:
            return False
        is_limited = waiting.job.max_duration_ms is not None and guard.until_ms is not None
        return is_limited or self._guards.yields(guard, waiting, offer)

    def past_guards(self, offers: Iterable[Offer]) -> list[Offer]:
        """Those of some that found no idle room for which there may be some where places are kept for others."""
        return [offer for offer in offers if self._rooms.of(offer.wish) is not None or self._layout.seats]

    def no_room(self, offers: Iterable[Offer]) -> None:
        """These were tried, and there is no idle room for them any more; with fewer workers there may be."""
        self._rooms.close(offers)

    def _right(self, waiting: Waiting, offer: Offer) -> Right:
        """What an offer may come of by what its project has a right to."""
        domain, milli = self._books.capacity.domain_of[offer.pool.name], offer.least_milli
        return Right(domain, milli, *rights_of(self._books.accounts, domain, waiting.job.id.project, milli))

    def _may_be_brought_together(self, cohort: Cohort) -> Fits:
        """Whether for those of a cohort that ask for so much CPU and memory it was not looked for in vain yet who could
        be moved, of what they have a right to.
        """
        found = self._as_books_stand().gathering
        if cohort not in found:
            found[cohort] = self._brought_together(cohort.first)
        return found[cohort]

    def _brought_together(self, waiting: Waiting) -> Fits:
        gathering = [offer for offer in _asking(waiting) if self._may_gather(self._right(waiting, offer))]
        if any(offer.least for offer in gathering):
            return lambda cpu_milli, mem_bytes: True  # noqa: ARG005 - whatever they ask for
        in_vain = [(offer.request, self._mover.in_vain(offer)) for offer in gathering]

        def is_open(cpu_milli: CpuMilli, mem_bytes: MemBytes) -> bool:
            return not all(
                failed.cover((request.gpu_milli, cpu_milli, mem_bytes, request.workers)) for request, failed in in_vain
            )

        return is_open

    def _may_start(self, waiting: Waiting, wish: Wish, offer: Offer, own: Guard | None) -> bool:
        """Whether there may be idle room for it, or where a place is kept that is its own or would be left to it."""
        room, guard = self._rooms.of(wish), self._guards.in_pool(offer.pool.name)
        if room is Room.IDLE or guard is None:
            return room is not None
        if room is None and not self._layout.seats:
            return False  # Only by moving what starts now there could be room where there was none.
        if guard is not own:
            return self._guards.yields(guard, waiting, offer)
        with self._guards.lifted():
            return self._rooms.has_room(offer)

    def _is_within_reach(self, waiting: Waiting, offer: Offer, own: Guard | None) -> bool:
        """Whether its project has a right to an offer, and as much could be had. `own`: the place kept for it."""
        domain, milli, guaranteed, fair = self._right(waiting, offer)
        if not fair and not guaranteed:
            return False
        reach = self._reach_in(domain)
        missing_milli = milli - reach.free_milli - (0 if own is None else self._guards.free_milli(own))
        by_guarantee = guaranteed and (reach.above_guarantee or missing_milli <= 0)
        return by_guarantee or (fair and missing_milli <= reach.beyond_shares_milli)

    def _may_win(self, waiting: Waiting, offer: Offer, own: Guard | None) -> bool:
        """Whether its claim to an offer may come to anything: not where that is known to find nobody to be paused, and
        there is no other way but to move somebody: nothing comes free or is kept for it, and it may not start smaller.
        """
        books, job = self._books, waiting.job.id
        if not self._is_within_reach(waiting, offer, own):
            return False
        if own is not None or offer.least or self._may_pass_guard(job.project, offer):
            return True
        claim = next(claims_of(books, job, offer), None)
        return claim is not None and (has_place(books.soon, offer) or not finds_nobody(books, offer, claim))

    def _may_move_or_win(self, waiting: Waiting, offer: Offer) -> bool:
        """Whether that, or a look at who could be moved, may come to anything for whoever asks for no less."""
        in_vain = not self._may_move or self._mover.in_vain(offer).cover(offer.request.sizes)
        return (not in_vain and self._is_within_reach(waiting, offer, None)) or self._may_win(waiting, offer, None)

    def _may_be_moved_for(self, waiting: Waiting) -> bool:
        """Whether there is anybody at all whom a look at who could be moved for it would find; each offer is looked at,
        for what was looked for in vain is not looked for again, by whomever."""
        books, job, domain_of = self._books, waiting.job, self._books.capacity.domain_of
        open_ = [
            offer
            for offer in (_asking(waiting) if self._may_move else ())
            if forbidden(books.accounts, job, domain_of[offer.pool.name], offer.request.total_milli) is None
            and next(claims_of(books, job.id, offer), None) is not None
        ]
        found = [self._mover.finds_nobody(offer) for offer in open_]
        return not all(found)

    def _may_pass_guard(self, project: ProjectName, offer: Offer) -> bool:
        """Whether others could be paused for it where a place is kept: it is owed to its project."""
        if self._guards.in_pool(offer.pool.name) is None:
            return False
        domain = self._books.capacity.domain_of[offer.pool.name]
        return is_owed(self._books.accounts, domain, project, offer.request.total_milli)

    def _reach_in(self, domain: DomainName) -> Reach:
        """As the books stand."""
        books, found = self._books, self._as_books_stand().reach
        if domain not in found:
            losers = map(project_owner, overdrawn(books, domain, Claim.FAIRNESS))
            found[domain] = Reach(
                free_milli=sum(map(books.soon.all_free_milli, books.capacity.pools_of(domain))),
                above_guarantee=bool(overdrawn(books, domain, Claim.GUARANTEE)),
                beyond_shares_milli=sum(slack(books, domain, Claim.FAIRNESS, owner) for owner in losers),
            )
        return found[domain]

    def _may_claim(self, right: Right) -> bool:
        """Whether what somebody may have a right to could come from somewhere."""
        return self._may_take(right) or self._may_gather(right)

    def _may_take(self, right: Right) -> bool:
        """Whether it is right, and somebody may have to give some."""
        above_guarantee, above_share, _ = self._sources_in(right.domain)
        return (right.guaranteed and above_guarantee) or (right.fair and above_share)

    def _may_gather(self, right: Right) -> bool:
        """Whether it is right, and so much is free or comes free, if not in one place."""
        *_, free_milli = self._sources_in(right.domain)
        return right.gpu_milli <= free_milli and (right.guaranteed or right.fair)

    def _sources_in(self, domain: DomainName) -> tuple[bool, bool, GpuMilli]:
        """Whether anybody holds more than is guaranteed, or than a fair share, and can be paused; and what is free, or
        comes free, where that may become a place."""
        version, found = self._sources
        if version != self._books.version:
            version, found = self._sources = self._books.version, {}
        if domain not in found:
            books = self._books
            comes = self._may_move or books.leaving > 0
            pools = books.capacity.pools_of(domain) if comes else ()
            guarantee, share = (bool(overdrawn(books, domain, claim)) for claim in (Claim.GUARANTEE, Claim.FAIRNESS))
            found[domain] = guarantee, share, sum(map(books.soon.all_free_milli, pools))
        return found[domain]

    def _may_pass(self, job: Job, offer: Offer) -> bool:
        """Whether it may start where a place is kept: it ends in time, or could take the place back."""
        guard, project = self._guards.in_pool(offer.pool.name), job.id.project
        if guard is None or job.max_duration_ms is not None or guard.waiting.job.id.project == project:
            return True
        domain = self._books.capacity.domain_of[offer.pool.name]
        return any(rights_of(self._books.accounts, domain, project, offer.least_milli))


def _asking(waiting: Waiting) -> list[Offer]:
    """The offers of a job for which others may make way: nobody does for a run that may never come to be."""
    return [offer for offer in waiting.offers if waiting.run is not None and offer.request.gpu_milli]
