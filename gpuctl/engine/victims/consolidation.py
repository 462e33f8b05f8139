"""Bringing scattered room together: the runs to move so that a job fits, each with a place of its own elsewhere.

A move costs what a run has done since it last started, times its GPUs. Of all sets of runs the cheapest is chosen:
least GPU-time lost, then fewest runs. What is moved has a place that is free right now, and runs
again as soon as it has stopped. Exact for one worker up to MAX_STEPS sets, if those to move find their places
largest first; a gang's workers are seated one after another at the least cost each, in one rack where that costs no
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from gpuctl.engine.capacity.fit import request_on
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place, place_in, seats
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.node_search import NodeSearch, Steps
from gpuctl.engine.victims.what_if_node import WhatIfNode, in_one_rack
from gpuctl.model.ids import JobId, NodeName, PoolName
from gpuctl.model.units import GpuMilli

MAX_STEPS = 500
"""Sets of runs tried for one job in all: the bound on what it can cost."""

Loss: TypeAlias = tuple[int, int]
"""GPU-milliseconds and runs; smaller is better."""

Movable: TypeAlias = dict[NodeName, list[Allocation]]


@dataclass(frozen=True, slots=True)
class Migration:
    """A run to move, and its new place."""

    holder: Allocation
    seat: Assignment


@dataclass(frozen=True, slots=True)
class Consolidation:
    """The place that becomes free for a job, and who moves away from it."""

    seat: Assignment
    moves: tuple[Migration, ...]


class MigrationSearch:
    """Finds moves in one cycle, and knows what was looked for in vain. `has_looked`: at runs that could be moved."""

    __slots__ = ("_books", "_movable", "has_looked")

    def __init__(self, books: Snapshot) -> None:
        self._books = books
        self._movable: tuple[int, dict[PoolName, Movable]] = (-1, {})
        self.has_looked = False

    def consolidate(self, offer: PoolOption, beneficiary: JobId) -> Consolidation | None:
        """The cheapest moves that make room for an offer, which must not fit now; None when none do.

        What asks for no less than one that failed fails.
        Cost: O(pausable runs of the domain) once, and the sets tried on the nodes that may be cheapest.
        """
        in_vain, found = self.in_vain(offer), None
        if in_vain.cover(offer.request.sizes) or not _enough_is_free(self._books, offer):
            return None
        movable = self._movable_in(offer.pool.name)
        if movable:
            self.has_looked = True
            found = _Search(self._books, offer, beneficiary, movable).run()
        if found is None and not any(h.run.paused_for == beneficiary for holders in movable.values() for h in holders):
            in_vain.add(offer.request.sizes)
        return found

    def in_vain(self, offer: PoolOption) -> UnschedulableRequests:
        """What was looked for in vain as things stand, of requests like an offer's."""
        return self._books.unschedulable(("moves", self._books.lifted, offer.pool.name, offer.request.profile))

    def finds_nobody(self, offer: PoolOption) -> bool:
        """Whether nobody may be moved, whatever would come of it: then it has been looked for in vain by that."""
        if self.in_vain(offer).cover(offer.request.sizes) or not _enough_is_free(self._books, offer):
            return True
        if self._movable_in(offer.pool.name):
            return False
        self.in_vain(offer).add(offer.request.sizes)
        return True

    def _movable_in(self, pool: PoolName) -> Movable:
        """The runs on each node of a pool that may be moved and find a place now, those first that lose least by it."""
        books = self._books
        if self._movable[0] != books.changes:
            self._movable = books.changes, {}
        by_pool = self._movable[1]
        if pool not in by_pool:
            movable: Movable = {}
            by_pool[pool] = movable
            has_place: dict[object, bool] = {}
            for holder in _pausable(books, pool):
                key = holder.job.pools if holder.job else (), holder.charge.sizes, len(holder.placement.workers)
                if key not in has_place:
                    has_place[key] = place(books.now, _offers_of(books, holder)) is not None
                for node in holder.placement.nodes if has_place[key] else ():
                    room = books.soon.rooms.get(node)
                    if room is not None and room.pool == pool:
                        movable.setdefault(node, []).append(holder)
            for holders in movable.values():
                holders.sort(key=lambda h: (running_ms(h.run, books.now_ms), h.total_milli, h.run.job))
        return by_pool[pool]


