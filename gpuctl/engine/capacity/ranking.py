"""The nodes for one kind of request, best first, kept so while some of them change.

A heap in which entries of nodes that have changed since are passed over. Cost: O(log nodes) a node touched since it was
last asked, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeAlias, TypeVar

from gpuctl.model.ids import NodeName

Grade: TypeAlias = tuple[int, ...]
"""How good a node is for a request: the least is the best."""


class Ranked(Protocol):
    """What is ranked; its version is another after each change."""

    name: NodeName
    version: int


R = TypeVar("R", bound=Ranked)


class Ranking(Generic[R]):
    """Nodes by `grade`, which is None for one that does not hold the request; ties by name."""

    __slots__ = ("_grade", "_heap", "_seen")

    def __init__(self, grade: Callable[[R], Grade | None]) -> None:
        self._grade = grade
        self._heap: list[tuple[Grade, NodeName, int]] = []
        self._seen: int | None = None

    def best(
        self, rooms: Mapping[NodeName, R], touched: Sequence[NodeName], able: Callable[[], Iterable[NodeName]]
    ) -> tuple[Grade, NodeName] | None:
        """The best of the rooms. `touched`: the names of all that have changed, in order; it only ever grows. `able`,
        asked once: no others may hold the request now.
        """
        if self._seen is None:
            graded = ((self._grade(room), room) for room in map(rooms.__getitem__, dict.fromkeys(able())))
            self._heap = [(grade, room.name, room.version) for grade, room in graded if grade is not None]
            heapify(self._heap)
        else:
            for room in filter(None, map(rooms.get, dict.fromkeys(touched[self._seen :]))):
                grade = self._grade(room)
                if grade is not None:
                    heappush(self._heap, (grade, room.name, room.version))
        self._seen = len(touched)
        while self._heap:
            found, name, version = self._heap[0]
            there = rooms.get(name)
            if there is not None and there.version == version:
                return found, name
            heappop(self._heap)
        return None

    def copy(self) -> Ranking[R]:
        """A ranking of its own, for rooms that are copies."""
        other = Ranking(self._grade)
        other._heap, other._seen = list(self._heap), self._seen
        return other
