"""Turns: which job is asked next. Of all projects the one with the least of its fair share, in it the first in order.

Projects take turns in lanes, one for each quota domain their waiting jobs are meant for. A lane whose next job is
within its guarantee goes before the others: what it is owed need not be taken back later from whoever got it first.
Only jobs that may have a chance take part, which is for `hints` to say; who was asked in vain is asked again, like all
that are like it, when somebody has been paused, not before. What a job's turn comes to is `admission`'s.

Cost: O(lanes), and O(log lanes) for each that is asked; who has no chance costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heapreplace
from operator import itemgetter

from gpuctl.model.ids import JobId
from gpuctl.schedule.accounts import project_owner
from gpuctl.schedule.books import Books
from gpuctl.schedule.hints import Hints
from gpuctl.schedule.lineup import Group, Line, Lineup
from gpuctl.schedule.ordering import Rank, Waiting


class Lane:
    """A line's part in one cycle: who of it is next, and how that compares with other lanes right now.

    `settled`: jobs that need no turn; it grows as jobs are given a place.
    """

    __slots__ = (
        "_at", "_books", "_guarantee", "_owner", "_seen", "_settled", "held", "line", "next", "open", "owed", "share",
    )  # fmt: skip

    def __init__(self, line: Line, books: Books, settled: Collection[JobId]) -> None:
        self.line = line
        self.open: list[tuple[Rank, Waiting, Group]] = []
        self.next: tuple[Waiting, Group] | None = None
        self._books = books
        self._settled = settled
        self._at: dict[Group, int] = {}
        self._seen = -1
        self._owner = project_owner(line.project)
        portion = books.accounts.portion(line.domain, self._owner)
        self._guarantee = portion.guarantee_milli
        self.share = portion.share_milli
        self.held = 0
        self.owed = False

    def widen(self, hints: Hints) -> None:
        """Let all take part who may have a chance."""
        firsts = ((self._first_of(group), group) for group in hints.of_line(self.line))
        self.open = [(*entry, group) for entry, group in firsts if entry is not None]
        heapify(self.open)
        self._seen = hints.version
        self._find_next(hints)

    def narrow(self, hints: Hints) -> None:
        """Let those go who have no chance any more."""
        if self._seen != hints.version:
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
                self.call((waiting, group))
                return
            heappop(self.open)
        self.call(None)

    def strike(self) -> None:
        """Who was next was asked in vain: none like it takes part any more."""
        heappop(self.open)

    def _first_of(self, group: Group) -> tuple[Rank, Waiting] | None:
        """The first of a group that needs a turn."""
        at, jobs = self._at.get(group, 0), group.jobs
        while at < len(jobs) and jobs[at][1].job.id in self._settled:
            at += 1
        self._at[group] = at
        return jobs[at] if at < len(jobs) else None

    def call(self, following: tuple[Waiting, Group] | None) -> None:
        """Have this one next, and read what the project holds."""
        self.next = following
        self.held = self._books.accounts.held(self.line.domain, self._owner)
        self.owed = self.next is not None and self.held + self.next[0].gpu_milli <= self._guarantee

    def __lt__(self, other: Lane) -> bool:
        if self.owed is not other.owed:
            return self.owed
        if (self.share > 0) is not (other.share > 0):
            return self.share > 0
        mine, theirs = (self.held * other.share, other.held * self.share) if self.share > 0 else (self.held, other.held)
        if mine != theirs:
            return mine < theirs
        return self._seniority() < other._seniority()

    def _seniority(self) -> tuple[object, ...]:
        since = self.next[0].queued_at_ms if self.next else 0
        return since, self.line.project, self.line.domain


def take_turns(lanes: Iterable[Lane], books: Books, hints: Hints, turn: Callable[[Waiting], bool]) -> None:
    """Give turns until nobody is left who may have a chance. `turn` says whether the job has a place now."""
    lanes = tuple(lanes)
    version = -1
    first: list[Lane] = []
    while True:
        if version != books.version:
            version = books.version
            first = _opened(lanes, hints)
        if not first:
            return
        lane = first[0]
        lane.narrow(hints)
        if lane.next is None:
            heappop(first)
        elif any(other < lane for other in first[1:3]):
            heapreplace(first, lane)
        elif not turn(lane.next[0]):
            lane.strike()


def _opened(lanes: Iterable[Lane], hints: Hints) -> list[Lane]:
    """The lanes in which somebody may have a chance, as a heap."""
    first = []
    for lane in lanes:
        lane.widen(hints)
        if lane.next is not None:
            first.append(lane)
    heapify(first)
    return first


def in_order(lanes: Iterable[Lane], lineup: Lineup, settled: Collection[JobId]) -> tuple[tuple[JobId, ...], ...]:
    """Those that wait still, lane by lane, in the order in which they would be asked."""
    touched = {job.project for job in settled}
    rest: list[tuple[Lane, tuple[JobId, ...]]] = []
    for lane in lanes:
        jobs = lane.line.order
        if lane.line.project in touched:
            jobs = tuple([job for job in jobs if job not in settled])
        if jobs:
            lane.call(lineup.find(jobs[0]))
            rest.append((lane, jobs))
    return tuple([jobs for _, jobs in sorted(rest, key=itemgetter(0))])
