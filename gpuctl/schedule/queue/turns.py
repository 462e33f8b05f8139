"""Turns: which job is asked next. Of all projects the one with the least of its fair share, in it the first in order.

Projects take turns in lanes, one for each quota domain their waiting jobs are meant for. A lane whose next job is
within its guarantee goes before the others: what it is owed need not be taken back later from whoever got it first.
Only jobs that may have a chance take part, which is for `hints` to say; who was asked in vain is asked again, like all
that are like it, when somebody has been paused, not before. What a job's turn comes to is `admission`'s.

Cost: O(cohorts) of the lanes in which somebody may have a chance, and O(log lanes) for each that is asked. Who is next
in a lane is looked for when it may be that lane's turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import TypeAlias

from gpuctl.model.ids import JobId
from gpuctl.model.units import Instant
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.line import Cohort, Group, Line
from gpuctl.schedule.jobs.ordering import Rank, Waiting, rank_of
from gpuctl.schedule.queue.hints import Chance, Hints
from gpuctl.schedule.queue.lanes import Place, place_of

_EVER: Instant = -(1 << 62)


class _Row:
    """Some of a lane's groups, in order: those of a cohort, or some that take part whatever their cohort does."""

    __slots__ = ("at", "cohort", "groups", "is_alone", "number")

    def __init__(
        self, number: int, groups: list[tuple[Rank, Group]], cohort: Cohort | None = None, *, is_alone: bool = False
    ) -> None:
        self.number = number
        self.groups = groups
        self.cohort = cohort
        self.is_alone = is_alone
        self.at = 0


_Head: TypeAlias = tuple[Rank, int, Waiting, Group, _Row]
"""Who is first in a row, by rank; rows are numbered."""


