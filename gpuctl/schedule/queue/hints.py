"""Who may have a chance: the waiting jobs that are worth asking, told from what all of a kind have in common.

A hint errs on one side only: who is left out could neither start nor make room as the books stand. Of thousands that
wait for GPUs that nobody gives up, none is asked. (kube-scheduler's queueing hints are for the same.)

Cost: a look at each line of `claimants`, and at those that want what is free; a place looked for, once a cycle, for
each shape of request.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.lineup import Group, Line
from gpuctl.schedule.jobs.ordering import Shape, Waiting, is_first_class
from gpuctl.schedule.places.gang import Offer, Wish, has_place
from gpuctl.schedule.promises.layout import Layout
from gpuctl.schedule.promises.starvation import Guard, Guards
from gpuctl.schedule.queue.claimants import Right, ranks_above_some
from gpuctl.schedule.queue.waitlist import Waitlist
from gpuctl.schedule.shares.accounts import project_owner
from gpuctl.schedule.shares.rights import forbidden, is_owed, rights_of
from gpuctl.schedule.victims.consolidation import Mover
from gpuctl.schedule.victims.reclaim import Claim, claims_of, overdrawn, slack
from gpuctl.schedule.victims.search import is_in_vain


class Room(Enum):
    """Where a request had a place when the turns began."""

    IDLE = 1
    KEPT = 2
    """Only where a place is kept for another."""


class Reach(NamedTuple):
    """What could be had of a domain by a claim, in places that fit or not: what is free or comes free; whether anybody
    who can be paused holds more than is guaranteed, for then a run of any size may go; what those hold beyond their
    shares, which is all they may lose by fairness."""

    free_milli: GpuMilli
    above_guarantee: bool
    beyond_shares_milli: GpuMilli


class Hints:
    """What is known when the turns begin. From then on idle room only shrinks; what is held is read as it stands.

    `version` counts for how many shapes of request room is gone.
    """

    __slots__ = (
        "_books", "_claimants", "_guards", "_in_vain", "_layout", "_lineup", "_may_move", "_mover", "_open", "_reach",
        "_rooms", "_roomy", "_sources", "_with_wish", "version",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - all that the turns are about
        self, books: Books, guards: Guards, layout: Layout, waitlist: Waitlist, mover: Mover, *, may_move: bool
    ) -> None:
        self._books = books
        self._claimants = waitlist.claimants
        self._guards = guards
        self._layout = layout
        self._lineup = lineup = waitlist.lineup
        self._mover = mover
        self._may_move = may_move
        self.version = 0
        self._sources: tuple[int, dict[DomainName, tuple[bool, bool, GpuMilli]]] = (-1, {})
        self._reach: tuple[int, dict[DomainName, Reach]] = (-1, {})
        self._in_vain: tuple[int, set[object]] = (-1, set())
        wishes = lineup.wishes()
        self._rooms = {wish: Room.IDLE for wish, offer in wishes.items() if self._has_room(offer)}
        if guards:
            with guards.lifted():
                none = ((wish, offer) for wish, offer in wishes.items() if wish not in self._rooms)
                kept = [wish for wish, offer in none if self._has_room(offer)]
            self._rooms.update(dict.fromkeys(kept, Room.KEPT))
        self._open: dict[Line, bool] = {}
        self._roomy: set[Group] = set()
        self._with_wish: dict[Wish, list[Shape]] = {wish: [] for wish in self._rooms}
        for shape, alike in lineup.shapes.items() if self._rooms else ():
            for wish in shape:
                if wish in self._rooms:
                    self._with_wish[wish].append(shape)
                    self._roomy.update(alike)

    def lines(self) -> Iterable[Line]:
        """The lines in which somebody may have a chance, as far as that is told without a look at each."""
        guarded = (line for guard in self._guards for line in self._lineup.lines_of(guard.waiting.job.id.project))
        self._open = {
            line: not ranks and not any(right.guaranteed for right in rights)
            for line, ranks, rights in self._claimants.lines()
            if ranks or any(map(self._may_claim, rights))
        }
        self._open.update(dict.fromkeys(guarded, False))
        return self._open.keys() | dict.fromkeys([group.line for group in self._roomy])

    def of_line(self, line: Line) -> list[Group]:
        """The groups of one of these lines that may have a chance, as far as that is told without a look at each."""
        if line in self._open:
            return [] if self._is_hopeless(line) else list(line.groups.values())
        return [group for group in line.groups.values() if group in self._roomy] if self._roomy else []

    def _is_hopeless(self, line: Line) -> bool:
        """Whether nobody of a line can have anything before somebody is paused, whoever gets something meanwhile.

        So it is where nothing is idle, and all they have are claims in fairness that are known to find nobody: what
        gets something by a claim keeps within its share, and loses nothing by fairness. (But a department may not.)
        """
        may_start, has_departments = self._rooms or self._layout.seats, self._books.accounts.tree.parents
        if may_start or has_departments or not self._open[line]:
            return False
        claiming = (group.first for group in line.groups.values() if group.first.run is not None)
        asking = ((waiting, offer) for waiting in claiming for offer in waiting.offers if offer.request.gpu_milli)
        return not any(self._may_win(waiting, offer, None) for waiting, offer in asking)

    def may_have_a_chance(self, group: Group) -> bool:
        """Whether the group is worth a turn as the books stand."""
        waiting, domain_of = group.first, self._books.capacity.domain_of
        job, project = waiting.job, group.line.project
        if self._guards.of(waiting) is not None:
            return True
        for wish, offer in group.wishes() if group in self._roomy else ():
            room, domain = self._room_of(wish, offer), domain_of[offer.pool.name]
            may_start = room is Room.IDLE or (room is Room.KEPT and self._may_pass(job, offer))
            if may_start and forbidden(self._books.accounts, job, domain, offer.least_milli) is None:
                return True
        if waiting.run is None:
            return False
        asking = [offer for offer in waiting.offers if offer.request.gpu_milli]
        if any(self._has_claim(project, offer) for offer in asking):
            return True
        domains = {domain_of[offer.pool.name] for offer in asking}
        return self._ranks_above_some(project, domains, job.priority, is_fixed=is_first_class(job))

    def is_worth_asking(self, group: Group) -> bool:
        """Whether the turn that the group has now could come to anything: a closer look than who is next depends on."""
        waiting = group.first
        own = self._guards.of(waiting)
        if any(self._may_start(waiting, wish, offer, own) for wish, offer in group.wishes()):
            return True
        asking = [offer for offer in waiting.offers if waiting.run is not None and offer.request.gpu_milli]
        domains = {self._books.capacity.domain_of[offer.pool.name] for offer in asking}
        is_fixed = is_first_class(waiting.job)
        return any(self._may_win(waiting, offer, own) for offer in asking) or (
            self._ranks_above_some(group.line.project, domains, waiting.job.priority, is_fixed=is_fixed)
        )

    def past_guards(self, offers: Iterable[Offer]) -> list[Offer]:
        """Those of some that found no idle room for which there may be some where places are kept for others."""
        return [offer for offer in offers if offer.wish in self._rooms or self._layout.seats]

    def no_room(self, offers: Iterable[Offer]) -> None:
        """These were tried, and there is no idle room for them any more; with fewer workers there may be."""
        for offer in offers:
            if not offer.least and self._rooms.get(offer.wish) is Room.IDLE:
                self._close(offer.wish, offer)

    def _room_of(self, wish: Wish, offer: Offer) -> Room | None:
        """Where there is room for an offer still."""
        if self._rooms.get(wish) is Room.IDLE and not self._has_room(offer):
            self._close(wish, offer)
        return self._rooms.get(wish)

    def _close(self, wish: Wish, offer: Offer) -> None:
        """What there is of room is kept for another, if there is any."""
        if self._guards:
            with self._guards.lifted():
                if has_place(self._books.now, offer):
                    self._rooms[wish] = Room.KEPT
                    return
        del self._rooms[wish]
        for shape in self._with_wish[wish]:
            if self._rooms.keys().isdisjoint(shape):
                self._roomy.difference_update(self._lineup.shapes[shape])
                self.version += 1

    def _has_room(self, offer: Offer) -> bool:
        """With as few workers as it may start with; or enough is there, and those that start may move together."""
        least = offer.sized(offer.least or offer.request.workers) or offer
        return self._layout.may_lay_out(least) or has_place(self._books.now, least)

    def _has_claim(self, project: ProjectName, offer: Offer) -> bool:
        """Whether an offer may come of what its project has a right to."""
        domain, milli = self._books.capacity.domain_of[offer.pool.name], offer.least_milli
        right = Right(domain, milli, *rights_of(self._books.accounts, domain, project, milli))
        if self._may_take(right):
            return True
        return self._may_gather(right) and (offer.least > 0 or not self._mover.is_in_vain(offer))

    def _may_start(self, waiting: Waiting, wish: Wish, offer: Offer, own: Guard | None) -> bool:
        """Whether there may be idle room for it, or where a place is kept that is its own or would be left to it."""
        room, guard = self._rooms.get(wish), self._guards.in_pool(offer.pool.name)
        if room is Room.IDLE or guard is None:
            return room is not None
        if room is None and not self._layout.seats:
            return False  # Only by moving what starts now there could be room where there was none.
        if guard is not own:
            return self._guards.yields(guard, waiting, offer)
        with self._guards.lifted():
            return self._has_room(offer)

    def _is_within_reach(self, project: ProjectName, offer: Offer, own: Guard | None) -> bool:
        """Whether its project has a right to an offer, and as much could be had. `own`: the place kept for it."""
        books = self._books
        domain, milli = books.capacity.domain_of[offer.pool.name], offer.least_milli
        guaranteed, fair = rights_of(books.accounts, domain, project, milli)
        if not fair and not guaranteed:
            return False
        reach = self._reach_in(domain)
        missing_milli = milli - reach.free_milli - (0 if own is None else self._guards.free_milli(own))
        by_guarantee = guaranteed and (reach.above_guarantee or missing_milli <= 0)
        return by_guarantee or (fair and missing_milli <= reach.beyond_shares_milli)

    def _may_win(self, waiting: Waiting, offer: Offer, own: Guard | None) -> bool:
        """Whether its claim to an offer may come to anything: not where that is known to find nobody to be paused, and
        there is no other way: nothing comes free or is kept for it, nobody is moved, and it may not start smaller."""
        books, job = self._books, waiting.job.id
        if not self._is_within_reach(job.project, offer, own):
            return False
        if own is not None or self._may_move or offer.least or self._may_pass_guard(job.project, offer):
            return True
        changes, in_vain = self._in_vain
        if changes != books.changes:
            self._in_vain = books.changes, (in_vain := set())
        claim = next(claims_of(books, job, offer), None)
        key = None if claim is None else (claim.key, offer.wish)
        if claim is not None and key not in in_vain:
            if has_place(books.soon, offer) or not is_in_vain(books, offer, claim):
                return True
            in_vain.add(key)
        return False

    def _may_pass_guard(self, project: ProjectName, offer: Offer) -> bool:
        """Whether others could be paused for it where a place is kept: it is owed to its project."""
        if self._guards.in_pool(offer.pool.name) is None:
            return False
        domain = self._books.capacity.domain_of[offer.pool.name]
        return is_owed(self._books.accounts, domain, project, offer.request.total_milli)

    def _reach_in(self, domain: DomainName) -> Reach:
        """As the books stand."""
        books = self._books
        changes, found = self._reach
        if changes != books.changes:
            self._reach = books.changes, (found := {})
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

    def _ranks_above_some(
        self, project: ProjectName, domains: Iterable[DomainName], priority: int, *, is_fixed: bool
    ) -> bool:
        """Whether runs of the same project may make way."""
        return any(ranks_above_some(self._books, domain, project, priority, is_fixed=is_fixed) for domain in domains)

    def _may_pass(self, job: Job, offer: Offer) -> bool:
        """Whether it may start where a place is kept: it ends in time, or could take the place back."""
        guard, project = self._guards.in_pool(offer.pool.name), job.id.project
        if guard is None or job.max_duration_ms is not None or guard.waiting.job.id.project == project:
            return True
        domain = self._books.capacity.domain_of[offer.pool.name]
        return any(rights_of(self._books.accounts, domain, project, offer.least_milli))