def clear(books: Snapshot, seat: Assignment, holders: Sequence[Allocation], beneficiary: JobId) -> Consolidation | None:
    """Free exactly this place by moving these runs, if each of them may be moved and has a place elsewhere."""
    if not all(_is_movable(books, holder, beneficiary) for holder in holders):
        return None
    moves = _moves_beside(books, seat, holders)
    return None if moves is None else Consolidation(seat, moves)


def _enough_is_free(books: Snapshot, offer: PoolOption) -> bool:
    """What is free in the domain, and coming free in the pool, would be enough if it were in one place."""
    domain = books.capacity.domain_of[offer.pool.name]
    pools = books.capacity.pools_of(domain)
    free = sum(books.now.free_milli(pool, profile) for pool in pools for profile in {"", offer.request.profile})
    kind = offer.pool.name, offer.request.profile
    return free + books.soon.free_milli(*kind) - books.now.free_milli(*kind) >= offer.request.total_milli


def _is_movable(books: Snapshot, holder: Allocation, beneficiary: JobId) -> bool:
    """It may be paused, it is whole where it is, and it was not moved for the same job before."""
    job = holder.job
    return (
        job is not None
        and holder.domain is not None
        and holder in books.pausable(holder.domain).get(holder.project, ())
        and _is_whole(holder)
        and holder.run.paused_for != beneficiary
    )


def _is_whole(holder: Allocation) -> bool:
    """It has all the workers it asks for."""
    return holder.job is not None and len(holder.placement.workers) == holder.job.workers


def _offers_of(books: Snapshot, holder: Allocation) -> Iterator[PoolOption]:
    """Pools of its domain where it may run for no more GPUs than it has now, in its order."""
    for name in holder.job.pools if holder.job else ():
        pool = books.capacity.pools.get(name)
        if pool is None or books.capacity.domain_of.get(name) != holder.domain or holder.job is None:
            continue
        request = request_on(holder.job, pool)
        if request is not None and request.total_milli <= holder.total_milli:
            yield PoolOption(pool, request)


def _moves_beside(books: Snapshot, seat: Assignment, holders: Iterable[Allocation]) -> tuple[Migration, ...] | None:
    """A place that is free now for each, largest first, beside what the seat takes; None when one has none."""

    def size(holder: Allocation) -> tuple[GpuMilli, GpuMilli, int, int, JobId]:
        charge = holder.charge
        return -charge.gpu_milli, -holder.total_milli, -charge.cpu_milli, -charge.mem_bytes, holder.run.job

    charge = seat.offer.request.charge
    books.now.take(seat.placement, charge)
    moves: list[Migration] = []
    for holder in sorted(holders, key=size):
        found = place(books.now, _offers_of(books, holder))
        if found is None:
            break
        books.now.take(found.placement, found.offer.request.charge)
        moves.append(Migration(holder, found))
    else:
        holders = ()
    for move in moves:
        books.now.give_back(move.seat.placement, move.seat.offer.request.charge)
    books.now.give_back(seat.placement, charge)
    return None if holders else tuple(moves)


def _pausable(books: Snapshot, pool: PoolName) -> Iterator[Allocation]:
    for holders in books.pausable(books.capacity.domain_of[pool]).values():
        yield from (holder for holder in holders if _is_whole(holder))


