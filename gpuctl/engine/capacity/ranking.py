"""The nodes in order for one kind of request, kept while nodes change.

A heap that skips entries of nodes that have changed since. Cost: O(log nodes) for each node changed since the last
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeAlias, TypeVar

from gpuctl.model.ids import NodeName

Grade: TypeAlias = tuple[int, ...]
"""How good a node is for a request; the least is best."""


class Ranked(Protocol):
    """What is ranked; its version differs after each change."""

    name: NodeName
    version: int


R = TypeVar("R", bound=Ranked)


class Ranking(Generic[R]):
    """Nodes by `grade`, ties by name. A grade of None: the node does not hold the request."""

    __slots__ = ("_grade", "_heap", "_seen")

    def __init__(self, grade: Callable[[R], Grade | None]) -> None:
        self._grade = grade
        self._heap: list[tuple[Grade, NodeName, int]] = []
        self._seen: int | None = None

    def best(
        self, rooms: Mapping[NodeName, R], touched: Sequence[NodeName], able: Callable[[], Iterable[NodeName]]
    ) -> tuple[Grade, NodeName] | None:
        """The best node. `touched`: names of all changed nodes in order, which only grows. `able`, called once: no
        other nodes may hold the request then.
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
            current = rooms.get(name)
            if current is not None and current.version == version:
                return found, name
            heappop(self._heap)
        return None
