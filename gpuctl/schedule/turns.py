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
from typing import TypeAlias

from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import Instant
from gpuctl.schedule.accounts import project_owner
from gpuctl.schedule.books import Books
from gpuctl.schedule.hints import Hints
from gpuctl.schedule.lineup import Group, Line, Lineup
from gpuctl.schedule.ordering import Rank, Waiting

Place: TypeAlias = tuple[bool, bool, int, Instant, ProjectName, DomainName]
"""What lanes are compared by, the least is next: what is owed first; a share of 0 last; the part of its share that the
project holds, as a binary fraction; then who waits longest."""

_PLACES = 128
"""Binary places of such a fraction: so many that no two of amounts below 2 ** 64 look alike."""


class Lane:
    """A line's part in one cycle: who of it is next, and how that compares with other lanes right now.

    `settled`: jobs that need no turn; it grows as jobs are given a place.
    """

    __slots__ = (
        "_at", "_books", "_guarantee", "_owner", "_seen", "_settled", "_share", "line", "next", "open", "place",
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
        self._share = portion.share_milli
        self.place: Place = (True, True, 0, 0, line.project, line.domain)

    def widen(self, hints: Hints) -> None:
        """Let all take part who may have a chance."""
        self.open = []
        for group in hints.of_line(self.line):
            entry = self._first_of(group)
            if entry is not None:
                self.open.append((*entry, group))
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
        while at < len(jobs) and jobs[at][1].job.id in self._settled:
            at += 1
        self._at[group] = at
        return jobs[at] if at < len(jobs) else None

    def call(self, waiting: Waiting, group: Group) -> None:
        """Have this one next, and read what the project holds: how the lane compares with others from now on."""
        line, share = self.line, self._share
        held = self._books.accounts.held(line.domain, self._owner)
        is_owed = held + waiting.gpu_milli <= self._guarantee
        level = (held << _PLACES) // share if share > 0 else held
        self.next = waiting, group
        self.place = not is_owed, share <= 0, level, waiting.queued_at_ms, line.project, line.domain

    def __lt__(self, other: Lane) -> bool:
        return self.place < other.place


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
    rest: list[tuple[Place, tuple[JobId, ...]]] = []
    for lane in lanes:
        jobs = lane.line.order
        if lane.line.project in touched:
            jobs = tuple([job for job in jobs if job not in settled])
        if jobs:
            lane.call(*lineup.find(jobs[0]))
            rest.append((lane.place, jobs))
    return tuple([jobs for _, jobs in sorted(rest)])