class _Search:
    """Nodes in order of what one worker more costs there at the least, until no other can be cheaper."""

    __slots__ = ("beneficiary", "books", "close", "floors", "least", "movable", "offer", "seats", "steps", "taken")

    def __init__(self, books: Snapshot, offer: PoolOption, beneficiary: JobId, movable: Movable) -> None:
        self.books = books
        self.offer = offer
        self.beneficiary = beneficiary
        self.movable = movable
        self.floors = {name: WhatIfNode(books.soon.rooms[name]) for name in movable}
        self.seats = seats(books.soon, offer)
        self.taken: dict[JobId, Allocation] = {}
        self.least = {name: self._at_least(name) for name in movable}
        is_gang = offer.request.workers > 1
        self.close = in_one_rack(books.soon.rooms, offer.request, self.seats, movable) if is_gang else frozenset()
        self.steps = Steps(MAX_STEPS)

    def run(self) -> Consolidation | None:
        """Seat one worker after another; the last set must leave everybody a place."""
        while sum(self.seats.values()) < self.offer.request.workers:
            found = self._next_worker()
            if found is None:
                return None
            self._take(found)
        return self._told(())

    def _next_worker(self) -> tuple[Allocation, ...] | None:
        """The cheapest set that seats one worker more; for the last one, of those that leave all a place.

        Of nodes that look as cheap, those of one rack come first.
        """
        is_last = sum(self.seats.values()) + 1 >= self.offer.request.workers
        best: tuple[Loss, tuple[Allocation, ...]] | None = None
        order = ((least, name not in self.close, name) for name, least in self.least.items() if least is not None)
        for least, _, name in sorted(order):
            if best is not None and least >= best[0]:
                break
            aim = _Moves(self, best, is_last=is_last)
            NodeSearch(self.floors[name], self.offer.request, self.left(name), aim, self.steps).run((0, 0))
            best = aim.best
        return None if best is None else best[1]

    def left(self, name: NodeName) -> list[Allocation]:
        """The runs on a node that may be moved still; whoever was moved for this job before may not."""
        return [h for h in self.movable[name] if h.run.job not in self.taken and h.run.paused_for != self.beneficiary]

    def _at_least(self, name: NodeName) -> Loss | None:
        """What a worker more costs on a node at the very least: the GPUs that must go, by those that lose least, and as
        many runs as the largest of them would be. None where not enough can go.
        """
        short = self.floors[name].short_milli(self.offer.request, self.seats.get(name, 0) + 1)
        left = self.left(name)
        lost, missing = 0, short
        for holder in left if missing else ():
            part = min(missing, holder.total_milli)
            lost += part * running_ms(holder.run, self.books.now_ms)
            missing -= part
        together = accumulate(sorted((holder.total_milli for holder in left), reverse=True))
        return None if missing else (lost, 1 + sum(milli < short for milli in together))

    def _take(self, chosen: Iterable[Allocation]) -> None:
        for holder in chosen:
            self.taken[holder.run.job] = holder
            for name in holder.placement.nodes & self.floors.keys():
                self.floors[name].remove(holder)
                self.seats[name] = self.floors[name].slots(self.offer.request)
                self.least[name] = self._at_least(name)

    def _told(self, more: tuple[Allocation, ...]) -> Consolidation | None:
        """All moves of those taken and some more, if each has a place."""
        chosen = (*self.taken.values(), *more)
        soon = self.books.soon
        for holder in chosen:
            soon.give_back(holder.placement, holder.charge)
        placement = place_in(soon, self.offer)
        for holder in chosen:
            soon.take(holder.placement, holder.charge)
        if placement is None:
            return None
        seat = Assignment(self.offer, placement)
        moves = _moves_beside(self.books, seat, chosen)
        return None if moves is None else Consolidation(seat, moves)

    def leaves_all_a_place(self, chosen: tuple[Allocation, ...]) -> bool:
        """Whether these may be moved together with those taken before."""
        return self._told(chosen) is not None


class _Moves:
    """The aim of the least loss on one node: GPU-milliseconds, then runs. `best` is the cheapest set so far; the last
    one must leave a place for all that are moved."""

    __slots__ = ("_is_last", "_search", "best")

    def __init__(self, search: _Search, best: tuple[Loss, tuple[Allocation, ...]] | None, *, is_last: bool) -> None:
        self._search = search
        self._is_last = is_last
        self.best = best

    def with_run(self, state: Loss, holder: Allocation) -> Loss:
        """See `Aim`."""
        return state[0] + holder.total_milli * running_ms(holder.run, self._search.books.now_ms), state[1] + 1

    def is_beaten(self, state: Loss, short_milli: GpuMilli, more_runs: int) -> bool:  # noqa: ARG002 - the aim's shape
        """See `Aim`."""
        return self.best is not None and (state[0], state[1] + more_runs) >= self.best[0]

    def consider(self, state: Loss, chosen: tuple[Allocation, ...]) -> None:
        """See `Aim`."""
        if chosen and (not self._is_last or self._search.leaves_all_a_place(chosen)):
            self.best = state, chosen
