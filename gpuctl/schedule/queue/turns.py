"""Turns: which job is asked next. Of all projects the one with the least of its fair share, in it the first in order.

Projects take turns in lanes, one for each quota domain their waiting jobs are meant for. A lane whose next job is
within its guarantee goes before the others: what it is owed need not be taken back later from whoever got it first.
Only jobs that may have a chance take part, which is for `hints` to say; who was asked in vain is asked again, like all
that are like it, when somebody has been paused, not before. What a job's turn comes to is `admission`'s.

Cost: O(lanes in which somebody may have a chance), and O(log lanes) for each that is asked. Who is next in a lane is
looked for when it may be that lane's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heapify, heappop, heapreplace

from gpuctl.model.ids import JobId
from gpuctl.model.units import Instant
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.lineup import Group, Line
from gpuctl.schedule.jobs.ordering import Rank, Waiting, rank_of
from gpuctl.schedule.queue.hints import Hints
from gpuctl.schedule.queue.lanes import place_of

_EVER: Instant = -(1 << 62)


class Lane:
    """A line's part in one cycle: who of it is next, and how that compares with other lanes right now.

    `settled`: jobs that need no turn; it grows as jobs are given a place. Until it is known who is next, `place` is the
    best there may be.
    """

    __slots__ = ("_at", "_books", "_seen", "_settled", "line", "next", "open", "place")

    def __init__(self, line: Line, books: Books, settled: Collection[JobId]) -> None:
        self.line = line
        self.open: list[tuple[Rank, Waiting, Group]] = []
        self.next: tuple[Waiting, Group] | None = None
        self._books = books
        self._settled = settled
        self._at: dict[Group, int] = {}
        self._seen: int | None = None
        self.place = place_of(line, books.accounts, 0, _EVER)

    def reopen(self) -> None:
        """All may take part again."""
        self._seen = None
        self.place = place_of(self.line, self._books.accounts, 0, _EVER)

    def _widen(self, hints: Hints) -> None:
        """Let all take part who may have a chance."""
        self.open = []
        for group in hints.of_line(self.line):
            entry = self._first_of(group)
            if entry is not None:
                self.open.append((*entry, group))
        heapify(self.open)
        self._seen = hints.version

    def narrow(self, hints: Hints) -> None:
        """Find who is next of those who may have a chance still."""
        if self._seen is None:
            self._widen(hints)
        elif self._seen != hints.version:
            self._seen = hints.version
            still = frozenset(hints.of_line(self.line))
            self.open = [entry for entry in self.open if entry[2] in still]
            heapify(self.open)
        self._find_next(hints)

    def _find_next(self, hints: Hints) -> None:
        """The first in order who may have a chance; those before it take no part."""
        while self.open:
            _, waiting, group = self.open[0]
            if waiting.job.id in self._settled:
                entry = self._first_of(group)
                if entry is not None:
                    heapreplace(self.open, (*entry, group))
                    continue
            elif hints.may_have_a_chance(group):
                self.call(waiting, group)
                return
            heappop(self.open)
        self.next = None

    def strike(self) -> None:
        """Who was next was asked in vain: none like it takes part any more."""
        heappop(self.open)

    def _first_of(self, group: Group) -> tuple[Rank, Waiting] | None:
        """The first of a group that needs a turn."""
        at, jobs = self._at.get(group, 0), group.jobs
        while at < len(jobs) and jobs[at].job.id in self._settled:
            at += 1
        self._at[group] = at
        return (rank_of(jobs[at]), jobs[at]) if at < len(jobs) else None

    def call(self, waiting: Waiting, group: Group) -> None:
        """Have this one next, and read what the project holds: how the lane compares with others from now on."""
        self.next = waiting, group
        self.place = place_of(self.line, self._books.accounts, waiting.gpu_milli, waiting.queued_at_ms)

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
        lane.narrow(hints)
        if lane.next is None:
            heappop(first)
        elif any(other < lane for other in first[1:3]):
            heapreplace(first, lane)
        elif not (hints.is_worth_asking(lane.next[1]) and turn(lane.next[0])):
            lane.strike()


def _opened(lanes: dict[Line, Lane], line: Line, books: Books, settled: Collection[JobId]) -> Lane:
    """The lane of a line, in which everybody may take part."""
    if line in lanes:
        lanes[line].reopen()
    else:
        lanes[line] = Lane(line, books, settled)
    return lanes[line]
