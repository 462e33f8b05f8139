"""All that is asked for by who waits, by sorts that differ in nothing but CPU and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpuctl.schedule.jobs.line import Group
from gpuctl.schedule.places.gang import Offer, Sort, Wish, sort_of
from gpuctl.schedule.places.sized import Fits, Sized


class Wishes:
    """The wishes of all groups, by sort."""

    __slots__ = ("_groups_of", "_of_sort", "_offers")

    def __init__(self) -> None:
        self._groups_of: dict[Wish, dict[Group, None]] = {}
        self._of_sort: dict[Sort, Sized[Wish]] = {}
        self._offers: dict[Sort, Offer] = {}

    def enter(self, group: Group) -> None:
        """What one more group asks for."""
        for wish, offer in group.wishes():
            groups = self._groups_of.setdefault(wish, {})
            if not groups:
                self._offers.setdefault(sort_of(wish), offer)
                alike = self._of_sort.setdefault(sort_of(wish), Sized())
                alike.add(wish, wish[1].cpu_milli, wish[1].mem_bytes)
            groups[group] = None

    def leave(self, group: Group) -> None:
        """One group less."""
        for wish in group.shape:
            groups = self._groups_of[wish]
            del groups[group]
            if not groups:
                del self._groups_of[wish]
                alike = self._of_sort[sort_of(wish)]
                alike.remove(wish)
                if not alike:
                    del self._of_sort[sort_of(wish)], self._offers[sort_of(wish)]

    def sorts(self) -> Mapping[Sort, Offer]:
        """All sorts, each with one of its offers."""
        return self._offers

    def of_sort(self, sort: Sort) -> Iterable[Wish]:
        """The wishes of a sort."""
        return self._of_sort[sort]

    def groups_of(self, wish: Wish) -> Iterable[Group]:
        """Who asks for just this, if anybody does."""
        return self._groups_of.get(wish, ())

    def fitting(self, room: Callable[[Offer], Fits], sort: Sort) -> Iterator[Wish]:
        """The wishes of a sort that fit. `room`: which do of those like an offer."""
        return self._of_sort[sort].fitting(room(self._offers[sort]))