class Lane:
    """A line's part in one cycle: who of it is next, and how that compares with other lanes right now.

    All before who is next take no part any more. `settled`: jobs that need no turn; it grows as jobs are given a place.
    Until it is known who is next, `place` is the best there may be.
    """

    __slots__ = ("_books", "_heads", "_later", "_numbers", "_seen", "_settled", "_struck", "line", "next", "place")

    def __init__(self, line: Line, books: Books, settled: Collection[JobId]) -> None:
        self.line = line
        self._books = books
        self._settled = settled
        self.reopen()

    def reopen(self) -> None:
        """All may take part again."""
        self.next: Waiting | None = None
        self._heads: list[_Head] = []
        self._later: dict[Group, int] = {}
        self._numbers = count()
        self._struck: Rank | None = None
        self._seen = False
        self.place = self._place_of(0, _EVER)

    def narrow(self, hints: Hints, limit: Place | None) -> None:
        """Find who is next: the first in order who may have a chance, and is worth a turn if it has that now.

        That is while no other lane comes first: none has a place before `limit`. Who is not worth it has had its turn.
        """
        if not self._seen:
            self._seen = True
            for cohort in hints.cohorts_of(self.line):
                self._go_on(_Row(next(self._numbers), cohort.groups, cohort))
            if alone := sorted([(rank_of(group.first), group) for group in hints.alone_in(self.line)]):
                self._go_on(_Row(next(self._numbers), alone, is_alone=True))
        passed: list[_Row] = []
        found = self._find(hints, limit, passed)
        for row in passed if found is not None else ():
            self._go_on(row, found)
        self.next = None if found is None else self._heads[0][2]

    def _find(self, hints: Hints, limit: Place | None, passed: list[_Row]) -> Rank | None:
        """The rank of who is next. `passed`: cohorts of which nobody before it is worth a turn."""
        waits: tuple[Rank, Place] | None = None
        while self._heads:
            rank, _, waiting, group, row = self._heads[0]
            if waits is not None and waits[0] < rank:
                break
            if waiting.job.id in self._settled or (self._struck is not None and rank <= self._struck):
                self._step()
                continue
            chance = Chance.ALL if row.cohort is None else hints.chance_of(row.cohort)
            if chance is Chance.NONE:
                passed.append(heappop(self._heads)[-1])
                continue
            if row.cohort is not None and chance is Chance.SOME and not hints.may_claim(group):
                passed.append(heappop(self._heads)[-1])
                self._go_on(_Row(next(self._numbers), hints.claiming(row.cohort, rank)))
                continue
            if row.cohort is None and not (hints.has_chance_alone if row.is_alone else hints.may_have_a_chance)(group):
                self._step()
                continue
            place = self._place_of(waiting.gpu_milli, waiting.queued_at_ms)
            if limit is not None and limit < place:
                waits = rank, place
                break
            if row.cohort is not None and chance is Chance.ALL and not hints.are_worth_asking(row.cohort):
                passed.append(heappop(self._heads)[-1])
                behind = self._first_behind(row, limit)
                waits = behind if waits is None or (behind is not None and behind < waits) else waits
            elif hints.is_worth_asking(group):
                self.place = place
                return rank
            else:
                self._step()
        if waits is None:
            return None
        self.place = waits[1]
        return waits[0]

    def strike(self) -> None:
        """Who was next was asked in vain: none like it takes part any more."""
        self._struck = self._heads[0][0]

    def _first_behind(self, row: _Row, limit: Place | None) -> tuple[Rank, Place] | None:
        """The first of a cohort that has its turn after other lanes; in it, who waits longest is first."""
        if limit is None:
            return None
        low, high = row.at, len(row.groups)
        while low < high:
            middle = (low + high) // 2
            if limit < self._place_at(row, middle):
                high = middle
            else:
                low = middle + 1
        while low < len(row.groups) and row.groups[low][1].first.job.id in self._settled:
            low += 1
        return (row.groups[low][0], self._place_at(row, low)) if low < len(row.groups) else None

    def _place_at(self, row: _Row, at: int) -> Place:
        first = row.groups[at][1].first
        return self._place_of(first.gpu_milli, first.queued_at_ms)

    def _place_of(self, gpu_milli: int, queued_at_ms: Instant) -> Place:
        """What lanes are compared by if one that asks for so much is next, by what the project holds now."""
        return place_of(self.line, self._books.accounts, gpu_milli, queued_at_ms)

    def _step(self) -> None:
        """Who is first takes no part any more, or has a place."""
        _, _, waiting, group, row = heappop(self._heads)
        if waiting.job.id in self._settled:
            self._follow(group)
        row.at += 1
        self._go_on(row)

    def _go_on(self, row: _Row, since: Rank | None = None) -> None:
        """Have the next of a row take part that needs a turn, from a rank on."""
        groups = row.groups
        if since is not None:
            row.at = bisect_left(groups, (since,), row.at)
        while row.at < len(groups):
            rank, group = groups[row.at]
            if group.first.job.id not in self._settled:
                heappush(self._heads, (rank, row.number, group.first, group, row))
                return
            self._follow(group)
            row.at += 1

    def _follow(self, group: Group) -> None:
        """Have the first of a group take part that needs a turn, where others of it have a place."""
        at, jobs = self._later.get(group, 0), group.jobs
        while at < len(jobs) and jobs[at].job.id in self._settled:
            at += 1
        if at < len(jobs) and self._later.get(group) != at:
            self._later[group] = at
            number = next(self._numbers)
            heappush(self._heads, (rank_of(jobs[at]), number, jobs[at], group, _Row(number, [])))

    def __lt__(self, other: Lane) -> bool:
        return self.place < other.place


def take_turns(hints: Hints, books: Books, settled: Collection[JobId], turn: Callable[[Waiting], bool]) -> None:
    """Give turns until nobody is left who may have a chance. `turn` says whether the job has a place now."""
    lanes: dict[Line, Lane] = {}
    version = -1
    first: list[Lane] = []
    while True:
        if version != books.version:
            version = books.version
            first = [_opened(lanes, line, books, settled) for line in hints.lines()]
            heapify(first)
        if not first:
            return
        lane = first[0]
        limit = min((other.place for other in first[1:3]), default=None)
        lane.narrow(hints, limit)
        if lane.next is None:
            heappop(first)
        elif limit is not None and limit < lane.place:
            heapreplace(first, lane)
        elif not turn(lane.next):
            lane.strike()


def _opened(lanes: dict[Line, Lane], line: Line, books: Books, settled: Collection[JobId]) -> Lane:
    """The lane of a line, in which everybody may take part."""
    if line in lanes:
        lanes[line].reopen()
    else:
        lanes[line] = Lane(line, books, settled)
    return lanes[line]
