"""The lines of those who wait that may have GPUs made free for them: by what is right, before it is asked from whom.

A line is one of them if the most modest of its jobs keeps its project within its guarantee or its fair share, or ranks
above runs of its own project. Kept from cycle to cycle. Cost: the projects there is news about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.line import Line
from gpuctl.schedule.jobs.lineup import Lineup
from gpuctl.schedule.news import News
from gpuctl.schedule.shares.rights import rights_of


class Right(NamedTuple):
    """In a quota domain: what the most modest of a line needs, and whether its project stays within its guarantee, and
    within its share, with it."""

    domain: DomainName
    gpu_milli: GpuMilli
    guaranteed: bool
    fair: bool


class Claimants:
    """Those lines with their rights; () where they only rank above others."""

    __slots__ = ("_books", "_lines", "_lineup", "_reader")

    def __init__(self, books: Books, lineup: Lineup, news: News) -> None:
        self._books = books
        self._lineup = lineup
        self._reader = news.reader()
        self._lines: dict[ProjectName, list[tuple[Line, bool, tuple[Right, ...]]]] = {}

    def lines(self) -> Iterable[tuple[Line, bool, tuple[Right, ...]]]:
        """Each line, whether it ranks above runs, and its rights, as the books stand."""
        for project in self._reader.take():
            found = []
            for line in self._lineup.lines_of(project):
                ranks, rights = self._ranks(line), tuple(self._rights(line))
                if ranks or rights:
                    found.append((line, ranks, rights))
            if found:
                self._lines[project] = found
            else:
                self._lines.pop(project, None)
        return chain.from_iterable(self._lines.values())

    def _ranks(self, line: Line) -> bool:
        needs = line.needs(self._books.capacity)
        return any(
            ranks_above_some(self._books, domain, line.project, needs.priority, is_fixed=needs.is_fixed)
            for domain in needs.domains
        )

    def _rights(self, line: Line) -> Iterator[Right]:
        milli = line.needs(self._books.capacity).gpu_milli
        for domain in line.needs(self._books.capacity).domains:
            guaranteed, fair = rights_of(self._books.accounts, domain, line.project, milli)
            if guaranteed or fair:
                yield Right(domain, milli, guaranteed, fair)


def ranks_above_some(books: Books, domain: DomainName, project: ProjectName, priority: int, *, is_fixed: bool) -> bool:
    """Whether runs of the same project may make way."""
    there = books.pausable(domain).get(project)
    return bool(there) and (is_fixed or books.lowest(domain, project) < priority)
