"""Searches for victims that found nobody, kept from turn to turn and from cycle to cycle: only where something has
happened since that may help is anything searched again.

That is a node where room has come free, or a run that may be paused; and an owner that holds more than it did, or may
keep less, so that more can be taken of it. Whoever makes such a change says so here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from gpuctl.model.decision import Placement
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import NodeName
from gpuctl.schedule.refusals import Sizes

MOST = 5_000
"""Changes and searches remembered before all are forgotten."""


class Helped(NamedTuple):
    """What may help a search that was in vain: nodes with more on them to be had, and owners that can lose more."""

    nodes: Collection[NodeName]
    owners: Collection[tuple[DomainName, str]]


class Vain:
    """Requests of one worker that a rule could make no room for, each with how much had happened by then."""

    __slots__ = ("_asked", "_nodes", "_owners")

    def __init__(self) -> None:
        self._asked: dict[object, dict[Sizes, tuple[int, int]]] = {}
        self._nodes: list[NodeName] = []
        self._owners: list[tuple[DomainName, str]] = []

    def more_at(self, *places: Placement) -> None:
        """More is free where these are, or can be freed."""
        if self._asked:
            self._nodes.extend([worker.node for placement in places for worker in placement.workers])

    def more_on(self, nodes: Iterable[NodeName]) -> None:
        """More is free on these nodes, or can be freed."""
        if self._asked:
            self._nodes.extend(nodes)

    def more_of(self, domain: DomainName, owner: str) -> None:
        """An owner holds more of a domain, or may keep less of it."""
        if self._asked:
            self._owners.append((domain, owner))

    def since(self, key: object, sizes: Sizes) -> Helped | None:
        """What has happened since something that asked for no more of anything was in vain; None if nothing was.

        Cost: the requests kept for the key, which are few, and what is returned.
        """
        marks = [mark for asked, mark in self._asked.get(key, {}).items() if _is_no_more(asked, sizes)]
        if not marks:
            return None
        nodes, owners = max(marks)
        return Helped(frozenset(self._nodes[nodes:]), frozenset(self._owners[owners:]))

    def add(self, key: object, sizes: Sizes) -> None:
        """A request was in vain as things stand; what asks for no less is covered by it."""
        known = self._asked.setdefault(key, {})
        for asked in [asked for asked in known if _is_no_more(sizes, asked)]:
            del known[asked]
        known[sizes] = len(self._nodes), len(self._owners)

    def tidy(self) -> None:
        """Forget all once it is much."""
        if len(self._nodes) + len(self._owners) + sum(map(len, self._asked.values())) > MOST:
            self.forget()

    def forget(self) -> None:
        """Anything may find somebody again."""
        self._asked.clear()
        self._nodes.clear()
        self._owners.clear()


def _is_no_more(one: Sizes, other: Sizes) -> bool:
    """Whether one request asks for no more of anything than another."""
    return one[0] <= other[0] and one[1] <= other[1] and one[2] <= other[2] and one[3] <= other[3]
