"""Turns: in which order the jobs that could start are asked, lane by lane, until every one has been asked once.

It knows lanes and their order; what a job's turn comes to is `admission`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappushpop

from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.schedule.books import Books
from gpuctl.schedule.ordering import Lane, Waiting


def take_turns(
    queue: Mapping[tuple[ProjectName, DomainName], Iterable[Waiting]], books: Books, turn: Callable[[Waiting], None]
) -> None:
    """Give every job of a queue its turn: always the first job of the lane that is first as the books then stand."""
    lanes = [Lane(project, domain, deque(jobs), books.accounts) for (project, domain), jobs in queue.items()]
    heapify(lanes)
    lane = _first(lanes)
    while lane is not None:
        version = books.version
        lane.refresh()
        if lanes and lanes[0] < lane:
            lane = heappushpop(lanes, lane)
            continue
        turn(lane.jobs.popleft())
        if version != books.version:
            for other in (lane, *lanes):
                other.refresh()
            heapify(lanes)
        lane = heappushpop(lanes, lane) if lane.jobs else _first(lanes)


def _first(lanes: list[Lane]) -> Lane | None:
    """Takes the first lane out of the heap, if there is one."""
    return heappop(lanes) if lanes else None
